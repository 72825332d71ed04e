"""Tests of the grounds, and of one that only this folder knows."""

"""Tests of the ground of the same name."""

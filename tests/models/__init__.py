"""Tests of the trainables."""

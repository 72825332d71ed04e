"""Tests of the op rules."""

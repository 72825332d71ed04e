"""Tests of how tensors are cut."""

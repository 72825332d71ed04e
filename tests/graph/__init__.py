"""Tests of reading a graph."""

"""Tests of tools/coverage."""

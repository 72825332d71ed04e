"""Tests of tools/versions.py and tools/version_pairs."""

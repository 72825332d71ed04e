"""Tests of the tools that keep the project's own files."""

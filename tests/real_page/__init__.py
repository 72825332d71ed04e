"""Tests of tools/real and its page."""

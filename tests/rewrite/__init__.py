"""Tests of the rewriter."""

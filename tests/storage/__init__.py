"""Tests of the sharded storage."""

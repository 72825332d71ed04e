"""Tests of what workers agree on and exchange, and the launching of workers for other tests."""

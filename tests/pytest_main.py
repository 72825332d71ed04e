"""Runs pytest on the arguments, for a build tool that wants a program to call."""

from __future__ import annotations

import sys

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:]))

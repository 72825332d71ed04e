"""The checkout that the tests run in, and which of its files import which."""

from __future__ import annotations

import pathlib

from tools.build_targets.sources import Checkout

ROOT = pathlib.Path(__file__).resolve().parents[2]

CHECKOUT = Checkout(ROOT)

"""Tests of what is known of a step, whichever pass looks at it."""

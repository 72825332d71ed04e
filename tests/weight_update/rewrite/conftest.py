"""Imports TensorFlow before a module of the package that needs it, so that each file runs alone.

TensorFlow's import puts the pass into it, which takes the package's modules for granted; whoever
uses public names cannot come upon one of them half imported.
"""

import tensorflow  # noqa: F401

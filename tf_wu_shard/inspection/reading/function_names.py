"""What functions are called: TensorFlow puts words around a function's name, and a number."""

from __future__ import annotations


def short_name(name: str) -> str:
    """What a function was called in Python, as far as TensorFlow's name shows it.

    Args:
        name: Such as "__inference_train_256", of a function `train`; after a slash, one that is
            nested in it.
    """
    return "/".join(map(_plain, name.split("/")))


def _plain(name: str) -> str:
    plain = name.removeprefix("__inference_").removeprefix("signature_wrapper_")
    stem, _, number = plain.rpartition("_")
    return stem if number.isdecimal() else plain

"""Data for the programs: small, made up, the same every time."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

_WORDS = """
    the a one old small red quiet river boat house dog bird tree road storm winter morning child
    farmer sailor teacher sees finds keeps loses follows builds crosses watches and but while when
    under over near behind before after slowly again never always
""".split()  # noqa: SIM905


def images(count: int, size: int, channels: int = 1) -> np.ndarray:
    """Images [count, size, size, channels], float32."""
    return _random(count).random((count, size, size, channels), dtype=np.float32)


def labels(count: int, classes: int) -> np.ndarray:
    """Classes [count], int32."""
    return _random(count + 1).integers(0, classes, count).astype(np.int32)


def rows(count: int, width: int) -> np.ndarray:
    """Features [count, width], float32."""
    return _random(count + 2).standard_normal((count, width)).astype(np.float32)


def tokens(count: int, shortest: int, longest: int, vocabulary: int) -> list[np.ndarray]:
    """Sequences of unequal lengths of numbers from 1; 0 is left for padding."""
    random = _random(count + 3)
    lengths = random.integers(shortest, longest + 1, count)
    return [random.integers(1, vocabulary, length).astype(np.int32) for length in lengths]


def dataset(sequences: list[np.ndarray]) -> tf.data.Dataset:
    """A dataset of sequences that knows how many they are.

    The step that finds the end of data of unknown length fails, and TensorFlow may or may not have
    done by then what of it needs no data: it counts the step, and lets weights decay. Two runs of
    one program need not agree then.
    """
    lengths = [len(sequence) for sequence in sequences]
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(sequences), lengths)
    # Its rows are ragged tensors of one dimension; what is mapped is a plain one.
    return tf.data.Dataset.from_tensor_slices(ragged).map(lambda sequence: sequence)


def padded(sequences: list[np.ndarray], length: int) -> np.ndarray:
    """Sequences as one array [count, length] with zeros behind each."""
    out = np.zeros((len(sequences), length), np.int32)
    for row, sequence in zip(out, sequences, strict=True):
        row[: len(sequence)] = sequence[:length]
    return out


def sentences(count: int, shortest: int = 3, longest: int = 11) -> list[str]:
    """Sentences of unequal lengths of 45 words."""
    random = _random(count + 4)
    lengths = random.integers(shortest, longest + 1, count)
    return [" ".join(random.choice(_WORDS, length)) for length in lengths]


def vocabulary() -> list[str]:
    """The words of `sentences`."""
    return sorted({*_WORDS})


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)

"""The index of a checkpoint is read as TensorFlow reads it, and told when it was changed."""

from __future__ import annotations

import random

import pytest
import tensorflow as tf

from tests.model_files.exported import exported
from tf_wu_shard.errors import ModelFileError
from tf_wu_shard.model_files.index_table import index_entries


@pytest.fixture(scope="module")
def index() -> bytes:
    return (exported() / "variables/variables.index").read_bytes()


def test_it_says_what_tensorflow_reads(index: bytes) -> None:
    prefix = str(exported() / "variables/variables")
    reader = tf.train.load_checkpoint(prefix)
    shapes, types = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    found = index_entries(index)
    assert found.keys() == shapes.keys()
    for name, entry in found.items():
        assert entry.shape == tuple(shapes[name])
        assert entry.dtype == types[name].as_datatype_enum


def test_a_table_of_many_blocks_is_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    prefix = str(tmp_path_factory.mktemp("many") / "checkpoint")
    names = {f"variable_of_a_long_name_{i}" for i in range(9000)}
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=sorted(names),
        shape_and_slices=[""] * len(names),
        tensors=[tf.zeros(3)] * len(names),
    )
    with open(f"{prefix}.index", "rb") as file:
        assert index_entries(file.read()).keys() == names


def test_every_changed_byte_is_told_or_changes_nothing(index: bytes) -> None:
    whole = index_entries(index)
    for place in range(len(index)):
        changed = bytearray(index)
        changed[place] ^= 1 + place % 255
        try:
            found = index_entries(bytes(changed))
        except ModelFileError:
            continue
        # Padding of the footer, and the block of metadata that no one reads.
        assert found == whole, place


def test_every_length_is_told(index: bytes) -> None:
    for length in range(len(index)):
        with pytest.raises(ModelFileError):
            index_entries(index[:length])


def test_noise_before_a_footer_is_told(index: bytes) -> None:
    noise = random.Random(0)
    for _ in range(2000):
        data = noise.randbytes(noise.randrange(200)) + index[-48:]
        with pytest.raises(ModelFileError):
            index_entries(data)

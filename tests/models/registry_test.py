"""Claims about models/registry.py: every trainable builds, is fed, scored and learns."""

import pathlib

import keras
import numpy as np
import pytest

from tests.selection import cases
from tf_wu_shard import models
from tf_wu_shard.errors import OptionError

# These run ops, and devices cannot be divided once TensorFlow has used one.
pytestmark = pytest.mark.usefixtures("logical_cpus")


# The paper's sizes take minutes and gigabytes; one block of each, and few tokens, do not.
_SMALL = {
    name: {"vocabulary": 97, "length": 16, "depth": 1}
    for name in ("transformer_small", "transformer_base", "transformer_big")
}
_SMALL_DATA = {name: {"vocabulary": 97, "length": 16} for name in _SMALL}


@pytest.mark.parametrize("name", cases(models.names(), set(models.names()) - {"transformer_big"}))
def test_every_model_accepts_its_data_and_learns(name: str) -> None:
    keras.utils.set_random_seed(0)
    model = models.build(name, **_SMALL.get(name, {}))
    inputs, targets = models.data(name, examples=48, **_SMALL_DATA.get(name, {}))
    model.compile(keras.optimizers.Adam(0.001 if name in _SMALL else 0.01), models.loss(name))
    losses = model.fit(inputs, targets, batch_size=16, epochs=4, verbose=0).history["loss"]
    # A model that does not learn stays within noise of its first loss; these fall by a tenth
    # or more in twelve steps.
    assert losses[-1] < 0.95 * losses[0]


@pytest.mark.parametrize("name", models.names())
def test_data_follow_the_seed(name: str) -> None:
    first, again, other = (models.data(name, examples=32, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])
    assert len(first[0]) == len(first[1]) == 32


@pytest.mark.parametrize("name", models.names())
def test_a_saved_model_reloads_and_predicts_the_same(name: str, tmp_path: pathlib.Path) -> None:
    model = models.build(name, **_SMALL.get(name, {}))
    inputs, _ = models.data(name, examples=4, **_SMALL_DATA.get(name, {}))
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(model(inputs), reloaded(inputs))


def test_the_papers_transformers_have_64_and_210_million_parameters() -> None:
    # Per block four attention kernels and two feed-forward kernels, 12 width^2; once the table.
    for name, width, depth, millions in (
        ("transformer_base", 512, 15, 64),
        ("transformer_big", 1024, 14, 210),
    ):
        # In this scope variables have a shape and no value.
        with keras.StatelessScope():
            count = models.build(name).count_params()
        matrices = depth * 12 * width**2 + 32_768 * width
        assert 0 <= count - matrices < 0.005 * matrices
        assert round(count / 1e6) == millions


def test_the_benchmark_mlp_has_25_million_parameters() -> None:
    model = models.build("mlp", width=2048, depth=6)
    assert model.count_params() == 6 * (2048 * 2048 + 2048)
    assert model.output_shape == (None, 2048)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'mpl'; choose one of mlp, odd_shapes"):
        models.build("mpl")


def test_an_unknown_size_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"no argument 'widht'; it takes depth, width"):
        models.build("mlp", widht=3)


@pytest.mark.parametrize("width", [0, -1, 2.0, "8", True])
def test_a_size_that_is_no_count_is_refused(width: object) -> None:
    with pytest.raises(OptionError, match="width must be an integer of at least 1"):
        models.build("mlp", width=width)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mlp", {"depth": 2}),
        ("conv", {"filters": 4}),
        ("sparse_embedding", {"width": 8}),
        ("transformer_lm", {"width": 256, "depth": 1}),
        ("transformer_base", {"depth": 1}),
        ("digits", {"width": 32, "filters": 4}),
    ],
)
def test_what_only_shapes_the_model_changes_no_data(name: str, sizes: dict[str, int]) -> None:
    with_sizes, without = models.data(name, 4, **sizes), models.data(name, 4)
    for one, other in zip(with_sizes, without, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_size_that_neither_model_nor_data_have_is_refused() -> None:
    with pytest.raises(OptionError, match=r"no argument 'dpeth'; it takes depth, width"):
        models.data("mlp", examples=4, dpeth=2)

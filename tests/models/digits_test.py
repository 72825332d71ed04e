"""Claims about models/digits.py: the images are there, all of them, and real."""

import sys

import numpy as np
import pytest

from tf_wu_shard.models.digits import DataUnavailableError, digits_data


def test_all_the_images_are_scaled_to_one_and_carry_ten_labels() -> None:
    images, labels = digits_data()
    assert images.shape == (1797, 8, 8, 1)
    assert images.dtype == np.float32
    assert images.min() == 0.0
    assert images.max() == 1.0
    assert sorted(set(labels.tolist())) == list(range(10))


def test_another_seed_is_another_order_of_the_same_images() -> None:
    first, second = digits_data(seed=1)[0], digits_data(seed=2)[0]
    assert not np.array_equal(first, second)
    assert sorted(map(bytes, first)) == sorted(map(bytes, second))


@pytest.mark.parametrize("examples", [0, 1798])
def test_more_images_than_there_are_is_refused(examples: int) -> None:
    with pytest.raises(DataUnavailableError, match="ask for 1 to 1797"):
        digits_data(examples)


def test_without_scikit_learn_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # None in sys.modules is how the import system spells "not there".
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(DataUnavailableError, match=r"pip install 'tf-wu-shard\[demo\]'"):
        digits_data()

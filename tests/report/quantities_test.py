"""Claims about report/quantities.py."""

import pytest

from tf_wu_shard.report.quantities import byte_text, byte_tick, second_text, shape_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_800_000, "12.8 MB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (152_000_000, "152 MB"),
        (3e15, "3000 TB"),
    ],
)
def test_bytes_have_three_digits_and_a_decimal_unit(count: float, text: str) -> None:
    assert byte_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0341, "34.1 ms"), (0.1378, "138 ms"), (0.9994, "999 ms"), (1.25, "1.25 s"), (61, "61.0 s")],
)
def test_seconds_have_three_digits(seconds: float, text: str) -> None:
    assert second_text(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 B"), (1e3, "1 kB"), (1e5, "100 kB"), (1e7, "10 MB"), (1e9, "1 GB")]
)
def test_an_axis_has_round_numbers(count: float, text: str) -> None:
    assert byte_tick(count) == text


def test_a_shape_is_written_with_multiplication_signs() -> None:
    assert shape_text((1000, 64)) == "1,000 \N{MULTIPLICATION SIGN} 64"
    assert shape_text(()) == "scalar"

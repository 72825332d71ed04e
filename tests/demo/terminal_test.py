"""Claims about demo/terminal.py: figures side by side, a bar that fills, a verdict in words."""

import io

from tests.demo.samples import comparison
from tf_wu_shard.demo.runs import Mode
from tf_wu_shard.demo.terminal import ProgressBar, summary


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _train(stream: io.StringIO) -> str:
    bar = ProgressBar(stream)
    bar("digits", Mode.SHARDED, {"steps": 4, "parameters": 18})
    for step in range(1, 5):
        bar("digits", Mode.SHARDED, {"step": step, "loss": 1 / step, "seconds": 0.1})
    return stream.getvalue()


def test_a_terminal_sees_the_bar_fill_in_one_line() -> None:
    text = _train(_Terminal())
    assert text.count("\n") == 1
    assert [line.count("#") for line in text.split("\r")[1:]] == [0, 7, 14, 21, 28]
    assert "tracing" in text


def test_a_file_sees_the_full_bar_only() -> None:
    text = _train(io.StringIO())
    assert "\r" not in text
    assert text.count("\n") == 1
    assert "4/4" in text
    assert "loss 0.2500" in text


def test_the_summary_shows_losses_side_by_side_from_first_to_last() -> None:
    lines = summary(comparison()).splitlines()
    assert "     1     2.000000     2.000000      0.0e+00" in lines
    assert any(line.startswith("     3     0.500000     0.500000      1.0e-07") for line in lines)


def test_the_summary_shows_the_verdict_memory_and_time() -> None:
    text = summary(comparison())
    assert "sharded 1 of 2 variables over 8 replicas" in text
    assert "slots per replica     12.8 MB -> 1.60 MB" in text
    assert "peak process memory   2.00 GB -> 1.00 GB" in text
    assert "median step           100 ms -> 50.0 ms   (x 0.50)" in text


def test_the_summary_says_what_was_allowed_and_why() -> None:
    text = summary(comparison())
    assert "4 times what the unsharded run itself moves" in text
    assert "weights  differ by 1.0e-07   moved by 1.0e-06   allowed 4.0e-06   agree" in text


def test_the_summary_names_the_tensor_that_disagrees() -> None:
    assert "DISAGREE in dense/kernel" in summary(comparison(difference=1.0))

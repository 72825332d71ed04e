"""The report as Markdown: the same words as the text, in tables, and nothing taken for markup."""

from __future__ import annotations

import dataclasses

from tests.report.report_test import NOTHING, ON_TPUS, PARTLY
from tf_wu_shard.report.markdown import as_markdown, escaped
from tf_wu_shard.report.share import LeftAloneVariable

GOLDEN = """\
**one\\_step\\_on\\_data: sharded 23 % of 400 elements and 97 % of 1.20 GB of slots: 2 of 4\
 variables over 4 replicas   slots 1.20 GB -\\> 152 MB a\
 replica   wire 410 MB a step (unchanged)**

- held back: table, 73 % of the elements: no rule for Sum (at Sum\\_1); lifted by an\
 update without Sum
- it reduces a tensor of no static shape (reduce\\_7)

| sharded | cut | slots | bucket |
| --- | --- | --- | --- |
| dense/kernel | flat 30/4 pad 34 | m, v | 0 |
| out | flat 64/4 | none | 1 |

| left alone | reason | at |
| --- | --- | --- |
| bn/gamma | 12 elements, below min\\_elements=1024 |  |
| table | no rule for Sum | Sum\\_1 |

emitted 2 all\\_gather, 2 reduce\\_scatter; pass 12 ms of 99 ms"""


def test_a_report_is_two_tables() -> None:
    assert as_markdown(PARTLY) == GOLDEN


def test_a_tpu_step_says_where_its_replicas_sit_and_how_weights_travel() -> None:
    text = as_markdown(ON_TPUS)
    assert "- replicas: a 2x2 torus" in text
    assert "| sharded | cut | slots | bucket | gathered in |" in text


def test_nothing_sharded_comes_with_its_reasons() -> None:
    text = as_markdown(NOTHING)
    assert "nothing sharded: table: no rule for Sum (and 2 more)" in text
    assert "| sharded |" not in text


def test_names_are_no_markup() -> None:
    assert escaped("a|b<i>_c_\n") == "a\\|b\\<i\\>\\_c\\_ "
    left = (LeftAloneVariable("x | y", "<script>", ""),)
    text = as_markdown(dataclasses.replace(PARTLY, left_alone=left))
    assert "| x \\| y | \\<script\\> |" in text

"""Claims about demo/cluster_figures.py: what workers have besides is shown, and only theirs."""

import dataclasses

from tests.demo.samples import NOT_COMPILED, comparison, comparison_on_workers
from tf_wu_shard.demo.page import page
from tf_wu_shard.demo.terminal import summary


def test_the_summary_counts_workers_and_shows_bytes_votes_and_hashes() -> None:
    text = summary(comparison_on_workers())
    assert text.startswith("Language model, workers: 18 parameters, 2 workers, 3 steps")
    assert "slots per worker      12.8 MB -> 1.60 MB" in text
    assert "loopback a step       42.0 MB -> 21.0 MB" in text
    assert "votes on the step     12.5 ms, once all workers were there" in text
    assert "  unsharded           abababababababab   equal on all 2 workers" in text
    assert "  sharded             1212121212121212   equal on all 2 workers" in text
    assert "(its workers change places)" in text


def test_the_summary_shows_hashes_that_differ() -> None:
    text = summary(comparison_on_workers(last_digest="34" * 32))
    shown = "1212121212121212, 3434343434343434   NOT equal on all 2 workers"
    assert f"  sharded             {shown}" in text


def test_the_page_has_a_row_of_hashes_for_each_worker() -> None:
    section, _ = page([comparison_on_workers()], NOT_COMPILED).sections
    assert "2 workers, 3 steps under MultiWorkerMirroredStrategy" in section.text
    labels = [tile.label for tile in section.tiles]
    assert {"slots of a worker", "loopback, a step", "votes on the step"} <= {*labels}
    [hashes] = [one for one in section.tables if one.title == "Weights of each worker"]
    assert hashes.columns == ("", "unsharded", "reordered", "sharded")
    whole, own = "ab" * 8, "12" * 8
    assert hashes.rows == (
        ("worker 0", whole, whole, own),
        ("worker 1", whole, whole, own),
    )


def test_bytes_that_the_system_does_not_count_are_not_made_up() -> None:
    compared = comparison_on_workers()
    assert compared.sharded.cluster is not None
    uncounted = dataclasses.replace(compared.sharded.cluster, loopback_bytes=None, votes_s=None)
    compared = dataclasses.replace(
        compared, sharded=dataclasses.replace(compared.sharded, cluster=uncounted)
    )
    text = summary(compared)
    assert "loopback a step       42.0 MB -> not counted" in text
    assert "votes on the step" not in text


def test_replicas_of_one_process_have_none_of_it() -> None:
    assert "loopback" not in summary(comparison())
    section, _ = page([comparison()], NOT_COMPILED).sections
    assert "slots of a replica" in [tile.label for tile in section.tiles]
    assert "Weights of each worker" not in [table.title for table in section.tables]

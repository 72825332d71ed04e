"""The ledger knows which living function captured a handle."""

from __future__ import annotations

import gc

from tf_wu_shard import captures


class Graph:
    """Stands for a FuncGraph."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.itself: Graph | None = None


def test_a_capture_is_found_by_any_of_its_handles() -> None:
    graph, handles = Graph("evaluate"), [object(), object()]
    captures.record(graph, handles)
    asked = {"all": handles, "one": handles[1:], "other": [object()]}
    assert captures.captured_by(asked) == {"all": "evaluate", "one": "evaluate"}


def test_functions_may_be_left_out() -> None:
    branch, other, handle = Graph("branch"), Graph("other"), object()
    captures.record(branch, [handle])
    assert captures.captured_by({0: [handle]}, lambda graph: graph is branch) == {}
    captures.record(other, [handle])
    assert captures.captured_by({0: [handle]}, lambda graph: graph is branch) == {0: "other"}


def test_a_function_that_is_gone_does_not_count() -> None:
    graph, handle = Graph("evaluate"), object()
    captures.record(graph, [handle])
    del graph
    assert captures.captured_by({0: [handle]}) == {}


def test_a_dropped_function_that_only_a_cycle_keeps_does_not_count() -> None:
    graph, handle = Graph("evaluate"), object()
    graph.itself = graph
    captures.record(graph, [handle])
    gc.disable()
    try:
        del graph
        assert captures.captured_by({0: [handle]}) == {}
    finally:
        gc.enable()


def test_a_function_with_no_captures_is_not_kept_in_the_ledger() -> None:
    graph = Graph("pure")
    before = len(captures._captured)
    captures.record(graph, [])
    assert len(captures._captured) == before


def test_every_key_of_a_function_is_found_at_once() -> None:
    graph, handles = Graph("step"), [object() for _ in range(9)]
    captures.record(graph, handles)
    asked = {id(handle): [handle] for handle in handles}
    assert captures.captured_by(asked) == dict.fromkeys(asked, "step")
    assert captures.captured_by({0: [object()]}) == {}


def test_whose_components_functions_accessed_is_told_of_all_that_are_asked_about() -> None:
    one, other, unknown = Graph("one"), Graph("other"), Graph("unknown")
    captures.note_components(one, {7: frozenset({0})})
    captures.note_components(other, {7: frozenset({2}), 8: frozenset({1})})
    assert captures.components_of([one, unknown], 7) == {0}
    assert captures.components_of([one, other], 7) == {0, 2}
    assert captures.components_of([one], 8) == frozenset()

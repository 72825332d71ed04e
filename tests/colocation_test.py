"""Wishes to be placed with other ops follow the ops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tf_wu_shard.colocation import rename_wishes, wishes


def node(*texts: bytes) -> Any:
    made = tf.compat.v1.NodeDef(name="node", op="Identity")
    if texts:
        made.attr["_class"].list.s.extend(texts)
    return made


def test_wishes_are_renamed_with_the_ops_and_go_with_those_that_are_gone() -> None:
    copy = node(b"loc:@a/b", b"loc:@gone", b"a class of its own")
    rename_wishes(copy, {"a/b": "copy/a/b"}.get)
    assert list(copy.attr["_class"].list.s) == [b"loc:@copy/a/b", b"a class of its own"]
    assert wishes(copy) == ("copy/a/b",)


def test_no_wish_is_no_attribute() -> None:
    for one in (node(b"loc:@gone"), node()):
        rename_wishes(one, lambda name: None)
        assert wishes(one) == ()
        assert not one.attr


def test_bytes_that_are_no_name_name_no_op() -> None:
    odd = node(b"loc:@\xff")
    rename_wishes(odd, {"\ufffd": "a"}.get)
    assert not odd.attr

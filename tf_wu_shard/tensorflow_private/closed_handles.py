"""What eager code gets in place of the handle of a resource whose value has moved elsewhere.

Answers: how a handle keeps its attributes and its place on a gradient tape while no op that runs
at once accepts it. It says nothing of where the value is now.
"""

from __future__ import annotations

from typing import Any

from tensorflow.python.types import internal

from tf_wu_shard.errors import StorageError


class ClosedHandle(internal.NativeObject):
    """Stands for a resource handle that has attributes but can be the input of no op.

    A gradient tape knows it by the id of the original, which is the one that functions capture.

    Attributes:
        original: The eager resource tensor; its resource holds no value any more.
    """

    def __init__(self, original: Any, name: str) -> None:
        self.original = original
        self._variable_name = name

    def __getattr__(self, name: str) -> Any:
        # Copying and pickling look for special methods on an object that has no attributes yet.
        if name == "original" or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.original, name)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> Any:
        raise StorageError(
            f"the handle of variable {self._variable_name!r} was used as the input of an op that"
            " runs eagerly, but the variable's value lives in shards; use the variable's own"
            " methods (read_value, assign, ...), or run the op inside a tf.function"
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.__tf_tensor__()

    def __repr__(self) -> str:
        return f"<closed handle of sharded variable {self._variable_name!r}>"

"""Which line of a program made an op, where a model was saved with debug info."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

from tf_wu_shard.model_files.contents import parse, read_bytes
from tf_wu_shard.tensorflow_private import model_protos

FILE = pathlib.PurePath("debug") / "saved_model_debug_info.pb"

# Where installed packages lie: the line that is looked for is the one that called them.
_INSTALLED = ("site-packages", "dist-packages")

# This one too, where it is used from a checkout: it stands in the way of every traced function.
_PACKAGE = pathlib.Path(__file__).parent.parent.as_posix()


def own_line(frames: Sequence[tuple[str, int, str]]) -> str:
    """The innermost line of the user's own program in a stack trace.

    Args:
        frames: File, line and function, outermost first.

    Returns:
        Such as "train.py:50 in step"; where all lines are those of installed packages, the
        innermost of these; "" of no frames.
    """
    own = [frame for frame in frames if not _is_installed(frame[0])]
    if not frames:
        return ""
    file, line, function_name = (own or frames)[-1]
    place = f"{pathlib.PurePosixPath(file).name}:{line}"
    return f"{place} in {function_name}" if function_name else place


class SourceLines:
    """The stack traces of a model's ops."""

    def __init__(self, debug_info: Any) -> None:
        """Takes them.

        Args:
            debug_info: The GraphDebugInfo; never changed.
        """
        self._info = debug_info

    def line(self, node: str, function: str = "") -> str:
        """The innermost line of the user's own program that led to an op.

        Args:
            node: The op's name.
            function: Name of the function that it is in; "" for the model's own graph.

        Returns:
            Such as "train.py:50 in step"; where all lines are those of installed packages, the
            innermost of these; "" where the files do not say.
        """
        frames = list(self._frames(f"{node}@{function}"))
        if not frames and not function:
            frames = list(self._frames(node))
        return own_line(frames)

    def _frames(self, key: str) -> Iterator[tuple[str, int, str]]:
        """Outermost first: file, line and function of a trace, in either of the forms it has."""
        info = self._info
        # A look-up by [] would add what is not there to the message.
        by_name = key in info.name_to_trace_id
        traces = info.traces_by_id if by_name else info.traces
        trace = traces.get(info.name_to_trace_id[key] if by_name else key)
        if trace is None:
            return
        by_id = (info.frames_by_id[i] for i in trace.frame_id if i in info.frames_by_id)
        for frame in (*by_id, *trace.file_line_cols):
            if 0 <= frame.file_index < len(info.files):
                yield info.files[frame.file_index], frame.line, frame.func


def _is_installed(file: str) -> bool:
    path = pathlib.PurePosixPath(file)
    return path.is_relative_to(_PACKAGE) or any(part in _INSTALLED for part in path.parts)


def source_lines(folder: pathlib.Path) -> SourceLines | None:
    """The stack traces that lie beside a SavedModel, or None where there are none.

    Args:
        folder: The SavedModel's.

    Raises:
        ModelFileError: There are, and they cannot be read.
    """
    path = folder / FILE
    if not path.exists():
        return None
    return SourceLines(parse(model_protos.debug_info(), read_bytes(path), repr(str(path))))

"""Says what of a saved model would be sharded, and why not the rest; `wu-shard inspect` by flags.

    python tools/inspect_saved_model.py --dir /models/translator --replicas 16 --format json

A model is read and never executed; a script is, up to its first train step. It runs from a
checkout, installed or not. The exit status is that of the command: 0 answered, 1 unreadable or only
partly read, 2 wrong usage.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

from absl import flags

# Run as a file, Python looks beside it for packages, not in the checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tf_wu_shard.cli.main import main as wu_shard

FORMATS = ("text", "json", "html", "markdown")


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_string(
        "dir",
        None,
        "The directory of a SavedModel; or a GraphDef, FunctionDefLibrary or MetaGraphDef (.pb,"
        " .pbtxt), or the .meta file of a checkpoint.",
        values,
    )
    flags.DEFINE_string(
        "script",
        None,
        "Instead of --dir: run this script, with the arguments after --, up to its first train"
        " step, which does not run, and look at that step.",
        values,
    )
    flags.DEFINE_string(
        "optimizer",
        None,
        "Say what it would be if this Keras optimizer trained the model's trainable variables.",
        values,
    )
    flags.DEFINE_integer(
        "replicas",
        None,
        "Plan for so many replicas; without it, for those that a step was traced for, or 8.",
        flag_values=values,
    )
    flags.DEFINE_string("topology", None, "Plan for a TPU slice, such as v5e:4x4.", values)
    flags.DEFINE_string("function", None, "Look at this function only.", values)
    flags.DEFINE_enum("format", "text", FORMATS, "How to answer.", values)
    flags.DEFINE_bool("diff", False, "Show each step's graph before and after.", values)
    flags.DEFINE_string("output", None, "Write the answer to this file.", values)
    flags.DEFINE_bool("help", False, "Show this help.", values, short_name="h")
    return values


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags and looks at the model.

    Args:
        argv: The arguments after the program's name; those of the process when None.

    Returns:
        The exit status, see above.
    """
    given = _flags()
    try:
        rest = given(["inspect_saved_model", *(sys.argv[1:] if argv is None else argv)])[1:]
    except flags.Error as error:
        return _wrong(str(error))
    if given["help"].value:
        print(f"{__doc__}\n{given.main_module_help()}")
        return 0
    model, script = given["dir"].value, given["script"].value
    if rest and not script:
        return _wrong(f"unexpected argument {rest[0]!r}; the model is given by --dir")
    if model and script:
        return _wrong("--dir or --script, not both")
    if not model and not script:
        return _wrong("--dir is missing: which model?")
    chosen = [
        f"--{name}={given[name].value}"
        for name in ("script", "optimizer", "replicas", "topology", "function", "format", "output")
        if given[name].value is not None
    ]
    chosen += ["--diff"] if given["diff"].value else []
    return wu_shard(["inspect", *chosen, "--", *([model] if model else rest)])


def _wrong(what: str) -> int:
    line = " ".join(what.split())
    print(f"inspect_saved_model: error: {line} (see --help)", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

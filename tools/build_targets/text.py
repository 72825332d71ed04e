"""Targets as the text of a BUILD file, formatted as buildifier formats it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tools.build_targets.sources import Checkout
from tools.build_targets.targets import MODELS, TEST_MAIN, Target, targets_of

COMMAND = "python -m tools.build_file"

_HEAD = f'''"""One library a folder, one test a folder of tests, deps as the imports are.

Written by `{COMMAND}`: to change it, change the imports or the tool.
"""

load("@rules_python//python:py_binary.bzl", "py_binary")
load("@rules_python//python:py_library.bzl", "py_library")
load("@rules_python//python:py_test.bzl", "py_test")

package(default_visibility = ["//visibility:public"])

exports_files(["constraints.txt"])
'''

# A target's sources under the path by which they are imported.
_MODELS_INSIDE = """
# models/ is imported as tf_wu_shard.models, so that is where its files go.
genrule(
    name = "models_inside",
    srcs = glob(["models/*.py"]),
    outs = ["tf_wu_shard/" + file for file in glob(["models/*.py"])],
    cmd = "for file in $(SRCS); do cp $$file $(RULEDIR)/tf_wu_shard/$$file; done",
)
"""


def build_text(checkout: Checkout) -> str:
    """The text of a checkout's BUILD file.

    Raises:
        SourceError: If it cannot be made, see `targets_of`.
    """
    return _HEAD + "".join(_text(target) for target in targets_of(checkout))


def _text(target: Target) -> str:
    fields = [("name", _items([target.name]))]
    if target.testonly:
        fields.append(("testonly", "True"))
    fields.append(("srcs", _sources(target)))
    if target.rule == "py_test":
        fields.append(("args", _list([target.folder])))
    data = "" if target.folder != "docs" else _glob("docs/**", ["docs/*.py"])
    if data or target.data:
        fields.append(("data", data or _list(target.data)))
    if target.rule != "py_library":
        main = TEST_MAIN if target.rule == "py_test" else target.sources[0]
        fields.append(("main", _items([main])))
    if target.deps:
        fields.append(("deps", _list(target.deps)))
    lines = "".join(f"    {key} = {value},\n" for key, value in fields)
    before = _MODELS_INSIDE if target.name == MODELS else ""
    return f"{before}\n{target.rule}(\n{lines})\n"


def _sources(target: Target) -> str:
    if target.name == MODELS:
        return '[":models_inside"]'
    if not target.pattern:
        return _list(target.sources)
    main = f" + {_list([TEST_MAIN])}" if target.rule == "py_test" else ""
    return _glob(target.pattern, target.left_out) + main


def _glob(pattern: str, left_out: Sequence[str]) -> str:
    if not left_out:
        return f'glob(["{pattern}"])'
    return f'glob(\n        ["{pattern}"],\n        exclude = [{_items(left_out)}],\n    )'


def _list(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return f"[{_items(labels)}]"
    return "[\n" + "".join(f'        "{label}",\n' for label in labels) + "    ]"


def _items(labels: Iterable[str]) -> str:
    return ", ".join(f'"{label}"' for label in labels)

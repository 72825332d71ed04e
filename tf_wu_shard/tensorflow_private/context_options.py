"""More keys among the optimizer options of TensorFlow's context.

TensorFlow's context keeps any key it is given, but its getter shows only the ones it knows and
nothing checks the others. Answers: what is a key's value now; and, once installed, makes the
context's own setter check the key and the getter show it. Both are methods of the context class,
which every public way to these options ends in. It does not promise to see a value written
straight into the context's private dictionary before that value is read.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensorflow.python.eager import context as tf_context

from tf_wu_shard.errors import OptionError

# The keys that TensorFlow's own setter acts on.
TENSORFLOW_KEYS = (
    "arithmetic_optimization",
    "auto_mixed_precision",
    "auto_mixed_precision_mkl",
    "auto_mixed_precision_onednn_bfloat16",
    "constant_folding",
    "debug_stripper",
    "dependency_optimization",
    "disable_meta_optimizer",
    "disable_model_pruning",
    "function_optimization",
    "implementation_selector",
    "layout_optimizer",
    "loop_optimization",
    "min_graph_nodes",
    "pin_to_host_optimization",
    "remapping",
    "scoped_allocator_optimization",
    "shape_optimization",
    "use_plugin_optimizers",
)

# Two names this alike are taken for one misspelt: a dropped or swapped letter, another ending, a
# word left out ("weight_update", 0.75), or the words in another order. A false alarm costs the
# user one renamed key, a missed one a run that is silently not sharded. Unlike enough:
# "weight_decay_update" (0.70), "weight_quantization" (0.58).
_ALIKE = 0.75

_ORIGINAL = "_wu_shard_original"

Check = Callable[[object], object]

# What was installed: the check of each key.
_checks: dict[str, Check] = {}


def option(key: str) -> object:
    """Reads one optimizer option from the live context.

    Args:
        key: The option's name.

    Returns:
        The value as it was set, or None when it was not.
    """
    return tf_context.context()._optimizer_experimental_options.get(key)


def install(key: str, check: Check) -> None:
    """Makes the context check `key` when it is set and show it when its options are read.

    A second call for a key replaces its check. The options that the context already holds are
    checked first, and if they are wrong nothing is installed.

    Args:
        key: The new option's name.
        check: Called with each value that is to be set; raises `OptionError` on a wrong one.

    Raises:
        OptionError: The key is one of TensorFlow's, or the context already holds a wrong value or
            a misspelt key.
    """
    if key in TENSORFLOW_KEYS:
        raise OptionError(f"the optimizer option {key!r} is TensorFlow's own; use another name")
    checks = {**_checks, key: check}
    _check_options(tf_context.context()._optimizer_experimental_options, checks)
    _checks[key] = check
    context_class = tf_context.Context
    context_class.set_optimizer_experimental_options = _checking_setter(
        _unwrapped(context_class.set_optimizer_experimental_options)
    )
    context_class.get_optimizer_experimental_options = _showing_getter(
        _unwrapped(context_class.get_optimizer_experimental_options)
    )


def _unwrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    return getattr(method, _ORIGINAL, method)


def _checking_setter(
    original: Callable[..., Any],
) -> Callable[[Any, Mapping[object, object]], Any]:
    @functools.wraps(original)
    def set_optimizer_experimental_options(
        self: Any, options: Mapping[object, object] | Iterable[tuple[object, object]]
    ) -> Any:
        # A copy, as pairs from an iterator are accepted too and can be read only once.
        wanted = dict(options)
        _check_options(wanted, _checks)
        return original(self, wanted)

    setattr(set_optimizer_experimental_options, _ORIGINAL, original)
    return set_optimizer_experimental_options


def _showing_getter(original: Callable[..., Any]) -> Callable[[Any], dict[str, object]]:
    @functools.wraps(original)
    def get_optimizer_experimental_options(self: Any) -> dict[str, object]:
        options: dict[str, object] = original(self)
        for key in _checks:
            value = self._optimizer_experimental_options.get(key)
            if value is not None:
                options[key] = value
        return options

    setattr(get_optimizer_experimental_options, _ORIGINAL, original)
    return get_optimizer_experimental_options


def _check_options(options: Mapping[object, object], checks: Mapping[str, Check]) -> None:
    for name, value in options.items():
        if not isinstance(name, str) or name in TENSORFLOW_KEYS:
            continue
        if name in checks:
            checks[name](value)
            continue
        meant = next((key for key in checks if _is_misspelt(name, key)), None)
        if meant is not None:
            valid = ", ".join(sorted((*TENSORFLOW_KEYS, *checks)))
            raise OptionError(
                f"unknown optimizer option {name!r}; did you mean {meant!r}? Valid options: {valid}"
            )


def _is_misspelt(name: str, key: str) -> bool:
    # The words are compared in order and sorted, so that "sharding_weight_update" counts too.
    words, wanted = _words(name), _words(key)
    return any(
        difflib.SequenceMatcher(None, "".join(left), "".join(right)).ratio() >= _ALIKE
        for left, right in ((words, wanted), (sorted(words), sorted(wanted)))
    )


def _words(name: str) -> list[str]:
    # "WeightUpdate-sharding" -> ["weight", "update", "sharding"]
    return re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())

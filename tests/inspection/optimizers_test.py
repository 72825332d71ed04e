"""Optimizers are recognised by what their ops compute, and what only looks like one is not."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from tests.equivalence import norm_optimizers
from tests.inspection.inspect_test import training
from tests.model_files.exported import Step, save, save_step
from tf_wu_shard.inspection.grounds import Question
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.model_files.read import read_model

SIZE = 2048

OPTIMIZERS: list[tuple[str, dict[str, Any], set[str], int]] = [
    ("SGD", {}, {"sgd-like"}, 0),
    ("SGD", {"weight_decay": 0.1, "clipnorm": 1.0}, {"sgd-like"}, 0),
    ("SGD", {"momentum": 0.9}, {"momentum-like"}, 1),
    ("SGD", {"momentum": 0.9, "nesterov": True}, {"nesterov-like"}, 1),
    ("Adam", {}, {"adam-like"}, 2),
    ("Adam", {"amsgrad": True, "clipvalue": 1.0}, {"amsgrad-like"}, 3),
    ("AdamW", {"global_clipnorm": 1.0, "use_ema": True}, {"adamw-like"}, 3),
    ("RMSprop", {}, {"rmsprop-like"}, 1),
    ("RMSprop", {"momentum": 0.9}, {"rmsprop-like"}, 2),
    ("RMSprop", {"centered": True}, {"centered-rmsprop-like"}, 2),
    ("RMSprop", {"centered": True, "momentum": 0.9}, {"centered-rmsprop-like"}, 3),
    ("Adagrad", {}, {"adagrad-like"}, 1),
    ("Adadelta", {}, {"adadelta-like"}, 2),
    ("Adamax", {}, {"adamax-like"}, 2),
    ("Nadam", {}, {"nadam-like"}, 2),
    ("Ftrl", {}, {"ftrl-like"}, 2),
    (
        "Ftrl",
        {"l1_regularization_strength": 0.1, "l2_shrinkage_regularization_strength": 0.1},
        {"ftrl-like"},
        2,
    ),
    ("Lion", {}, {"lion-like"}, 1),
    ("Lamb", {}, {"lamb-like"}, 2),
    ("Lamb", {"weight_decay": 0.1}, {"lamb-like"}, 2),
    ("Adafactor", {}, {"adafactor-like"}, 1),
    ("Muon", {}, {"muon-like", "adamw-like"}, 0),
    ("ScheduleFreeAdamW", {}, {"schedule-free-adamw-like"}, 2),
]


@pytest.mark.parametrize(("optimizer", "options", "names", "slots"), OPTIMIZERS)
def test_every_optimizer_of_keras_is_what_its_ops_prove(
    tmp_path: pathlib.Path, optimizer: str, options: dict[str, Any], names: set[str], slots: int
) -> None:
    step = Step(getattr(tf.keras.optimizers, optimizer)(**options))
    found = training(inspect(read_model(save_step(step, tmp_path)), Question()))
    assert len(found.updates) == found.assumed == 4
    assert {u.optimizer for u in found.updates} == names
    if optimizer != "Muon":  # which has two kinds of updates
        assert {len(u.slots) for u in found.updates} == {slots}
    decays = {"the weight decays" in u.because for u in found.updates}
    assert decays == {"weight_decay" in options or optimizer in ("AdamW", "Muon")}


@pytest.mark.parametrize(
    ("optimizer", "name"),
    [
        (lambda: norm_optimizers.AdamWeightDecay(0.01, excluded=()), "adamw-like"),
        (lambda: norm_optimizers.Lamb(0.01), "lamb-like"),
        (lambda: norm_optimizers.Lars(0.01), "lars-like"),
    ],
    ids=("AdamWeightDecay", "LAMB", "LARS"),
)
def test_the_model_gardens_optimizers_are_recognised(
    tmp_path: pathlib.Path, optimizer: Callable[[], Any], name: str
) -> None:
    found = training(inspect(read_model(save_step(Step(optimizer()), tmp_path)), Question()))
    assert {u.optimizer for u in found.updates} == {name}


Rule = Callable[[tf.Variable, tf.Variable, tf.Variable, Any], None]


class ByHand(tf.Module):
    """A weight and two slots, which a rule updates from a gradient."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros((SIZE,)), name="weight")
        self.one = tf.Variable(tf.zeros((SIZE,)), name="one", trainable=False)
        self.two = tf.Variable(tf.zeros((SIZE,)), name="two", trainable=False)
        self._rule = rule

    @tf.function(input_signature=[tf.TensorSpec((4, SIZE))])
    def train(self, batch: Any) -> None:
        """One step."""
        gradient = tf.linalg.matvec(batch, tf.linalg.matvec(batch, self.weight), transpose_a=True)
        self._rule(self.weight, self.one, self.two, gradient)


def recognised(rule: Rule, folder: pathlib.Path) -> tuple[str, str]:
    """What an update by hand is taken for, and why."""
    save(ByHand(rule), folder, {})
    (found,) = inspect(read_model(folder), Question(replicas=2, function="train")).functions
    (update,) = found.updates
    return update.optimizer, update.because


def adam(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * m / (tf.sqrt(v) + 1e-6))


def adam_otherwise(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """The same, written in other words."""
    new_v = v + (tf.square(g) - v) * 0.01
    new_m = 0.1 * g - (-0.9) * m
    w.assign(w - 0.1 * (new_m * tf.math.rsqrt(new_v + 1e-12)))
    m.assign(new_m)
    v.assign(new_v)


def adam_of_regularized(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Adam whose gradient has the weight's share in it."""
    g = g + 0.01 * w
    adam(w, m, v, g)


def adamw(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    w.assign(w * 0.999)
    adam(w, m, v, g)


def lion(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    w.assign_sub(0.1 * tf.sign(0.9 * m + 0.1 * g))
    m.assign(0.99 * m + 0.01 * g)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        (adam, "adam-like"),
        (adam_otherwise, "adam-like"),
        (adam_of_regularized, "adam-like"),
        (adamw, "adamw-like"),
        (lion, "lion-like"),
    ],
)
def test_an_optimizer_by_hand_is_recognised(tmp_path: pathlib.Path, rule: Rule, name: str) -> None:
    assert recognised(rule, tmp_path)[0] == name


def adam_and_a_step(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Adam, and a step along the gradient besides."""
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * m / (tf.sqrt(v) + 1e-6) + 0.01 * g)


def adam_and_a_number(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * m / (tf.sqrt(v) + 1e-6) + 0.01)


def adam_without_a_root(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * m / (v + 1e-6))


def adam_of_old_squares(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Divides by what the average of squares was before this step."""
    root = tf.sqrt(v.read_value()) + 1e-6
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * m / root)


def adam_of_surprise(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """AdaBelief: the square is of how far the gradient is from its average."""
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * tf.square(g - m))
    w.assign_sub(0.1 * m / (tf.sqrt(v) + 1e-6))


def rmsprop_of_the_gradient(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    v.assign(0.99 * v + 0.01 * g)
    w.assign_sub(0.1 * g / (tf.sqrt(v) + 1e-6))


def rmsprop_of_a_sum(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Centered RMSprop with a plus for its minus."""
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * g / tf.sqrt(v + tf.square(m) + 1e-6))


def sign_of_momentum(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Signum: no interpolation between the average and the gradient."""
    m.assign(0.9 * m + 0.1 * g)
    w.assign_sub(0.1 * tf.sign(m))


def sign_of_a_difference(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    w.assign_sub(0.1 * tf.sign(0.9 * m - 0.1 * g))
    m.assign(0.99 * m + 0.01 * g)


def sign_of_the_gradient(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    w.assign_sub(0.1 * tf.sign(g))


def quasi_hyperbolic(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Ma and Yarats (2019): gradient and average in shares that are not Nesterov's."""
    m.assign(0.9 * m + 0.1 * g)
    w.assign_sub(0.1 * (0.7 * m + 0.3 * g))


def two_momentums(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g)
    w.assign_sub(0.1 * m + 0.1 * v)


def lamb_of_the_gradient(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Scales Adam's step by the gradient's norm in place of its own."""
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    step = m / (tf.sqrt(v) + 1e-6)
    one, other = tf.norm(w, ord=2), tf.norm(m, ord=2)
    ratio = tf.where(one > 0, tf.where(other > 0, one / other, 1.0), 1.0)
    w.assign_sub(0.1 * ratio * step)


@pytest.mark.parametrize(
    "rule",
    [
        adam_and_a_step,
        adam_and_a_number,
        adam_without_a_root,
        adam_of_old_squares,
        adam_of_surprise,
        rmsprop_of_the_gradient,
        rmsprop_of_a_sum,
        sign_of_momentum,
        sign_of_a_difference,
        sign_of_the_gradient,
        quasi_hyperbolic,
        two_momentums,
        lamb_of_the_gradient,
    ],
)
def test_what_looks_like_an_optimizer_is_unknown(tmp_path: pathlib.Path, rule: Rule) -> None:
    name, because = recognised(rule, tmp_path)
    assert name == "unknown" and because


def fused_momentum(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    tf.raw_ops.ResourceApplyMomentum(
        var=w.handle, accum=m.handle, lr=0.1, grad=g, momentum=0.9, use_nesterov=True
    )


def fused_adam_and_decay(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    w.assign_sub(0.01 * w)
    tf.raw_ops.ResourceApplyAdam(
        **dict(var=w.handle, m=m.handle, v=v.handle, grad=g, lr=0.1, epsilon=1e-6),
        **dict(beta1_power=0.9, beta2_power=0.99, beta1=0.9, beta2=0.99),
    )


def fused_sgd_of_a_sign(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    m.assign(0.9 * m + g)
    tf.raw_ops.ResourceApplyGradientDescent(var=w.handle, alpha=0.1, delta=m.read_value())


@pytest.mark.parametrize(
    ("rule", "name", "because"),
    [
        (fused_momentum, "Momentum", "its op is ResourceApplyMomentum, with use_nesterov"),
        (fused_adam_and_decay, "AdamW", "its op is ResourceApplyAdam; the weight decays"),
        (
            fused_sgd_of_a_sign,
            "unknown",
            "what enters its ResourceApplyGradientDescent is not the gradient alone",
        ),
    ],
)
def test_a_fused_op_is_what_it_is_called(
    tmp_path: pathlib.Path, rule: Rule, name: str, because: str
) -> None:
    assert recognised(rule, tmp_path) == (name, because)

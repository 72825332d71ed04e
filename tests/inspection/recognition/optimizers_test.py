"""Optimizers are recognised by what their ops compute, and what only looks like one is not."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
import tf_keras

from tests.equivalence import norm_optimizers
from tests.inspection.inspect_test import training
from tests.model_files.exported import Step, save, save_step
from tf_wu_shard.inspection.inspect import inspect
from tf_wu_shard.inspection.steps.grounds import Question
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

    def __init__(self, rule: Rule, shape: tuple[int, ...] = (SIZE,)) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros(shape), name="weight")
        self.one = tf.Variable(tf.zeros((SIZE,)), name="one", trainable=False)
        self.two = tf.Variable(tf.zeros((SIZE,)), name="two", trainable=False)
        self._rule = rule

    @tf.function(input_signature=[tf.TensorSpec((4, SIZE))])
    def train(self, batch: Any) -> None:
        """One step."""
        values = tf.reshape(self.weight, (SIZE,))
        gradient = tf.linalg.matvec(batch, tf.linalg.matvec(batch, values), transpose_a=True)
        gradient = tf.reshape(gradient, self.weight.shape)
        self._rule(self.weight, self.one, self.two, gradient)


def recognised(rule: Rule, folder: pathlib.Path) -> tuple[str, str]:
    """What an update by hand is taken for, and why."""
    return recognised_of(ByHand(rule), folder)


def recognised_of(module: ByHand, folder: pathlib.Path) -> tuple[str, str]:
    """What a module's update is taken for, and why."""
    save(module, folder, {})
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


def nadam_of_a_fixed_momentum(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Dozat (2016) with no schedule: the average one step ahead."""
    m.assign(m + (g - m) * 0.1)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * (0.9 * m + 0.1 * g) / (tf.sqrt(v) + 1e-6))


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
        (nadam_of_a_fixed_momentum, "nadam-like"),
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


def quasi_hyperbolic_adam(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
    """Ma and Yarats (2019) again: the share of the gradient is fixed."""
    m.assign(0.9 * m + 0.1 * g)
    v.assign(0.99 * v + 0.01 * g * g)
    w.assign_sub(0.1 * (0.7 * m + 0.3 * g) / (tf.sqrt(v) + 1e-6))


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
        quasi_hyperbolic_adam,
        two_momentums,
        lamb_of_the_gradient,
    ],
)
def test_what_looks_like_an_optimizer_is_unknown(tmp_path: pathlib.Path, rule: Rule) -> None:
    name, because = recognised(rule, tmp_path)
    assert name == "unknown" and because


@pytest.mark.parametrize(("scheduled", "name"), [(True, "nadam-like"), (False, "unknown")])
def test_a_share_of_the_gradient_that_is_fixed_is_no_nadams(
    tmp_path: pathlib.Path, scheduled: bool, name: str
) -> None:
    """Adam's corrections change from step to step: of Nadam's also what the gradient is times."""

    def rule(w: tf.Variable, m: tf.Variable, v: tf.Variable, g: Any) -> None:
        corrected = 1.0 - tf.pow(0.9, module.count)
        m.assign(0.9 * m + 0.1 * g)
        v.assign(0.99 * v + 0.01 * g * g)
        gradient = 0.3 * g / corrected if scheduled else 0.3 * g
        average = 0.7 * m / (1.0 - tf.pow(0.9, module.count + 1.0))
        w.assign_sub(0.1 * (average + gradient) / (tf.sqrt(v) + 1e-6))

    module = ByHand(rule)
    module.count = tf.Variable(1.0, trainable=False, name="count")
    assert recognised_of(module, tmp_path)[0] == name


def trained_by(optimizer: Any, weight: Any, shape: tuple[int, ...]) -> ByHand:
    """A module whose gradient an optimizer applies to a weight of the same shape, or to its own."""
    module = ByHand(lambda w, one, two, g: optimizer.apply_gradients([(g, module.trained)]), shape)
    module.trained = module.weight if weight is None else weight
    optimizer.build([module.trained])
    module.optimizer = optimizer
    return module


@pytest.mark.parametrize("shape", [(2, 4, 8, 32), (1, 1, 16, 128), (4, 16, 32)])
@pytest.mark.parametrize("ours", [True, False])
def test_factors_of_a_stack_of_matrices_are_recognised(
    tmp_path: pathlib.Path, ours: bool, shape: tuple[int, ...]
) -> None:
    """A convolution's kernel has four axes, and Adafactor's factors are of the last two."""
    package = tf.keras if ours else tf_keras
    weight = tf.keras.Variable(tf.zeros(shape), name="trained") if ours else None
    module = trained_by(package.optimizers.Adafactor(), weight, shape)
    assert recognised_of(module, tmp_path)[0] == "adafactor-like"


def test_a_slot_that_keeps_the_gradient_alone_is_no_momentum(tmp_path: pathlib.Path) -> None:
    """As SGD of tf_keras has one, whose momentum is 0."""
    name, because = recognised_of(trained_by(tf_keras.optimizers.SGD(), None, (SIZE,)), tmp_path)
    assert name == "sgd-like" and "one slot, which keeps that alone" in because


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

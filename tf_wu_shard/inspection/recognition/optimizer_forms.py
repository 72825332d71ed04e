"""What known optimizers write to their slots and weights, as sums of products.

g is the gradient, w the weight, s the slot itself; other slots have the letter of their kind, with
a prime for their new value. Numbers that all elements share are left out: learning rates, decays,
bias corrections. Formulas: Kingma and Ba (2015) for Adam and Adamax, Duchi et al. (2011) for
Adagrad, Zeiler (2012) for Adadelta, Tieleman and Hinton (2012) for RMSprop, Reddi et al. (2018) for
AMSGrad, Dozat (2016) for Nadam, Loshchilov and Hutter (2019) for AdamW, McMahan et al. (2013) for
FTRL, Shazeer and Stern (2018) for Adafactor, You et al. (2017, 2020) for LARS and LAMB, Chen et al.
(2023) for Lion, Defazio et al. (2024) for ScheduleFree, Jordan et al. (2024) for Muon.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

# What becomes of a slot, and whether it keeps all of what it was before (None: either).
SLOTS: Mapping[str, tuple[tuple[str, bool | None], ...]] = {
    "m": (("g + s", None), ("g + s + w", None)),
    "v": (("g^2 + s", False), ("g*w + g^2 + s + w^2", False)),
    "a": (("g^2 + s", True), ("g*w + g^2 + s + w^2", True)),
    "x": (("max(s, v')", None), ("max(v', s)", None)),
    "u": (("max(abs(g), s)", None), ("max(s, abs(g))", None)),
    "d": (("g^2*s*v'^-1 + s", False),),
    "p": (("g*v'^-0.5 + s", False), ("(-m'^2 + v')^-0.5*g + s", False)),
    "z": (("g*v'^-0.5 + s", True),),
    "t": (("g*trust + s", None), ("g*trust + s + trust*w", None)),
    "l": (
        ("a'^0.5*w + a^0.5*w + g + s", True),
        ("a'^0.5*w + a^0.5*w + g + s + w", True),
    ),
    "k": (("g", False), ("g + w", False)),
    "r": (("s + sum[-1] of(1 + g^2)", False),),
    "c": (("s + sum[-2] of(1 + g^2)", False),),
    "f": (
        ("1 + g^2 + s", False),
        ("as[1,n](c')*as[n,1](r'*sum of(r')^-1)", None),
        ("as[1,n](c')*as[n,1](r'*sum[-1] kept of(r')^-1)", None),
        ("as[1,n](c')*as[n,1](as[1](sum of(r'))^-1*r')", None),
    ),
}


@dataclasses.dataclass(frozen=True)
class OptimizerForm:
    """How an optimizer moves its weight.

    Attributes:
        name: What it is called.
        slots: The kinds of its slots.
        weight: What is written to the weight.
        because: What that is, in words.
        keeps: Whether the weight keeps all of what it was before; None where it may decay.
    """

    name: str
    slots: str
    weight: str
    because: str
    keeps: bool | None = None


_TRUST = "times the weight's norm over the step's"
_ADAM = "averages of the gradient and of its square, this under a root"
_FACTORED = "f'^-0.5*g*max(1, sum of(f'^-1*g^2)^0.5)^-1*max(1, sum of(w^2)^0.5) + w"

FORMS = (
    OptimizerForm("sgd-like", "", "g + w", "no slot, the gradient times a number"),
    OptimizerForm(
        "sgd-like", "k", "k' + w", "the gradient times a number; one slot, which keeps that alone"
    ),
    OptimizerForm("momentum-like", "m", "m' + w", "one slot, an average of the gradient"),
    OptimizerForm(
        "nesterov-like", "m", "g + m' + w", "one slot, an average of the gradient, one step ahead"
    ),
    OptimizerForm(
        "lion-like", "m", "sign(g + m) + w", "one slot; the sign of the gradient mixed with it"
    ),
    OptimizerForm(
        "adagrad-like",
        "a",
        "a'^-0.5*g + w",
        "one slot, the total of squared gradients, under a root",
    ),
    OptimizerForm(
        "rmsprop-like",
        "v",
        "g*v'^-0.5 + w",
        "one slot, an average of squared gradients, under a root",
    ),
    OptimizerForm(
        "rmsprop-like",
        "pv",
        "p' + w",
        "an average of squared gradients, under a root; momentum",
        True,
    ),
    OptimizerForm(
        "centered-rmsprop-like",
        "mv",
        "(-m'^2 + v')^-0.5*g + w",
        "two slots; the average of squared gradients less the averaged gradient's square,"
        " under a root",
    ),
    OptimizerForm(
        "centered-rmsprop-like",
        "mpv",
        "p' + w",
        "three slots; the average of squared gradients less the averaged gradient's square,"
        " under a root; momentum",
        True,
    ),
    OptimizerForm("adam-like", "mv", "m'*v'^-0.5 + w", f"two slots, {_ADAM}"),
    OptimizerForm(
        "amsgrad-like",
        "mvx",
        "m'*x'^-0.5 + w",
        "three slots, Adam's and the greatest average of squares, under a root",
    ),
    OptimizerForm(
        "nadam-like",
        "mv",
        "g*v'^-0.5 + m'*v'^-0.5 + w",
        f"two slots, {_ADAM}; the gradient itself is added to its average",
    ),
    OptimizerForm(
        "adamax-like",
        "mu",
        "m'*u'^-1 + w",
        "two slots, an average of the gradient, over the greatest of its decayed absolute values",
    ),
    OptimizerForm(
        "adadelta-like",
        "dv",
        "d^0.5*g*v'^-0.5 + w",
        "two slots, averages of the squared gradient and of squared steps, a root over a root",
    ),
    *(
        OptimizerForm(
            "ftrl-like",
            "al",
            f"a'^-0.5*l' + a'^-0.5*max({number}, min({number}, l'))",
            "two slots, the total of squared gradients and the linear term; the weight is made of"
            " these alone",
        )
        for number in "01"
    ),
    *(
        OptimizerForm("lamb-like", "mv", weight, f"two slots, {_ADAM}, {_TRUST}")
        for weight in ("m'*trust*v'^-0.5 + w", "m'*trust*v'^-0.5 + trust*w + w")
    ),
    OptimizerForm(
        "lars-like",
        "t",
        "t' + w",
        "one slot, an average of the gradient times the weight's norm over the gradient's",
    ),
    *(
        OptimizerForm("adafactor-like", slots, weight, because)
        for weight in (_FACTORED,)
        for slots, because in (
            ("f", "an average of squared gradients, under a root; the step clipped by its norm"),
            (
                "cfr",
                "averages of squared gradients by row and by column, under a root; the step clipped"
                " by its norm",
            ),
        )
    ),
    OptimizerForm(
        "schedule-free-adamw-like",
        "vz",
        "w + z'",
        "two slots, an average of squared gradients, and what the gradient over its root moves;"
        " the weight is a mean of that and itself",
        False,
    ),
    *(
        OptimizerForm(
            "muon-like",
            "m",
            f"newton_schulz({moved}*sum of({square})^-0.5) + w",
            "one slot, an average of the gradient; Newton-Schulz steps make it orthogonal",
        )
        for moved, square in (("m'", "m'^2"),)
    ),
    OptimizerForm(
        "muon-like",
        "m",
        "newton_schulz(g*sum of(g*m' + g^2 + m'^2)^-0.5 + m'*sum of(g*m' + g^2 + m'^2)^-0.5) + w",
        "one slot, an average of the gradient, one step ahead; Newton-Schulz steps make it"
        " orthogonal",
    ),
)

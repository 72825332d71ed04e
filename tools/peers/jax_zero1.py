"""JAX: ZeRO-1 by sharding annotations, all replicas in one process.

Weights are replicated, Adam's moments cut along their first axis. Inside one jitted step the
gradients and the weights are constrained to the moments' sharding, so that the compiler reduces to
shards and updates these; the new weights are constrained to be replicated again.
"""

from __future__ import annotations

import functools
import os
from typing import Any

from tools.peers.answering import Problem, load, serve

Parameters = list[tuple[Any, Any]]


class JaxZero1:
    """The peer; JAX is imported when it is made, as the number of devices is fixed by then."""

    def __init__(self, problem: Problem) -> None:
        """Places the weights and makes the moments, already cut."""
        import jax
        import optax
        from jax.sharding import AxisType, NamedSharding, PartitionSpec

        # Auto: the compiler decides what no annotation does.
        self._mesh = jax.make_mesh((problem.replicas,), ("replica",), axis_types=(AxisType.Auto,))
        self._cut = NamedSharding(self._mesh, PartitionSpec("replica"))
        self._whole = NamedSharding(self._mesh, PartitionSpec())
        self._rule = optax.adam(
            problem.learning_rate, problem.beta_1, problem.beta_2, problem.epsilon
        )
        layers = list(zip(problem.kernels, problem.biases, strict=True))
        self._parameters = jax.device_put(layers, self._whole)
        # Adam's step counter is a scalar and stays whole.
        slots = jax.eval_shape(self._rule.init, self._parameters)
        self._cuts = jax.tree.map(lambda slot: self._cut if slot.shape else self._whole, slots)
        self._slots = jax.jit(self._rule.init, out_shardings=self._cuts)(self._parameters)
        self._batches = [
            jax.device_put(batch, self._cut)
            for batch in zip(problem.inputs, problem.targets, strict=True)
        ]
        self._update = jax.jit(
            self._updated,
            donate_argnums=(0, 1),
            out_shardings=(self._whole, self._cuts, self._whole),
        )
        self._gradients = jax.jit(self._gradients_alone())

    def step(self, batch: int) -> float:
        """One step; the new weights and moments take the place of the old."""
        import jax

        inputs, targets = self._batches[batch % len(self._batches)]
        self._parameters, self._slots, loss = self._update(
            self._parameters, self._slots, inputs, targets
        )
        jax.block_until_ready((self._parameters, self._slots))
        return float(loss)

    def no_update(self, batch: int) -> float:
        """Every device's own gradients, with no reduction."""
        import jax

        inputs, targets = self._batches[batch % len(self._batches)]
        losses, gradients = self._gradients(self._parameters, inputs, targets)
        jax.block_until_ready(gradients)
        return float(losses.mean())

    def _updated(
        self, parameters: Parameters, slots: Any, inputs: Any, targets: Any
    ) -> tuple[Parameters, Any, Any]:
        import jax
        import optax

        loss, gradients = jax.value_and_grad(_loss)(parameters, inputs, targets)
        gradients = jax.lax.with_sharding_constraint(gradients, self._cut)
        own = jax.lax.with_sharding_constraint(parameters, self._cut)
        updates, slots = self._rule.update(gradients, slots, own)
        own = jax.lax.with_sharding_constraint(optax.apply_updates(own, updates), self._cut)
        return own, slots, loss

    def _gradients_alone(self) -> Any:
        import jax
        from jax.sharding import PartitionSpec

        # Without check_vma=False, the gradient of a replicated weight would be reduced.
        @functools.partial(
            jax.shard_map,
            mesh=self._mesh,
            in_specs=(PartitionSpec(), PartitionSpec("replica"), PartitionSpec("replica")),
            out_specs=PartitionSpec("replica"),
            check_vma=False,
        )
        def on_replica(parameters: Parameters, inputs: Any, targets: Any) -> Any:
            loss, gradients = jax.value_and_grad(_loss)(parameters, inputs, targets)
            # A leading axis, along which the replicas' own results are laid side by side.
            return jax.tree.map(lambda value: value[None], (loss, gradients))

        return on_replica


def _loss(parameters: Parameters, inputs: Any, targets: Any) -> Any:
    import jax

    *hidden, (kernel, bias) = parameters
    for hidden_kernel, hidden_bias in hidden:
        inputs = jax.nn.relu(inputs @ hidden_kernel + hidden_bias)
    return ((inputs @ kernel + bias - targets) ** 2).mean()


def build(file: str) -> JaxZero1:
    """Makes the peer; sets the number of JAX's CPU devices before JAX is imported."""
    problem = load(file)
    flag = f"--xla_force_host_platform_device_count={problem.replicas}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()
    os.environ["JAX_PLATFORMS"] = "cpu"
    return JaxZero1(problem)


if __name__ == "__main__":
    serve(build)

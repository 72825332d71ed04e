"""PyTorch: FSDP2, `fully_shard` on each layer and then on the whole, as its tutorial has it.

With reshard_after_forward=False the weights gathered for the forward pass serve the backward pass
too; its default would gather them twice.
"""

from __future__ import annotations

from torch import Tensor, nn, optim
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tools.peers.answering import Problem
from tools.peers.torch_replicas import adam_arguments, serve_replicas


class Fsdp2Training:
    """One replica."""

    def __init__(self, model: nn.Sequential, problem: Problem) -> None:
        """Cuts the weights, then makes the optimizer of the cut ones."""
        mesh = init_device_mesh("cpu", (problem.replicas,))
        for layer in model:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh, reshard_after_forward=False)
        fully_shard(model, mesh=mesh, reshard_after_forward=False)
        self._model = model
        self._optimizer = optim.Adam(model.parameters(), **adam_arguments(problem))

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One step; returns this replica's loss."""
        self._optimizer.zero_grad()
        loss = nn.functional.mse_loss(self._model(inputs), targets)
        loss.backward()
        self._optimizer.step()
        return loss

    def update(self) -> None:
        """Weights are cut, so that a step of the optimizer exchanges nothing."""
        self._optimizer.step()


if __name__ == "__main__":
    serve_replicas(Fsdp2Training)

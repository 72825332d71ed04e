"""PyTorch: DistributedDataParallel with ZeroRedundancyOptimizer, as its tutorial has it.

Gradients are views into the reduction's buckets, which saves a copy of each. The optimizer owns
whole parameters, so with few large ones some replicas own more than others.
"""

from __future__ import annotations

from torch import Tensor, nn, optim
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tools.peers.answering import Problem
from tools.peers.torch_replicas import adam_arguments, serve_replicas


class ZeroTraining:
    """One replica."""

    def __init__(self, model: nn.Sequential, problem: Problem) -> None:
        """Wraps the model and cuts the optimizer."""
        self._model = DistributedDataParallel(model, gradient_as_bucket_view=True)
        self._optimizer = ZeroRedundancyOptimizer(
            self._model.parameters(), optimizer_class=optim.Adam, **adam_arguments(problem)
        )

    def step(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """One step; returns this replica's loss."""
        self._optimizer.zero_grad()
        loss = nn.functional.mse_loss(self._model(inputs), targets)
        loss.backward()
        self._optimizer.step()
        return loss

    def update(self) -> None:
        """What a step of the optimizer does before it sends the weights around."""
        self._optimizer._local_step()


if __name__ == "__main__":
    serve_replicas(ZeroTraining)

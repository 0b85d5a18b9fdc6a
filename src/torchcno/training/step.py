"""One training step: gradients of the loss of a batch, and the optimiser's move.

A network of small layers spends more time in launching its kernels than in running them. Captured
in a CUDA graph, the whole step (forward, backward, optimiser) is one launch.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcno.capture import capturing, reason
from torchcno.metrics import filled
from torchcno.operators import aside

# (outputs, targets) of a batch -> its loss
Loss = Callable[[Tensor, Tensor], Tensor]
# (inputs, targets[, where targets count]) of a batch -> its loss before the step, detached, on the
# device
Step = Callable[..., Tensor]

WARM_UP = 3  # steps before a capture: lazy initialisations, the choice of algorithms, compilation


def eager_step(
    model: nn.Module, optimizer: Optimizer, loss_fn: Loss, loss_factor: float = 1.0
) -> Step:
    """θ ← θ − A(∇_θ loss(model(inputs), targets)), operation by operation.

    Outputs and targets are both 1 where targets do not count.
    Gradients are made of `loss_factor` times the loss and divided by it in the end, which is exact
    for a power of two. Where one has left the range by then, weights are no numbers from then on.
    """

    def step(inputs: Tensor, targets: Tensor, *counts: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with aside():
            loss = loss_fn(filled(model(inputs), *counts), filled(targets, *counts))
            loss.backward(torch.full_like(loss, loss_factor))
        if loss_factor != 1:
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            torch._foreach_mul_(gradients, 1 / loss_factor)
        optimizer.step()
        return loss.detach()

    return step


def graphed_step(
    model: nn.Module, optimizer: Optimizer, loss_fn: Loss, loss_factor: float = 1.0
) -> Step:
    """`eager_step`, captured in one CUDA graph a shape of batch and replayed.

    Everything lives on one CUDA device, and nothing in `model` or `loss_fn` waits for the device or
    depends on a value. `optimizer` is capturable, with its learning rate a tensor there: a schedule
    fills that tensor, and the next replay reads it. Its state begins at zero, as AdamW's does.
    `model` may be compiled; compilation falls into the warm-up of the first step. From then on the
    tensors of `model` and `optimizer` stay where they are: load values into them.

    The warm-up leaves no trace in the training. A step that cannot be captured runs eagerly from
    then on, and a warning says why.
    """
    for group in optimizer.param_groups:
        rate = group["lr"]
        if not (group.get("capturable") and isinstance(rate, Tensor) and rate.is_cuda):
            raise ValueError(
                f"{type(optimizer).__name__} with lr = {rate!r} cannot be captured in a CUDA "
                "graph; build it with capturable=True and lr=torch.tensor(..., device='cuda')."
            )
    # Newer versions of PyTorch warn of a warm-up on a stream of its own, which is meant.
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:
        warn(False)
    eager = eager_step(model, optimizer, loss_fn, loss_factor)
    pool = torch.cuda.graph_pool_handle()  # graphs never run at the same time: they share memory
    steps: dict[tuple[object, ...], Step] = {}

    def step(*batch: Tensor) -> Tensor:
        modes = tuple(module.training for module in model.modules())  # batch norm's are its own
        key = (*((tensor.shape, tensor.dtype) for tensor in batch), modes)
        if key not in steps:
            _warm_up(eager, model, optimizer, batch)
            try:
                steps[key] = _capture(eager, optimizer, batch, pool)
            except RuntimeError as error:
                for other in [other for other in steps if steps[other] is not eager]:
                    del steps[other]  # it draws from the generator of before
                steps[key] = eager
                optimizer.zero_grad(set_to_none=True)  # gradients in a graph that never was
                warnings.warn(f"the step runs without a CUDA graph: {reason(error)}", stacklevel=2)
        return steps[key](*batch)

    return step


@dataclass(frozen=True)
class _Captured:
    """A graph and the memory that it reads from and writes to."""

    graph: torch.cuda.CUDAGraph
    batch: tuple[Tensor, ...]
    loss: Tensor

    def __call__(self, *batch: Tensor) -> Tensor:
        for read, given in zip(self.batch, batch, strict=True):
            read.copy_(given)
        self.graph.replay()
        return self.loss.clone()  # the next replay overwrites it


def _capture(eager: Step, optimizer: Optimizer, batch: Sequence[Tensor], pool: Any) -> _Captured:
    graph = torch.cuda.CUDAGraph()
    read = tuple(tensor.clone() for tensor in batch)
    # Without gradients at its start the graph makes its own, in its own memory, and adds to none.
    optimizer.zero_grad(set_to_none=True)
    with capturing(graph, pool):
        loss = eager(*read)
    return _Captured(graph, read, loss)


def _warm_up(eager: Step, model: nn.Module, optimizer: Optimizer, batch: Sequence[Tensor]) -> None:
    """A few steps on a stream of their own, and everything back to where it was."""
    before = [(tensor, tensor.clone()) for tensor in _state(model, optimizer)]
    random = torch.cuda.get_rng_state(batch[0].device)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            eager(*batch)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.set_rng_state(random, batch[0].device)
    known = {id(tensor) for tensor, _ in before}
    with torch.no_grad():
        for tensor, value in before:
            # Constants are left alone: a write would tell whoever caches them that they changed.
            if not torch.equal(tensor, value):
                tensor.copy_(value)
        for tensor in _state(model, optimizer):
            if id(tensor) not in known:
                tensor.zero_()


def _state(model: nn.Module, optimizer: Optimizer) -> Iterator[Tensor]:
    """Every tensor that a step changes."""
    moments = (value for state in optimizer.state.values() for value in state.values())
    return chain(
        model.parameters(),
        model.buffers(),
        (value for value in moments if isinstance(value, Tensor)),
    )

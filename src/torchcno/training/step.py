"""One training step: gradients of the loss of a batch, and the optimiser's move.

A network of small layers spends more time in launching its kernels than in running them. Captured
in a CUDA graph, all that belongs to a step is one launch.
"""

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchcno.capture import capturing, reason
from torchcno.metrics import filled
from torchcno.operators import aside
from torchcno.training.optimizers import take_scaled

T = TypeVar("T")
# (outputs, targets) of a batch -> its loss
Loss = Callable[[Tensor, Tensor], Tensor]
# (inputs, targets[, where targets count]) of a batch -> its loss before the step, detached, on the
# device; inputs are what the model takes: a tensor, or a window of trajectories
Step = Callable[..., Tensor]

WARM_UP = 3  # calls before a capture: lazy initialisations, the choice of algorithms, compilation


def eager_step(
    model: nn.Module,
    optimizer: Optimizer,
    loss_fn: Loss,
    loss_factor: float = 1.0,
    around: Callable[[nn.Module], AbstractContextManager[object]] = nullcontext,
) -> Step:
    """θ ← θ − A(∇_θ loss(model(inputs), targets)), operation by operation.

    Outputs and targets are both 1 where targets do not count. `around` is the context of forward
    and backward: `torchcno.operators.aside` for a step that is captured, or could be.
    Gradients are made of `loss_factor` times the loss and divided by it in the end, which is exact
    for a power of two. Where one has left the range by then, weights are no numbers from then on.
    """
    divides = take_scaled(optimizer, loss_factor)

    def step(inputs: Any, targets: Tensor, *counts: Tensor) -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with around(model):
            loss = loss_fn(filled(model(inputs), *counts), filled(targets, *counts))
            (loss if loss_factor == 1 else loss_factor * loss).backward()
        if loss_factor != 1 and not divides:
            gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
            torch._foreach_mul_(gradients, 1 / loss_factor)
        optimizer.step()
        return loss.detach()

    return step


def graphed_step(
    model: nn.Module, optimizer: Optimizer, loss_fn: Loss, loss_factor: float = 1.0
) -> Step:
    """`eager_step`, captured in one CUDA graph a shape of batch and replayed; see `graphed`.

    `optimizer` is capturable, with its learning rate a tensor on the device: a schedule fills that
    tensor, and the next replay reads it. Its state begins at zero, as AdamW's does.
    """
    for group in optimizer.param_groups:
        rate = group["lr"]
        if not (group.get("capturable") and isinstance(rate, Tensor) and rate.is_cuda):
            raise ValueError(
                f"{type(optimizer).__name__} with lr = {rate!r} cannot be captured in a CUDA "
                "graph; build it with capturable=True and lr=torch.tensor(..., device='cuda')."
            )
    eager = eager_step(model, optimizer, loss_fn, loss_factor, aside)
    read: dict[Hashable, list[Tensor]] = {}  # the memory that a graph reads, by shape
    shape: list[Hashable] = [None]  # of the batch that is read now

    captured = graphed(
        lambda: eager(*read[shape[0]]),
        lambda: trained_tensors(model, optimizer),
        lambda: (shape[0], training_modes(model.modules())),
    )

    def step(*batch: Tensor) -> Tensor:
        shape[0] = tuple((tensor.shape, tensor.dtype) for tensor in batch)
        if shape[0] not in read:
            read[shape[0]] = [tensor.clone() for tensor in batch]
        for there, given in zip(read[shape[0]], batch, strict=True):
            there.copy_(given)
        return captured().clone()  # the next replay overwrites it

    return step


def graphed(
    work: Callable[[], T],
    changed: Callable[[], Iterable[Tensor]] = tuple,
    state: Callable[[], Hashable] = lambda: None,
    warm_up: int = WARM_UP,
) -> Callable[[], T]:
    """`work`, captured in a CUDA graph and replayed; the result lies where the first one lay.

    Everything lives on one CUDA device, and nothing in `work` waits for the device or depends on a
    value there. What it reads and writes stays where it is: load values into it. `changed` are the
    tensors that it changes; the calls that warm up leave no trace in them. There is one graph for
    every `state` of what Python decides on the way. Compilation falls into the warm-up.

    Work that cannot be captured runs eagerly from then on, and a warning says why.
    """
    # Newer versions of PyTorch warn of a warm-up on a stream of its own, which is meant.
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", None)
    if warn is not None:
        warn(False)
    pool = torch.cuda.graph_pool_handle()  # graphs never run at the same time: they share memory
    ways: dict[Hashable, Callable[[], T]] = {}

    def run() -> T:
        key = state()
        if key not in ways:
            _warm_up(work, changed, warm_up)
            try:
                ways[key] = _capture(work, pool)
            except RuntimeError as error:
                for other in [other for other in ways if ways[other] is not work]:
                    del ways[other]  # it draws from the generator of before
                ways[key] = work
                warnings.warn(f"the step runs without a CUDA graph: {reason(error)}", stacklevel=2)
        return ways[key]()

    return run


def training_modes(modules: Iterable[nn.Module]) -> tuple[bool, ...]:
    """Which modules are in training mode: batch norm's may be its own."""
    return tuple(module.training for module in modules)


def trained_tensors(model: nn.Module, optimizer: Optimizer) -> Iterator[Tensor]:
    """Every tensor that a step changes."""
    moments = (value for state in optimizer.state.values() for value in state.values())
    return chain(
        model.parameters(),
        model.buffers(),
        (value for value in moments if isinstance(value, Tensor)),
    )


def _capture(work: Callable[[], T], pool: Any) -> Callable[[], T]:
    graph = torch.cuda.CUDAGraph()
    with capturing(graph, pool):
        result = work()

    def replay() -> T:
        graph.replay()
        return result

    return replay


def _warm_up(
    work: Callable[[], object], changed: Callable[[], Iterable[Tensor]], calls: int
) -> None:
    """A few calls on a stream of their own, and everything back to where it was."""
    before = [(tensor, tensor.clone()) for tensor in changed()]
    random = torch.cuda.get_rng_state()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(calls):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.set_rng_state(random)
    known = {id(tensor) for tensor, _ in before}
    with torch.no_grad():
        for tensor, value in before:
            # Constants are left alone: a write would tell whoever caches them that they changed.
            if not torch.equal(tensor, value):
                tensor.copy_(value)
        for tensor in changed():
            tensor.grad = None  # a graph that finds no gradients makes its own, in its own memory
            if id(tensor) not in known:
                tensor.zero_()

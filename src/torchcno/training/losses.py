"""What training makes small. Every loss is a function of (prediction, target) of a batch."""

import importlib.util
from collections.abc import Callable
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.metrics import relative_l2

FieldBatch = Float[Tensor, "batch channel *space"]

_HAS_TRITON = importlib.util.find_spec("triton") is not None
GRADIENT_WEIGHT = 0.1  # γ of `weighted_l2_loss`


def relative_l1_loss(prediction: FieldBatch, target: FieldBatch) -> Float[Tensor, ""]:
    """Σ_i ‖p_i − v_i‖₁ / Σ_i ‖v_i‖₁: the batch's L¹ error over the batch's L¹ norm."""
    if _has_kernels(prediction, target):
        from torchcno.training import loss_kernels

        return loss_kernels.relative_l1(prediction, target)
    return (prediction - target).abs().mean() / _over_processes(target.abs().mean())


def _has_kernels(prediction: Tensor, target: Tensor) -> bool:
    """Whether Triton programs have `relative_l1_loss`: for whole batches in float32 on CUDA."""
    return (
        _HAS_TRITON
        and prediction.is_cuda
        and target.is_cuda
        and prediction.dtype == target.dtype == torch.float32
        and prediction.shape == target.shape
        and not target.requires_grad
        and not _in_processes()
    )


def channel_l1_loss(prediction: FieldBatch, target: FieldBatch) -> Float[Tensor, ""]:
    """(1/C) Σ_c [ Σ_i ‖p_ic − v_ic‖₁ / Σ_i ‖v_ic‖₁ ]: `relative_l1_loss` of each channel, averaged.

    A channel that is zero throughout a batch is measured by the others' norm.
    """
    axes = [0, *range(2, target.ndim)]
    norms = _over_processes(target.abs().mean(axes))
    norms = torch.where(norms > 0, norms, norms.mean())
    return ((prediction - target).abs().mean(axes) / norms).mean()


def relative_l2_loss(prediction: FieldBatch, target: FieldBatch) -> Float[Tensor, ""]:
    """(1/B) Σ_i ‖p_i − v_i‖₂ / ‖v_i‖₂."""
    return relative_l2(prediction, target).mean()


def weighted_l2_loss(prediction: FieldBatch, target: FieldBatch) -> Float[Tensor, ""]:
    """(1/B) Σ_i [ ‖p_i − v_i‖₂/‖v_i‖₂ + √(γh/2) ‖∇_h(p_i − v_i)‖₂/‖∇_h v_i‖₂ ], γ = 0.1, h = 1/n.

    Cao (2021): the relative L² error with a little of that of the gradient, so that predictions
    come out smooth. ∇_h are central differences where a point has both neighbours.
    """
    of_values = relative_l2(prediction, target)
    of_gradients = relative_l2(_central_differences(prediction), _central_differences(target))
    weight = sqrt(GRADIENT_WEIGHT / target.shape[-1] / 2)
    return (of_values + weight * of_gradients).mean()


def _over_processes(norm: Tensor) -> Tensor:
    """The mean of a norm over the shares of a batch.

    The norm is the whole batch's: by that of its share, a process would follow another loss.
    """
    if _in_processes():
        torch.distributed.all_reduce(norm)
        norm = norm / torch.distributed.get_world_size()
    return norm


def _in_processes() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _central_differences(v: FieldBatch) -> Tensor:
    """f(x + h) − f(x − h) along every axis, as further channels, at points inside the grid."""
    inside = (slice(None), slice(None)) + (slice(1, -1),) * (v.ndim - 2)
    differences = [(v.roll(-1, axis) - v.roll(1, axis))[inside] for axis in range(2, v.ndim)]
    return torch.cat(differences, dim=1)


OF_BATCHES = ("relative-l1", "channel-l1")  # relative to a batch; the others are to a sample
LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relative-l1": relative_l1_loss,
    "channel-l1": channel_l1_loss,
    "relative-l2": relative_l2_loss,
    "weighted-l2": weighted_l2_loss,
}

"""Σ ∘ norm ∘ K in as few passes as there are programs for."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchcno.operators.activation import Activation
from torchcno.operators.conditioning import Modulation, modulate
from torchcno.operators.convolution import Convolution
from torchcno.operators.fused import choice
from torchcno.operators.fused.batch_norm import (
    normalise,
    normalise_and_add,
    why_not_by_programs,
)
from torchcno.operators.fused.convolution import convolve, convolve_by, leave_untouched
from torchcno.operators.fused.normalised import normalise_and_activate
from torchcno.operators.fused.prepared import PreparedConvolution
from torchcno.operators.fused.streams import current_aside
from torchcno.tracing import is_traced


def why_in_parts(*parts: nn.Module) -> str | None:
    """Why a block is its three modules, one after the other; None: `compute` has it."""
    if isinstance(parts[0], PreparedConvolution):
        return "the parts are prepared for inference"
    if choice.is_watched(*parts):
        return "a hook watches one of its parts"
    if torch._C._are_functorch_transforms_active():
        return "torch.func transforms the parts"
    return "what is traced runs without this package" if is_traced() else None


def why_not_fused(
    x: Tensor, norm: nn.Module, activation: nn.Module, modulation: Modulation | None = None
) -> str | None:
    """Why norm and activation are two passes over fields x; None: they are one program."""
    if not x.is_cuda:
        return "the program for both is for CUDA"
    if modulation is not None:
        return "every sample has a scale and a shift of its own between norm and activation"
    if torch.compiler.is_compiling():
        return "a compiler fuses the parts on its own"
    if not isinstance(activation, Activation):
        return f"the activation is {type(activation).__name__}"
    reason = activation.why_not_in_one_pass(x)
    if reason is None and not choice.is_whole(
        x, activation.ups, activation.downs, activation.local
    ):
        reason = "planes go through the chip row by row"
    return reason or choice.why_not_plain_batch_norm(x, norm)


def compute(
    x: Tensor,
    convolution: Convolution,
    norm: nn.Module,
    activation: nn.Module,
    modulation: Modulation | None = None,
    plus: Tensor | None = None,
) -> Tensor:
    """Σ(norm(K x)), modulated before Σ, and `plus` where it is given."""
    if plus is not None and not (type(activation) is nn.Identity and modulation is None):
        return compute(x, convolution, norm, activation, modulation) + plus
    if isinstance(activation, Activation) and _bias_goes_before(x, norm, activation, modulation):
        return _with_bias_before(x, convolution, norm, activation)
    z: Tensor
    if _is_folded(x, convolution, norm, activation, modulation):
        y = convolve_by(x, *fold(convolution, norm), convolution)
        z = activation(modulate(y, modulation))
        return z if plus is None else z + plus
    if _activation_adds_bias(x, norm, activation, modulation):
        z = activation(convolve(x, convolution, with_bias=False), convolution.bias)
        return z
    y = _convolve_for(norm, x, convolution)
    if why_not_fused(y, norm, activation, modulation) is None:
        return normalise_and_activate(y, norm, activation)
    if why_not_by_programs(y, norm) is None:
        y, plus = normalise(y, norm, plus), None
    else:
        y = norm(y)
    z = activation(modulate(y, modulation))
    return z if plus is None else z + plus


def _convolve_for(norm: nn.Module, x: Tensor, convolution: Convolution) -> Tensor:
    """K x as `norm` wants it, which may take any constant away."""
    centred = _takes_the_mean(norm)
    y = convolve(x, convolution, with_bias=not centred)
    if centred:
        y = leave_untouched(y, convolution.bias)
        _tell(norm, convolution.bias)
    return y


def _bias_goes_before(
    x: Tensor, norm: nn.Module, activation: Activation, modulation: Modulation | None
) -> bool:
    """Whether on a CPU K, or batch norm, adds the bias of Σ: each adds one of its own anyway."""
    if x.is_cuda or modulation is not None or torch.is_autocast_enabled("cpu"):
        return False
    if activation.why_not_in_one_pass(x) is not None:
        return False
    return type(norm) is nn.Identity or choice.why_not_plain_batch_norm(x, norm) is None


def _with_bias_before(
    x: Tensor, convolution: Convolution, norm: nn.Module, activation: Activation
) -> Tensor:
    """Σ(norm(K x)), where `_bias_goes_before`."""
    if isinstance(norm, nn.BatchNorm2d):
        if _is_folded(x, convolution, norm, activation, None):
            weight, constant = fold(convolution, norm)
            y = convolve_by(x, weight, constant + activation.bias, convolution)
        else:
            y = normalise_and_add(_convolve_for(norm, x, convolution), norm, activation.bias)
    else:
        y = convolve_by(x, convolution.weight, convolution.bias + activation.bias, convolution)
    return activation.in_one_pass(y, None)


def _activation_adds_bias(
    x: Tensor, norm: nn.Module, activation: nn.Module, modulation: Modulation | None
) -> bool:
    """Whether nothing comes between K x and Σ, which adds a bias of its own as it reads its field.

    On CUDA one pass over the field less.
    """
    parts = type(norm) is nn.Identity and isinstance(activation, Activation)
    return parts and modulation is None and x.is_cuda


def _is_folded(
    x: Tensor,
    convolution: Convolution,
    norm: nn.Module,
    activation: nn.Module,
    modulation: Modulation | None,
) -> bool:
    """Whether `norm` is a pass of its own that the convolution can do, in a step of training.

    It is where its statistics are held, and no program has norm and activation. On CUDA it is not
    where gradients of weights are made aside: those of folded weights would be waited for.
    """
    if current_aside() is not None and x.is_cuda and type(norm) is nn.BatchNorm2d:
        return False
    if not (isinstance(norm, _BatchNorm) and torch.is_grad_enabled()) or norm.training:
        return False
    if norm.running_mean is None or not (convolution.weight.requires_grad or x.requires_grad):
        return False
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    shape = (len(x), len(convolution.weight), *x.shape[2:])
    like = torch.empty(1, dtype=dtype, device=x.device).expand(shape)
    return why_not_fused(like, norm, activation, modulation) is not None


def fold(convolution: Convolution, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Weights and bias of norm ∘ K, by the running statistics of batch norm; they have gradients.

    norm(K x) = s (K x − μ) + β = K' x,   s = γ / √(v + ε)
    """
    scale, shift = _scale_and_shift(norm, convolution.bias)
    weight = convolution.weight * scale.view(-1, *[1] * (convolution.weight.ndim - 1))
    return weight, convolution.bias * scale + shift


def _scale_and_shift(norm: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    """What batch norm does to a channel by its running statistics; one and zero for no norm."""
    if not isinstance(norm, _BatchNorm):
        return torch.ones_like(like), torch.zeros_like(like)
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise ValueError("a batch norm keeps no statistics; use track_running_stats=True.")
    scale = (variance + norm.eps).rsqrt() * (1 if norm.weight is None else norm.weight)
    return scale, (0 if norm.bias is None else norm.bias) - mean * scale


def _takes_the_mean(norm: nn.Module) -> bool:
    """Whether `norm` subtracts the mean of the batch, and remembers it in a way that can be told.

    With a momentum of 1 the running mean forgets what it is told before.
    """
    return (
        isinstance(norm, _BatchNorm)
        and norm.training
        and norm.momentum is not None
        and norm.momentum < 1
    )


def _tell(norm: nn.Module, bias: Tensor) -> None:
    """Have the running mean r that `norm` is about to make, (1 − m) r + m μ, contain m · `bias`."""
    mean: Any = norm.running_mean
    momentum: Any = norm.momentum
    if mean is None:
        return
    beside = current_aside()
    if beside is not None:  # all of them when they are made
        beside.told.append((mean.data, bias.detach(), momentum))
        return
    # As data: autograd keeps it with what `norm` normalised before, and never reads it.
    mean.data.add_(bias.detach(), alpha=momentum / (1 - momentum))

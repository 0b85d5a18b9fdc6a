"""The block of a CNO: convolution, normalisation, activation."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.operators.conditioning import Modulation, Modulations, draw, modulate
from torchcno.operators.convolution import Convolution
from torchcno.operators.fused.block import compute, why_in_parts, why_not_fused
from torchcno.operators.fused.recompute import recompute

NOTHING = nn.Identity()


def compose(
    v: Float[Tensor, "batch channel *space"],
    K: Convolution,
    norm: nn.Module = NOTHING,
    Σ: nn.Module = NOTHING,
    modulation: Modulation | None = None,
    plus: Float[Tensor, "batch out_channel *out_space"] | None = None,
) -> Float[Tensor, "batch out_channel *out_space"]:
    """Σ(norm(K v)) + plus: by its parts where `why_in_parts` has a reason, else in fewer passes.

    With a modulation, Σ((1 + scale) norm(K v) + shift).
    """
    if why_in_parts(K, norm, Σ) is None:
        return compute(v, K, norm, Σ, modulation, plus)
    v = K(v)
    v = norm(v)
    v = modulate(v, modulation)
    y: Tensor = Σ(v)
    return y if plus is None else y + plus


class Block(nn.Module):
    """Σ ∘ norm ∘ K: the (D), (U) and (I) blocks, which differ in the size they lead to.

    The convolution runs at the input's size; the activation changes the size on its way.
    """

    BLOCKS: ClassVar = (("convolution", "norm", "activation"),)

    def __init__(self, convolution: Convolution, norm: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.convolution, self.norm, self.activation = convolution, norm, activation

    def forward(
        self, v: Float[Tensor, "batch channel *space"], modulations: Modulations | None = None
    ) -> Tensor:
        """The block on fields of its size."""
        parts = self.convolution, self.norm, self.activation
        return recompute(self, compose, v, *parts, draw(modulations))

    def why_not_fused(
        self, v: Float[Tensor, "batch channel *space"], modulation: Modulation | None = None
    ) -> str | None:
        """Why norm and activation are not one program on this machine; None: they are."""
        parts = self.convolution, self.norm, self.activation
        with torch.no_grad():
            shape = (len(v), len(self.convolution.bias), *v.shape[2:])
            return why_in_parts(*parts) or why_not_fused(v.new_empty(shape), *parts[1:], modulation)

"""Convolution with the boundary's own padding."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from torchcno.operators.boundary import Boundaries, boundary_of_axes, extend

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Convolution(nn.Module):
    """(K f)(x) = Σ_m k_m f(x − z_m) + b with a discrete kernel of k points per axis (section 2).

    f goes on beyond the edge as the boundary of each axis says, so the size stays. Initial values
    as those of `torch.nn.Conv2d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        dims: int,
        boundary: Boundaries = "zero",
    ) -> None:
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size {kernel_size} has no middle; use an odd number such as 3."
            )
        self.boundaries = boundary_of_axes(boundary, dims)
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, *[kernel_size] * dims))
        self.bias = nn.Parameter(torch.empty(out_channels))
        bound = 1 / math.sqrt(in_channels * kernel_size**dims)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(
        self, x: Float[Tensor, "batch channel *space"]
    ) -> Float[Tensor, "batch out *space"]:
        """K x, of the same size."""
        x, padding = self.extended(x)
        return CONVOLUTIONS[self.weight.ndim - 2](x, self.weight, self.bias, padding=padding)

    def extended(self, x: Float[Tensor, "batch channel *space"]) -> tuple[Tensor, int]:
        """x as far beyond its edge as k looks, and how many zeros are still to come."""
        margin = self.weight.shape[-1] // 2
        if set(self.boundaries) == {"zero"}:
            return x, margin
        for axis, boundary in enumerate(self.boundaries, start=-len(self.boundaries)):
            x = extend(x, margin, boundary, axis)
        return x, 0

    def extra_repr(self) -> str:
        """What `print` shows."""
        out_channels, in_channels, *kernel = self.weight.shape
        return f"{in_channels}, {out_channels}, kernel={tuple(kernel)}, boundary={self.boundaries}"

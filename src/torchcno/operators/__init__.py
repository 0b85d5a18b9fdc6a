"""The elementary operators of a CNO on band-limited functions (section 2 of the paper)."""

from torchcno.operators.activation import Activation, PointwiseActivation, filtered_activation
from torchcno.operators.block import Block
from torchcno.operators.boundary import BOUNDARIES, Boundary
from torchcno.operators.conditioning import conditioning_of, is_conditioned
from torchcno.operators.convolution import Convolution
from torchcno.operators.filters import Filter, Ideal, LowPass, Nearest, WindowedSinc
from torchcno.operators.fused.layout import lay_channels_last
from torchcno.operators.fused.recompute import recompute, recomputing
from torchcno.operators.fused.streams import Branch, aside, side_by_side
from torchcno.operators.resampling import activation_matrices, resampling_matrix
from torchcno.operators.sigma import SIGMAS, Sigma

__all__ = [
    "BOUNDARIES",
    "SIGMAS",
    "Activation",
    "Block",
    "Boundary",
    "Branch",
    "Convolution",
    "Filter",
    "Ideal",
    "LowPass",
    "Nearest",
    "PointwiseActivation",
    "Sigma",
    "WindowedSinc",
    "activation_matrices",
    "aside",
    "conditioning_of",
    "filtered_activation",
    "is_conditioned",
    "lay_channels_last",
    "recompute",
    "recomputing",
    "resampling_matrix",
    "side_by_side",
]

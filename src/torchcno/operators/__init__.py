"""The elementary operators of a CNO on band-limited functions (section 2 of the paper)."""

from torchcno.operators.activation import (
    SIGMAS,
    Activation,
    PointwiseActivation,
    filtered_activation,
)
from torchcno.operators.convolution import Convolution
from torchcno.operators.filters import Boundary, Filter, Ideal, LowPass, Nearest, WindowedSinc
from torchcno.operators.resampling import activation_matrices, resampling_matrix

__all__ = [
    "SIGMAS",
    "Activation",
    "Boundary",
    "Convolution",
    "Filter",
    "Ideal",
    "LowPass",
    "Nearest",
    "PointwiseActivation",
    "WindowedSinc",
    "activation_matrices",
    "filtered_activation",
    "resampling_matrix",
]

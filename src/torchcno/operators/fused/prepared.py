"""The parts of a block with everything done beforehand that does not depend on the field."""

import torch
from torch import Tensor, nn

from torchcno.operators.activation import Activation
from torchcno.operators.convolution import Convolution


class PreparedConvolution(Convolution):
    """K with fixed weights, on a CPU in the order in which oneDNN reads them.

    By itself PyTorch reorders weights in every call, and leaves oneDNN for a slower way where a
    single small field comes.
    """

    def __init__(self, weight: Tensor, bias: Tensor, boundaries: tuple[str, ...]) -> None:
        nn.Module.__init__(self)
        self.boundaries = boundaries
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(bias, requires_grad=False)
        self._packed: dict[tuple[int, ...], Tensor] = {}  # by the shape of the field

    def forward(self, x: Tensor) -> Tensor:
        """K x, of the same size."""
        is_plane = x.ndim == 4 and x.device.type == "cpu" and x.dtype == torch.float32
        if not (is_plane and x.shape[0] and torch.backends.mkldnn.is_available()):
            return super().forward(x)
        x, padding = self.extended(x)
        x = x.contiguous(memory_format=torch.channels_last)
        way = [padding, padding], [1, 1], [1, 1], 1
        ops, shape = torch.ops.mkldnn, tuple(x.shape)
        if shape not in self._packed:
            weight = self.weight.detach().contiguous()
            self._packed = {shape: ops._reorder_convolution_weight(weight, *way, list(shape))}
        packed = self._packed[shape]
        y: Tensor = ops._convolution_pointwise(x, packed, self.bias, *way, "none", [], "")
        return y


class PreparedActivation(nn.Module):
    """Σ without its bias, which the convolution before has."""

    def __init__(self, activation: Activation) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Σ x."""
        own = self.activation
        if own.why_not_in_one_pass(x) is None:
            return own.in_one_pass(x, None)
        y: Tensor = own(x)
        return y

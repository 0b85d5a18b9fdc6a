"""Fourier Neural Operator (Li et al., 2021), section C.1 of the paper."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Complex, Float, Shaped
from torch import Tensor, nn

from torchcno.models.inputs import FieldsConfig, check_fields, coordinates
from torchcno.operators.conditioning import Conditioner, as_rows, modulate
from torchcno.selection import option
from torchcno.tracing import is_traced

# σ on the samples, with PyTorch's slope of 0.01: no filter and no gain.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"gelu": nn.GELU, "leaky_relu": nn.LeakyReLU}
COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True)
class FNOConfig(FieldsConfig):
    """Hyper-parameters of `FNO`; it runs on any grid."""

    layers: int = option(5, "Fourier layers (L)", least=1)
    width: int = option(16, "channels of the Fourier layers (d_v)", least=1)
    modes: int = option(16, "Fourier modes kept per axis (k_max)", least=1)
    pad: int = option(0, "zeros after the last point of each axis, in grid points", least=0)
    hidden_width: int = option(128, "hidden neurons of the lifting and the projection", least=1)
    coordinates: bool = option(True, "the lifting sees the coordinates beside u")
    # The authors' code has LeakyReLU, their text GELU.
    activation: str = option("leaky_relu", "activation function (σ)", choices=ACTIVATIONS)


class SpectralConvolution(nn.Module):
    """A convolution given by its first Fourier coefficients.

        (K v)(x) = Σ_{|k_x| < k_max, −k_max ≤ k_y < k_max} P(k) v̂(k) e^{2πi k·x}

    P(k) is a complex matrix from the channels of v to those of K v. v is real, so half of the plane
    of modes is enough: 0 ≤ k_x < k_max with −k_max ≤ k_y < k_max. A grid that resolves fewer modes
    uses those it has. In one dimension there is k_x alone, in three k_z is as k_y.

    With so few modes the transforms are matrix products, and make no mode that is not kept. Those
    of a grid of `size` are kept ready. All axes but x are taken as one, called y here.
    """

    to_x: Tensor

    def __init__(
        self, in_channels: int, out_channels: int, modes: int, size: tuple[int, ...] = (64, 64)
    ) -> None:
        super().__init__()
        self.modes, self.size = modes, tuple(size)
        # Modes lead: the product below is one batched matrix product that moves no weights.
        shape = (*[2 * modes] * (len(size) - 1), modes, in_channels, out_channels)
        scale = 1 / (in_channels * out_channels)  # the initial values of Li et al.
        self.weight = nn.Parameter(scale * torch.rand(*shape, dtype=torch.complex64))
        for name, matrix in fourier_matrices(self.size, modes).items():
            self.register_buffer(name, matrix.float(), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SpectralConvolution":
        super()._apply(lambda t: _moved(t, fn) if t.is_complex() else fn(t), recurse)
        # A cast starts from the exact numbers: `.double()` must not keep float32's rounding.
        for name, matrix in fourier_matrices(self.size, self.modes).items():
            setattr(self, name, matrix.to(getattr(self, name)))
        return self

    def matrices(self, v: Tensor, space: Sequence[int]) -> dict[str, Tensor]:
        """Those of `fourier_matrices` for the grid `space` and the type of v."""
        size = tuple(int(n) for n in space)
        if size == self.size and self.to_x.dtype == v.dtype:
            return dict(self.named_buffers())
        return {name: matrix.to(v) for name, matrix in fourier_matrices(size, self.modes).items()}

    def forward(self, v: Float[Tensor, "batch c *space"]) -> Float[Tensor, "batch d *space"]:
        space = v.shape[2:]
        if v.shape[0] == 0:  # nothing lies in memory that could be read as complex numbers
            return v.new_zeros(0, self.weight.shape[len(space) + 1], *space)
        weight = resolved_weight(self.weight, space, self.modes)
        v = v.reshape(*v.shape[:2], -1, space[-1])
        real = v.to(torch.promote_types(v.dtype, torch.float32))  # half precision has too few bits
        # Real and imaginary parts are an axis of their own: (batch, channel, k_y, part, x).
        with torch.autocast(v.device.type, enabled=False):
            m = self.matrices(real, space)
            rows = _along_y(m["to_y"], real).unflatten(2, (-1, 2)).flatten(3)
            v_hat = (rows @ m["to_x"]).unflatten(3, (2, -1)).permute(2, 4, 0, 1, 3).contiguous()
            in_reals = is_traced() or not weight.is_complex()
            product = (multiply_in_reals if in_reals else multiply_in_complex)(v_hat, weight)
            rows = product.permute(2, 3, 0, 4, 1).flatten(3) @ m["from_x"]
            rows = rows.unflatten(3, (2, -1)).flatten(2, 3)
            return _along_y(m["from_y"], rows).to(v.dtype).reshape(v.shape[0], -1, *space)


def multiply_in_complex(
    v_hat: Float[Tensor, "k_y k_x batch c 2"], weight: Complex[Tensor, "k_y k_x c d"]
) -> Float[Tensor, "k_y k_x batch d 2"]:
    """P(k) v̂(k) for every mode."""
    return torch.view_as_real(torch.view_as_complex(v_hat) @ weight.to(COMPLEX[v_hat.dtype]))


def multiply_in_reals(
    v_hat: Float[Tensor, "k_y k_x batch c 2"], weight: Shaped[Tensor, "k_y k_x c d *parts"]
) -> Float[Tensor, "k_y k_x batch d 2"]:
    """The same without complex numbers, for formats that have none; weights may be pairs of reals.

    (a + ib)(p + iq) = (a, b) [[p, q], [−q, p]]
    """
    pairs = torch.view_as_real(weight) if weight.is_complex() else weight
    p, q = pairs.to(v_hat.dtype).unbind(-1)
    matrix = torch.stack([torch.stack([p, q], -1), torch.stack([-q, p], -1)], dim=3)
    return (v_hat.flatten(3) @ matrix.flatten(4).flatten(2, 3)).unflatten(3, (-1, 2))


def _moved(weight: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """A complex weight on the device where `fn` leads, in the complex type beside the real one.

    `.to(torch.float64)` itself would drop the imaginary part. Half precision has too few bits for
    the modes: its complex type is that of float32.
    """
    real = fn(weight.real[:0])
    dtype = torch.promote_types(real.dtype, torch.complex64)
    if weight.is_meta:
        return torch.empty_like(weight, dtype=dtype, device=real.device)
    return weight.to(real.device, dtype)


def resolved(size: Sequence[int], modes: int) -> tuple[int, ...]:
    """Along every axis, how many of the first modes a grid of `size` resolves: of x from 0 on."""
    *others, n_x = (int(n) for n in size)
    return *(min(modes, n // 2) for n in others), min(modes, n_x // 2 + 1)


def resolved_weight(weight: Tensor, size: Sequence[int], modes: int) -> Tensor:
    """The weights of the modes that a grid of `size` resolves: (k_y, k_x, c, d, …)."""
    *others, k_x = resolved(size, modes)
    weight = weight.narrow(len(others), 0, k_x)
    for axis, k in enumerate(others):
        if k < modes:
            ends = weight.narrow(axis, 0, k), weight.narrow(axis, 2 * modes - k, k)
            weight = torch.cat(ends, dim=axis)
    return weight.reshape(-1, *weight.shape[len(others) :])


def fourier_matrices(size: tuple[int, ...], modes: int) -> dict[str, Tensor]:
    """Real fields to their first modes, along y and then along x, and the way back.

        to_y: ([k_y, part], y)     to_x: ([part, x], [part, k_x])

    with the real and the imaginary part of complex numbers as an axis, and y all axes but x. On the
    way back a mode k_x > 0 counts twice: with its conjugate at −k.
    """
    (*others, n_x), (*bands, k_x) = size, resolved(size, modes)
    phase = torch.zeros(1, 1, dtype=torch.float64)
    for n, k in zip(others, bands, strict=True):
        along = _phase(torch.cat([torch.arange(k), torch.arange(-k, 0)]), n)
        phase = (phase[:, None, :, None] + along[:, None]).flatten(2).flatten(0, 1)
    to_y = torch.stack([phase.cos(), -phase.sin()], dim=1).flatten(0, 1)
    phase = _phase(torch.arange(k_x), n_x).T
    cos, sin = phase.cos(), phase.sin()
    to_x = torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)])
    times = torch.full((k_x,), 2.0, dtype=torch.float64)
    times[0] = 1
    if 2 * (k_x - 1) == n_x:
        times[-1] = 1  # the highest mode of an even grid is its own conjugate
    from_x = (to_x * times.repeat(2)).T.contiguous() / n_x
    from_y = to_y.T.contiguous() / math.prod(others)
    return {"to_y": to_y, "to_x": to_x, "from_x": from_x, "from_y": from_y}


def _phase(k: Tensor, n: int) -> Tensor:
    """2πkj/n for the modes k (rows) at the points j (columns)."""
    return 2 * math.pi / n * torch.outer(k.double(), torch.arange(n, dtype=torch.float64))


def _along_y(matrix: Tensor, v: Tensor) -> Tensor:
    """The matrix times every plane of v (batch, channel, y, x), from the left."""
    planes = v.flatten(0, 1)
    return torch.bmm(matrix.expand(planes.shape[0], -1, -1), planes).unflatten(0, v.shape[:2])


class Pointwise(nn.Linear):
    """v(x) ↦ W v(x) + b at every point x: a 1×1 convolution, as one batched matrix product.

    The product is two to six times faster than `nn.Conv2d` on a CPU.
    """

    def forward(self, v: Float[Tensor, "batch c *space"]) -> Float[Tensor, "batch d *space"]:
        weight = self.weight.expand(v.shape[0], -1, -1)
        return torch.baddbmm(self.bias[:, None], weight, v.flatten(2)).unflatten(2, v.shape[2:])


class FourierLayer(nn.Module):
    """v ↦ σ(W v + b + K v), with the same weight W at every point."""

    def __init__(self, config: FNOConfig) -> None:
        super().__init__()
        width, size = config.width, tuple(n + config.pad for n in config.size)
        self.pointwise = Pointwise(width, width)
        self.spectral = SpectralConvolution(width, width, config.modes, size)
        self.sigma = ACTIVATIONS[config.activation]()

    def forward(self, v: Float[Tensor, "batch c *space"]) -> Float[Tensor, "batch c *space"]:
        activated: Tensor = self.sigma(self.pointwise(v) + self.spectral(v))
        return activated


class FNO(nn.Module):
    """G = Q ∘ L_L ∘ … ∘ L_1 ∘ R, with Fourier layers L_ℓ; runs on grids of any size.

    R lifts (u(x), x) and Q projects, both a network of one hidden layer at every point. The paper
    counts a complex weight once, and so does `Tensor.numel`. Where the configuration has scalars,
    they scale and shift the channels after each layer.
    """

    Config = FNOConfig

    def __init__(self, config: FNOConfig) -> None:
        super().__init__()
        self.config = config
        lifted = config.in_channels + (len(config.size) if config.coordinates else 0)
        self.lift = pointwise_network(config, lifted, config.width)
        self.layers = nn.Sequential(*(FourierLayer(config) for _ in range(config.layers)))
        self.project = pointwise_network(config, config.width, config.out_channels)
        if config.conditioning:
            widths = [config.width] * config.layers
            self.conditioner = Conditioner(len(config.conditioning), widths)

    def forward(
        self, u: Float[Tensor, "batch in_channels *space"], conditions: Tensor | float | None = None
    ) -> Float[Tensor, "batch out_channels *space"]:
        check_fields(u, self.config, least=2)
        rows, space = as_rows(conditions, self.config.conditioning, u), u.shape[2:]
        if self.config.coordinates:
            u = torch.cat([u, coordinates(u).expand(u.shape[0], -1, *space)], dim=1)
        v = F.pad(self.lift(u), (0, self.config.pad) * len(space))
        if rows is None:
            v = self.layers(v)
        else:
            for layer, modulation in zip(self.layers, self.conditioner(rows), strict=True):
                v = modulate(layer(v), modulation)
        for axis, n in enumerate(space, start=2):
            v = v.narrow(axis, 0, n)
        return self.project(v)


def pointwise_network(config: FNOConfig, in_channels: int, out_channels: int) -> nn.Sequential:
    """One hidden layer, applied at every point."""
    hidden = config.hidden_width
    return nn.Sequential(
        Pointwise(in_channels, hidden),
        ACTIVATIONS[config.activation](),
        Pointwise(hidden, out_channels),
    )

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from torchcno.grids import unit_positions
from torchcno.models.galerkin_transformer import (
    GalerkinAttention,
    GalerkinTransformer,
    GalerkinTransformerConfig,
    hat_functions,
    interpolate,
    scaled_sizes,
)
from torchcno.problems.allen_cahn import AllenCahn

SMALL = GalerkinTransformerConfig(
    blocks=2, heads=2, width=12, decoder_width=4, modes=3, feed_forward=8, dropout=0.2
)


@pytest.fixture
def attention() -> GalerkinAttention:
    torch.manual_seed(0)
    return GalerkinAttention(width=12, heads=3).double()


@pytest.fixture
def points() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    y = torch.randn(2, 30, 12, generator=generator, dtype=torch.float64)
    return y, torch.rand(30, 2, generator=generator, dtype=torch.float64)


def test_linear_attention_is_its_quadratic_form(
    attention: GalerkinAttention, points: tuple[torch.Tensor, torch.Tensor]
) -> None:
    q, k, v = attention.queries_keys_values(*points)
    all_pairs = q @ k.mT  # (batch, heads, n, n): what the linear form never builds
    heads = all_pairs @ v / 30
    expected = attention.mix(torch.cat(heads.unbind(1), dim=-1))
    torch.testing.assert_close(attention(*points), expected)


def test_attention_costs_in_proportion_to_the_points(attention: GalerkinAttention) -> None:
    def flops(n: int) -> int:
        with FlopCounterMode(display=False) as counter:
            attention(
                torch.zeros(1, n, 12, dtype=torch.float64), torch.zeros(n, 2, dtype=torch.float64)
            )
        return counter.get_total_flops()

    assert flops(4096) == 64 * flops(64)


def test_keys_and_values_are_normalised_queries_are_not(
    attention: GalerkinAttention, points: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """To a deviation of 1 far beyond the norm's ε, and to less where a new network's keys are."""
    for scale, least, most in ((1000, 0.999, 1), (0.1, 0.05, 0.6)):
        y = scale * points[0]
        q, k, v = (part[..., 2:] for part in attention.queries_keys_values(y, points[1]))
        torch.testing.assert_close(torch.cat(q.unbind(1), dim=-1), attention.query(y))
        for part, layer in ((k, attention.key), (v, attention.value)):
            torch.testing.assert_close(part.mean(-1), torch.zeros_like(part[..., 0]))
            variance = layer(y).unflatten(2, (3, 4)).transpose(1, 2).var(-1, correction=0)
            deviation = part.std(-1, correction=0)
            torch.testing.assert_close(deviation, (variance / (variance + 1e-5)).sqrt())
            assert least < deviation.mean() <= most


def test_attention_knows_no_order_of_the_points(
    attention: GalerkinAttention, points: tuple[torch.Tensor, torch.Tensor]
) -> None:
    y, positions = points
    order = torch.randperm(30, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        attention(y[:, order], positions[order]), attention(y, positions)[:, order]
    )


def test_nothing_is_random_in_evaluation() -> None:
    torch.manual_seed(0)
    model, u = GalerkinTransformer(SMALL), torch.randn(2, 1, 12, 16)
    assert not torch.equal(model(u), model(u))
    model.eval()
    assert torch.equal(model(u), model(u))


def test_a_double_network_is_double_throughout() -> None:
    types = {weight.dtype for weight in GalerkinTransformer(SMALL).double().parameters()}
    assert types == {torch.float64, torch.complex128}


@torch.no_grad()
def test_runs_on_finer_grids_and_converges() -> None:
    """Interpolation, quadrature and modes are of the function, not of its grid."""
    torch.manual_seed(0)
    model = GalerkinTransformer(SMALL).eval().double()
    # The 3×3 convolutions see grid points; with their centre alone they see the function.
    for module in model.modules():
        if isinstance(module, torch.nn.Conv2d):
            module.weight.data[..., [0, 2], :] = module.weight.data[..., [0, 2]] = 0.0

    def output(n: int) -> torch.Tensor:
        t = torch.arange(n, dtype=torch.float64) / n
        u = torch.sin(2 * torch.pi * (t[:, None] + 2 * t)).view(1, 1, n, n)
        return model(u)[..., :: n // 24, :: n // 24]

    reference = output(384)
    coarse, fine = (float((output(n) - reference).abs().mean()) for n in (48, 96))
    assert fine < 0.7 * coarse


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 2, 16, 16), "2 channels, but the model takes 1"),
        ((1, 1, 16, 3), "16 × 3 points is too small; give at least 4"),
    ],
)
def test_says_what_it_accepts(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GalerkinTransformer(SMALL)(torch.zeros(shape))


def test_says_which_heads_fit() -> None:
    with pytest.raises(ValueError, match="width 10 is not divisible by heads = 4; use width=8"):
        GalerkinTransformerConfig(width=10, heads=4)


@pytest.mark.parametrize("size", [(4, 3), (20, 13), (7, 9), (1, 5)])
def test_matrices_are_bilinear_interpolation(size: tuple[int, int]) -> None:
    v = torch.randn(2, 3, 7, 9, dtype=torch.float64, requires_grad=True)
    expected = F.interpolate(v, size=size, mode="bilinear", align_corners=True)
    torch.testing.assert_close(interpolate(v, size), expected, rtol=1e-12, atol=1e-12)
    cotangent = torch.randn_like(expected)
    by_products, by_points = (
        torch.autograd.grad(w, v, cotangent)[0] for w in (interpolate(v, size), expected)
    )
    torch.testing.assert_close(by_products, by_points, rtol=1e-12, atol=1e-12)


def test_the_coarse_grid_hides_no_mode_of_allen_cahn():
    """The way down to the attention's grid can be undone on the sine modes of the inputs."""

    def condition(modes: int) -> float:
        like = torch.zeros(1, dtype=torch.float64)
        down = hat_functions(46, 32, like) @ hat_functions(64, 46, like)
        sines = torch.sin(
            math.pi * unit_positions(64, "inclusive")[:, None] * torch.arange(1, modes + 1)
        )
        return float(torch.linalg.cond(down @ sines))

    sizes = scaled_sizes(torch.zeros(1, 1, 64, 64), GalerkinTransformerConfig().coarsening)
    assert sizes == ((46, 46), (32, 32))
    assert condition(AllenCahn().K) < 1.6
    assert condition(40) > 100  # more than 32 points can tell apart

"""Transonic flow past perturbed airfoils."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from torchcno.grids import Grid
from torchcno.problems.airfoil.euler import FreeStream
from torchcno.problems.airfoil.geometry import (
    AMPLITUDES,
    characteristic,
    crossing,
    perturbed,
    rae2822,
)
from torchcno.problems.airfoil.mesh import MeshConfig, c_mesh
from torchcno.problems.airfoil.steady import SteadyConfig, SteadyFlow, steady_flow
from torchcno.problems.problem import Problem, Resolution
from torchcno.selection import option

logger = logging.getLogger(__name__)

# After so many shapes in a row that cross or do not settle, the constants are to blame, not chance.
_MOST_DRAWS = 20


@dataclass(frozen=True)
class AirfoilFlow:
    """Flows past a batch of airfoils on the Cartesian grid."""

    density: Float[Tensor, "batch 1 y x"]  # ρ, 1 inside the airfoil
    mask: Bool[Tensor, "batch 1 y x"]  # inside
    lift: Float[Tensor, " batch"]  # C_L
    drag: Float[Tensor, " batch"]  # C_D
    converged: Bool[Tensor, " batch"]
    cycles: Int[Tensor, " batch"]  # that the solver took
    notes: tuple[str, ...]  # what became of each sample that did not converge, else empty


@dataclass(frozen=True)
class Airfoil(Problem):
    """Flow past airfoils: characteristic function of a shape ↦ density ρ of the steady Euler flow.

        div (ρv, ρv ⊗ v + p I, (E + p) v) = 0,   E = ½ρ|v|² + p / (γ − 1)

    γ = 1.4, Mach number 0.729 and incidence 2.31° far away, section 3 and SM "Flow past airfoils".
    The shape is RAE2822 with 10 Hicks-Henne bumps a side and coefficients ψ ~ U([0, 1]^20); 15 a
    side out of distribution. Finite volumes on a C-mesh, interpolated to the middles of the cells
    of a window; ρ = 1 inside the airfoil.

    The window is 1.25 chords wide, as in samples of the published data, which leave its edges open
    by 0.001 chords in y and 0.002 in x; the text's [−0.75, 1.75]² is not the data's. An airfoil is
    100 cells long and covers 816 ± 69 of them.

    A state is the characteristic function followed by the 2 × `bumps` coefficients as constant
    fields. On 128² cells the largest bump is one cell high, so that the function alone, which is
    what networks see, does not determine the shape to a solver's accuracy.
    """

    bumps: int = option(10, "bumps per side of the airfoil (n)", least=2)
    amplitudes: str = option(
        "range", "sizes of the bumps for n other than 10 (a_i)", choices=AMPLITUDES
    )
    window: tuple[tuple[float, float], tuple[float, float]] = option(
        ((-0.3125, 0.9375), (-0.129, 1.121)), "what networks see, in chords: (y, x) from, to"
    )
    stream: FreeStream = option(FreeStream(), "the flow far away (M^∞, α, p^∞)")
    mesh: MeshConfig = option(MeshConfig(), "mesh of the solver")
    steady: SteadyConfig = option(SteadyConfig(), "how the flow is found")

    name: ClassVar = "airfoil"
    scales: ClassVar = False
    version: ClassVar = 2
    layout: ClassVar = "cell-centred"
    boundary: ClassVar = "even"
    samples: ClassVar = {"train": 750, "val": 128, "test": 128, "ood": 128}
    ood: ClassVar = {"bumps": 15}
    resolution: ClassVar = 128
    normalized: ClassVar = False
    input_label: ClassVar = "airfoil"
    output_label: ClassVar = "density ρ"

    def __post_init__(self) -> None:
        super().__post_init__()
        reach = max(abs(edge) for axis in self.window for edge in axis)
        if reach > self.mesh.far_field / 2:
            raise ValueError(
                f"the window {self.window} reaches out of the mesh, whose far field lies "
                f"{self.mesh.far_field} chords away; use a smaller one or a larger far field."
            )

    @property
    def state_channels(self) -> int:  # type: ignore[override]  # here it depends on the constants
        """The characteristic function and the coefficients."""
        return 1 + 2 * self.bumps

    @property
    def extent(self) -> tuple[tuple[float, float], ...]:  # type: ignore[override]  # as above
        """The window."""
        return self.window

    def gpu_batch(self, resolution: Resolution) -> int:
        """How many flows a GPU computes at once, whatever the resolution of the data.

        Some 5,000 kernels a cycle wait for their launch while fewer flows than this run, and for
        memory when more do (0.7 GB a flow and cycle); a split of 128 is then one batch, none of it
        in vain.
        """
        return 128

    def sample_coefficients(self, generator: Generator) -> Float[Tensor, "1 coefficients"]:
        """ψ ~ U([0, 1]^2n), drawn again from the same generator while the surfaces cross."""
        for _ in range(_MOST_DRAWS):
            psi = torch.rand(1, 2 * self.bumps, generator=generator, dtype=torch.float64)
            if not crossing(perturbed(rae2822(), psi, self.amplitudes)).any():
                return psi
        raise ValueError(
            f"the surfaces of {_MOST_DRAWS} shapes in a row cross; use fewer bumps or "
            "amplitudes='range'."
        )

    def coarsened(self, share: float) -> None:
        """None: the mesh follows the airfoil, not the grid."""
        return

    def sample_inputs(self, grid: Grid, n: int, generator: Generator) -> Tensor:
        """`n` states: characteristic functions at the points of `grid`, and their coefficients."""
        psi = torch.cat([self.sample_coefficients(generator) for _ in range(n)])
        return self.states(psi, grid)

    def states(
        self, psi: Float[Tensor, "batch coefficients"], grid: Grid
    ) -> Float[Tensor, "batch channel y x"]:
        """The states of the shapes with coefficients ψ."""
        mask = characteristic(perturbed(rae2822(), psi, self.amplitudes), grid, psi.device)
        planes = psi[..., None, None].expand(-1, -1, *grid.shape)
        return torch.cat([mask[:, None].to(psi), planes], dim=1)

    def solve(self, inputs: Tensor) -> Tensor:
        """The density past the airfoils of states; an error names those that do not settle."""
        states = self.checked(inputs)
        flow = self.flow(states[:, 1:, 0, 0].contiguous(), states.shape[-1])
        if not flow.converged.all():
            raise ValueError("; ".join(filter(None, flow.notes)))
        return flow.density

    def observe(self, fields: Tensor) -> Tensor:
        """The characteristic function of a state, or the density."""
        return fields[:, :1]

    def restrict(self, fields: Tensor, resolution: Resolution) -> Tensor:
        """`fields`, which are made on the grid of the data."""
        return fields

    def mask(self, inputs: Tensor) -> Tensor:
        """Outside the airfoil, where outputs count."""
        return inputs[:, :1] < 0.5

    def flow(
        self, psi: Float[Tensor, "batch coefficients"], resolution: Resolution = 128
    ) -> AirfoilFlow:
        """The flows past the shapes with coefficients ψ ∈ [0, 1]^2n, n of the lower surface first.

        Float64 on the device of `psi`. A sample that crosses itself or does not settle is flagged,
        with a line in `notes`; the others go on.
        """
        if psi.ndim != 2 or psi.shape[1] != 2 * self.bumps:
            raise ValueError(
                f"coefficients of shape {tuple(psi.shape)} do not fit {self.bumps} bumps a side; "
                f"give (batch, {2 * self.bumps})."
            )
        psi = psi.to(torch.float64)
        if not ((psi >= 0) & (psi <= 1)).all():
            raise ValueError("coefficients ψ must lie in [0, 1].")
        shape = perturbed(rae2822(), psi, self.amplitudes)
        grid = self.grid(resolution)
        inside = characteristic(shape, grid, psi.device)
        steady = steady_flow(c_mesh(shape, self.mesh, psi.device), self.stream, self.steady)
        density = density_on(steady, grid).masked_fill(inside, 1.0)
        return AirfoilFlow(
            density[:, None],
            inside[:, None],
            steady.lift,
            steady.drag,
            steady.converged,
            steady.cycles,
            steady.notes(),
        )

    def pairs(
        self,
        generators: Sequence[Generator],
        resolution: Resolution,
        device: str | torch.device = "cpu",
    ) -> tuple[Tensor, Tensor]:
        """Characteristic functions and densities, one sample a generator, float64 on the CPU.

        A shape whose flow does not settle is reported in the log and drawn again from the sample's
        own generator, so that a sample depends on its generator alone and none that is unsettled
        gets through.
        """
        size = (len(generators), 1, *self.grid(resolution).shape)
        inputs, outputs = (torch.empty(size, dtype=torch.float64) for _ in range(2))
        waiting = list(range(len(generators)))
        for draw in range(1, _MOST_DRAWS + 1):
            psi = torch.cat([self.sample_coefficients(generators[k]) for k in waiting]).to(device)
            batches = psi.split(1) if psi.device.type == "cpu" else [psi]
            flows = [self.flow(batch, resolution) for batch in batches]
            converged = torch.cat([flow.converged for flow in flows]).cpu()
            inputs[waiting] = torch.cat([flow.mask for flow in flows]).cpu().to(torch.float64)
            outputs[waiting] = torch.cat([flow.density for flow in flows]).cpu()
            waiting = [
                k for k, settled in zip(waiting, converged.tolist(), strict=True) if not settled
            ]
            if not waiting:
                return inputs, outputs
            for note in (note for flow in flows for note in flow.notes if note):
                logger.warning("draw %d is dropped and made again: %s", draw, note)
        raise ValueError(
            f"{len(waiting)} of {len(generators)} flows did not settle in {_MOST_DRAWS} draws; use "
            "more steady.cycles, a smaller steady.cfl, or gentler shapes."
        )


def density_on(flow: SteadyFlow, grid: Grid) -> Float[Tensor, "batch y x"]:
    """The density at the points of `grid`: bilinear in the indices of the mesh.

    From the middles of the cells and from the values on the wall and on the cut. In the window of
    the data the default mesh leaves 0.04 to 0.06 % of the density to interpolation and 0.14 % to
    the solver, both at the shock: there the cells of the mesh are 2.5 times as long as the data's.
    """
    mesh, wake = flow.mesh, flow.mesh.config.wake
    rho = flow.state[:, 0]
    columns = rho.shape[2]
    y, x = (axis.to(rho.device).flatten() for axis in grid.mesh())
    i, j = mesh.indices(x, y)

    cut = 0.5 * (rho[:, 0] + rho[:, 0].flip(-1))
    share = mesh.areas[:, 0] / (mesh.areas[:, 0] + mesh.areas[:, 1])
    wall = rho[:, 0] + (rho[:, 0] - rho[:, 1]) * share
    on_wall = torch.arange(columns, device=rho.device)
    on_wall = (on_wall >= wake) & (on_wall < columns - wake)
    values = torch.cat([torch.where(on_wall, wall, cut)[:, None], rho], dim=1)

    # Row 0 is the wall at j = 0, row k the middles at j = k − ½.
    row = torch.where(j < 0.5, 2 * j, j + 0.5).clamp(max=values.shape[1] - 1)
    column = (i - 0.5).clamp(0, columns - 1)
    top, left = (
        c.floor().long().clamp(max=n - 2) for c, n in ((row, values.shape[1]), (column, columns))
    )
    a, b = row - top, column - left
    flat = values.flatten(1)

    def at(down: int, right: int) -> Tensor:
        return flat.gather(1, (top + down) * columns + left + right)

    below = torch.lerp(at(0, 0), at(0, 1), b)
    above = torch.lerp(at(1, 0), at(1, 1), b)
    return torch.lerp(below, above, a).unflatten(1, grid.shape)

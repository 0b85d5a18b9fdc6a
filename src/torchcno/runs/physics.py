"""The equation of a problem, as training sees it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data.normalization import Normalization
from torchcno.problems import PROBLEMS, Problem
from torchcno.problems.sine_space import multiply_modes
from torchcno.runs.config import RunConfig

FieldBatch = Float[Tensor, "batch 1 n n"]


@dataclass(frozen=True)
class ScaledEquation:
    """What scaled outputs leave of a Dirichlet problem on the unit square, sample by sample:

        (−Δ)^{−1/2} r(u, v) / ‖(−Δ)^{−1/2} r(u, 0)‖₂   inside,      v / (max − min)   on the edge

    r is the residual of the PDE in physical fields. Its norm in H⁻¹ is the error's energy norm, up
    to constants; that in L² is the error's in H², which is nearly blind for what is smooth.
    """

    problem: Problem
    scaling: Normalization
    order: float = 1.0  # of the dual norm

    def __call__(self, inputs: FieldBatch, outputs: FieldBatch) -> FieldBatch:
        """The field whose mean square training makes small."""
        u = self.scaling.denormalize_inputs(inputs.double())
        v = self.scaling.denormalize_outputs(outputs.double())
        left, of_zero = (self._weak(self.problem.imbalance(u, w)) for w in (v, torch.zeros_like(v)))
        inside = left / of_zero.square().mean((1, 2, 3), keepdim=True).sqrt()
        ((low, high),) = self.scaling.constants("output")
        edge = v / (high - low)
        return inside + edge * _edge(v)

    def _weak(self, residual: FieldBatch) -> FieldBatch:
        return multiply_modes(residual, lambda k2: k2 ** (-self.order / 2))


def _edge(like: FieldBatch) -> Tensor:
    """1 on the edge, 0 inside."""
    edge = torch.ones_like(like[:1, :1])
    edge[..., 1:-1, 1:-1] = 0
    return edge


def refuse_without_equation(config: RunConfig) -> None:
    """Refuse a share of the equation in the loss where input and output do not tell it."""
    share, problem = config.train.physics, config.problem
    if not share or (isinstance(problem, Problem) and problem.has_residual and not config.times):
        return
    known = ", ".join(name for name, kind in PROBLEMS.items() if kind.has_residual)
    raise ValueError(
        f"physics is {share:g}, and {problem.name} has no residual of input and output alone; use "
        f"physics 0, or a problem that has one: {known}."
    )

"""Training by the equation itself: what outputs leave of it, beside what they leave of the data."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

FieldBatch = Float[Tensor, "batch channel *space"]
# (inputs, outputs) as the network sees them -> what they leave of the equation, a field whose mean
# square is 1 for outputs of zero
Equation = Callable[[Tensor, Tensor], Tensor]


class Informed(nn.Module):
    """A network whose outputs have as further channels what they leave of the equation."""

    def __init__(self, network: nn.Module, equation: Equation) -> None:
        super().__init__()
        self.network, self.equation = network, equation

    def forward(self, inputs: FieldBatch) -> Float[Tensor, "batch outputs *space"]:
        """Outputs ⊕ residual."""
        outputs: Tensor = self.network(inputs)
        return torch.cat([outputs, self.equation(inputs, outputs).to(outputs)], dim=1)


def informed_loss(
    loss: Callable[[Tensor, Tensor], Tensor], share: float
) -> Callable[[Tensor, Tensor], Tensor]:
    """(1 − s) loss(v, target) + s (1/B) Σ_i ‖residual_i‖₂ of what `Informed` returns, s = `share`.

    With s = 1 targets play no part.
    """

    def both(
        prediction: Float[Tensor, "batch outputs *space"], target: FieldBatch
    ) -> Float[Tensor, ""]:
        outputs, residual = prediction.tensor_split([target.shape[1]], dim=1)
        of_equation = residual.square().flatten(1).mean(1).sqrt().mean()
        if share == 1:
            return of_equation
        return (1 - share) * loss(outputs, target) + share * of_equation

    return both

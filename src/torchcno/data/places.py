"""Whether outputs depend on the place, which a periodic network cannot tell."""

from jaxtyping import Float
from torch import Tensor

from torchcno.data.fields import Fields

CHANCE = 10.0  # variation of a mean over places, beyond that of chance, that is no chance


def place_dependence(u: Float[Tensor, "sample channel *space"]) -> float:
    """How far the mean over samples varies in space, over what chance leaves of it.

        mean_x (m(x) − m̄)² / (mean_x s(x)² / n),   m, s: mean and deviation of n samples at x

    About 1 where no place differs from another, and of the order of n where one does. The largest
    of the channels.
    """
    u = u.double().flatten(2)
    mean, variance = u.mean(0), u.var(0)
    varies = (mean - mean.mean(1, keepdim=True)).square().mean(1)
    chance = variance.mean(1) / len(u)
    return float((varies / chance).nan_to_num(nan=0.0).max())


def outputs_know_places(fields: Fields) -> bool:
    """Whether outputs differ from place to place where inputs do not.

    An operator that commutes with translations, of inputs that are alike everywhere, has outputs
    that are alike everywhere. So here a force or a coefficient stays in its place.
    """
    if len(fields) < 2:
        return False
    of_inputs, of_outputs = map(place_dependence, (fields.inputs, fields.outputs))
    return of_outputs > CHANCE * max(1.0, of_inputs)

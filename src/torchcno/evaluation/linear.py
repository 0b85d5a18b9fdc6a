"""What an error means: that of the best linear map, which knows samples and no PDE."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchcno.data.fields import Fields

PENALTIES = tuple(10.0**k for k in range(-12, 1, 2))


def linear_map(train: Fields) -> Callable[[Tensor, float], Tensor]:
    """Ridge regression from inputs to outputs, as a function of inputs and of the penalty λ:

        G(u) = v̄ + W(u − ū),   W = argmin Σ_i ‖v_i − v̄ − W(u_i − ū)‖² + λ σ² ‖W‖²

    with σ² the largest eigenvalue of the Gram matrix K = (⟨u_i − ū, u_j − ū⟩), so that λ has no
    unit. In terms of the samples W(u − ū) = Σ_ij ⟨u − ū, u_i − ū⟩ (K + λσ²)⁻¹_ij (v_j − v̄). Where
    the solution operator is linear and there are more samples than inputs have dimensions, this is
    the operator itself.
    """
    u, v = (t.double().flatten(1) for t in (train.inputs, train.outputs))
    mean_u, mean_v = u.mean(0), v.mean(0)
    u, v = u - mean_u, v - mean_v
    values, vectors = torch.linalg.eigh(u @ u.T)
    values = values.clamp(min=0)  # but for rounding, none is negative
    rotated = vectors.T @ v

    def predict(inputs: Tensor, penalty: float) -> Tensor:
        alike = (inputs.double().flatten(1) - mean_u) @ u.T @ vectors
        outputs = mean_v + alike / (values + penalty * values[-1]) @ rotated
        return outputs.to(train.outputs).unflatten(1, train.outputs.shape[1:])

    return predict

"""What an error means: that of a predictor which has learnt nothing but an average."""

import torch
from jaxtyping import Float
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.statistics import BLOCK
from torchcno.data.stored import StoredFields


def mean_field(
    train: Fields | StoredFields, inputs: Float[Tensor, "sample in_channel *space"]
) -> Float[Tensor, "sample out_channel *space"]:
    """The training set's mean output, whatever the input:

        G(u) = (1/N) Σ_i v_i

    The best of all constant predictors in the mean square over the training set.
    """
    sums = [block.outputs.double().sum(0) for block in train.blocks(BLOCK)]
    mean = (torch.stack(sums).sum(0) / len(train)).to(inputs)
    return mean.expand(len(inputs), *mean.shape)

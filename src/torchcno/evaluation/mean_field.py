"""What an error means: that of a predictor which has learnt nothing but an average."""

import torch
from torch import Tensor

from torchcno.data.fields import Fields
from torchcno.data.statistics import BLOCK
from torchcno.data.stored import StoredFields


def mean_field(train: Fields | StoredFields) -> Tensor:
    """The training set's mean output, (out_channel, *space), which is predicted whatever the input:

        G(u) = (1/N) Σ_i v_i

    The best of all constant predictors in the mean square over the training set. In float64.
    """
    sums = [block.outputs.double().sum(0) for block in train.blocks(BLOCK)]
    return torch.stack(sums).sum(0) / len(train)

"""What an error means: that of a predictor which has learnt nothing but an average."""

from jaxtyping import Float
from torch import Tensor

from torchcno.data.fields import Fields


def mean_field(
    train: Fields, inputs: Float[Tensor, "sample in_channel *space"]
) -> Float[Tensor, "sample out_channel *space"]:
    """The training set's mean output, whatever the input:

        G(u) = (1/N) Σ_i v_i

    The best of all constant predictors in the mean square over the training set.
    """
    mean = train.outputs.double().mean(0).to(train.outputs)
    return mean.expand(len(inputs), *mean.shape)

from collections.abc import Callable

import pytest
from torch import nn

from torchcno.operators import Activation


@pytest.fixture
def in_double_with_rounded_taps() -> Callable[[nn.Module], nn.Module]:
    """The reference's float64 numbers were made with taps that had been rounded to float32."""

    def cast(model: nn.Module) -> nn.Module:
        rounded = {
            module: {name: value.double() for name, value in module.named_buffers()}
            for module in model.modules()
            if isinstance(module, Activation)
        }
        model.double()
        for module, buffers in rounded.items():
            for name, value in buffers.items():
                setattr(module, name, value)
        return model

    return cast

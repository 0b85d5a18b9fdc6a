"""Which state of a matrix something was made from."""

from torch import Tensor


def version(matrix: Tensor) -> int:
    """How often `matrix` was changed in place; inference tensors do not count that."""
    return 0 if matrix.is_inference() else matrix._version

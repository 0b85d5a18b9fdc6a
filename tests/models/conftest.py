from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def as_outside_tests() -> Iterator[None]:
    """No checks of annotations, which would speak before the package's own."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)

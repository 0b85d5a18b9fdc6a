import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def small_run():
    """The module of the run that has all kinds of state."""
    path = Path(__file__).with_name("small_run.py")
    spec = importlib.util.spec_from_file_location("small_run", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

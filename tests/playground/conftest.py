import contextlib
import importlib.util
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from torchcno.data.normalization import Normalization
from torchcno.playground.answers import Playground, open_playground
from torchcno.playground.server import PlaygroundServer
from torchcno.problems import Problem
from torchcno.runs.config import RunConfig
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.presets import model_class


@pytest.fixture(scope="session")
def small(tiny_run: Path) -> Playground:
    """A playground with a network of some thousand weights, of Poisson's equation at 24²."""
    return open_playground([tiny_run])


@pytest.fixture(scope="session")
def untrained() -> Callable[..., Playground]:
    """A playground with an untrained network."""

    def make(problem: Problem, resolution: int = 32) -> Playground:
        config = RunConfig.resolve(problem, "resnet", resolution=resolution)
        network = model_class("resnet")(config.architecture)
        grid = problem.grid(resolution)
        operator = TrainedOperator(network, Normalization.identity(), grid, "resnet", problem.name)
        return Playground({"resnet": operator}, problem)

    return make


@contextlib.contextmanager
def serve(playground: Playground, **others: Callable[[], Playground]) -> Iterator[PlaygroundServer]:
    """A server in a thread of its own; `others` open playgrounds of other problems."""
    first = playground.setup()["problem"]
    with PlaygroundServer({first: lambda: playground, **others}) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def server(small: Playground) -> Iterator[PlaygroundServer]:
    """The server of `small`."""
    with serve(small) as server:
        yield server


@pytest.fixture
def serving() -> Callable[..., contextlib.AbstractContextManager[PlaygroundServer]]:
    """Servers of other playgrounds."""
    return serve


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium."""
    spec = importlib.util.spec_from_file_location("browser", Path(__file__).with_name("browser.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser

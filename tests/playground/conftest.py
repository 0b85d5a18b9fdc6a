import importlib.util
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchcno.playground.answers import Playground, open_playground
from torchcno.playground.server import PlaygroundServer


@pytest.fixture(scope="session")
def small(tiny_run: Path) -> Playground:
    """A playground with a network of some thousand weights, of Poisson's equation at 24²."""
    return open_playground([tiny_run])


@pytest.fixture(scope="session")
def server(small: Playground) -> Iterator[PlaygroundServer]:
    """Its server, which answers until the tests end."""
    server = PlaygroundServer(small)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium."""
    spec = importlib.util.spec_from_file_location("browser", Path(__file__).with_name("browser.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.open_browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser

"""The page as one file: the same numbers without a server."""

import functools
import http.server
import io
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchcno.data.normalization import Normalization
from torchcno.playground import static
from torchcno.playground.answers import Playground, View, open_playground
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.pretrained import pretrained

in_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="there is no Chromium here"
)
READY = "typeof state !== 'undefined' && document.body.dataset.settled == state.version"
SCENE = {
    "seed": 3,
    "blobs": [[0.3, 0.6, 0.1, 0.5]],
    "rings": [[0.7, 0.2, 0.05, -1.0], [0.5, 0.5, 0.08, 0.3]],
}
# In place of onnxruntime: a network that squares its input.
SQUARES = b"""
export const env = { wasm: {} };
export class Tensor { constructor(kind, data, dims) { Object.assign(this, { data, dims }); } }
export const InferenceSession = { create: async () => ({
  run: async ({ input }) =>
    ({ output: new Tensor("", input.data.map((v) => v * v), input.dims) }) }) };
"""


class Squares(torch.nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.weight = config, torch.nn.Parameter(torch.ones(()))

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return u**2 * self.weight


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A folder, and the address under which a plain web server serves it."""
    folder = tmp_path_factory.mktemp("site")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *words: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def ask(browser: Any, what: str, view: View) -> dict[str, np.ndarray]:
    plain = {"scene": view.scene, "resolution": view.resolution, "shift": view.shift}
    plain["constants"] = view.constants
    found = browser.run(
        f"engine.ask('{what}', {json.dumps(plain)}).then(r => Object.fromEntries("
        "Object.entries(r.fields).map(([k, f]) => [k, [f.shape, [...f.values]]])))"
    )
    return {name: np.array(values).reshape(shape) for name, (shape, values) in found.items()}


def open_static(browser: Any, address: str) -> None:
    browser.events.clear()
    browser.resize(1400, 900)
    browser.open("about:blank")
    browser.open(address)
    browser.wait(READY, 120)


def compare(browser: Any, playground: Playground, views: list[View]) -> None:
    """The page's fields are the playground's, to 1e-4 of the largest value."""
    for view in views:
        size = float(playground.answer(view).fields["answer 0"].abs().max())
        for what in ("answer", "truth", "doubt"):
            expected = getattr(playground, what)(view).fields
            found = ask(browser, what, view)
            assert found.keys() == expected.keys()
            for name, field in expected.items():
                scale = float(field.abs().max()) if what != "doubt" else size
                assert np.abs(found[name] - field[0].numpy()).max() <= 1e-4 * scale, (view, name)


@pytest.fixture
def playground(small: Playground) -> Playground:
    """A playground with a network that squares its input."""
    network = Squares(next(iter(small.networks.values())).network.config)
    operator = TrainedOperator(network, Normalization.identity(), small.grid, "cno", "poisson")
    return Playground({"cno": operator}, small.problem)


@in_browser
def test_it_computes_what_the_playground_computes(playground, site, browser):
    parts = {"loader": SQUARES, "binary": b"", "network": b""}
    folder, address = site
    (folder / "page.html").write_text(static.render_static_page(playground, parts))
    open_static(browser, f"{address}/page.html")
    constants = {"K": 4, "r": -0.5}
    views = [
        View(SCENE, 24, constants=constants),
        View(SCENE, 24, shift=0.4, constants={"K": 9, "r": 0.7}),
        View({**SCENE, "seed": None}, 24, constants=constants),
    ]
    compare(browser, playground, views)
    assert browser.complaints() == []
    sent = [url for url in browser.requests() if not url.startswith(("blob:", "data:"))]
    assert sent == [f"{address}/page.html"]


def test_only_grids_with_the_networks_own_numbers_are_offered(small, playground):
    assert static.is_equal_by_resampling(small, 24)
    assert static.is_equal_by_resampling(small, 36)  # a CNO resamples to its training grid
    # Squares have finer scales than the training grid.
    assert not static.is_equal_by_resampling(playground, 36)


def test_another_runtime_is_refused(tmp_path):
    path = tmp_path / "runtime.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name in static.HASHES:
            entry = tarfile.TarInfo(f"package/dist/{name}")
            archive.addfile(entry, io.BytesIO(b""))
    with pytest.raises(ValueError, match=r"is not that of onnxruntime-web@"):
        static.read_runtime(path)


def test_a_problem_without_a_solver_of_matrices_is_refused(tmp_path):
    with pytest.raises(ValueError, match="solves poisson, wave alone"):
        static.write_static_page(pretrained()["navier-stokes"], tmp_path / "page.html")


@pytest.mark.slow
@in_browser
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no npm here")
def test_the_network_in_the_page_is_the_one_of_torch(site, browser):
    run = pretrained()["poisson"]
    folder, address = site
    static.write_static_page(run, folder / "poisson.html")
    constants = {"K": 16, "r": -0.5}
    views = [View(SCENE, n, shift=0.25, constants=constants) for n in (64, 48, 128)]
    for place in (f"{address}/poisson.html", f"file://{folder / 'poisson.html'}"):
        open_static(browser, place)
        compare(browser, open_playground([run]), views)
        assert browser.complaints() == []
        sent = [url for url in browser.requests() if not url.startswith(("blob:", "data:"))]
        assert sent == [place]

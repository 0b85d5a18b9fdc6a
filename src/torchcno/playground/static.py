"""The page as one file, with the network inside: for a site that serves files and computes nothing.

The network is an ONNX file, which onnxruntime-web runs in the browser. The solver is a matrix: the
solutions of the problems that have such a page are diagonal in the sine modes of the grid,

    u = B (m ∘ (F f Fᵀ)) Bᵀ,   F: samples to modes, B: back

Python makes F, B and m, and the matrices between grids, for every grid that the page offers.
"""

import base64
import gzip
import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from torchcno.disk import write_atomically
from torchcno.playground.answers import Playground, View, open_playground
from torchcno.playground.page import fill_page, read_asset
from torchcno.problems.poisson import Poisson
from torchcno.problems.random_fields import uniform
from torchcno.problems.sine_space import sine_pair
from torchcno.problems.wave import Wave
from torchcno.runs.export import TOLERANCE, export_file
from torchcno.spectral import resampling_matrix

PACKAGE = "onnxruntime-web@1.30.0"
LOADER, BINARY = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
HASHES = {
    LOADER: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    BINARY: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
SCRIPTS = ("fields.js", "drawing.js", "static.js", "page.js")
PROBLEMS = (Poisson, Wave)  # random sine series in, diagonal in sine modes
EXAMPLES = 24  # random inputs on the page
FINEST = 128
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval' blob:; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


def write_static_page(run: Path, out: Path, runtime: Path | None = None) -> int:
    """Write the page of a run to one file; returns its size in bytes.

    `runtime` is the npm package of onnxruntime-web as a .tgz file; None: npm fetches it.
    """
    playground = open_playground([run])
    if not isinstance(playground.problem, PROBLEMS):
        names = ", ".join(problem.name for problem in PROBLEMS)
        raise ValueError(
            f"a page without a server solves {names} alone, and {run} is of "
            f"{playground.setup()['problem']}; use `cno playground {run}`."
        )
    parts = read_runtime(runtime)
    with tempfile.TemporaryDirectory() as folder:
        network = Path(folder) / "network.onnx"
        export_file(run, network, "onnx")
        parts["network"] = network.read_bytes()
    page = render_static_page(playground, parts).encode()
    write_atomically(out, page)
    return len(page)


def read_runtime(package: Path | None) -> dict[str, bytes]:
    """The two files of onnxruntime-web, once they are known to be the ones that were tried."""
    with tempfile.TemporaryDirectory() as folder:
        tarball = fetch_runtime(Path(folder)) if package is None else package
        with tarfile.open(tarball) as archive:
            found = {name: archive.extractfile(f"package/dist/{name}") for name in HASHES}
            contents = {name: file.read() for name, file in found.items() if file is not None}
    for name, digest in HASHES.items():
        if hashlib.sha256(contents.get(name, b"")).hexdigest() != digest:
            raise ValueError(f"{name} is not that of {PACKAGE}; give the package of that version.")
    return {"loader": contents[LOADER], "binary": contents[BINARY]}


def fetch_runtime(folder: Path) -> Path:
    """The package of onnxruntime-web, fetched by npm."""
    command = ["npm", "pack", PACKAGE, "--silent"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(
            f"npm could not fetch {PACKAGE} ({error}); install Node.js, or give the file that "
            f"`npm pack {PACKAGE}` makes elsewhere as --runtime."
        ) from error
    (tarball,) = folder.glob("*.tgz")
    return tarball


def render_static_page(playground: Playground, parts: Mapping[str, bytes]) -> str:
    """The page with everything inside."""
    setup = playground.setup()
    setup["resolutions"] = [
        n for n in setup["resolutions"] if is_equal_by_resampling(playground, n)
    ]
    setup["static"] = describe_inputs(playground, setup["resolutions"])
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    style = f"{policy}\n<style>\n{read_asset('page.css')}</style>"
    data = [
        f'<script type="text/plain" id="{name}">{base64.b64encode(gzip.compress(part)).decode()}'
        "</script>"
        for name, part in parts.items()
    ]
    code = [f"<script>\n{read_asset(name)}</script>" for name in SCRIPTS]
    return fill_page(style, "\n".join([*data, *code]), setup)


def describe_inputs(playground: Playground, resolutions: list[int]) -> dict[str, Any]:
    """What the page computes inputs and truths from."""
    most = int(playground.range_of("K")[1])
    draws = [
        uniform((-1.0, 1.0), most * most, generator=Generator().manual_seed(seed))
        for seed in range(EXAMPLES)
    ]
    (trained, _) = playground.grid.shape
    grids = {
        str(n): {
            **sine_matrices(playground.problem, n),
            "down": plain(resampling_matrix(n, trained, "inclusive", "linear-odd")),
            "up": plain(resampling_matrix(trained, n, "inclusive", "linear-odd")),
        }
        for n in resolutions
    }
    return {
        "unit": playground.frame.unit,
        "draws": [plain(draw) for draw in draws],
        "grids": grids,
    }


def sine_matrices(problem: Any, n: int) -> dict[str, str]:
    """F, B and m on n² points; m is what the solver makes of a source with all modes equal."""
    forward, backward = sine_pair(n, torch.device("cpu"))
    source = backward @ torch.ones(n - 2, n - 2, dtype=torch.float64) @ backward.T
    m = forward @ problem.solve(source[None, None])[0, 0] @ forward.T
    return {"forward": plain(forward), "backward": plain(backward), "multiplier": plain(m)}


def is_equal_by_resampling(playground: Playground, n: int) -> bool:
    """Whether the network on n² points is the one on the training grid between two resamplings."""
    (operator,) = playground.networks.values()
    (trained, _) = playground.grid.shape
    if n == trained:
        return True
    if n > FINEST:
        return False
    inputs = playground.answer(View({"seed": 0}, n)).fields["input"]
    down, up = (
        resampling_matrix(a, b, "inclusive", "linear-odd") for a, b in ((n, trained), (trained, n))
    )
    try:
        v = operator.apply_to(inputs)
    except ValueError:
        return False
    w = up @ operator.apply_to(down @ inputs @ down.T).double() @ up.T
    return bool((v - w).abs().max() <= TOLERANCE * v.abs().max())


def plain(matrix: Tensor) -> str:
    """Numbers as the page reads them: base64 of little-endian float32."""
    return base64.b64encode(matrix.float().numpy().astype("<f4").tobytes()).decode()

"""Files that run where torchcno is not: every network, by ONNX and by PyTorch alone."""

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from torchcno import CNO, CNOConfig, Grid, Normalization, TrainedOperator
from torchcno.disk import write_json
from torchcno.models import ABLATIONS, MODELS
from torchcno.runs import export
from torchcno.runs.export import export_file
from torchcno.runs.folder import RunFolder, load
from torchcno.runs.rollout import EvolutionOperator
from torchcno.training.checkpoint import save_tensors
from torchcno.training.propagator import Propagator

NETWORKS = [name for name in MODELS if name not in ABLATIONS]
SMALL = {
    "cno": {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 1, "lift_width": 4},
    "time-cno": {"levels": 1, "width": 4, "neck_blocks": 1, "skip_blocks": 1, "lift_width": 4},
    "fno": {"layers": 2, "width": 4, "modes": 4, "pad": 2, "hidden_width": 4},
    "unet": {"channels": 2},
    "resnet": {"channels": 4, "residual_blocks": 1},
    "deeponet": {"bases": 8, "trunk_layers": 2, "branch_levels": 1, "residual_blocks": 1},
    "ffnn": {"layers": 3, "width": 8},
    "galerkin-transformer": {"blocks": 1, "decoder_layers": 1, "modes": 4},
}
# Two channels in other units: either the scaling is inside, or the numbers differ.
SCALING = Normalization((-3.0, 1e3), (5.0, 4e3), -0.5, 1.5)

ELSEWHERE = """
import hashlib
import importlib.util, json, sys
from pathlib import Path
import numpy as np
import onnxruntime
import torch

assert importlib.util.find_spec("torchcno") is None
differences = {}
for file in sorted(Path(sys.argv[1]).glob("*.*")):
    if file.suffix not in (".onnx", ".pt2"):
        continue
    u, v = (np.load(file.with_name(f"{file.stem}-{what}.npy")) for what in ("in", "out"))
    if file.suffix == ".onnx":
        session = onnxruntime.InferenceSession(file)
        (w,) = session.run(None, {session.get_inputs()[0].name: u})
    else:
        w = torch.export.load(file).module()(torch.from_numpy(u)).numpy()
    differences[file.name] = float(abs(v - w).max() / abs(v - v.mean()).max())
print(json.dumps(differences))
"""


def write_run(folder: Path, name: str, size: tuple[int, ...] = (16, 16), **fields: object) -> Path:
    """The folder of a network as it is built, with statistics of layers as after training."""
    torch.manual_seed(0)
    model = MODELS[name]
    config = model.Config(in_channels=2, size=size, **{**SMALL.get(name, {}), **fields})
    operator = TrainedOperator(
        model(config), SCALING, Grid(size, "periodic", ((0.0, 2.0),) * len(size)), name, "heat"
    )
    for buffer_name, buffer in operator.network.named_buffers():
        if buffer_name.endswith("running_mean"):
            buffer.copy_(0.2 * torch.rand_like(buffer) - 0.1)
        if buffer_name.endswith("running_var"):
            buffer.copy_(0.01 + 0.1 * torch.rand_like(buffer))
    if hasattr(operator.network, "conditioner"):  # nothing at the start
        torch.nn.init.normal_(operator.network.conditioner.scales_and_shifts.weight)
    target = RunFolder(folder / name)
    target.path.mkdir(parents=True)
    write_json(operator.description(), target.model_file)
    save_tensors(target.weights, operator.network.state_dict())
    return target.path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    return {name: write_run(folder, name) for name in NETWORKS}


def test_a_program_without_torchcno_gets_the_same_numbers(runs, tmp_path):
    u = np.random.default_rng(0).random((5, 2, 16, 16)).astype(np.float32)
    u *= np.array([8, 3e3], np.float32)[:, None, None]  # in units of each channel
    for name, run in runs.items():
        for format in export.FORMATS:
            assert export_file(run, tmp_path / f"{name}.{format}", format).difference < 1e-5
        np.save(tmp_path / f"{name}-in.npy", u)
        np.save(tmp_path / f"{name}-out.npy", load(run).apply_to(u).numpy())
    # Packages are found, and no links to checkouts of others: those are read by `site`.
    packages = Path(str(importlib.util.find_spec("torch").origin)).parents[1]  # type: ignore[union-attr]
    process = subprocess.run(
        [sys.executable, "-S", "-c", ELSEWHERE, str(tmp_path)],
        env={"PYTHONPATH": str(packages), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-2000:]
    differences = json.loads(process.stdout.splitlines()[-1])
    assert differences.keys() == {f"{name}.{end}" for name in NETWORKS for end in export.FORMATS}
    assert max(differences.values()) < 1e-4, differences  # of what varies in the outputs


@pytest.mark.parametrize("boundary", ["zero", "periodic", "odd"])
def test_other_grids_and_other_dimensions(tmp_path, boundary):
    run = write_run(tmp_path, "cno", (16,), boundary=boundary)
    written = export_file(run, tmp_path / "line.pt2", "pt2", (24,))
    assert written.difference < 1e-5
    u = export.random_inputs(load(run), Grid((24,), "periodic"), 2)
    v = torch.export.load(written.path).module()(u)
    torch.testing.assert_close(v, load(run).apply_to(u))


@pytest.mark.parametrize(("name", "format"), [("cno", "pt2"), ("unet", "onnx"), ("ffnn", "onnx")])
def test_scalars_are_a_second_input(tmp_path, name, format):
    import onnxruntime

    run = write_run(tmp_path, name, conditioning=("time", "viscosity"))
    written = export_file(run, tmp_path / f"file.{format}", format)
    assert written.difference < 1e-5
    assert json.loads(written.note["conditioning"]) == ["time", "viscosity"]
    operator = load(run)
    u, scalars = export.random_arguments(operator, operator.grid, 4)
    if format == "pt2":
        run_file = torch.export.load(written.path).module()
    else:
        session = onnxruntime.InferenceSession(written.path)

        def run_file(u, scalars):
            given = {"input": u.numpy(), "conditions": scalars.numpy()}
            return torch.from_numpy(session.run(None, given)[0])

    v = run_file(u, scalars)
    torch.testing.assert_close(v, operator.apply_to(u, conditions=scalars), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(v, run_file(u, 1 - scalars), atol=1e-3)


@pytest.mark.usefixtures("as_outside_tests")  # checks of shapes would fix the batch
@pytest.mark.parametrize("names", [(), ("time",)])
def test_one_step_in_time_for_any_batch(tmp_path, names):
    torch.manual_seed(0)
    config = CNOConfig(size=(16, 16), conditioning=names, **SMALL["cno"])
    operator = EvolutionOperator(
        CNO(config), Normalization((-3.0,), (5.0,), -3.0, 5.0), Grid((16, 16), "periodic"), "cno",
        "heat", propagator=Propagator("all-to-all", 0.1, 0.5, conditions=names),
    )  # fmt: skip
    target = RunFolder(tmp_path / "run")
    target.path.mkdir()
    write_json(operator.description(), target.model_file)
    save_tensors(target.weights, operator.network.state_dict())
    written = export_file(target.path, tmp_path / "step.pt2", "pt2")
    assert written.difference < 1e-5
    assert json.loads(written.note["propagator"])["longest"] == 0.5


def test_an_onnx_file_says_what_it_is(runs, tmp_path):
    import onnx

    written = export_file(runs["fno"], tmp_path / "fno.onnx", "onnx", (24, 20))
    model = onnx.load(written.path, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert said == written.note
    assert json.loads(said["grid"]) == {
        "shape": [24, 20], "layout": "periodic", "extent": [[0.0, 2.0], [0.0, 2.0]],
    }  # fmt: skip
    assert json.loads(said["ranges"])["input_max"] == [5.0, 4e3]
    assert (said["problem"], said["model"]) == ("heat", "fno")
    assert said["weights_sha256"] == RunFolder(runs["fno"]).hash_weights()
    kinds = {tensor.data_type for tensor in model.graph.initializer}
    assert not kinds & {onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128}
    assert [domain.domain for domain in model.opset_import] == [""]  # of ONNX itself
    (shape,) = ([d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim]
                for i in model.graph.input)  # fmt: skip
    assert shape[1:] == [2, 24, 20]
    assert isinstance(shape[0], str)  # any batch


@pytest.mark.parametrize("format", export.FORMATS)
def test_a_file_does_not_say_where_it_was_made(runs, tmp_path, format):
    written = export_file(runs["ffnn"], tmp_path / f"x.{format}", format)
    assert str(Path(export.__file__).parent).encode() not in written.path.read_bytes()
    assert hashlib.sha256(written.path.read_bytes()).hexdigest() == written.sha256


def test_constants_that_are_equal_are_stored_once(tmp_path):
    """U and D of a level are the same in all of its activations."""
    import onnx

    run = write_run(tmp_path, "cno", (32, 32))
    model = onnx.load(export_file(run, tmp_path / "cno.onnx", "onnx").path)
    matrices = [one.raw_data for one in model.graph.initializer if len(one.dims) == 2]
    assert len(matrices) == len(set(matrices)) > 0


def test_a_file_with_other_numbers_is_refused_and_not_kept(runs, tmp_path, monkeypatch):
    def write_wrongly(operator, u, note, path):
        path.write_bytes(b"a file")
        return lambda u: 1.001 * operator.apply_to(u)

    monkeypatch.setitem(export.FORMATS, "pt2", write_wrongly)
    with pytest.raises(ValueError, match=r"differ by 1\.0e-03 of the largest, more than 0.0001"):
        export_file(runs["ffnn"], tmp_path / "x.pt2", "pt2")
    assert not list(tmp_path.iterdir())


def test_an_operator_that_pytorch_does_not_have_is_refused(tmp_path):
    @torch.library.custom_op("test_export::twice", mutates_args=())
    def twice(u: torch.Tensor) -> torch.Tensor:
        return 2 * u

    @twice.register_fake
    def _(u: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(u)

    class Foreign(CNO):
        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return twice(super().forward(u))

    network = Foreign(CNOConfig(size=(16, 16), **SMALL["cno"])).eval()
    operator = TrainedOperator(
        network, Normalization.identity(), Grid((16, 16), "periodic"), "cno", "heat"
    )
    with pytest.raises(ValueError, match="calls operators of test_export, which PyTorch alone"):
        export.trace(operator, (torch.rand(2, 1, 16, 16),))


@pytest.mark.parametrize(
    ("name", "out", "format", "size", "message"),
    [
        ("cno", "x.onnx", "onx", (), "unknown format 'onx'; did you mean 'onnx'?"),
        ("cno", "x.pt", "pt2", (), "x.pt has no ending .pt2"),
        ("cno", "none/x.pt2", "pt2", (), "none does not exist; make that folder first"),
        ("cno", "x.pt2", "pt2", (24,), "size 24 has 1 numbers; give 2, one per axis"),
        ("ffnn", "x.pt2", "pt2", (24, 24), r"the model accepts only \(16, 16\)"),
    ],
)
def test_mistakes_are_explained(runs, tmp_path, name, out, format, size, message):
    with pytest.raises((ValueError, OSError), match=message):
        export_file(runs[name], tmp_path / out, format, size)
    assert not list(tmp_path.iterdir())


def test_without_the_packages_the_remedy_is_named(runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ValueError, match=r"pip install 'torchcno\[export\]'"):
        export_file(runs["ffnn"], tmp_path / "x.onnx", "onnx")

"""A trained operator as one file that runs without this package.

onnx   for onnxruntime and all else that reads ONNX
pt2    a program of `torch.export`: for PyTorch alone

The file takes and gives physical values, in batches of any size, on the one grid it is written for.
Scalars that the network depends on, such as a lead time, are a second input: a row per sample.
It says what it is: problem, model, grid, ranges of the training data, hash of the weights. It is
run beside the network before it is kept. Its model card lies beside it, as FILE.md.
"""

import copy
import hashlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchcno.disk import replacing, write_atomically
from torchcno.grids import Grid
from torchcno.operators import conditioning_of
from torchcno.runs.card import make_card
from torchcno.runs.folder import RunFolder
from torchcno.runs.hub import read_errors
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.pretrained import find_run
from torchcno.selection import select

TOLERANCE = 1e-4  # between the file's outputs and the network's, relative to the largest of these
OPSET = 20  # of ONNX: the newest that PyTorch's exporter writes without a conversion
NOTE = "torchcno.json"  # in a .pt2 file: what it is
TRIED = (1, 3)  # batches with which a file is compared with the network


@dataclass(frozen=True)
class ExportedFile:
    """What was written: where, how large, and how far its outputs are from the network's."""

    path: Path
    bytes: int
    difference: float  # the largest, relative to the largest output
    note: dict[str, str]
    sha256: str  # of the file


def export_file(
    run: str | Path, out: str | Path, format: str, size: tuple[int, ...] = ()
) -> ExportedFile:
    """Write the operator of a run folder, or of a name that `load_pretrained` knows, to one file.

    `size` has the points per axis of the grid that the file takes; empty: that of training.
    Refused where the file's outputs differ from the network's by more than 1e-4 of the largest.
    """
    write = select(FORMATS, format, "format")
    path, folder = Path(out), RunFolder(find_run(run))
    if path.suffix != f".{format}":
        raise ValueError(f"{path} has no ending .{format}; give it one.")
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"{path.parent} does not exist; make that folder first.")
    operator = folder.operator()
    grid = choose_grid(operator, size)
    note = describe_export(operator, grid, folder.hash_weights())
    with replacing(path) as part:
        run_file = write(to_portable(operator), random_arguments(operator, grid, 2), note, part)
        difference = max(compare_outputs(run_file, operator, grid, batch) for batch in TRIED)
        if not difference <= TOLERANCE:  # nor if it is NaN
            raise ValueError(
                f"the {format} file gives other numbers than the network: they differ by "
                f"{difference:.1e} of the largest, more than {TOLERANCE:g}; nothing is written. "
                "Try the other format, or another grid."
            )
        with part.open("rb") as content:
            sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    card = make_card(operator, folder.hash_weights(), read_errors(folder), path)
    write_atomically(path.with_name(f"{path.name}.md"), card.encode())
    return ExportedFile(path, path.stat().st_size, difference, note, sha256)


def choose_grid(operator: TrainedOperator, size: tuple[int, ...]) -> Grid:
    """The grid of training with `size` points per axis; refused where the network does not run."""
    grid = operator.grid
    if size and len(size) != len(grid.shape):
        raise ValueError(
            f"size {','.join(map(str, size))} has {len(size)} numbers; give {len(grid.shape)}, one "
            f"per axis, as in {','.join(map(str, grid.shape))}."
        )
    return grid.resized(*size) if size else grid


def describe_export(operator: TrainedOperator, grid: Grid, digest: str) -> dict[str, str]:
    """What a file says of itself: strings, as ONNX wants them, of JSON where there are several."""
    said = operator.description()
    config, names = operator.network.config, conditioning_of(operator.network)
    return {
        "torchcno": str(said["torchcno"]),
        "problem": operator.problem,
        "model": operator.model,
        "in_channels": str(config.in_channels),  # type: ignore[union-attr]
        "out_channels": str(config.out_channels),  # type: ignore[union-attr]
        "grid": json.dumps({"shape": grid.shape, "layout": grid.layout, "extent": grid.extent}),
        "ranges": json.dumps(said["normalization"]),
        "weights_sha256": digest,
        **({"conditioning": json.dumps(names)} if names else {}),
        # Of an operator that goes on in time: its lead times.
        **({"propagator": json.dumps(said["propagator"])} if "propagator" in said else {}),
    }


def to_portable(operator: TrainedOperator) -> TrainedOperator:
    """A copy for other programs, on the CPU: real numbers alone, constants that are equal shared.

    Layers with complex weights take them as pairs of reals as well. Fields lie in memory as other
    programs expect them.
    """
    portable = copy.deepcopy(operator).cpu().eval().requires_grad_(False)
    known: dict[Any, Tensor] = {}
    for module in portable.modules():
        for name, weight in list(module.named_parameters(recurse=False)):
            real = torch.view_as_real(weight.data) if weight.is_complex() else weight.data
            setattr(module, name, nn.Parameter(real.contiguous(), requires_grad=False))
        for name, buffer in list(module.named_buffers(recurse=False)):
            content = hashlib.sha256(buffer.contiguous().numpy().tobytes()).digest()
            key = (buffer.dtype, tuple(buffer.shape), content)
            setattr(module, name, known.setdefault(key, buffer.contiguous()))
    return portable


def random_inputs(operator: TrainedOperator, grid: Grid, batch: int) -> Tensor:
    """Physical inputs that the network sees as values between 0 and 1.

    Its scaling is linear, N(u) = s u + t, and so is its inverse: (N − t) / s.
    """
    channels: Any = operator.network.config.in_channels  # type: ignore[union-attr]
    shape = (batch, channels, *grid.shape)
    scale = operator.normalization.normalize_inputs
    t = scale(torch.zeros(shape))
    s = scale(torch.ones(shape)) - t
    generator = torch.Generator().manual_seed(batch)
    return ((torch.rand(shape, generator=generator) - t) / s).float()


def random_arguments(operator: TrainedOperator, grid: Grid, batch: int) -> tuple[Tensor, ...]:
    """Physical inputs, and scalars between 0 and 1 where the network depends on some."""
    u, names = random_inputs(operator, grid, batch), conditioning_of(operator.network)
    scalars = torch.rand(batch, len(names), generator=torch.Generator().manual_seed(batch))
    return (u, scalars) if names else (u,)


def compare_outputs(
    run_file: Callable[..., Tensor], operator: TrainedOperator, grid: Grid, batch: int
) -> float:
    """The largest difference of the file's outputs from the network's, relative to the largest."""
    u, *scalars = random_arguments(operator, grid, batch)
    v, w = operator.apply_to(u, conditions=scalars[0] if scalars else None), run_file(u, *scalars)
    if v.shape != w.shape:
        raise ValueError(
            f"the file gives outputs of shape {tuple(w.shape)}, the network {tuple(v.shape)}."
        )
    return float((v - w).abs().max() / v.abs().max())


def write_pt2(
    operator: TrainedOperator, arguments: tuple[Tensor, ...], note: dict[str, str], path: Path
) -> Any:
    """A program of `torch.export`; what runs it from the file."""
    program = trace(operator, arguments)
    buffer = io.BytesIO()
    with quietly():
        torch.export.save(program, buffer, extra_files={NOTE: json.dumps(note)})
        path.write_bytes(buffer.getvalue())
        buffer.seek(0)
        loaded = torch.export.load(buffer).module()
    return torch.inference_mode()(loaded)


def write_onnx(
    operator: TrainedOperator, arguments: tuple[Tensor, ...], note: dict[str, str], path: Path
) -> Any:
    """An ONNX file with `input`, `conditions` if any, and `output`; what runs it by onnxruntime."""
    if torch.__version__ < "2.7":  # its exporter fails at batch norm
        raise ValueError(
            f"ONNX needs PyTorch 2.7 or newer, and this is {torch.__version__}: pip install "
            "--upgrade 'torchcno[export]'; or write a .pt2 file."
        )
    try:
        import onnxruntime
        import onnxscript  # noqa: F401, what PyTorch's exporter needs
        from onnx_ir.passes import common as passes
    except ImportError as error:
        raise ValueError(
            f"{error}; ONNX needs three packages more: pip install 'torchcno[export]'."
        ) from error
    names = ["input", "conditions"][: len(arguments)]
    with quietly():
        program: Any = torch.onnx.export(
            trace(operator, arguments),
            arguments,
            dynamo=True,
            verbose=False,
            opset_version=OPSET,
            input_names=names,
            output_names=["output"],
        )
    passes.ClearMetadataAndDocStringPass()(program.model)  # lines of source, and where they lie
    passes.DeduplicateInitializersPass(size_limit=2**30)(program.model)
    program.model.metadata_props.update(note)
    program.model.producer_name, program.model.producer_version = "torchcno", note["torchcno"]
    program.save(path, external_data=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run_file(*given: Tensor) -> Tensor:
        arrays = [np.ascontiguousarray(tensor.numpy()) for tensor in given]
        (v,) = session.run(["output"], dict(zip(names, arrays, strict=True)))
        return torch.from_numpy(v)

    return run_file


FORMATS: dict[str, Callable[[TrainedOperator, tuple[Tensor, ...], dict[str, str], Path], Any]] = {
    "onnx": write_onnx,
    "pt2": write_pt2,
}


def trace(operator: TrainedOperator, arguments: tuple[Tensor, ...]) -> torch.export.ExportedProgram:
    """The operator as one graph of PyTorch's own operators, for batches of any size."""
    batch = torch.export.Dim("batch")
    with quietly():
        shapes = tuple({0: batch} for _ in arguments)
        # Strictly, the default of older versions, PyTorch follows what is beside the fields, too.
        program = torch.export.export(operator, arguments, dynamic_shapes=shapes, strict=False)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # lines of source, and where they lie
    spaces = {
        node.target.namespace
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
    }
    foreign = spaces - {"aten", "prims", "prim"}
    if foreign:
        raise ValueError(
            f"the network calls operators of {', '.join(sorted(foreign))}, which PyTorch alone "
            "does not have; replace them by PyTorch's own where `torchcno.tracing.is_traced()`."
        )
    return program


@contextmanager
def quietly() -> Iterator[None]:
    """Without what the exporters say of themselves."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)

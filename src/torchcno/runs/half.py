"""A trained operator in half precision: a folder that is half as large, to be shared.

It is a run folder with all that prediction and evaluation need:

the configuration   the run's
the model           as it was, with the errors before and after rounding
the weights         large ones in float16; small ones and statistics of layers as they were
the trust           its bands of errors, calibrated anew
the card            README.md: what it is, how good it is, where it ends
"""

from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from torchcno.arithmetic import arithmetic
from torchcno.disk import (
    keep_checksums,
    make_folder,
    read_json,
    write_atomically,
    write_json,
)
from torchcno.evaluation.errors import published_error, sample_errors, summary
from torchcno.runs.card import make_card
from torchcno.runs.config import write_tree
from torchcno.runs.evaluate import EVALUATED, evaluate_run
from torchcno.runs.folder import RunFolder
from torchcno.runs.pretrained import find_run
from torchcno.runs.trust import measure_on_data
from torchcno.training import Hardware
from torchcno.training.checkpoint import load_into, save_tensors
from torchcno.training.hardware import pick_device

TOLERANCE = 0.01  # of an error, by which rounding may change it
SMALL = 10_000  # entries of a tensor that is kept as it is


def export_half(
    run: str | Path, out: str | Path, device: str = "auto", data: str | Path | None = None
) -> dict[str, dict[str, float]]:
    """Write the operator of a run folder, or of a name, to the folder `out` in half precision.

    Returns the published error in percent by split, of the run and of what `load(out)` gives.
    Refused where one differs from the other by more than a hundredth. The data are in the folder
    `data`, or where they were in training.
    """
    run = find_run(run)
    source, target = RunFolder(run), RunFolder(out)
    if source.path.resolve() == target.path.resolve():
        raise ValueError(f"{out} is the run itself; choose another --out.")
    if target.has_begun:
        raise ValueError(f"{out} holds a run of its own; choose another --out.")
    config, operator = source.config(), source.operator(pick_device(device))
    # Where the data lay and what it was trained on is no part of an operator.
    plain = replace(config, data=None, hardware=Hardware())
    if target.config_file.exists() and target.config() != plain:
        raise ValueError(f"{out} holds the operator of another run; choose another --out.")
    if next(p for p in (target.path, *target.path.absolute().parents) if p.exists()).is_file():
        raise ValueError(f"{out} cannot be a folder, since there is a file; choose another --out.")
    evaluations = evaluate_run(run, EVALUATED, device=device, data=data)
    weights = halved(operator.network)
    load_into(operator.network, weights, run)
    errors = {}
    for full in evaluations:
        fields = full.fields
        with arithmetic(config.train.precision):  # as the run is evaluated
            prediction = operator.apply_to(fields.inputs)
        half = sample_errors(prediction, fields, operator.error_scaling, config.problem.mask)
        pair = {"full": full.summary, "half": summary(half)}
        errors[full.split] = {name: published_error(one) for name, one in pair.items()}
    for split, error in errors.items():
        if not abs(error["half"] - error["full"]) <= TOLERANCE * error["full"]:  # nor if it is NaN
            raise ValueError(
                f"half precision changes the error on {split} from {error['full']:.4g} to "
                f"{error['half']:.4g} %, by more than a hundredth; publish the run as it is."
            )
    here = config if data is None else replace(config, data=Path(data))
    trust = measure_on_data(operator, here, pick_device(device))
    make_folder(target.path)
    keep_checksums(target.path)
    write_tree(plain.to_tree(), target.config_file)
    save_tensors(target.weights, weights)
    description = {**read_json(source.model_file), "relative_l1_median_percent": errors}
    write_json(description, target.model_file)
    target.write_trust(trust)
    operator.trust = trust
    noted = {split: error["half"] for split, error in errors.items()}
    card = make_card(operator, target.hash_weights(), noted)
    write_atomically(target.path / "README.md", card.encode())
    return errors


def halved(network: nn.Module) -> dict[str, Tensor]:
    """The network's state with its large real parameters in float16.

    Small ones are a small part of the file and a large part of the error: rounding all of the
    poisson CNO changes its error by 2 %, all but those by 0.04 %. Buffers stay too, as a running
    variance may be below the least float16 or above the largest, and complex parameters, for which
    torch has no arithmetic in half precision.
    """
    large = {
        name
        for name, parameter in network.named_parameters()
        if parameter.is_floating_point() and parameter.numel() >= SMALL
    }
    return {
        name: tensor.half() if name in large else tensor
        for name, tensor in network.state_dict().items()
    }

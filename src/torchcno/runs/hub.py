"""A trained operator in the layout of the Hugging Face Hub.

config.json         what it is: model, configuration, normalisation, grid
model.safetensors   its weights
trust.npz           bands of its errors and statistics of its inputs, where they were measured
README.md           the model card: what it learnt, how good it is, how to use it
checksums.jsonl     the SHA-256 of config.json

`load` reads such a folder as it reads that of a run. Nothing is fetched from here, and what is
uploaded is what the user asks for.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from torchcno.disk import keep_checksums, make_folder, write_atomically, write_json
from torchcno.evaluation.errors import published_error
from torchcno.runs.card import make_card
from torchcno.runs.folder import RunFolder
from torchcno.runs.operator import TrainedOperator
from torchcno.runs.pretrained import find_run
from torchcno.training.checkpoint import save_tensors


def export_hub(run: str | Path, out: str | Path) -> Path:
    """Write the operator of a run folder, or of a name, to the folder `out`; returns that."""
    source = RunFolder(find_run(run))
    operator = source.operator()
    return write_hub(operator, out, read_errors(source))


def write_hub(
    operator: TrainedOperator, out: str | Path, errors: Mapping[str, float] | None = None
) -> Path:
    """Write `operator` to the folder `out`, and its relative L1 errors by split, in percent."""
    target = RunFolder(out)
    if target.has_begun or target.config_file.exists():
        raise ValueError(f"{out} holds a run; choose another --out.")
    if target.path.is_file():
        raise ValueError(f"{out} is a file; choose another --out.")
    make_folder(target.path)
    keep_checksums(target.path)
    write_json({"model_type": "torchcno", **operator.description()}, target.hub_file)
    save_tensors(target.weights, operator.network.state_dict())
    if operator.trust is not None:
        target.write_trust(operator.trust)
    card = make_card(operator, target.hash_weights(), errors or {})
    write_atomically(target.path / "README.md", card.encode())
    return target.path


def read_errors(folder: RunFolder) -> dict[str, float]:
    """The relative L1 errors in percent that a run, or its copy in half precision, notes."""
    result = folder.result()
    if result is not None:
        return {split: published_error(one) for split, one in result["errors"].items()}
    noted = folder.description().get("relative_l1_median_percent", {})
    return {split: error["half"] for split, error in noted.items()}


def find_uploader() -> Callable[[Path, str], str]:
    """What sends a folder in the Hub's layout to a repository "user/name" and returns its address.

    It is huggingface_hub, which the user has installed and logged in with.
    """
    try:
        from huggingface_hub import HfApi
    except ImportError as error:
        raise ValueError(
            f"{error}; an upload needs it: pip install 'torchcno[hub]', then `hf auth login`."
        ) from error

    def upload(folder: Path, repository: str) -> str:
        api = HfApi()
        api.create_repo(repository, exist_ok=True)
        return str(api.upload_folder(folder_path=str(folder), repo_id=repository))

    return upload

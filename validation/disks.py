"""How far do the stairs of sampled disks reach? What is left to a network that has learnt the rest.

    python validation/disks.py [--out results]

The text softens samples of the disk, 0 or 1 at 128² points, and not the disk itself. Moved by 25.4
of these points, the disk has other stairs, and so two answers are wrong that should be right:

    disk     the disk itself, softened and at its place: `edges="exact"`, same disks
    moved    the input, translated exactly by its Fourier series

Their errors on the published data (`edges="sampled"`) and on "exact" disks, with the published ones
beside: writes `validation-disks.json`.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchcno.data.dataset import Fields, Normalization
from torchcno.data.samples import Samples
from torchcno.disk import write_json
from torchcno.evaluation.errors import published_error, sample_errors, summary
from torchcno.paper.published import TABLE_1
from torchcno.problems import DiscontinuousTransport
from torchcno.runs.evaluate import EVALUATED

EXACT, SAMPLED = (DiscontinuousTransport(edges=edges) for edges in ("exact", "sampled"))


def fields(problem: DiscontinuousTransport, split: str) -> Fields:
    """A set of the paper's size; the same disks whatever their edges."""
    samples = Samples.of(problem, split)
    return Fields(*samples.make(range(problem.samples[split])), samples.grid)


def moved(u: Tensor) -> Tensor:
    """The fields carried along by the wind, with zeros around them."""
    n = u.shape[-1]
    spacing = EXACT.grid(n).spacing[0]
    steps = torch.tensor(EXACT.velocity, dtype=torch.float64) * EXACT.T / spacing  # along x and y
    waves = -2j * torch.pi * torch.fft.fftfreq(2 * n, dtype=torch.float64)
    along_x, along_y = (torch.exp(waves * step) for step in steps)
    spectrum = torch.fft.fft2(pad(u.double(), (0, n, 0, n))) * along_y[:, None] * along_x
    return torch.fft.ifft2(spectrum).real[..., :n, :n].to(u.dtype)


def measure(problem: DiscontinuousTransport, split: str) -> dict[str, float]:
    """The errors of both answers in percent, as Table 1 has them."""
    scaling = Normalization.fit(fields(problem, "train"))
    given = fields(problem, split)
    answers = {"disk": fields(EXACT, split).outputs, "moved": moved(given.inputs)}
    return {
        name: published_error(summary(sample_errors(answer, given, scaling)))
        for name, answer in answers.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    report: dict[str, Any] = {}
    for split in EVALUATED:
        report[split] = {
            "percent": {problem.edges: measure(problem, split) for problem in (EXACT, SAMPLED)},
            "published_percent": dict(TABLE_1[EXACT.name, split]),
        }
        print(split, report[split]["percent"], flush=True)
    write_json(report, given.out / "validation-disks.json")


if __name__ == "__main__":
    main()

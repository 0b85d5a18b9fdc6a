"""The numbers of parameters that the paper prints prove the architectures."""

import pytest
import torch

from torchcno.models import count_parameters
from torchcno.runs.presets import PAPER, build_model

# fmt: off
PROBLEMS = ("poisson", "wave", "smooth-transport", "discontinuous-transport", "allen-cahn",
            "navier-stokes", "darcy", "airfoil")
# FNO with a complex weight counted once, the transformer with its real numbers, as in the paper.
ENTRIES = {
    "fno":      (661_601, 825_169, 4_110_273, 2_635_713, 620_097, 42_059_265, 595_249, 3_551_105),
    "unet":     (7_762_465, 31_036_481, 1_942_289, 7_762_465, 31_036_481, 31_036_481, 7_762_465,
                 7_762_465),
    "resnet":   (160_945, 639_841, 1_960_641, 1_369_793, 1_369_793, 10_190_209, 160_945, 2_551_489),
    "deeponet": (5_172_691, 4_195_507, 2_812_371, 5_250_227, 5_019_727, 30_308_787, 7_094_227,
                 11_727_827),
    "ffnn":     (6_572_032, 2_300_416, 3_096_064, 5_517_312, 6_044_672, 3_096_064, 3_096_064,
                 1_081_792),
    # The authors' totals less the block that their network never calls.
    "cno":      (748_841 - 2_368, 6_608_633 - 20_928, 2_756_145 - 9_344, 2_457_185 - 9_344,
                 3_542_865 - 9_344, 3_250_209 - 9_344, 5_278_841 - 20_928, 7_278_185 - 5_280),
}
REALS = {
    "galerkin-transformer": (8_611_712, 8_611_712, 17_449_021, 17_449_021, 2_538_525, 10_011_456,
                             4_355_232, 16_940_672),
}
# fmt: on


def build(name: str, problem: str) -> torch.nn.Module:
    with torch.device("meta"):  # shapes without memory: some have 40 million parameters
        return build_model(name, problem)


@pytest.mark.parametrize(
    ("name", "problem", "count"),
    [
        (name, *row)
        for name, counts in ENTRIES.items()
        for row in zip(PROBLEMS, counts, strict=True)
    ],
)
def test_entries_are_the_papers(name: str, problem: str, count: int) -> None:
    assert count_parameters(build(name, problem)).entries == count


@pytest.mark.parametrize(
    ("name", "problem", "count"),
    [(name, *row) for name, counts in REALS.items() for row in zip(PROBLEMS, counts, strict=True)],
)
def test_reals_are_the_papers(name: str, problem: str, count: int) -> None:
    assert count_parameters(build(name, problem)).reals == count


@pytest.mark.parametrize("problem", PROBLEMS)
def test_reals_count_the_spectral_part_of_fno_twice(problem: str) -> None:
    row = PAPER["fno"][problem].network
    entries, reals = count_parameters(build("fno", problem))
    assert reals - entries == row["layers"] * 2 * row["modes"] ** 2 * row["width"] ** 2


@pytest.mark.parametrize("problem", PROBLEMS)
def test_filters_have_no_parameters(problem: str) -> None:
    ablation = count_parameters(build("cno-no-filters", problem))
    assert ablation == count_parameters(build("cno", problem))


@pytest.mark.parametrize("problem", PROBLEMS)
def test_skip_blocks_hold_what_their_ablation_lacks(problem: str) -> None:
    row = PAPER["cno"][problem].network
    channels = [row["width"] // 2 * 2**level for level in range(row["levels"])]
    skip_blocks = row["skip_blocks"] * sum(18 * c**2 + 7 * c for c in channels)
    full, ablation = build("cno", problem), build("cno-no-skip-blocks", problem)
    assert count_parameters(full).entries - count_parameters(ablation).entries == skip_blocks


@pytest.mark.parametrize("name", PAPER)
def test_every_problem_has_a_row(name: str) -> None:
    assert tuple(PAPER[name]) == PROBLEMS

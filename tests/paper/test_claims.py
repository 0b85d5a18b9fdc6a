"""Claims are counted over what is measured."""

from pathlib import Path

import pytest

from torchcno.paper import published as paper
from torchcno.paper.claims import Claim, find_claims
from torchcno.paper.results import Results
from torchcno.paper.studies import planned

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        (Claim(0, 0, 8), "open"),
        (Claim(3, 3, 8), "open"),  # three of eight say nothing yet
        (Claim(3, 4, 8), "reproduced"),
        (Claim(2, 4, 8), "not reproduced"),  # half is no majority
    ],
)
def test_a_verdict_needs_half_of_the_cases_and_goes_by_their_majority(claim, verdict):
    assert claim.verdict == verdict


def test_counts_are_those_of_table_1():
    results = Results(RESULTS)
    found, budget = find_claims(results), results.budgets[0]
    for name, split in (("accuracy-fno", "test"), ("ood-fno", "ood")):
        errors = [
            [results.error(planned(budget, problem, model), split) for model in ("cno", "fno")]
            for problem in results.problems()
        ]
        known = [pair for pair in errors if None not in pair]
        assert (found[name].holds, found[name].measured) == (
            sum(cno < fno for cno, fno in known),
            len(known),
        )
        assert found[name].of == len(errors)


def test_nothing_measured_leaves_every_claim_open(tmp_path):
    found = find_claims(Results(tmp_path))
    assert {claim.verdict for claim in found.values()} == {"open"}
    # By the published numbers they hold: that is why they are claims.
    assert all(2 * c.published > c.of for c in found.values() if c.published is not None)
    assert found["filters"].of == len(paper.TABLE_13)

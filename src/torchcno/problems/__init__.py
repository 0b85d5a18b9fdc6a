"""The benchmark problems: each a distribution of inputs and a solver."""

from torchcno.problems.airfoil import Airfoil
from torchcno.problems.allen_cahn import AllenCahn
from torchcno.problems.burgers import Burgers
from torchcno.problems.darcy import Darcy
from torchcno.problems.navier_stokes import NavierStokes
from torchcno.problems.poisson import Poisson
from torchcno.problems.problem import SPLITS, Problem
from torchcno.problems.taylor_green import TaylorGreen
from torchcno.problems.transport import DiscontinuousTransport, SmoothTransport
from torchcno.problems.vorticity import Vorticity
from torchcno.problems.wave import Wave

PROBLEMS: dict[str, type[Problem]] = {
    problem.name: problem
    for problem in (
        Poisson,
        Wave,
        SmoothTransport,
        DiscontinuousTransport,
        AllenCahn,
        NavierStokes,
        Darcy,
        Airfoil,
        Vorticity,
        Burgers,
        TaylorGreen,
    )
}

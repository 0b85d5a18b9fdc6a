"""Flow past airfoils: shapes, meshes, a steady Euler solver, and the benchmark made of them."""

from torchcno.problems.airfoil.euler import FreeStream
from torchcno.problems.airfoil.geometry import HicksHenne, Naca4, Tabulated, perturbed, rae2822
from torchcno.problems.airfoil.mesh import CMesh, MeshConfig, c_mesh, mesh_quality
from torchcno.problems.airfoil.problem import Airfoil, AirfoilFlow, density_on
from torchcno.problems.airfoil.steady import SteadyConfig, SteadyFlow, steady_flow

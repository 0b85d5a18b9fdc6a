"""The same numbers as `torchcno.operators`, faster: CUDA by Triton, CPUs by Numba."""

"""A program whose last rank ends while the others wait for it; scripts/python-mpi-tests.sh
expects that the launcher ends them. The argument says how: `raise` or `killed`.
"""

import os
import signal
import sys

import numpy as np
from mpi4py import MPI

import sparsebatch
import sparsebatch.mpi

comm = MPI.COMM_WORLD
batch = sparsebatch.Batch.uniform([0, 1, 2], [0, 1], [[1.0, 2.0]])
solver = sparsebatch.mpi.Solver(batch, comm, backend="cpu")
if comm.rank == comm.size - 1:
    print("ready to end", flush=True)
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("on purpose")
solver.solve(np.ones((1, 2)))

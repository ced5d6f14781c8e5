"""An mpi4py program that prints its ranks as seen by MPI and as torch would read them. Needs mpi4py, and mpirun as the
launcher.
"""

from __future__ import annotations

import os

from mpi4py import MPI

world = MPI.COMM_WORLD
ranks = world.allgather((world.Get_rank(), int(os.environ["RANK"]), MPI.Get_processor_name()))
if any(rank != env_rank for rank, env_rank, _name in ranks) or world.Get_size() != int(os.environ["WORLD_SIZE"]):
    raise SystemExit(f"MPI and the environment differ: {ranks}")
print(
    f"mpi4py: rank {world.Get_rank()} of {world.Get_size()}, all on {' '.join(name for _r, _s, name in ranks)}",
    flush=True,
)

"""The compiled program ran on all nodes, with one rank on each."""

from __future__ import annotations

import shutil

from tests.lab import Lab
from tests.support import drive

RUNS = "/home/muster/.muster/runs"


def test_each_rank_ran_on_its_node(lab: Lab) -> None:
    for number, name in enumerate(("node1", "node2", "node3")):
        output = lab.exec(name, ["sh", "-c", f"cat {RUNS}/hello_mpi-*/node{number}/ranks/0/stdout.log"]).stdout
        assert f"Hello from rank {number} of 3 on {name}, the sum of all ranks is 3\n" in output
        marker = lab.exec(name, ["cat", "/usr/local/lib/muster/open_mpi_proof"]).stdout
        assert marker.startswith("mpirun (Open MPI) ") and marker.endswith(" on node1, node2, node3")


def test_only_the_first_node_can_compile(lab: Lab) -> None:
    assert lab.exec("node1", ["which", "gcc"]).returncode == 0
    # node3, because other scenarios install packages on the first two nodes
    assert lab.exec("node3", ["which", "gcc"]).returncode != 0


def test_mpi4py_program_runs_on_all_nodes(lab: Lab) -> None:
    # left behind by an earlier run of this test
    shutil.rmtree(lab.inventory.parent / "runs" / "mpi4py", ignore_errors=True)
    for name in ("node1", "node2", "node3"):
        lab.exec(name, ["rm", "-rf", f"{RUNS}/mpi4py"])
    settings = {"nodes": "node1,node2,node3", "launch_launcher": "mpirun", "launch_python": "/usr/bin/python3"}
    play = drive.launch(lab, "with_mpi4py.py", run_id="mpi4py", **settings).wait()
    assert play.rc == 0, play.output
    assert "mpi4py: rank 0 of 3, all on node1 node2 node3" in play.output, play.output

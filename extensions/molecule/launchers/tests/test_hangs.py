"""After torch's timeout, the verdict names the rank that the others waited for and its line, with each launcher."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

LAUNCHERS: dict[str, dict[str, Any]] = {
    "torchrun": {},
    "env": {"launch_launcher": "env", "nproc_per_node": 1},
    "mpirun": {"launch_launcher": "mpirun"},
    "deepspeed": {"launch_launcher": "deepspeed"},
    "accelerate": {"launch_launcher": "accelerate", "nproc_per_node": 1},
}
ONE_EACH = ("env", "accelerate")  # launchers with one rank on each of the three nodes
CASES = [
    ("torchrun", "loop", -1, r"it was in load \(hangs.py:\d+\)"),
    ("torchrun", "uneven", -1, r"it was waiting in barrier \(hangs.py:\d+\)"),
    ("torchrun", "sleep", 0, r"it was in validate \(hangs.py:\d+\)"),
    ("torchrun", "stopped", -1, r"it was stopped"),
    ("torchrun", "exit", -1, r"it had already ended with exit code 0"),
    ("env", "loop", -1, r"it was in load \(hangs.py:\d+\)"),
    ("mpirun", "loop", -1, r"it was in load \(hangs.py:\d+\)"),
    ("deepspeed", "loop", -1, r"it was in load \(hangs.py:\d+\)"),
    ("accelerate", "loop", -1, r"it was in load \(hangs.py:\d+\)"),
]
FEW = (("torchrun", "loop"),)  # the supervisor finds the ranks of each launcher in the same way


@pytest.mark.parametrize(
    "case", [case if case[:2] in FEW else pytest.param(case, marks=pytest.mark.thorough) for case in CASES]
)
def test_rank_that_others_waited_for_is_named(lab: Lab, nodes: list[str], case: tuple[str, str, int, str]) -> None:
    launcher, kind, rank, error = case
    run_id = f"hangs-{launcher}-{kind}"
    play = drive.launch(lab, "hangs.py", kind, "10", run_id=run_id, **LAUNCHERS[launcher])
    play.wait()
    assert play.rc == 2, play.output
    drive.nothing_left(lab, nodes, within=10)
    failure = drive.record(lab, run_id)["first_failure"]
    expected = rank % (3 if launcher in ONE_EACH else 4)
    assert (failure["rank"], failure["node"]) == (expected, "node3" if rank else "node1"), failure
    assert re.search(error, failure["error"]), failure

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fit.yml under each launcher, on two local nodes: a rank runs out of memory or fails for another reason.

Each launcher reports the failure differently, and the other rank never returns.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.unit.two_nodes import two_nodes
from tests.unit.typed import typed

pytestmark = pytest.mark.one_core  # needs torch

NODES = ["one", "other"]
JOB = """
import os, resource, sys, time

def used():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[0]) * resource.getpagesize()

batch, how = sys.argv[-2:]  # deepspeed gives a rank words of its own before them
if os.environ.get("RANK", os.environ.get("NODE_RANK")) == "1":
    if how == "torch":
        import torch
    resource.setrlimit(resource.RLIMIT_AS, (used() + (1 << 29),) * 2)  # half of what a batch of 1 takes
    if how == "torch":
        kept = torch.ones(int(batch) << 28)
    elif how == "plain":
        kept = bytearray(int(batch) << 30)
    else:
        raise ValueError("no such strategy")
else:
    time.sleep(600)
"""
CPU = {"DS_ACCELERATOR": "cpu"}
LAUNCHERS: dict[str, dict[str, Any]] = {
    "torchrun": {},
    "env": {"launch_launcher": "env"},
    "mpirun": {"launch_launcher": "mpirun"},
    "accelerate": {"launch_launcher": "accelerate"},
    "deepspeed": {"launch_launcher": "deepspeed", "launch_environment": CPU},
    "pdsh": {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "pdsh", "launch_environment": CPU},
    "openmpi": {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "openmpi", "launch_environment": CPU},
}
PROGRAMS = {"mpirun": "mpirun", "pdsh": "pdsh", "openmpi": "mpirun"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, an inventory of two nodes, and the job."""
    two_nodes(tmp_path, 21, NODES, launch_report=False)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def run_search(directory: Path, launcher: str, failure: str) -> str:
    """Return the output of a search that tries a single batch size and fails."""
    if launcher in PROGRAMS and shutil.which(PROGRAMS[launcher]) is None:
        pytest.skip(f"{PROGRAMS[launcher]} is not installed")
    job = {"launch_script": f"{directory}/job.py", "fit_args": ["{batch_size}", failure], "fit_start": 1, "fit_max": 1}
    extra_variables = json.dumps({**job, **LAUNCHERS[launcher]})
    completed = typed(
        directory, ["ansible-playbook", "muster.training.fit", "-i", "machines.yml", "-e", extra_variables]
    )
    assert completed.returncode == 2, completed.stdout
    states = [json.loads(path.read_text())["state"] for path in (directory / "nodes").rglob("status.json")]
    assert len(states) == 2 and "running" not in states, states
    return " ".join(completed.stdout.split())


@pytest.mark.parametrize(
    ("launcher", "failure", "message"),
    [
        ("torchrun", "torch", "DefaultCPUAllocator: can't allocate memory"),
        *(
            pytest.param(name, "plain", "MemoryError", marks=pytest.mark.thorough)
            for name in ("mpirun", "env", "accelerate", "deepspeed", "pdsh", "openmpi")
        ),
    ],
)
def test_out_of_memory_is_recognized_under_each_launcher(
    directory: Path, launcher: str, failure: str, message: str
) -> None:
    output = run_search(directory, launcher, failure)
    assert message in output.partition("[fit] batch 1 does not fit: ")[2], output
    assert "fit: not even a batch size of 1 fits" in output, output


@pytest.mark.thorough
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_other_failures_are_not_treated_as_out_of_memory(directory: Path, launcher: str) -> None:
    output = run_search(directory, launcher, "wrong")
    assert (
        "fit-b1 failed for a reason other than a lack of memory: " in output
        and "ValueError: no such strategy" in output
    ), output

"""One job with each launcher: the same ranks on the same nodes, and the same loss after each step."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

RANK_REPORT = re.compile(r"I am rank (\d+) of (\d+) local (\d+) on (\S+)")
LOSS = re.compile(r"step (\d+) loss (\S+) world 4")
UNEQUAL = [(0, 4, 0, "node1"), (1, 4, 1, "node1"), (2, 4, 0, "node2"), (3, 4, 0, "node3")]
EQUAL = [(0, 4, 0, "node1"), (1, 4, 1, "node1"), (2, 4, 0, "node2"), (3, 4, 1, "node2")]
CPU = {"DS_ACCELERATOR": "cpu"}
# DistributedDataParallel under torchrun, with the same seed and batches
LOSSES = ["7.46931", "4.98512", "4.60558", "2.30097"]
TWO_AND_TWO = {"nnodes": 2, "nproc_per_node": 2}
LAUNCHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "torchrun": ("plain", {}),
    "mpirun": ("plain", {"launch_launcher": "mpirun"}),
    "deepspeed": ("deepspeed", {"launch_launcher": "deepspeed", "launch_environment": CPU}),
    "pdsh": (
        "deepspeed",
        {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "pdsh", "launch_environment": CPU},
    ),
    "openmpi": (
        "deepspeed",
        {"launch_launcher": "deepspeed", "launch_deepspeed_launcher": "openmpi", "launch_environment": CPU},
    ),
    # these two launchers distribute all processes evenly across the nodes
    "accelerate": ("accelerate", {"launch_launcher": "accelerate", **TWO_AND_TWO}),
    "lightning": ("lightning", {"launch_launcher": "env", **TWO_AND_TWO}),
}


# tests/unit/oracles checks how Lightning and accelerate read their environment; test_faults starts accelerate and
# mpirun, molecule/open_mpi compares the ranks of mpirun, and molecule/launch runs torchrun with unequal slots.
THOROUGH = ("torchrun", "mpirun", "pdsh", "openmpi", "lightning", "accelerate")


@pytest.mark.parametrize(
    "launcher", [pytest.param(name, marks=pytest.mark.thorough) if name in THOROUGH else name for name in LAUNCHERS]
)
def test_each_launcher_starts_the_same_ranks_with_the_same_losses(lab: Lab, nodes: list[str], launcher: str) -> None:
    kind, settings = LAUNCHERS[launcher]
    arguments = [kind, "--steps", "4", *(["--nodes", "2", "--devices", "2"] if kind == "lightning" else [])]
    play = drive.launch(lab, "same_job.py", *arguments, run_id=launcher, **settings).wait()
    assert play.rc == 0, play.output
    assert drive.run("logs.yml", lab.inventory, run_id=launcher, fetch=True).rc == 0
    texts = [path.read_text() for path in (lab.inventory.parent / "runs" / launcher / "logs").rglob("*.log")]
    placements = sorted(
        {tuple(map(int, result[:3])) + result[3:] for text in texts for result in RANK_REPORT.findall(text)}
    )
    assert placements == (EQUAL if "nnodes" in settings else UNEQUAL)
    losses = sorted({result for text in texts for result in LOSS.findall(text)})
    assert [loss for _step, loss in losses] == LOSSES
    if launcher not in ("torchrun", "lightning"):  # the exit code of each rank is known, not only the launcher's
        ends = [rank["exit_code"] for node in drive.record(lab, launcher)["nodes"] for rank in node["ranks"]]
        assert ends == [0, 0, 0, 0]


def test_accelerate_refuses_unequal_slots(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(lab, "same_job.py", "accelerate", launch_launcher="accelerate").wait()
    assert play.rc == 2 and "node1 2, node2 1, node3 1" in play.output, play.output


def test_batch_sizes_are_checked_before_the_start(lab: Lab, nodes: list[str]) -> None:
    config = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 5, "fp16": {"enabled": true}}'
    for name in nodes:
        lab.exec(name, ["sh", "-c", f"echo '{config}' > /home/muster/ds.json"])
    play = drive.launch(
        lab, "same_job.py", "deepspeed", "--deepspeed_config", "ds.json", launch_launcher="deepspeed"
    ).wait()
    assert play.rc == 2, play.output
    for message in (
        "5 * 3 * 4 ranks is 60, not 64",
        "set train_micro_batch_size_per_gpu to 4 and gradient_accumulation_steps to 4",
        "ERROR deepspeed-precision on node1, node2, node3: fp16 is enabled",
    ):
        assert message in " ".join(play.output.split()), play.output


def test_mpirun_passes_hostile_arguments_to_a_compiled_program(lab: Lab, nodes: list[str]) -> None:
    """mpirun can start programs other than Python, and passes arguments and environment through unchanged."""
    hostile = ["a b", "$HOME", "$(id)", "`id`", "'", '"', "\\", "%h", "*", "line\nbreak", "--help", "-x"]
    play = drive.start(
        "launch.yml",
        lab.inventory,
        run_id="echo",
        launch_launcher="mpirun",
        launch_no_python=True,
        launch_script="/usr/bin/printf",
        launch_args=["[%s]\n", *hostile],
    ).wait()
    assert play.rc == 0, play.output
    for number in (0, 1, 2):
        log = f"/home/muster/.muster/runs/echo/node{number}/ranks/0/stdout.log"
        assert lab.exec(nodes[number], ["cat", log]).stdout == "".join(f"[{word}]\n" for word in hostile)

"""The example trains, checkpoints and resumes from its checkpoint, under the real torchrun."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[3]


def torchrun(directory: Path, ranks: int, *arguments: str) -> list[str]:
    """Return the lines that the ranks print; only rank 0's go to stdout."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    finished = subprocess.run(
        [*command, str(CHECKOUT / "examples" / "ddp" / "train_ddp.py"), *arguments],
        env={**os.environ, "MUSTER_RUN_DIRECTORY": str(directory)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    return finished.stdout.splitlines()


def result_of(lines: list[str]) -> dict[str, Any]:
    word, text = lines[-1].split(" ", 1)
    assert word == "MUSTER_RESULT"
    result: dict[str, Any] = json.loads(text)
    return result


def test_example_learns_and_resumes_with_a_different_number_of_ranks(tmp_path: Path) -> None:
    lines = torchrun(tmp_path, 2)
    first = result_of(lines)
    assert first["accuracy"] > 0.95
    assert first["samples_per_second"] > 0
    assert first["checkpoint"] == str(tmp_path / "checkpoints" / "train_ddp.pt")
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["train_ddp.pt"]
    epochs = [line for line in lines if line.startswith("epoch ")]
    assert len(epochs) == 20
    messages = [json.loads(line.partition(" ")[2]) for line in lines if line.startswith("MUSTER_RESULT ")]
    assert [item["step"] for item in messages[:-1]] == [23 * epoch for epoch in range(1, 21)] and messages[-2][
        "loss"
    ] < 0.1
    assert re.fullmatch(r"epoch 20/20 step \d+ loss [\d.]+ accuracy [\d.]+ samples/s \d+", epochs[-1])

    resumed = torchrun(tmp_path, 1, "--resume", "--epochs", "21")
    assert f"starting after epoch 20 with accuracy {first['accuracy']:.4f}" in resumed[0]
    assert [line.split()[1] for line in resumed if line.startswith("epoch ")] == ["21/21"]
    assert result_of(resumed)["accuracy"] > 0.95


PROGRAM = """
import os, runpy, sys, weakref
import torch.distributed as dist

destroy, seen = dist.destroy_process_group, []
def destroy_and_look():
    seen.append(weakref.ref(dist.group.WORLD))
    destroy()
dist.destroy_process_group = destroy_and_look
left = []
os._exit = left.append  # by which a script leaves without an end of the interpreter
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print("gone" if seen[0]() is None or left == [0] else "held")
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["examples/strategies/train.py", "--steps", "4", "--strategy", "fsdp"],
        *(
            pytest.param(argv, marks=pytest.mark.thorough)
            for argv in (
                ["examples/ddp/train_ddp.py", "--epochs", "1"],
                ["examples/strategies/train.py", "--steps", "4", "--strategy", "ddp"],
                *(["tests/jobs/same_job.py", kind] for kind in ("plain", "deepspeed", "accelerate", "lightning")),
            )
        ),
    ],
)
def test_process_group_is_destroyed_before_the_interpreter_exits(tmp_path: Path, arguments: list[str]) -> None:
    """Otherwise, a gloo thread that needs the interpreter during shutdown aborts the process, often on a busy
    machine.
    """
    location = {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_SIZE": "1", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={**os.environ, **location, "MASTER_PORT": "0", "MUSTER_RUN_DIRECTORY": str(tmp_path)},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        cwd=CHECKOUT,
    )
    assert completed.stdout.splitlines()[-1] == "gone"

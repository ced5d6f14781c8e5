"""Each kind of example loses a node and goes on from its checkpoint on a spare, and its loss curve continues."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.lab import Lab
from tests.lab.shared_directory import share
from tests.support import drive

EXAMPLES = drive.CHECKOUT / "examples"
RUNS = "/home/muster/.muster/runs"
SHARED = "/home/muster/shared"
TRANSFORMERS = sorted((drive.CHECKOUT / "build").glob("transformers-*"))
STRATEGIES = r'"step": (\d+), "loss": ([\d.]+)'


class Example(NamedTuple):
    """An example that loses a node.

    script, arguments, options: how it is launched. saved: the file that shows that it has a checkpoint. line: matches the
    position and the loss of each step that it prints. values: of its loss curve, each step once.
    """

    script: str
    arguments: list[str]
    options: dict[str, Any]
    saved: str
    line: str
    values: int


def on_shared_drive(name: str, option: str) -> dict[str, Any]:
    return {"launch_checkpoints": f"{SHARED}/{name}", "launch_resume_args": [option, "{checkpoint}"]}


def strategy(name: str) -> Example:
    arguments = ["--strategy", name, "--steps", "600", "--save-every", "20", "--checkpoint-dir", f"{SHARED}/{name}"]
    options = on_shared_drive(name, "--resume")
    return Example("strategies", arguments, options, f"{SHARED}/{name}/step-60", STRATEGIES, 600)


CASES = {
    # rank 0's file, which the spare gets from the first node
    "lightning": Example(
        "lightning",
        ["--epochs", "30"],
        {"launch_checkpoints": "{run_directory}/checkpoints", "launch_resume_args": ["--resume", "{checkpoint}"]},
        f"{RUNS}/example-lightning/node0/checkpoints/last.ckpt",
        r"epoch (\d+)/30 loss ([\d.]+)",
        30,
    ),
    # the shards of all ranks
    "fsdp": strategy("fsdp"),
    "zero3": strategy("zero3"),
    "hugging-face-deepspeed": Example(
        "hugging_face_deepspeed",
        [
            *("--deepspeed", str(EXAMPLES / "hugging_face_deepspeed" / "zero2.json"), "--max_steps", "400"),
            *("--logging_steps", "10", "--save_steps", "20", "--output_dir", f"{SHARED}/hugging-face-deepspeed"),
        ],
        {
            "launch_launcher": "deepspeed",
            "launch_environment": {"PYTHONPATH": str(TRANSFORMERS[-1]) if TRANSFORMERS else ""},
            **on_shared_drive("hugging-face-deepspeed", "--resume_from_checkpoint"),
        },
        f"{SHARED}/hugging-face-deepspeed/checkpoint-20/trainer_state.json",
        r"'loss': '?([\d.]+).*'epoch': '?([\d.]+)",
        40,
    ),
}


@pytest.fixture
def shared(lab: Lab, nodes: list[str]) -> None:
    """Give all nodes a common directory, and the libraries of an example that the environment lacks."""
    directory = lab.inventory.parent / "shared"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    directory.chmod(0o777)
    share(lab, directory, SHARED)
    if TRANSFORMERS:
        share(lab, TRANSFORMERS[-1], str(TRANSFORMERS[-1]))


def printed(lab: Lab, run_id: str, attempt: int) -> str:
    """Return what rank 0, on the first node, has printed in an attempt."""
    directory = f"{RUNS}/{run_id}/node0"
    later = ["-not", "-path", "*/attempt-1/*"] if attempt == 0 else []
    paths = [f"{directory}/attempt-{attempt}" if attempt else directory, "-path", "*/0/stdout.log", *later]
    return drive.said(lab, "node1", "find", *paths, "-exec", "cat", "{}", "+")


def steps_of(example: Example, text: str) -> list[tuple[float, float]]:
    """Return position and loss of each step in the output of a rank."""
    pairs = [(float(first), float(second)) for first, second in re.findall(example.line, text)]
    return [(second, first) for first, second in pairs] if example.line.startswith("'loss'") else pairs


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("shared")
def test_example_goes_on_from_its_checkpoint_after_the_loss_of_a_node(lab: Lab, nodes: list[str], name: str) -> None:
    example, run_id = CASES[name], f"example-{name}"
    if example.script.startswith("hugging_face") and not TRANSFORMERS:
        pytest.skip("make test-all has not installed transformers into build")
    play = drive.start(
        "launch.yml",
        lab.inventory,
        run_id=run_id,
        nnodes=2,
        launch_spares=1,
        launch_restarts=1,
        launch_script=str(EXAMPLES / example.script / "train.py"),
        launch_args=example.arguments,
        launch_skip=["own-name-loopback", "checkpoint-node-local"],
        launch_fetch_record=True,
        launch_report=True,
        **example.options,
    )

    def has_saved() -> bool:
        assert play.rc is None, play.output
        is_there = lab.exec("node1", ["test", "-e", example.saved]).returncode == 0
        return is_there and len(steps_of(example, printed(lab, run_id, 0))) > 2

    drive.eventually(f"{name} has saved a checkpoint", has_saved, 600, lambda: play.output[-3000:])
    lab.power_off("node2")
    play.wait_for(r"attempt 1 starts: node2 was lost after .*; node3 joins; 1 restart allowed, 0 remain")
    play.wait(900)
    assert play.rc == 0, play.output
    before, after = (steps_of(example, printed(lab, run_id, attempt)) for attempt in (0, 1))
    interval = before[-1][0] - before[-2][0]
    assert before[0][0] < after[0][0] <= before[-1][0] + 1.5 * interval, "it neither began anew nor left steps out"
    assert after[0][1] < before[0][1] and after[-1][1] < before[-1][1], "the loss falls from where it was"
    verdict = drive.record(lab, run_id)
    first, second = verdict["attempts"]
    assert (first["end_class"], first["node"], second["nodes"]) == ("node_lost", "node2", ["node1", "node3"])
    phases = {"ended": first["ended"] - first["noticed"], "next attempt": second["started"] - first["ended"]}
    print(f"{name}: silent {first['silent']:.1f} s, " + ", ".join(f"{key} {phases[key]:.1f} s" for key in phases))
    curves = json.loads(Path(lab.inventory.parent, "runs", run_id, "report.json").read_text())["curves"]
    (loss,) = [curve for curve in curves if curve["name"] == "loss"]
    assert loss["values"] == example.values and loss["last"] < loss["first"], "each step counts once"
    drive.nothing_left(lab, ["node1", "node3"], within=15)

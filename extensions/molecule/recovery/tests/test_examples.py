"""Each example loses a node and resumes from its checkpoint on a spare, and its loss curve continues."""

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
RUN_ID = "example-"
TRANSFORMERS = sorted((drive.CHECKOUT / "build").glob("transformers-*"))
STRATEGIES = r'"step": (\d+), "loss": ([\d.]+)'


class Example(NamedTuple):
    """An example that loses a node.

    script, arguments, options: for its launch. saved: a file that exists once it has a checkpoint. line: a pattern of
    the position and loss of each printed step. values: the number of values of its loss curve. lost: the lost node.
    uncompiled: prevent DeepSpeed from compiling operations.
    """

    script: str
    arguments: list[str]
    options: dict[str, Any]
    saved: str
    line: str
    values: int
    lost: str = "node2"
    uncompiled: bool = False

    def command(self) -> dict[str, Any]:
        """Return the variables of the launch that name the script and its arguments."""
        script = str(EXAMPLES / self.script)
        if self.uncompiled:
            return {"launch_script": str(drive.JOBS / "uncompiled.py"), "launch_args": [script, *self.arguments]}
        return {"launch_script": script, "launch_args": self.arguments}


def on_shared_drive(name: str, option: str) -> dict[str, Any]:
    return {"launch_checkpoints": f"{SHARED}/{name}", "launch_resume_args": [option, "{checkpoint}"]}


def strategy(name: str) -> Example:
    arguments = ["--strategy", name, "--steps", "400", "--save-every", "20", "--checkpoint-dir", f"{SHARED}/{name}"]
    options = on_shared_drive(name, "--resume")
    saved = f"{SHARED}/{name}/step-60"
    is_deepspeed = name.startswith("zero")
    return Example("strategies/train.py", arguments, options, saved, STRATEGIES, 400, uncompiled=is_deepspeed)


CASES = {
    # the lost first node's logs become available again before the end of the run
    "ddp": Example(
        "ddp/train_ddp.py",
        ["--epochs", "60", "--checkpoint-every", "1", "--resume", "--checkpoint-dir", f"{SHARED}/ddp"],
        {"launch_checkpoints": f"{SHARED}/ddp"},
        f"{SHARED}/ddp/train_ddp.pt",
        r"epoch (\d+)/60 step \d+ loss ([\d.]+)",
        60,
        lost="node1",
    ),
    # a file of rank 0, which the spare receives from the first node
    "lightning": Example(
        "lightning/train.py",
        ["--epochs", "20"],
        {"launch_checkpoints": "{run_directory}/checkpoints", "launch_resume_args": ["--resume", "{checkpoint}"]},
        f"{RUNS}/example-lightning/node0/checkpoints/last.ckpt",
        r"epoch (\d+)/20 loss ([\d.]+)",
        20,
    ),
    # the shards from all ranks
    "fsdp": strategy("fsdp"),
    "zero3": strategy("zero3"),
    "hugging-face-deepspeed": Example(
        "hugging_face_deepspeed/train.py",
        [
            *("--deepspeed", str(EXAMPLES / "hugging_face_deepspeed" / "zero2.json"), "--max_steps", "240"),
            *("--logging_steps", "10", "--save_steps", "20", "--output_dir", f"{SHARED}/hugging-face-deepspeed"),
        ],
        {
            "launch_launcher": "deepspeed",
            "launch_environment": {"PYTHONPATH": str(TRANSFORMERS[-1]) if TRANSFORMERS else ""},
            **on_shared_drive("hugging-face-deepspeed", "--resume_from_checkpoint"),
        },
        f"{SHARED}/hugging-face-deepspeed/checkpoint-20/trainer_state.json",
        r"'loss': '?([\d.]+).*'epoch': '?([\d.]+)",
        24,
        uncompiled=True,
    ),
}


@pytest.fixture
def shared(lab: Lab, nodes: list[str]) -> None:
    """Give all nodes a common directory, and the libraries of an example that the environment lacks."""
    directory = lab.inventory.parent / "shared"
    directory.mkdir(exist_ok=True)
    directory.chmod(0o777)
    for path in directory.iterdir():  # the directory itself has been mounted on the nodes since the last row
        shutil.rmtree(path)
    share(lab, directory, SHARED)
    if TRANSFORMERS:
        share(lab, TRANSFORMERS[-1], str(TRANSFORMERS[-1]))


def step_losses(lab: Lab, play: drive.Play, example: Example, attempt: int) -> list[tuple[float, float]]:
    """Return the position and loss of each step that rank 0 printed in an attempt."""
    before, _starts, after = play.output.partition("attempt 1 starts")
    text = after if attempt else before
    if example.line == STRATEGIES:  # reports, which the output of a launch does not show
        directory = f"{RUNS}/{RUN_ID}{name_of(example)}/node0"
        paths = [f"{directory}/attempt-1"] if attempt else [directory, "-not", "-path", "*/attempt-1/*"]
        text = drive.output_of(lab, "node1", "find", *paths, "-path", "*/0/stdout.log", "-exec", "cat", "{}", "+")
    pairs = [(float(first), float(second)) for first, second in re.findall(example.line, text)]
    return [(second, first) for first, second in pairs] if example.line.startswith("'loss'") else pairs


def name_of(example: Example) -> str:
    return next(name for name, candidate in CASES.items() if candidate is example)


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("shared")
def test_example_resumes_from_its_checkpoint_after_the_loss_of_a_node(lab: Lab, nodes: list[str], name: str) -> None:
    example, run_id = CASES[name], f"{RUN_ID}{name}"
    if example.script.startswith("hugging_face") and not TRANSFORMERS:
        pytest.skip("make test-all has not installed transformers into build")
    play = drive.start(
        "launch.yml",
        lab.inventory,
        run_id=run_id,
        nnodes=2,
        launch_spares=1,
        launch_restarts=1,
        launch_skip=["own-name-loopback", "checkpoint-node-local"],
        launch_fetch_record=True,
        launch_report=True,
        **example.command(),
        **example.options,
    )

    def has_saved() -> bool:
        assert play.rc is None, play.output
        exists = lab.exec("node1", ["test", "-e", example.saved]).returncode == 0
        return exists and len(step_losses(lab, play, example, 0)) > 2

    drive.eventually(f"{name} has saved a checkpoint", has_saved, 600, lambda: play.output[-3000:])
    lab.power_off(example.lost)
    play.wait_for(rf"attempt 1 starts: {example.lost} was lost after .*; node3 joins; 1 restart allowed, 0 remain")
    if example.lost == "node1":
        lab.power_on("node1")
    play.wait(900)
    assert play.rc == 0, play.output
    verdict = drive.record(lab, run_id)
    first, second = verdict["attempts"]
    remaining = [node for node in ("node1", "node2", "node3") if node != example.lost]
    assert (first["end_class"], first["node"], second["nodes"]) == ("node_lost", example.lost, remaining)
    before, after = (step_losses(lab, play, example, attempt) for attempt in (0, 1))
    interval = before[-1][0] - before[-2][0]
    assert before[0][0] < after[0][0] <= before[-1][0] + 1.5 * interval, "it neither began anew nor left steps out"
    assert after[0][1] < before[0][1] and after[-1][1] < before[-1][1], "the loss falls from where it was"
    phases = {"ended": first["ended"] - first["noticed"], "next attempt": second["started"] - first["ended"]}
    print(f"{name}: silent {first['silent']:.1f} s, " + ", ".join(f"{key} {phases[key]:.1f} s" for key in phases))
    if example.lost == "node1":  # the output of its first attempt is on its own disk
        fetched = drive.run("report.yml", lab.inventory, run_id=run_id, fetch=True)
        assert fetched.rc == 0, fetched.output
    curves = json.loads(Path(lab.inventory.parent, "runs", run_id, "report.json").read_text())["curves"]
    (loss,) = [curve for curve in curves if curve["name"] == "loss"]
    assert loss["values"] == example.values and loss["last"] < loss["first"], "each step counts once"
    drive.nothing_left(lab, remaining, within=15)

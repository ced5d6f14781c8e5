# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real training programs that save at a notice, on two nodes: the plain script in docs/saving.md, and frameworks."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints
from ansible_collections.muster.training.plugins.module_utils._run import save as run_save
from tests.unit import supervised
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run, own_network
from tests.unit.typed import CHECKOUT

LONGEST = 600.0  # seconds for two ranks to import torch and Lightning on a busy machine
TRANSFORMERS = sorted((CHECKOUT / "build").glob("transformers-*"))  # make test-all installs it
PLAIN = """
import json, os, time
import torch
rank, local_rank, device = int(os.environ["RANK"]), 0, "cpu"
torch.distributed.init_process_group("gloo")
def train():
    time.sleep(0.05)
def save_checkpoint():
    torch.save({"step": step}, f"checkpoint-{rank}-{step}.pt")
"""
DEEPSPEED = """
import json, os, time
import deepspeed, torch
rank, local_rank, device = int(os.environ["RANK"]), 0, "cpu"
deepspeed.ops.__compatible_ops__.clear()  # compile no operations
deepspeed.init_distributed("gloo")
model = torch.nn.Linear(4, 1)
options = {"zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True}
config = {"train_micro_batch_size_per_gpu": 1, **options}
engine, *_others = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=config)
def train():
    engine.backward(engine(torch.ones(1, 4)).sum())
    engine.step()
    time.sleep(0.05)
def save_checkpoint():
    engine.save_checkpoint("saved", tag=f"step-{step}")
"""
LOOP = """
for step in range(10**6):
    train()
    print("step", step, flush=True)
"""
HUGGING_FACE = """
import time, torch
from transformers import Trainer, TrainerCallback, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, inputs):
        return {"loss": self.layer(inputs).mean()}
class Show(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        print("step", state.global_step, flush=True)
        time.sleep(0.05)
data = [{"inputs": torch.randn(4)} for number in range(10**5)]
options = {"save_strategy": "steps", "save_steps": 10**6, "report_to": "none", "disable_tqdm": True, "use_cpu": True}
arguments = TrainingArguments("saved", max_steps=10**6, enable_jit_checkpoint=True, **options)
Trainer(Model(), arguments, train_dataset=data, callbacks=[Show()]).train()
"""
LIGHTNING = """
import json, os, time
import lightning, torch
device = "cpu"
"""
LIGHTNING_TRAINING = """
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        print("step", index, flush=True)
        time.sleep(0.05)
        return self.layer(batch).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
data = torch.utils.data.DataLoader(torch.randn(10**6, 4), batch_size=4)
options = {"accelerator": "cpu", "devices": 1, "num_nodes": 2, "strategy": "ddp", "logger": False}
options = {**options, "enable_progress_bar": False, "enable_checkpointing": False}
lightning.Trainer(max_epochs=1, callbacks=[SaveAtNotice()], **options).fit(Module(), data)
torch.distributed.destroy_process_group()
"""

pytestmark = pytest.mark.thorough


def with_notices(start: str) -> str:
    """Return a training loop with the lines that docs/saving.md shows; start: defines train and save_checkpoint."""
    page = (CHECKOUT / "docs" / "saving.md").read_text()
    function, step, _callback = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    body = "".join(f"    {line}\n" for line in step.splitlines())
    end = 'print("rank", rank, "ends at step", step, flush=True)\ntorch.distributed.destroy_process_group()\n'
    return start + function + LOOP + body + end


def lightning_script() -> str:
    """Return a Lightning script, with the lines that docs/saving.md shows."""
    page = (CHECKOUT / "docs" / "saving.md").read_text()
    function, _step, callback = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return LIGHTNING + function + callback + LIGHTNING_TRAINING


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Start a program on two nodes; return the run once both ranks train."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(34))
    port = free_port()
    commands = [[sys.executable, "-u", "-c", request.param]] * 2
    run = make_run(tmp_path, commands, {"start": LONGEST}, lifeline_port=free_port(), master_port=port)
    address = run.plans[0]["node"]["address"]
    for rank, plan in enumerate(run.plans):
        plan["working_directory"] = str(tmp_path)
        plan["environment"].pop("NCCL_SOCKET_IFNAME", None)
        rendezvous = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "NODE_RANK": str(rank), "WORLD_SIZE": "2"}
        ranks = {"RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        plan["environment"].update(GLOO_SOCKET_IFNAME="lo", DS_ACCELERATOR="cpu", **rendezvous, **ranks)
        if "import lightning" in request.param:
            plan["notices"]["signal"] = "none"
        if TRANSFORMERS:
            plan["environment"]["PYTHONPATH"] = str(TRANSFORMERS[-1])
    try:
        run.start()
        eventually(lambda: all("step 3" in log(run, rank) for rank in range(2)), LONGEST)
        yield run
    finally:
        with contextlib.suppress(OSError):  # frameworks leave files in the run's temporary directory
            end_by_force(run)
        for plan in run.plans:
            shutil.rmtree(plan["temporary_directory"], ignore_errors=True)


def log(run: Run, rank: int) -> str:
    path = run.node(rank) / "launcher.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    ("run", "saved"),
    [
        (with_notices(PLAIN), "checkpoint-{rank}-{step}.pt"),
        (with_notices(DEEPSPEED), "saved/step-{step}/*zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"),
    ],
    ids=["plain", "deepspeed"],
    indirect=["run"],
)
def test_script_saves_and_continues_then_saves_and_exits(run: Run, tmp_path: Path, saved: str) -> None:
    def count(rank: int | str = "*", step: str = "*") -> int:
        return len(list(tmp_path.glob(saved.format(rank=rank, step=step))))

    run_save.save(run.request(0, stop=False))
    eventually(lambda: count() == 2, LONGEST)
    eventually(lambda: any("it has saved" in event for event in run.events()), LONGEST)
    assert run.state(0) == "running"
    run_save.save(run.request(0, stop=True))
    run.wait_for("interrupted", seconds=LONGEST)
    ends = [re.search(r"ends at step (\d+)", log(run, rank)) for rank in range(2)]
    steps = {end[1] for end in ends if end is not None}
    assert len(steps) == 1, "all ranks end at the same step"
    last = steps.pop()
    assert all(count(rank, last) == 1 for rank in range(2))
    assert [node["report"]["exit_code"] for node in run.result()["nodes"]] == [0, 0]


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="Lightning is not installed")
@pytest.mark.parametrize("run", [lightning_script()], ids=["lightning"], indirect=True)
def test_lightning_saves_at_a_notice(run: Run, tmp_path: Path) -> None:
    """Its own handler of SIGTERM broadcasts within a step: ranks that receive the signal together block each other."""
    run_save.save(run.request(0, stop=True))
    run.wait_for("interrupted", seconds=LONGEST)
    assert (tmp_path / "notice.ckpt").exists()
    assert run.result()["reason"] == "requested to save and end"
    assert [node["report"]["exit_code"] for node in run.result()["nodes"]] == [0, 0]


@pytest.mark.skipif(not TRANSFORMERS, reason="make test-all has not installed transformers into build")
@pytest.mark.parametrize("run", [HUGGING_FACE], ids=["hugging_face"], indirect=True)
def test_hugging_face_trainer_saves_on_sigterm(run: Run, tmp_path: Path) -> None:
    run_save.save(run.request(0, stop=True))
    run.wait_for("interrupted", seconds=LONGEST)
    (checkpoint, *_others) = find_checkpoints(str(tmp_path / "saved"))
    assert checkpoint["format"] == "transformers" and checkpoint["complete"], checkpoint
    assert (checkpoint["step"] or 0) >= 3
    assert run.result()["reason"] == "requested to save and end"

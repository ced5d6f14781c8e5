# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Real training programs that save at a notice, on two nodes: the plain script in docs/saving.md, and Lightning."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import save as run_save
from tests.unit import supervised
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run, own_network
from tests.unit.typed import CHECKOUT

LONGEST = 600.0  # for two ranks to import torch and Lightning on a busy machine
START = """
import json, os, time
import torch
rank, local_rank, device = int(os.environ["NODE_RANK"]), 0, "cpu"
torch.distributed.init_process_group("gloo", rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
def save_checkpoint():
    torch.save({"step": step}, f"checkpoint-{rank}-{step}.pt")
"""
LOOP = """
for step in range(10**6):
    print("step", step, flush=True)
    time.sleep(0.05)
"""
LIGHTNING = """
import time, torch, lightning
from lightning.pytorch.callbacks import OnExceptionCheckpoint
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
callback = OnExceptionCheckpoint("saved", filename="notice")
options = {"accelerator": "cpu", "devices": 1, "num_nodes": 2, "strategy": "ddp", "logger": False}
trainer = lightning.Trainer(max_epochs=1, enable_progress_bar=False, callbacks=[callback], **options)
trainer.fit(Module(), data)
"""

pytestmark = pytest.mark.thorough


def plain_script() -> str:
    """Return a training loop with the lines that docs/saving.md shows."""
    page = (CHECKOUT / "docs" / "saving.md").read_text()
    function, step = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    body = "".join(f"    {line}\n" for line in step.splitlines())
    end = 'print("rank", rank, "ends at step", step, flush=True)\ntorch.distributed.destroy_process_group()\n'
    return START + function + LOOP + body + end


@pytest.fixture
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run of a program on two nodes, once both ranks train."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(34))
    port = free_port()
    commands = [[sys.executable, "-u", "-c", request.param()]] * 2
    run = make_run(tmp_path, commands, {"start": LONGEST}, lifeline_port=free_port(), master_port=port)
    address = run.plans[0]["node"]["address"]
    for rank, plan in enumerate(run.plans):
        plan["working_directory"] = str(tmp_path)
        plan["environment"].pop("NCCL_SOCKET_IFNAME", None)
        rendezvous = {"MASTER_ADDR": address, "MASTER_PORT": str(port), "NODE_RANK": str(rank), "WORLD_SIZE": "2"}
        plan["environment"].update(GLOO_SOCKET_IFNAME="lo", LOCAL_RANK="0", **rendezvous)
    try:
        run.start()
        eventually(lambda: all("step 3" in log(run, rank) for rank in range(2)), LONGEST)
        yield run
    finally:
        end_by_force(run)


def log(run: Run, rank: int) -> str:
    path = run.node(rank) / "launcher.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("run", [plain_script], indirect=True)
def test_plain_script_saves_and_continues_then_saves_and_exits(run: Run, tmp_path: Path) -> None:
    run_save.save(run.request(0, stop=False))
    eventually(lambda: len(list(tmp_path.glob("checkpoint-*.pt"))) == 2, LONGEST)
    eventually(lambda: any("it has saved" in event for event in run.events()), LONGEST)
    assert run.state(0) == "running"
    run_save.save(run.request(1, stop=True))
    run.wait_for("interrupted", seconds=LONGEST)
    ends = [re.search(r"ends at step (\d+)", log(run, rank)) for rank in range(2)]
    steps = {end[1] for end in ends if end is not None}
    assert len(steps) == 1, "all ranks end at the same step"
    last = steps.pop()
    assert all((tmp_path / f"checkpoint-{rank}-{last}.pt").exists() for rank in range(2))
    assert [node["report"]["exit_code"] for node in run.result()["nodes"]] == [0, 0]


@pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="Lightning is not installed")
@pytest.mark.parametrize("run", [lambda: LIGHTNING], indirect=True)
def test_lightning_saves_on_sigterm(run: Run, tmp_path: Path) -> None:
    run_save.save(run.request(0, stop=True))
    run.wait_for("interrupted", seconds=LONGEST)
    assert (tmp_path / "saved" / "notice.ckpt").exists()
    assert run.result()["reason"] == "requested to save and end"

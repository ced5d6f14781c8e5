# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify DeepSpeed on this node: its release, its built ops, and a training step with two processes.

The verification is not repeated until its inputs change. It runs in the environment's interpreter; only its child
processes import torch and DeepSpeed.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    StepError,
    print_line,
    report_result,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

RANKS = 2
TIMEOUT = 600  # seconds for two processes, each of which may have to build an op
RANK = """
import gc, os, sys, torch, torch.distributed
rank, size, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
cuda = torch.cuda.device_count() >= size
if cuda:
    torch.cuda.set_device(rank)
else:
    os.environ["DS_ACCELERATOR"] = "cpu"
backend = "nccl" if cuda else "gloo"
import deepspeed
torch.distributed.init_process_group(backend, init_method="file://" + place, rank=rank, world_size=size)
deepspeed.init_distributed(dist_backend=backend, auto_mpi_discovery=False)
model = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.ones_(model.weight)
engine = deepspeed.initialize(
    model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5), dist_init_required=False,
    config={"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0})[0]
engine.backward(engine(torch.full((1, 1), float(rank + 1), device=engine.device)).sum())
engine.step()
print("weight", engine.module.weight.item())
# Delete the users of the process group first: gloo's threads that outlive it may abort a process at its end. Modules of
# torch that were imported after its creation would use it, too.
del engine, model
gc.collect()
torch.distributed.destroy_process_group()
"""
REPORT = """
import json, deepspeed, deepspeed.git_version_info as info
from deepspeed.ops.op_builder.all_ops import ALL_OPS
built = [builder.BUILD_VAR for name, builder in ALL_OPS.items() if info.installed_ops.get(name)]
print(json.dumps([deepspeed.__version__, built]))
"""


def build_environment() -> dict[str, str]:
    """Return the environment variables, without other jobs' and with the environment's programs first in PATH."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DS_")}
    path = os.path.dirname(sys.executable) + os.pathsep + inherited.get("PATH", "/usr/bin:/bin")
    # without a GPU, request the CPU explicitly: DeepSpeed does not rely on torch alone
    return {**inherited, "PATH": path, **({} if glob.glob("/dev/nvidia[0-9]*") else {"DS_ACCELERATOR": "cpu"})}


def check_report(request: Data) -> str:
    """Check the version and the built ops, as printed by ds_report; return a summary."""
    argv = [sys.executable, "-c", REPORT]
    completed = subprocess.run(argv, env=build_environment(), capture_output=True, text=True, check=False)
    if completed.returncode:
        raise StepError(
            f"cannot import deepspeed: {completed.stderr.strip()[-800:]}. Install torch first: "
            "ansible-playbook site.yml --tags pytorch"
        )
    version, built = json.loads(completed.stdout.strip().splitlines()[-1])
    if version.partition("+")[0] != request["version"]:
        raise StepError(
            f"DeepSpeed is version {version} instead of {request['version']}. pip show deepspeed lists the "
            "packages that require it"
        )
    missing = [name for name in request["built"] if name != "DS_BUILD_OPS" and name not in built]
    if missing:
        raise StepError(
            f"DeepSpeed was built without these ops: {', '.join(missing)}. Check that a compiler is installed, "
            "correct deepspeed_build (ds_report lists the op names), and remove locks/deepspeed.json on the "
            "first node"
        )
    return f"DeepSpeed {version}, {len(built)} op{'' if len(built) == 1 else 's'} built"


def check_step() -> None:
    """Check an optimizer step that has a known result on two processes."""
    with tempfile.TemporaryDirectory() as directory:
        ranks = []
        for rank in range(RANKS):
            argv = [sys.executable, "-c", RANK, str(rank), str(RANKS), os.path.join(directory, "meet")]
            ranks.append(
                subprocess.Popen(
                    argv,
                    env=build_environment(),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    cwd=directory,
                )
            )
        for number, process in enumerate(ranks):
            try:
                out, _errors = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                out = f"no reply within {TIMEOUT} s"
                for running in ranks:
                    running.kill()
            # mean gradient (1 + 2) / 2, learning rate 0.5: 1 - 0.75
            if "weight 0.25" not in out.splitlines():
                compiler = "deepspeed_shm_comm" in out
                hint = (
                    "On the CPU it needs a compiler and Python's headers: ansible-playbook site.yml --tags "
                    "base_packages -e '{base_packages_extra: [build-essential, python3-dev]}'"
                    if compiler
                    else "Check torch (ansible-playbook site.yml --tags pytorch)"
                )
                raise StepError(
                    f"a training step on two processes failed in process {number} (expected weight: 0.25): "
                    f"{out.strip()[-800:]}. {hint}"
                )


def verify(request: Data) -> Data:
    """Verify DeepSpeed, unless the last verification had the same inputs."""
    state = json.dumps([request["key"], request["version"], request["built"], sys.version])
    if os.path.exists(request["marker"]):
        with open(request["marker"], encoding="utf-8") as file:
            if file.read() == state:
                return {"changed": False, "summary": "verified before"}
    summary = check_report(request)
    print_line(summary)
    check_step()
    with open(request["marker"], "w", encoding="utf-8") as file:
        file.write(state)
    return {"changed": False, "summary": f"{summary}; training step correct on two ranks"}


def main(request: Data) -> Data:
    """Return the verification result or its error."""
    return report_result(verify, request)

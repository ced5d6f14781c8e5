# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Prove that torch works on this node: its build, a matrix product on each GPU, and a sum over two processes.

A proof is not repeated until something changes. Private to this collection. Runs on the node with the environment's
interpreter, Python >= 3.8; outside the standard library it imports only torch.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
import tempfile

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import Fault, answered, say

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

RANKS = 2
TIMEOUT = 300  # seconds for two processes; importing torch alone takes 10 with cold caches
RANK = """
import datetime, os, sys, torch, torch.distributed as dist
rank, size, backend, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if backend == "nccl":
    torch.cuda.set_device(rank)
dist.init_process_group(backend, init_method="file://" + place, rank=rank, world_size=size,
                        timeout=datetime.timedelta(seconds=120))
value = torch.full((1024,), float(rank + 1), device="cuda" if backend == "nccl" else "cpu")
dist.all_reduce(value)
print(value.min().item(), value.max().item())
dist.destroy_process_group()
"""


def what_counts(given: Data) -> str:
    """Everything the proof depends on, as text."""
    driver = ""
    for path in sorted(glob.glob("/sys/module/nvidia/version") + glob.glob("/proc/driver/nvidia/gpus/*/information")):
        with open(path, encoding="utf-8", errors="replace") as file:
            driver += file.read()
    return json.dumps([given["key"], given["version"], given["build"], sys.version, driver])


def check_build(given: Data) -> str:
    """Check that torch is the requested one. Returns the details that guides tell users to check."""
    import torch

    cuda = torch.version.cuda or ""
    shown = f"{torch.__version__} {torch.cuda.is_available()} {torch.version.cuda}"
    if torch.__version__.partition("+")[0] != given["version"] or cuda != given["cuda"]:
        raise Fault(
            f"torch is {torch.__version__}, built for CUDA {cuda or 'none'}. Needed: {given['version']} for "
            f"{'CUDA ' + given['cuda'] if given['cuda'] else 'the CPU'}. See what else installs torch (pip list), and "
            "whether pytorch_index_url is right"
        )
    if given["gpus"] and cuda and torch.cuda.device_count() != given["gpus"]:
        raise Fault(
            f"torch sees {torch.cuda.device_count()} of {given['gpus']} GPUs ({shown}). Needed: all. Look at "
            "nvidia-smi, at the rights of /dev/nvidia*, and at CUDA_VISIBLE_DEVICES"
        )
    return shown


def check_products(given: Data) -> int:
    """Compute a matrix product with a known result on each GPU, or on the CPU. Returns the number of GPUs."""
    import torch

    count = torch.cuda.device_count() if given["cuda"] else 0
    places = [f"cuda:{number}" for number in range(count)] or ["cpu"]
    for place in places:
        left = torch.arange(64.0, device=place).repeat(256, 1)
        found = left @ left.new_ones(64, 256)
        if not bool((found == 2016).all()):  # 0 + 1 + ... + 63, exact in float32 and in TF32
            raise Fault(f"a product of matrices on {place} is wrong. Needed: 2016 everywhere. Have this GPU replaced")
    return count


def check_sum(count: int) -> str:
    """Compute a sum over two processes. Returns the backend."""
    backend = "nccl" if count >= RANKS else "gloo"
    with tempfile.TemporaryDirectory() as place:
        ranks = []
        for rank in range(RANKS):
            words = [sys.executable, "-c", RANK, str(rank), str(RANKS), backend, os.path.join(place, "meet")]
            ranks.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=place))
        for number, process in enumerate(ranks):
            try:
                out, problems = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                out, problems = "", f"no answer within {TIMEOUT} s"
                for other in ranks:
                    other.kill()
            if out.split() != ["3.0", "3.0"]:
                said = problems.strip()[-800:] or out.strip()
                raise Fault(
                    f"a sum over two processes by {backend} fails in process {number}: {said}. Needed: 3.0. "
                    "Look at the limits of this machine (ansible-playbook site.yml --tags base_packages), and with "
                    "NCCL_DEBUG=INFO at NCCL"
                )
    return backend


def verify(given: Data) -> Data:
    """Run the whole proof."""
    counts = what_counts(given)
    if os.path.exists(given["marker"]):
        with open(given["marker"], encoding="utf-8") as file:
            if file.read() == counts:
                return {"changed": False, "shown": "as proved before"}
    shown = check_build(given)
    say(shown)
    count = check_products(given)
    say("the product of matrices is right")
    backend = check_sum(count)
    with open(given["marker"], "w", encoding="utf-8") as file:
        file.write(counts)
    return {
        "changed": False,
        "shown": f"{shown}; products right on {count or 'no'} GPUs, sum of two ranks by {backend}",
    }


def main(request: Data) -> Data:
    """Return the result of the proof, or why it failed."""
    return answered(verify, request)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Verify torch on this node: its build, packages built against it, a matrix product on each GPU, a sum over two ranks.

The verification is not repeated until its inputs change. It runs in the environment's interpreter and imports only
torch apart from the standard library.
"""

from __future__ import annotations

import glob
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import textwrap

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    StepError,
    print_line,
    report_result,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

# Packages that are compiled against one build of torch, each with a statement that fails with another build.
COMPANIONS = {
    "torchvision": "import torch, torchvision.ops as o; o.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)",
    "torchaudio": "import torchaudio",
    "torchcodec": "import shutil; shutil.which('ffmpeg') and __import__('torchcodec')",  # it also needs FFmpeg
}
MAX_ERROR = 400  # number of characters of an error within a sentence
MAX_OUTPUT = 800  # number of characters of a rank's output
CHECK_SOURCE = (
    "Check pytorch_index_url, and run pip check, which names the packages that require a different version of torch"
)
RANKS = 2
TIMEOUT = 300  # seconds for two processes; importing torch alone takes 10 s with cold caches
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


def fingerprint(request: Data) -> str:
    """Return all inputs to the verification, as text."""
    driver = ""
    for path in sorted(glob.glob("/sys/module/nvidia/version") + glob.glob("/proc/driver/nvidia/gpus/*/information")):
        with open(path, encoding="utf-8", errors="replace") as file:
            driver += file.read()
    return json.dumps([installed_builds(), request["version"], request["build"], sys.version, driver])


def installed_builds() -> dict[str, list[str]]:
    """Return the version and installation time of torch and the packages built against it, by name."""
    builds = {}
    for name in ("torch", *COMPANIONS):
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        metadata = str(distribution.locate_file(f"{name}-{distribution.version}.dist-info"))
        installed = os.stat(metadata).st_mtime if os.path.isdir(metadata) else 0.0
        builds[name] = [distribution.version, str(installed)]
    return builds


def last_error(output: str) -> str:
    """Return the last line of a program's output for use within a sentence, cut after a word and without a period."""
    line = (output.strip().splitlines() or [""])[-1]
    return textwrap.shorten(line, MAX_ERROR, placeholder=" ...") if len(line) > MAX_ERROR else line.rstrip(". ")


def last_lines(output: str) -> str:
    """Return the last complete lines of a program's output for use within a sentence, without a period."""
    text = output.strip()
    end = text[-MAX_OUTPUT:]
    return (end if len(text) <= MAX_OUTPUT else end.partition("\n")[2] or end).rstrip(". ")


def check_companions() -> list[str]:
    """Check that the packages built against torch work with it; return the packages' names and versions."""
    builds = installed_builds()
    checked = []
    for name, statement in COMPANIONS.items():
        if name not in builds:
            continue
        argv = [sys.executable, "-c", statement]
        completed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if completed.returncode:
            error = last_error(completed.stderr) or f"exit code {completed.returncode}"
            raise StepError(
                f"{name} {builds[name][0]} does not work with torch {builds['torch'][0]}: {error}. Both must come "
                f"from the same build. Set pytorch_index_url to an index that has {name} for this torch build, or "
                "remove it from the requirements, then run ansible-playbook site.yml --tags pytorch,python_env"
            )
        checked.append(f"{name} {builds[name][0]}")
    return checked


def rocm_version(request: Data) -> str:
    """Return the ROCm version that the requested build targets, or "" if the build is not for ROCm."""
    build = str(request["build"])
    return build[len("rocm") :] if build.startswith("rocm") else ""


def platform_name(cuda: str, rocm: str) -> str:
    """Return the platform of a build. cuda, rocm: the versions that it is for, "" if none."""
    return f"CUDA {cuda}" if cuda else f"ROCm {rocm}" if rocm else "the CPU"


def check_build(request: Data) -> str:
    """Check that the requested torch build is installed; return the details that guides tell users to check."""
    import torch

    cuda, hip = torch.version.cuda or "", torch.version.hip or ""
    rocm = rocm_version(request)
    summary = f"{torch.__version__} {torch.cuda.is_available()} {torch.version.cuda}"
    if torch.__version__.partition("+")[0] != request["version"] or cuda != request["cuda"]:
        raise StepError(
            f"torch is {torch.__version__} for {platform_name(cuda, hip)} instead of {request['version']} for "
            f"{platform_name(request['cuda'], rocm)}. {CHECK_SOURCE}"
        )
    if rocm and not hip.startswith(rocm):
        raise StepError(
            f"torch is {torch.__version__} for {platform_name(cuda, hip)} instead of ROCm {rocm}. {CHECK_SOURCE}"
        )
    if request["gpus"] and (cuda or rocm) and torch.cuda.device_count() != request["gpus"]:
        advice = (
            "amd-smi, whether the user is in the render and video groups, and HIP_VISIBLE_DEVICES"
            if rocm
            else "nvidia-smi, the permissions of /dev/nvidia*, and CUDA_VISIBLE_DEVICES"
        )
        raise StepError(f"torch sees {torch.cuda.device_count()} of {request['gpus']} GPUs ({summary}). Check {advice}")
    return summary


def check_products(request: Data) -> int:
    """Check a matrix product that has a known result on each GPU, or on the CPU; return the number of GPUs."""
    import torch

    count = torch.cuda.device_count() if request["cuda"] or rocm_version(request) else 0
    devices = [f"cuda:{number}" for number in range(count)] or ["cpu"]
    for device in devices:
        matrix = torch.arange(64.0, device=device).repeat(256, 1)
        product = matrix @ matrix.new_ones(64, 256)
        if not bool((product == 2016).all()):  # 0 + 1 + ... + 63, which is exact in float32 and in TF32
            raise StepError(
                f"a matrix product on {device} is wrong: its elements are not all 2016. Have this GPU replaced"
            )
    return count


def check_sum(count: int) -> str:
    """Check a sum over two processes; return the backend."""
    backend = "nccl" if count >= RANKS else "gloo"
    with tempfile.TemporaryDirectory() as directory:
        ranks = []
        for rank in range(RANKS):
            argv = [sys.executable, "-c", RANK, str(rank), str(RANKS), backend, os.path.join(directory, "meet")]
            ranks.append(
                subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=directory)
            )
        for number, process in enumerate(ranks):
            try:
                out, errors = process.communicate(timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                out, errors = "", f"no reply within {TIMEOUT} s"
                for running in ranks:
                    running.kill()
            if out.split() != ["3.0", "3.0"]:
                error = last_lines(errors) or out.strip()
                raise StepError(
                    f"a sum over two processes with {backend} failed in process {number}: {error}. Check the "
                    "limits of this machine (ansible-playbook site.yml --tags base_packages), and NCCL with "
                    "NCCL_DEBUG=INFO"
                )
    return backend


def verify(request: Data) -> Data:
    """Verify torch, unless the last verification had the same inputs."""
    if "torch" not in installed_builds():
        return {"changed": False, "summary": "torch is not installed"}
    state = fingerprint(request)
    if os.path.exists(request["marker"]):
        with open(request["marker"], encoding="utf-8") as file:
            if file.read() == state:
                return {"changed": False, "summary": "verified before"}
    summary = check_build(request)
    print_line(summary)
    companions = check_companions()
    count = check_products(request)
    print_line("matrix product: correct")
    backend = check_sum(count)
    devices = f"{count} GPU{'s' if count > 1 else ''}" if count else "the CPU"
    with open(request["marker"], "w", encoding="utf-8") as file:
        file.write(state)
    return {
        "changed": False,
        "summary": f"{', '.join([summary, *companions])}; matrix product correct on {devices}, "
        f"sum of two ranks by {backend}",
    }


def main(request: Data) -> Data:
    """Return the result of the verification, or its error."""
    return report_result(verify, request)

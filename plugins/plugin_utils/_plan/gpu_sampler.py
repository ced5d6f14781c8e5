# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command that samples a node's GPUs during a run. The samples: module_utils/_run/gpu_samples.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.gpu_samples import COLUMNS


def sample_command(facts: Mapping[str, Any], run_directory: str = "") -> list[str]:
    """Return the command that prints one sample, one line per GPU, based on a node's facts; [] if it has no usable GPU.

    If the job uses only some GPUs, only those are sampled. run_directory: the node's, which contains the programs.
    """
    gpus = facts.get("gpus") or {"count": 0}
    smi = gpus["smi"].get("path") if gpus["count"] else None
    if not smi:
        return []
    sampler = SAMPLERS[gpus.get("vendor") or "nvidia"]
    return sampler(smi, list(map(str, gpus.get("selected") or ())), facts, run_directory)


def nvidia_sampler(smi: str, selected: list[str], _facts: Mapping[str, Any], _run_directory: str) -> list[str]:
    """Return the nvidia-smi command, which prints the columns itself. selected: GPU indexes, or [] for all."""
    query = [f"--query-gpu={','.join(COLUMNS.values())}", "--format=csv,noheader,nounits"]
    return [smi, *query, *([f"--id={','.join(selected)}"] if selected else [])]


def amd_sampler(smi: str, selected: list[str], facts: Mapping[str, Any], run_directory: str) -> list[str]:
    """Return the command of _supervisor/health/amd_sampler.py, which turns amd-smi's JSON into the columns."""
    return [
        facts["node_python"]["path"],
        *("-I", "-S", f"{run_directory}/supervisor.py", "--sample-amd-gpus", smi),
        *selected,
    ]


SAMPLERS = {"nvidia": nvidia_sampler, "amd": amd_sampler}  # sampler for each GPU vendor

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs that a job uses on each node, by their nvidia-smi numbers; by default, all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import DEFAULT

MAX_GPUS = 256  # number per node; limits the ports that are derived from the first GPU
VISIBLE_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
)


def parse_gpus(value: object) -> tuple[int, ...]:
    """Parse GPU numbers: a list, or a text such as "0,1"; empty means all. Raise ValueError with a message."""
    if value is None:
        return ()
    items = value if isinstance(value, (list, tuple)) else str(value).strip(" []").split(",")
    texts = [str(item).strip() for item in items]
    if texts == [""]:
        return ()
    if not all(re.fullmatch("[0-9]{1,3}", text) and int(text) < MAX_GPUS for text in texts):
        raise ValueError(
            f"launch_gpus is {ascii(value)[:80]}; use the numbers that nvidia-smi shows, separated by commas, such as "
            "0,1"
        )
    gpus = tuple(map(int, texts))
    if len(set(gpus)) < len(gpus):
        raise ValueError(f"launch_gpus is {ascii(value)[:80]}, which names a GPU twice; name each once")
    return gpus


def environment_conflicts(gpus: tuple[int, ...], environment: Iterable[str]) -> list[str]:
    """Return the conflicts between a GPU selection and a user's variables."""
    names = sorted(set(VISIBLE_DEVICES).intersection(environment)) if gpus else []
    return [f"{name} is set by launch_gpus: remove it from launch_environment, or remove launch_gpus" for name in names]


def visible_devices(gpus: tuple[int, ...], vendor: str = DEFAULT, in_container: bool = False) -> dict[str, str]:
    """Return the variables that make only these GPUs visible to a job, or {} for all."""
    return VISIBLE_VARIABLES[vendor](",".join(map(str, gpus)), in_container) if gpus else {}


def cuda_variables(gpus: str, in_container: bool) -> dict[str, str]:
    """Return the variables for NVIDIA GPUs; a container is given only the selected GPUs.

    Without an explicit order, CUDA would number them by speed rather than as nvidia-smi does.
    """
    return {} if in_container else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": gpus}


def hip_variables(gpus: str, _in_container: bool) -> dict[str, str]:
    """Return the variable for AMD GPUs, all of which are available in a container.

    ROCR_VISIBLE_DEVICES is not set: HIP would number the GPUs that it selects from 0.
    """
    return {"HIP_VISIBLE_DEVICES": gpus}


VISIBLE_VARIABLES: dict[str, Callable[[str, bool], dict[str, str]]] = {"nvidia": cuda_variables, "amd": hip_variables}


def limit_facts(facts: Mapping[str, Any], selection: tuple[int, ...]) -> Mapping[str, Any]:
    """Return a node's facts as if it had only the selected GPUs: those of them that exist, and the processes that use
    them.

    A device file has the number of its GPU. A process whose GPU is unknown is included: it may use any of them.
    """
    gpus = facts.get("gpus")
    if not selection or not gpus or "selected" in gpus:
        return facts
    devices = [device for device in gpus["devices"] if device["index"] in selection]
    existing = [device["index"] for device in gpus["devices"]] or list(range(gpus["count"]))
    others = {device["uuid"] for device in gpus["devices"] if device["index"] not in selection}
    others.update(f"/dev/nvidia{index}" for index in existing if index not in selection)
    processes = [process for process in gpus["processes"] if not process["devices"] or set(process["devices"]) - others]
    selected = [index for index in selection if index in existing]
    limited = {
        **gpus,
        "devices": devices,
        "count": len(selected),
        "processes": processes,
        "selected": selected,
        "total": gpus["count"],
    }
    return {**facts, "gpus": limited, "gpu_count": len(selected)}


def format_gpus(gpus: Iterable[int]) -> str:
    """Return "GPU 0" or "GPUs 0, 1"."""
    numbers = [str(gpu) for gpu in gpus]
    return f"GPU{'' if len(numbers) == 1 else 's'} {', '.join(numbers)}"

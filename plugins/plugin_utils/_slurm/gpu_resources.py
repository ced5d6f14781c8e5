# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs as Slurm generic resources, as counted by this collection.

AutoDetect of the distributions' packages finds no GPU and reports nothing; a missing File ends slurmd with an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster import Gpus, SlurmNode


def gpu_type(model: str) -> str:
    """Return a GPU model's name as a Slurm GRES type, such as "nvidia_h100_80gb_hbm3"."""
    return re.sub(r"[^a-z0-9]+", "_", model.lower()).strip("_")


def read_gpus(state: Mapping[str, Any]) -> Gpus:
    """Return the GPUs in a node's state."""
    return Gpus(files=tuple(state["files"]), type=gpu_type(state["model"]))


def format_gres(node: SlurmNode) -> str:
    """Return the node's Gres value in slurm.conf; "" if it has no GPUs."""
    gpus = node.gpus
    return ":".join(["gpu", *([gpus.type] if gpus.type else []), str(len(gpus.files))]) if gpus.files else ""


def format_gres_lines(node: SlurmNode) -> list[str]:
    """Return the node's lines in gres.conf."""
    type_setting = f" Type={node.gpus.type}" if node.gpus.type else ""
    return [f"NodeName={node.name} Name=gpu{type_setting} File={file}" for file in node.gpus.files]

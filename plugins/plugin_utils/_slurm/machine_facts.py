# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a machine reports about itself for Slurm's configuration: only values that cannot add lines to the
configuration.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import conforms

HOSTNAME = re.compile(r"[A-Za-z0-9_-]{1,63}")
GPU_FILE = re.compile(r"/dev/[A-Za-z0-9_/.-]{1,200}")
MAX_GPUS = 64
# sockets, cores per socket, threads per core
CPUS = {"sockets": range(1, 1025), "cores": range(1, 65537), "threads": range(1, 65)}
MEMORY = range(2**30)  # MiB
GPUS = {"files": [GPU_FILE], "model": str}
# The field of a state, its schema, how a message refers to it, and what replaces an invalid value.
FIELDS: tuple[tuple[str, Any, str, Any], ...] = (
    ("hostname", HOSTNAME, "hostname", "invalid"),
    ("cpus", CPUS, "CPUs", {"sockets": 1, "cores": 1, "threads": 1}),
    ("memory", MEMORY, "memory", 0),
    ("gpus", GPUS, "GPU device files", {"files": [], "model": ""}),
)


def is_valid(value: Any, schema: Any) -> bool:
    """Return whether a value can be part of the configuration."""
    return conforms(value, schema) and (schema is not GPUS or len(value["files"]) <= MAX_GPUS)


def validate_machine(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return hostname, cpus, memory and gpus from a node's state; invalid values are replaced by harmless ones."""
    return {
        name: state[name] if is_valid(state.get(name), schema) else default for name, schema, _label, default in FIELDS
    }


def machine_errors(states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return an error for each value that cannot be part of the configuration."""
    return [
        (
            f"{name}: it reports {ascii(state.get(field))[:100]} as its {label}, which is not allowed in Slurm's "
            "configuration. Correct it on the node, or leave the node out of the inventory"
        )
        for name, state in states.items()
        for field, schema, label, _default in FIELDS
        if not is_valid(state.get(field), schema)
    ]

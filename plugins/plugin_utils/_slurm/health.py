# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files and settings for Slurm's node health check, which reuses the checks run before a launch.

The program is plugins/module_utils/_slurm/health_check.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster import SlurmNode, SlurmOptions

DIRECTORY = "/usr/local/lib/muster/slurm"
CHECK, PROLOG = f"{DIRECTORY}/health-check", f"{DIRECTORY}/prolog"
SETTINGS = "/etc/muster/slurm_health.json"
PROLOG_TIMEOUT = 60
"""Seconds after which Slurm ends a prolog, which it would not do by default."""


def is_enabled(options: SlurmOptions) -> bool:
    """Return whether Slurm checks the health of its nodes."""
    return options.health_interval > 0


def health_files(node: SlurmNode, options: SlurmOptions) -> list[dict[str, Any]]:
    """Return the health check's files that vary between nodes or settings, without the program itself."""
    if not is_enabled(options):
        return []
    settings = {"node": node.name, "gpu_files": list(node.gpus.files), "skip": sorted(options.health_skip)}
    return [
        {"path": CHECK, "content": script(options, "check"), "mode": "0755"},
        # Slurm must not lose all nodes because the program itself failed: only its verdict counts
        {"path": PROLOG, "content": f'{script(options, "prolog")}[ "$?" -ne 3 ]\n', "mode": "0755"},
        {"path": SETTINGS, "content": json.dumps(settings, indent=1) + "\n", "mode": "0644"},
    ]


def script(options: SlurmOptions, mode: str) -> str:
    """Return the script that Slurm runs without arguments, and possibly without PATH."""
    return (
        f"#!/bin/sh\n# {options.managed}\n"
        "export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
        f"/usr/bin/python3 -I -S {DIRECTORY}/health_check.py {mode}\n"
    )


def program_files(options: SlurmOptions) -> list[dict[str, Any]]:
    """Return the files of the program, which are the same on all nodes."""
    return list(options.program.get("files", ())) if is_enabled(options) else []


def health_directories(options: SlurmOptions) -> list[dict[str, Any]]:
    """Return the program's directories, which only root may change."""
    return list(options.program.get("directories", ())) if is_enabled(options) else []


def health_settings(options: SlurmOptions) -> Mapping[str, Any]:
    """Return the settings in slurm.conf."""
    if not is_enabled(options):
        return {}
    return {
        "HealthCheckProgram": CHECK,
        "HealthCheckInterval": options.health_interval,
        "HealthCheckNodeState": "ANY",
        "Prolog": PROLOG,
        "PrologEpilogTimeout": PROLOG_TIMEOUT,
    }


def scheduler_parameters(options: SlurmOptions) -> list[str]:
    """Return the health check's parameters of Slurm's scheduler."""
    # a job whose node is unfit runs on other nodes as soon as they are free
    return ["nohold_on_prolog_fail"] if is_enabled(options) else []

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The launch role's variables with which a job was launched, for launching it again. Without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import DEFAULTS

# Launch options that may differ between launches; the others are in the plan in any case.
OPTIONS = (
    *("image", "container_engine", "container_mounts", "container_options", "container_ulimits", "container_shm_size"),
    *("interpreter", "no_python", "gpus", "rdzv_backend", "deepspeed_launcher", "deepspeed_local_rank"),
    *("accelerate_config", "master_port", "lifeline_port", "start_timeout", "silence_timeout", "stop_grace", "debug"),
    *(
        "log_limit",
        "stacks",
        "hang_timeout",
        "on_hang",
        "numa_binding",
        "outputs",
        "metrics",
        "checkpoints",
        "resume_args",
    ),
    *("restarts", "restart_when", "restart_min_nodes", "spares", "notice_signal", "notice_grace"),
    *("restart_wait", "time_limit", "cost_limit", "stall_limit", "node_exporter_directory"),
)
VARIABLES = {"interpreter": "python"}  # names of variables that differ from the name of their option
UNSET: tuple[Any, ...] = ("", None, [], {})


def launch_options(job: Job) -> dict[str, Any]:
    """Return the job options that differ from their defaults, as variables of the launch role.

    Values of the job's environment are secrets, and are omitted.
    """
    options = {}
    for name in OPTIONS:
        value, default = getattr(job, name), DEFAULTS[name]
        value = list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
        if value != default and value not in UNSET and not (value == 0 and default in UNSET):
            options[f"launch_{VARIABLES.get(name, name)}"] = value
    if job.rdzv_backend == ("c10d" if job.elastic else "static"):
        options.pop("launch_rdzv_backend", None)
    return options

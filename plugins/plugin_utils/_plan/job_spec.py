# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Argument specs for a job's options, shared by all modules that accept some of them."""

from __future__ import annotations

from typing import Any

from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import RESTARTABLE
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import DEEPSPEED_LAUNCHERS, LOCAL_RANK_CHOICES
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import LAUNCHERS

RESTART_WHEN = ("node_lost", "hardware", "interrupted", "hang")
CONTAINER_OPTIONS: dict[str, dict[str, Any]] = {
    "image": {"type": "str", "default": ""},
    "container_engine": {"type": "str", "choices": ["docker", "podman"], "default": "docker"},
    "container_mounts": {"type": "list", "elements": "str", "default": []},
    "container_options": {"type": "list", "elements": "str", "default": []},
    "container_ulimits": {"type": "list", "elements": "str", "default": ["memlock=-1", "stack=67108864"]},
    "container_shm_size": {"type": "str", "default": ""},
}
# Options that the checks before a start also read.
CHECKED_OPTIONS: dict[str, dict[str, Any]] = {
    "nnodes": {"type": "raw"},
    "gpus": {"type": "raw", "default": []},
    "launcher": {"type": "str", "choices": list(LAUNCHERS), "default": "torchrun"},
    "deepspeed_launcher": {"type": "str", "choices": ["", *DEEPSPEED_LAUNCHERS], "default": ""},
    "accelerate_config": {"type": "dict", "default": {}},
    "environment": {"type": "dict", "default": {}, "no_log": True},
    "no_python": {"type": "bool", "default": False},
    "image": CONTAINER_OPTIONS["image"],
    "container_engine": CONTAINER_OPTIONS["container_engine"],
    "container_options": CONTAINER_OPTIONS["container_options"],
    "rdzv_backend": {"type": "str", "choices": ["static", "c10d"]},
    "script": {"type": "str", "default": ""},
    "args": {"type": "raw", "default": []},
    "interpreter": {"type": "str", "default": "python3"},
    "working_directory": {"type": "str", "default": ""},
    "master_port": {"type": "int", "default": 29500},
    "lifeline_port": {"type": "int", "default": 29499},
}
JOB_OPTIONS: dict[str, dict[str, Any]] = {
    **CHECKED_OPTIONS,
    "checkpoints": {"type": "str", "default": ""},
    "resume_args": {"type": "list", "elements": "str", "default": []},
    **CONTAINER_OPTIONS,
    "deepspeed_local_rank": {"type": "str", "choices": list(LOCAL_RANK_CHOICES), "default": "auto"},
    "nproc_per_node": {"type": "int"},
    "run_id": {"type": "str", "default": ""},
    "name": {"type": "str", "default": ""},
    "debug": {"type": "bool", "default": False},
    "module": {"type": "str", "default": ""},
    "max_restarts": {"type": "int"},
    "restarts": {"type": "int", "default": 0},
    "restart_when": {"type": "list", "elements": "str", "default": list(RESTART_WHEN), "choices": list(RESTARTABLE)},
    "restart_min_nodes": {"type": "int"},
    "restart_wait": {"type": "raw", "default": ""},
    "spares": {"type": "int", "default": 0},
    "start_timeout": {"type": "int", "default": 120},
    "silence_timeout": {"type": "int", "default": 10},
    "stop_grace": {"type": "int", "default": 5},
    "log_limit": {"type": "int", "default": 10},
    "stacks": {"type": "bool", "default": True},
    "hang_timeout": {"type": "int", "default": 600},
    "on_hang": {"type": "str", "choices": ["report", "stop"], "default": "report"},
    "numa_binding": {"type": "str", "choices": ["auto", "node", "none"], "default": "auto"},
    "outputs": {"type": "list", "elements": "str", "default": []},
    "metrics": {"type": "list", "elements": "str", "default": []},
    "notice_signal": {"type": "str", "choices": ["SIGTERM", "SIGUSR1", "SIGUSR2", "none"], "default": "SIGTERM"},
    "notice_grace": {"type": "int", "default": 100},
    "time_limit": {"type": "raw", "default": ""},
    "cost_limit": {"type": "float", "default": 0.0},
    "stall_limit": {"type": "raw", "default": ""},
    "node_exporter_directory": {"type": "str", "default": ""},
    "debug_rank": {"type": "int"},
    "debug_port": {"type": "int", "default": 5678},
}
DEFAULTS: dict[str, Any] = {name: option.get("default") for name, option in JOB_OPTIONS.items()}

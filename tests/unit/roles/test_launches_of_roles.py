# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that roles launch ignore the settings of the user's job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import SECRET_SETTINGS, read_job_keys

ROLES = Path(__file__).resolve().parents[3] / "roles"
# Settings of the user's job that also apply to these programs, or have no effect on them.
OBSERVED = {
    *("launch_user", "launch_start_timeout", "launch_log_limit", "launch_stacks", "launch_hang_timeout"),
    *("launch_on_hang", "launch_notice_signal", "launch_notice_grace", "launch_restart_when"),
    *("launch_deepspeed_local_rank", "launch_rdzv_backend", "launch_numa_binding"),
    "launch_node_exporter_directory",
}
CONTAINER = {
    f"launch_container_{name}" for name in ("engine", "mounts", "options", "shm_size")
}  # options that have no effect if there is no image
SLURM = {
    f"launch_slurm_{name}" for name in ("partition", "account", "qos", "time", "gres", "exclude", "reservation")
} | {"launch_slurm_dependency"}  # has no effect if ssh is the scheduler
# The benchmark uses the same nodes, GPUs, image, environment and queue as jobs.
MEASURED = {
    *("launch_nnodes", "launch_nproc_per_node", "launch_gpus", "launch_python", "launch_environment"),
    *("launch_pass_environment", "launch_image", "launch_scheduler", "launch_notify"),
}


def launch_variables(path: Path) -> dict[str, Any]:
    """Return the variables that a task file passes to the role launch."""
    tasks = yaml.safe_load(path.read_text())
    tasks += [task for block in tasks for task in block.get("block", [])]
    (variables,) = (
        task["vars"]
        for task in tasks
        if task.get("ansible.builtin.include_role", {}).get("name") == "muster.training.launch"
    )
    return {**variables, **{name: variables[f"__{name}"] for name in SECRET_SETTINGS if f"__{name}" in variables}}


@pytest.mark.parametrize(
    ("file", "applied"),
    [("open_mpi/tasks/verify.yml", set()), ("benchmark/tasks/measure.yml", MEASURED)],
)
def test_settings_of_the_users_job_do_not_apply_to_the_program_of_a_role(file: str, applied: set[str]) -> None:
    names = {name for name in read_job_keys(ROLES).values() if name.startswith("launch_")} | {"launch_like"}
    replaced = set(launch_variables(ROLES / file))
    assert names - replaced == (OBSERVED | CONTAINER | SLURM | applied) & names

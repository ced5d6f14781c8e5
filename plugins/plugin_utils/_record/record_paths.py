# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Locate the records of runs, which are stored next to the inventory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID

LATEST = "latest"  # the link to the newest record


def records_directory(configured: str, group: str, task_vars: Mapping[str, Any]) -> Path:
    """Return the records directory: as configured, otherwise the first host's launch_runs_directory, otherwise `runs`.

    A relative path starts at the inventory, so that it does not depend on the current directory.
    """
    members = task_vars["groups"].get(group, [])
    host = task_vars["hostvars"][members[0]] if members else {}
    inventory_directory = Path(host.get("inventory_dir") or task_vars["playbook_dir"])
    return inventory_directory / Path(configured or host.get("launch_runs_directory") or "runs").expanduser()


def resolve_run_id(directory: Path, prefix: str) -> str:
    """Return the full ID of a run: the given ID, or the only one that starts with it."""
    if not prefix or not directory.is_dir() or (directory / prefix).exists():
        return prefix
    matches = sorted(path.name for path in directory.iterdir() if path.name != LATEST and path.name.startswith(prefix))
    if len(matches) > 1:
        raise AnsibleActionFail(
            f"{len(matches)} runs start with {prefix}: "
            f"{', '.join(matches[-8:])}{' and older ones' if len(matches) > 8 else ''}; type more of the name"
        )
    return matches[0] if matches else prefix


def find_record(directory: Path, run_id: str, playbook: str = "") -> Path:
    """Return the record of a run by its ID or a prefix of the ID; by default, the latest record.

    playbook: as in describe_missing_record().

    Raises:
        AnsibleActionFail: If the id is not a safe name, is ambiguous, or has no record.
    """
    if run_id and not SAFE_RUN_ID.match(run_id):
        raise AnsibleActionFail(
            f"run_id {ascii(run_id)[:80]} is not a safe name: use letters, digits, '.', '_' and '-'"
        )
    record = (directory / (resolve_run_id(directory, run_id) or LATEST)).resolve()
    if not (record / "plan.json").is_file():
        raise AnsibleActionFail(describe_missing_record(directory, run_id, playbook))
    return record


def describe_missing_record(directory: Path, run_id: str, playbook: str = "") -> str:
    """Return a message for a run without a record, with commands as the user types them.

    Args:
        directory: that of all records.
        run_id: the name that the user typed, or "" for the latest run.
        playbook: the playbook to name the run for, if its variable is run_id.
    """
    if not run_id and not any(directory.glob("*/plan.json")):
        return adapt_commands(
            f"no run has been launched from this project yet: {directory} has no records. Launch one: "
            "ansible-playbook launch.yml -e launch_script=train.py"
        )
    example = f", as in ansible-playbook {playbook}.yml -e run_id=NAME" if playbook else ""
    return adapt_commands(
        f"the record {directory / (run_id or LATEST)} does not exist: name a run launched from this machine{example} "
        "(ansible-playbook runs.yml lists the runs on the nodes), or use the inventory it was launched with"
    )

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reject commands in which some part has no effect, before anything runs.

For site.yml, whose roles have tags and switches, the module check_site checks more.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible import constants, context
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.plugin_utils._command_line.declared_variables import (
    read_variables,
    used_roles,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import read_yaml, typed_variables
from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars_lint import (
    reject_stray_extra_vars,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.misplaced_job_keys import (
    find_misplaced_job_keys,
    read_variable_files,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import documented_options
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_site_options import (
    TOOLS,
    names_in_files,
    names_in_strings,
    names_in_templates,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import read_job_keys

COLLECTION = Path(__file__).resolve().parents[3]
PLAYBOOKS = COLLECTION / "playbooks"
COLLECTION_REFERENCE = re.compile(r"muster\.training\.(\w+)")
STARTED_BY = "__muster_started_by"  # set by a playbook that starts another playbook with its own command line
SIMILARITY = 0.81  # cutoff for similar names, as for short names in the module known_variables
# The variable that makes each playbook copy from this machine, which requires ansible.posix.
COPY_VARIABLES = {
    **dict.fromkeys(("launch", "fit", "sweep", "rehearse"), "code_source"),
    "stage_data": "stage_data_here",
}
INTENDED_NAMES = {"run": "run_id", "name": "run_id", "id": "run_id"}


def reject_unused_options(task_vars: Mapping[str, Any]) -> None:
    """Raise AnsibleActionFail if part of this command has no effect, or if a collection that it needs is missing."""
    reject_stray_extra_vars()
    if STARTED_BY in task_vars:  # the playbook that started this one has already checked them
        return
    playbooks = collection_playbooks(map(str, context.CLIARGS.get("args") or ()))
    if playbooks is None:
        return
    typed = typed_variables(context.CLIARGS.get("extra_vars") or ())
    problems = describe_misplaced_job_keys(typed, playbooks, task_vars)
    if problems:
        raise AnsibleActionFail("\n".join([*problems, "Nothing was started or changed."]))
    if PLAYBOOKS / "site.yml" in playbooks:
        return
    problems = unused_tags(task_vars.get("ansible_run_tags") or (), task_vars.get("ansible_skip_tags") or ())
    problems += unread_variables(typed, playbooks, task_vars)
    problems += describe_missing_collection(playbooks, task_vars)
    if problems:
        raise AnsibleActionFail("\n".join([*problems, "Nothing was started or changed."]))


def collection_playbooks(arguments: Iterable[str]) -> list[Path] | None:
    """Return this collection's playbooks that the arguments name or merely import; None if there are others."""
    playbooks: list[Path] = []
    for argument in arguments:
        name = COLLECTION_REFERENCE.fullmatch(argument)
        path = PLAYBOOKS / f"{name[1]}.yml" if name else Path(argument).resolve()
        if path.parent != PLAYBOOKS:
            imported = imported_playbooks(path)
            if not imported or not all(COLLECTION_REFERENCE.fullmatch(name) for name in imported):
                return None
            playbooks += collection_playbooks(imported) or []
        else:
            playbooks.append(path)
    return playbooks


def imported_playbooks(playbook: Path) -> list[str]:
    """Return the playbooks that this playbook imports; empty if it has plays, or imports with tags or variables."""
    try:
        plays = read_yaml(playbook.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []  # Ansible will report the error
    imported = []
    for play in plays if isinstance(plays, list) else [{}]:
        keys = set(play) - {"name"} if isinstance(play, Mapping) else set()
        if len(keys) != 1 or not str(key := keys.pop()).endswith("import_playbook"):
            return []
        imported.append(str(play[key]))
    return imported


def unused_tags(only: Collection[str], skip: Collection[str]) -> list[str]:
    """Return one sentence for each tag option, as these playbooks have no tags. Tags in ansible.cfg are ignored."""
    default_tags = {"all", "untagged", *constants.TAGS_RUN}
    selected = {
        "--tags": [tag for tag in only if tag not in default_tags],
        "--skip-tags": [tag for tag in skip if tag not in constants.TAGS_SKIP],
    }
    return [
        f"{option} {','.join(tags)}: this playbook has no tags; remove the option"
        for option, tags in selected.items()
        if tags
    ]


def unread_variables(typed: Mapping[str, Any], playbooks: Iterable[Path], task_vars: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each variable given with -e that the playbooks, their roles and the inventory do not read.

    The module known_variables, which knows a role's options, checks names with the prefix of such a role.
    """
    roles, read_names = used_roles(playbooks), read_variables(playbooks)
    names = {name for name in typed if not name.startswith((*TOOLS, *(f"{role}_" for role in roles)))} - read_names
    if names:
        names -= names_read_elsewhere(typed, task_vars)
    if not names:
        return []
    intended_names = {**INTENDED_NAMES, **read_job_keys(COLLECTION / "roles")}
    read_names.update(*(documented_options(COLLECTION / "roles" / role) for role in roles))
    return [
        f"{name} is set (with -e), but {describe_unread(name, read_names, intended_names)}" for name in sorted(names)
    ]


def describe_misplaced_job_keys(
    typed: Mapping[str, Any], playbooks: Iterable[Path], task_vars: Mapping[str, Any]
) -> list[str]:
    """Return one sentence for each file after -e with settings of a job that are not below `job:`."""
    files = read_variable_files(map(str, context.CLIARGS.get("extra_vars") or ()))
    if not files:
        return []
    job_keys = read_job_keys(COLLECTION / "roles")
    has_job = "job" in typed or any("job" in variables for variables in files.values())
    read_names = read_variables([*playbooks, *PLAYBOOKS.glob("*.yml")])  # a file may serve several playbooks
    if find_misplaced_job_keys(files, job_keys, read_names, has_job):
        names = {name for variables in files.values() for name in variables} | typed.keys()
        hosts = [task_vars["hostvars"].raw_get(host) for host in task_vars["hostvars"]]
        values = [value for variables in hosts for name, value in variables.items() if name not in names]
        read_names |= names_in_templates([values, typed, *files.values()]) | names_in_files(inventory_files(task_vars))
    return find_misplaced_job_keys(files, job_keys, read_names, has_job)


def names_read_elsewhere(typed: Mapping[str, Any], task_vars: Mapping[str, Any]) -> set[str]:
    """Return the words in host variables, inventory files and the templates of other variables, including -e @FILE."""
    hosts = [task_vars["hostvars"].raw_get(host) for host in task_vars["hostvars"]]
    values = [value for host_variables in hosts for name, value in host_variables.items() if name not in typed]
    local_values = [value for name, value in task_vars.items() if name not in ("hostvars", "vars")]
    return (
        names_in_strings(values)
        | names_in_templates([local_values, typed])
        | names_in_files(inventory_files(task_vars))
    )


def describe_unread(name: str, read_names: Collection[str], intended_names: Mapping[str, str]) -> str:
    """Return the remedy for a variable that nothing reads. intended_names: the probable intention for each name."""
    if intended_names.get(name, "") in read_names:
        return f"nothing reads it; did you mean {intended_names[name]}?"
    for role in (COLLECTION / "roles").iterdir():
        if name.startswith(f"{role.name}_") and name in documented_options(role):
            return f"only the role {role.name}, which this playbook does not run, reads it; remove it"
    matches = difflib.get_close_matches(name, sorted(read_names), n=1, cutoff=SIMILARITY)
    return f"nothing reads it; {f'did you mean {matches[0]}?' if matches else 'correct the name, or remove it'}"


def describe_missing_collection(playbooks: Iterable[Path], task_vars: Mapping[str, Any]) -> list[str]:
    """Return a message if ansible.posix is missing and a host's variables make the playbook copy from this machine."""
    copy_variables = {COPY_VARIABLES[playbook.stem] for playbook in playbooks if playbook.stem in COPY_VARIABLES}
    if not copy_variables or is_installed("ansible.posix"):
        return []
    hosts = [task_vars["hostvars"].raw_get(host) for host in task_vars["hostvars"]]
    set_variables = sorted(name for name in copy_variables if any(host_variables.get(name) for host_variables in hosts))
    if not set_variables:
        return []
    problem = (
        f"the collection ansible.posix is not installed, and {' and '.join(set_variables)} needs it to copy from "
        "this machine"
    )
    return [f"{problem}. Install it: ansible-galaxy collection install ansible.posix"]


def is_installed(collection: str) -> bool:
    """Return whether Ansible can find the collection."""
    try:
        return importlib.util.find_spec(f"ansible_collections.{collection}") is not None
    except ModuleNotFoundError:  # the package's parent is missing, too
        return False


def inventory_files(task_vars: Mapping[str, Any]) -> list[Path]:
    """Return the inventory's files; files of inventory plugins may contain templates."""
    sources = [Path(source) for source in task_vars.get("ansible_inventory_sources") or ()]
    below = [path for source in sources if source.is_dir() for path in source.rglob("*")]
    return [path for path in [*sources, *below] if path.is_file()]

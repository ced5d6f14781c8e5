# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was typed and has no effect is refused before anything else. Private to this collection, controller only.

For site.yml, whose roles have tags and switches, the module check_site asks more.
"""

from __future__ import annotations

import difflib
import importlib.util
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.yaml import yaml_load

from ansible_collections.muster.training.plugins.plugin_utils._lost_words import refuse_lost_words
from ansible_collections.muster.training.plugins.plugin_utils._site_request import files_of, words_in, words_of
from ansible_collections.muster.training.plugins.plugin_utils._typed_variables import typed_variables

COLLECTION = Path(__file__).resolve().parents[2]
PLAYBOOKS = COLLECTION / "playbooks"
OURS = re.compile(r"muster\.training\.(\w+)")
# Roles that start a playbook with the variables they were given, each with this playbook's role.
STARTS = {"fit": "launch", "rehearse": "launch", "sweep": "launch"}
STARTED_BY = "__muster_started_by"  # a variable of playbooks that another one starts with the words it was given itself
OF_NODES = {"node_address", "node_slots", "node_rank", "node_price_per_hour"}  # which choose_nodes reads by itself
ALIKE = 0.81  # as of short names in the module known_variables
# The variable that has a role copy from this machine, which ansible.posix does.
COPIES = {"code": "code_source", "stage_data": "stage_data_here"}


def refuse_what_has_no_effect(task_vars: Mapping[str, Any]) -> None:
    """Raise AnsibleActionFail where a part of this command has no effect, or a collection that it needs is missing."""
    refuse_lost_words()
    if STARTED_BY in task_vars:  # which has looked at these words
        return
    playbooks = own_playbooks(map(str, context.CLIARGS.get("args") or ()))
    if playbooks is None or PLAYBOOKS / "site.yml" in playbooks:
        return
    typed = typed_variables(context.CLIARGS.get("extra_vars") or (), yaml_load)
    said = idle_tags(task_vars.get("ansible_run_tags") or (), task_vars.get("ansible_skip_tags") or ())
    said += unread(typed, playbooks, task_vars)
    said += missing_collection(playbooks, task_vars)
    if said:
        raise AnsibleActionFail("\n".join([*said, "Nothing was started or changed."]))


def own_playbooks(given: Iterable[str]) -> list[Path] | None:
    """The playbooks of this collection that the given ones are, or consist of; None where there is something else."""
    found: list[Path] = []
    for one in given:
        name = OURS.fullmatch(one)
        path = PLAYBOOKS / f"{name[1]}.yml" if name else Path(one).resolve()
        if path.parent != PLAYBOOKS:
            plays = yaml_load(path.read_text(encoding="utf-8")) if path.is_file() else [{}]
            imported = [next((play[key] for key in play if key.endswith("import_playbook")), "") for play in plays]
            if not all(OURS.fullmatch(str(name)) for name in imported):
                return None
            found += own_playbooks(imported) or []
        else:
            found.append(path)
    return found


def idle_tags(only: Collection[str], skip: Collection[str]) -> list[str]:
    """One sentence for each option with tags, of which these playbooks have none."""
    given = {"--tags": [tag for tag in only if tag not in ("all", "untagged")], "--skip-tags": list(skip)}
    return [
        f"{option} {','.join(tags)}: this playbook has no tags; leave the option out"
        for option, tags in given.items()
        if tags
    ]


def unread(typed: Collection[str], playbooks: Iterable[Path], task_vars: Mapping[str, Any]) -> list[str]:
    """One sentence for each variable that was typed and that neither the playbooks, their roles nor the inventory read.

    What begins with the name of such a role is left to the module known_variables, which has the role's names.
    """
    names = {name for name in typed if not name.startswith(("ansible_", "_"))} - OF_NODES
    read = words_of(playbooks) if names else set()
    if not names - read:
        return []
    roles = roles_of(playbooks)
    read |= words_of(file for role in roles for file in files_of(COLLECTION / "roles" / role))
    names = {name for name in names - read if not name.startswith(tuple(f"{role}_" for role in roles))}
    if names:
        hosts = [task_vars["hostvars"].raw_get(host) for host in task_vars["hostvars"]]
        read_there = words_in([value for one in hosts for name, value in one.items() if name not in typed])
        names -= read_there | words_of(inventory_files(task_vars))
    return [f"{name} is set (with -e), and {why_unread(name, read)}" for name in sorted(names)]


def why_unread(name: str, read: Collection[str]) -> str:
    """What is to be done about a variable that nothing reads."""
    for path in (COLLECTION / "roles").glob("*/meta/argument_specs.yml"):
        role = path.parents[1].name
        if name.startswith(f"{role}_") and name in words_of([path]):
            return f"the role {role} alone reads it, which this playbook does not run; remove it"
    alike = difflib.get_close_matches(name, sorted(read), n=1, cutoff=ALIKE)
    return f"nothing reads it; {f'did you mean {alike[0]}?' if alike else 'correct the name, or remove it'}"


def roles_of(playbooks: Iterable[Path]) -> set[str]:
    """The roles of this collection that the playbooks use, and those that these use."""
    found: set[str] = set()
    files = list(playbooks)
    while files:
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        names = {name for name in OURS.findall(text) if (COLLECTION / "roles" / name).is_dir()}
        names |= {STARTS[name] for name in names if name in STARTS}
        fresh = names - found
        found |= fresh
        files = [file for name in fresh for file in (COLLECTION / "roles" / name / "tasks").glob("*.yml")]
    return found


def missing_collection(playbooks: Iterable[Path], task_vars: Mapping[str, Any]) -> list[str]:
    """That ansible.posix is not installed, where something is to be copied from this machine."""
    if is_installed("ansible.posix"):
        return []
    hosts = [task_vars["hostvars"].raw_get(host) for host in task_vars["hostvars"]]
    wanted = sorted(roles_of(playbooks) & set(COPIES))
    copied = [COPIES[role] for role in wanted if any(one.get(COPIES[role]) for one in hosts)]
    if not copied:
        return []
    found = f"the collection ansible.posix is not installed, and {' and '.join(copied)} needs it to copy from here"
    return [f"{found}. Install it: ansible-galaxy collection install ansible.posix"]


def is_installed(collection: str) -> bool:
    """Whether Ansible finds the collection."""
    try:
        return importlib.util.find_spec(f"ansible_collections.{collection}") is not None
    except ModuleNotFoundError:  # nor anything of its namespace
        return False


def inventory_files(task_vars: Mapping[str, Any]) -> list[Path]:
    """The files of the inventory, of which those of plugins may have templates."""
    sources = [Path(source) for source in task_vars.get("ansible_inventory_sources") or ()]
    below = [path for source in sources if source.is_dir() for path in source.rglob("*")]
    return [path for path in [*sources, *below] if path.is_file()]

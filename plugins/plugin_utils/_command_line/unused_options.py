# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refuses commands with parts that have no effect, before anything runs. Private to this collection, controller only.

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

from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import read_yaml, typed_variables
from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars_lint import refuse_lost_words
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_site_options import (
    TEMPLATE,
    TOOLS,
    files_of,
    words_in,
    words_of,
    words_of_templates,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import job_keys

COLLECTION = Path(__file__).resolve().parents[3]
PLAYBOOKS = COLLECTION / "playbooks"
OURS = re.compile(r"muster\.training\.(\w+)")
# Roles that start a playbook with their own variables, each with that playbook's role.
STARTS = {"fit": "launch", "rehearse": "launch", "sweep": "launch"}
STARTED_BY = "__muster_started_by"  # set by a playbook that starts another one with its own command line
OF_NODES = {"node_address", "node_slots", "node_rank", "node_price_per_hour"}  # read by the code of choose_nodes
ALIKE = 0.81  # cutoff for similar names, as for short names in the module known_variables
# By playbook, the variable that makes it copy from this machine, which needs ansible.posix.
COPIES = {
    **dict.fromkeys(("launch", "fit", "sweep", "rehearse"), "code_source"),
    "stage_data": "stage_data_here",
}
MEANT = {"run": "run_id", "name": "run_id", "id": "run_id"}  # words that every playbook contains, but not as variables
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def refuse_what_has_no_effect(task_vars: Mapping[str, Any]) -> None:
    """Raise AnsibleActionFail if a part of this command has no effect, or a collection that it needs is missing."""
    refuse_lost_words()
    if STARTED_BY in task_vars:  # the playbook that started this one has checked them
        return
    playbooks = own_playbooks(map(str, context.CLIARGS.get("args") or ()))
    if playbooks is None or PLAYBOOKS / "site.yml" in playbooks:
        return
    typed = typed_variables(context.CLIARGS.get("extra_vars") or ())
    said = idle_tags(task_vars.get("ansible_run_tags") or (), task_vars.get("ansible_skip_tags") or ())
    said += unread(typed, playbooks, task_vars)
    said += missing_collection(playbooks, task_vars)
    if said:
        raise AnsibleActionFail("\n".join([*said, "Nothing was started or changed."]))


def own_playbooks(given: Iterable[str]) -> list[Path] | None:
    """The playbooks of this collection that were given or are imported; None if others or more than imports are."""
    found: list[Path] = []
    for one in given:
        name = OURS.fullmatch(one)
        path = PLAYBOOKS / f"{name[1]}.yml" if name else Path(one).resolve()
        if path.parent != PLAYBOOKS:
            imported = imported_alone(path)
            if not imported or not all(OURS.fullmatch(name) for name in imported):
                return None
            found += own_playbooks(imported) or []
        else:
            found.append(path)
    return found


def imported_alone(playbook: Path) -> list[str]:
    """The playbooks that this one imports; empty if it does more: has plays, or imports with tags or variables."""
    try:
        plays = read_yaml(playbook.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []  # Ansible will report the error
    found = []
    for play in plays if isinstance(plays, list) else [{}]:
        keys = set(play) - {"name"} if isinstance(play, Mapping) else set()
        if len(keys) != 1 or not str(key := keys.pop()).endswith("import_playbook"):
            return []
        found.append(str(play[key]))
    return found


def idle_tags(only: Collection[str], skip: Collection[str]) -> list[str]:
    """One sentence for each tag option, since these playbooks have no tags. Tags set in ansible.cfg are ignored."""
    usual = {"all", "untagged", *constants.TAGS_RUN}
    given = {
        "--tags": [tag for tag in only if tag not in usual],
        "--skip-tags": [tag for tag in skip if tag not in constants.TAGS_SKIP],
    }
    return [
        f"{option} {','.join(tags)}: this playbook has no tags; remove the option"
        for option, tags in given.items()
        if tags
    ]


def unread(typed: Mapping[str, Any], playbooks: Iterable[Path], task_vars: Mapping[str, Any]) -> list[str]:
    """One sentence for each typed variable that neither the playbooks, their roles nor the inventory read.

    Names with the prefix of such a role are left to the module known_variables, which knows the role's options.
    """
    names = {name for name in typed if not name.startswith(TOOLS)} - OF_NODES
    meant = {**MEANT, **job_keys(COLLECTION / "roles")} if names else {}
    read = words_of(playbooks) if names else set()
    if not names - read and not names & set(meant):
        return []
    roles = roles_of(playbooks)
    files = [*playbooks, *(file for role in roles for file in files_of(COLLECTION / "roles" / role))]
    read |= words_of(files)
    doubtful = names & meant.keys()
    read -= doubtful - templated(doubtful, files)
    names = {name for name in names - read if not name.startswith(tuple(f"{role}_" for role in roles))}
    if names:
        names -= read_elsewhere(typed, task_vars)
    return [f"{name} is set (with -e), but {why_unread(name, read, meant)}" for name in sorted(names)]


def read_elsewhere(typed: Mapping[str, Any], task_vars: Mapping[str, Any]) -> set[str]:
    """The words in host variables and inventory files, and in templates of other variables, including -e @FILE."""
    hosts = [task_vars["hostvars"].raw_get(host) for host in task_vars["hostvars"]]
    values = [value for one in hosts for name, value in one.items() if name not in typed]
    here = [value for name, value in task_vars.items() if name not in ("hostvars", "vars")]
    return words_in(values) | words_of_templates([here, typed]) | words_of(inventory_files(task_vars))


def templated(names: Collection[str], files: Iterable[Path]) -> set[str]:
    """The names that templates in these files read."""
    spans = (span for file in files for span in TEMPLATE.findall(file.read_text(encoding="utf-8", errors="replace")))
    text = "\n".join(QUOTED.sub("", span) for span in spans) if names else ""
    return {name for name in names if re.search(rf"(?<![.\w]){re.escape(name)}(?!\w|\s*=[^=])", text)}


def why_unread(name: str, read: Collection[str], meant: Mapping[str, str]) -> str:
    """What to do about a variable that nothing reads. meant: words with the variable that the user probably meant."""
    if meant.get(name, "") in read:
        return f"nothing reads it; did you mean {meant[name]}?"
    for path in (COLLECTION / "roles").glob("*/meta/argument_specs.yml"):
        role = path.parents[1].name
        if name.startswith(f"{role}_") and name in words_of([path]):
            return f"only the role {role} reads it, which this playbook does not run; remove it"
    alike = difflib.get_close_matches(name, sorted(read), n=1, cutoff=ALIKE)
    return f"nothing reads it; {f'did you mean {alike[0]}?' if alike else 'correct the name, or remove it'}"


def roles_of(playbooks: Iterable[Path]) -> set[str]:
    """The roles of this collection that the playbooks use, directly or through other roles."""
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
    """A message if ansible.posix is missing and a host's variables make the playbook copy from this machine."""
    wanted = {COPIES[playbook.stem] for playbook in playbooks if playbook.stem in COPIES}
    if not wanted or is_installed("ansible.posix"):
        return []
    hosts = [task_vars["hostvars"].raw_get(host) for host in task_vars["hostvars"]]
    copied = sorted(name for name in wanted if any(one.get(name) for one in hosts))
    if not copied:
        return []
    found = f"the collection ansible.posix is not installed, and {' and '.join(copied)} needs it to copy from here"
    return [f"{found}. Install it: ansible-galaxy collection install ansible.posix"]


def is_installed(collection: str) -> bool:
    """Whether Ansible finds the collection."""
    try:
        return importlib.util.find_spec(f"ansible_collections.{collection}") is not None
    except ModuleNotFoundError:  # its namespace is missing, too
        return False


def inventory_files(task_vars: Mapping[str, Any]) -> list[Path]:
    """The files of the inventory; those of plugins may have templates."""
    sources = [Path(source) for source in task_vars.get("ansible_inventory_sources") or ()]
    below = [path for source in sources if source.is_dir() for path in source.rglob("*")]
    return [path for path in [*sources, *below] if path.is_file()]

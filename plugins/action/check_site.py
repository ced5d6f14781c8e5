# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module check_site. Connects to nothing."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible import context
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.plugin_utils._cluster.local_connection import is_local
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._command_line.declared_variables import (
    ROLES,
    read_variables,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import typed_variables
from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_arguments import (
    describe_wrong_values,
    group_by_values,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import (
    describe_unknown_variables,
    documented_options,
    find_wrong_values,
    read_entry_points,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    STARTED_BY,
    collection_playbooks,
    inventory_files,
    is_installed,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_site_options import (
    PlayRole,
    describe_unknown_tags,
    describe_unread_variables,
    describe_unused_switches,
    describe_unused_tags,
    is_selected,
    names_in_files,
    names_in_strings,
    names_in_templates,
    required_collections,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {}
COLLECTION = Path(__file__).resolve().parents[2]
MAX_NAMES = 8
SITE = COLLECTION / "playbooks" / "site.yml"


class ActionModule(ActionBase):
    """Compares the request with the play's roles."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail if a part of the request has no effect, or is impossible."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        play = self._task.get_play()
        hosts = {host: task_vars["hostvars"].raw_get(host) for host in task_vars["ansible_play_hosts_all"]}
        roles = collection_roles(play, {name for variables in hosts.values() for name in variables})
        problems = describe_misspelled_variables(roles, hosts, load_extra_vars(self._loader))
        typed = typed_variables(context.CLIARGS.get("extra_vars") or ()) if STARTED_BY not in task_vars else {}
        typed = {
            name: value
            for name, value in typed.items()
            if not any(problem.startswith(f"{name} ") for problem in problems)
        }
        problems += self._describe_unused_options(typed, roles, hosts, task_vars)
        problems += self._describe_wrong_values(hosts, task_vars)
        if not problems:
            only, skip = task_vars["ansible_run_tags"], task_vars["ansible_skip_tags"]
            active_roles = [role for role in roles if is_selected(role, only, skip) and self._is_on(role, hosts)]
            problems = [
                *describe_shared_machine(active_roles, hosts),
                *self._describe_missing_source(active_roles, task_vars),
                *describe_missing_collections(active_roles),
            ]
        if problems:
            raise AnsibleActionFail("\n".join([*problems, "Nothing was changed."]))
        return {"changed": False}

    def _describe_unused_options(
        self,
        typed: Mapping[str, Any],
        roles: list[PlayRole],
        hosts: Mapping[str, Mapping[str, Any]],
        task_vars: Mapping[str, Any],
    ) -> list[str]:
        """Return one sentence for each tag, switch and variable that has no effect."""
        only, skip = list(task_vars["ansible_run_tags"]), list(task_vars["ansible_skip_tags"])
        is_on = functools.cache(lambda role: self._is_on(role, hosts))
        switched_on = {name for name, value in typed.items() if boolean(value, strict=False)}
        unused_switches = describe_unused_switches(switched_on, only, skip, roles)
        if collection_playbooks(context.CLIARGS.get("args") or ()) != [
            SITE
        ]:  # others have their own tags and variables
            return [*describe_unused_tags(only, skip, roles, is_on), *unused_switches]
        unknown = [*describe_unknown_tags("--tags", only, roles), *describe_unknown_tags("--skip-tags", skip, roles)]

        def read_elsewhere() -> set[str]:
            values = [
                value
                for host_variables in hosts.values()
                for name, value in host_variables.items()
                if name not in typed
            ]
            in_inventory = names_in_files(inventory_files(task_vars)) | names_in_strings(values)
            return in_inventory | names_in_templates(typed) | read_variables([SITE])

        return [
            *(unknown or [*describe_unused_tags(only, skip, roles, is_on), *unused_switches]),
            *describe_unread_variables(
                typed, roles, is_on, other_roles_options({role.name for role in roles}), read_elsewhere
            ),
        ]

    def _describe_wrong_values(self, hosts: Iterable[str], task_vars: Mapping[str, Any]) -> list[str]:
        """Return the values that a role's documentation does not allow, for all roles that rely on this check."""
        play, skip, extra = self._task.get_play(), set(task_vars["ansible_skip_tags"]), load_extra_vars(self._loader)
        manager = play.get_variable_manager()
        variables_by_host = {
            host: manager.get_vars(play=play, host=manager._inventory.get_host(host), task=self._task) for host in hosts
        }
        wrong_values, manual_hints = [], []
        for entry in role_entries(play):
            path = Path(entry.role.get_role_path())
            if entry.role._should_validate or path.parent != COLLECTION / "roles" or entry.tags & skip:
                continue
            role_variables = {name: value for name, value in entry.variables.items() if name not in extra}
            nodes = {host: {**variables, **role_variables} for host, variables in variables_by_host.items()}
            for group in group_by_values(documented_options(path), nodes):
                problems = self._find_wrong_values(path, nodes[group[0]])
                wrong_values += [(path.name, problem, group) for problem in problems]
                manual_hints += [f"{path / 'defaults' / 'main.yml'} lists the variables." for _problem in problems]
        return [*describe_wrong_values(wrong_values, len(variables_by_host)), *dict.fromkeys(manual_hints)]

    def _find_wrong_values(self, role: Path, variables: Mapping[str, Any]) -> list[str]:
        """Return one node's values that the documentation of one role does not allow."""
        templar = self._templar.copy_with_new_env(available_variables=variables)
        values, problems = {}, []
        for name in sorted(documented_options(role) & variables.keys()):
            try:
                values.update(templar.template({name: variables[name]}))
            except AnsibleError as error:
                problems.append(f"{name} cannot be evaluated: {error}")
        return problems or find_wrong_values(read_entry_points(role)["main"], values.__getitem__, values)

    def _is_on(self, role: PlayRole, hosts: Mapping[str, Mapping[str, Any]]) -> bool:
        """Return whether the role changes anything on at least one node."""
        roles = self._task.get_play().roles
        defaults = {name: value for role_entry in roles for name, value in role_entry.get_default_vars().items()}
        nodes = {host: {**defaults, **variables} for host, variables in hosts.items()}
        for group in group_by_values([f"{role.name}_enabled"], nodes):
            variables = nodes[group[0]]
            templar = self._templar.copy_with_new_env(available_variables=variables)
            switch = variables.get(f"{role.name}_enabled", True)
            try:
                if boolean(templar.template(switch), strict=False):
                    return True
            except AnsibleError:
                return True  # the role itself reports the error
        return False

    def _describe_missing_source(self, active_roles: Iterable[PlayRole], task_vars: dict[str, Any]) -> list[str]:
        """Return a message if the directory that the role `code` should copy does not exist."""
        if not any(role.name == "code" for role in active_roles):
            return []
        source = str(self._templar.template(task_vars["code_source"]))
        path = Path(source).expanduser()
        if not source or path.is_dir():
            return []
        problem = (
            f"{path.absolute()} is a file" if path.exists() else f"{path.absolute()} does not exist on this machine"
        )
        return [f"code_source is {source}, but {problem}. Set it to the directory to copy"]


class RoleEntry(NamedTuple):
    """A role listed by a play, with the tags that select it and the variables set there."""

    role: Any
    tags: frozenset[str]
    variables: Mapping[str, Any]


def role_entries(play: Any) -> list[RoleEntry]:
    """Return the roles that the play lists, and those that its tasks import."""
    listed = [role for role in play.roles if not role.from_include]
    entries = [RoleEntry(role, frozenset([*role.tags, *play.tags]), role.vars) for role in listed]
    first_tasks: dict[
        int, Any
    ] = {}  # the first task of each imported role, which has all tags and variables of the import
    for task in flatten_tasks([*play.pre_tasks, *play.tasks, *play.post_tasks]):
        if task._role is not None and task._role.from_include and not task.implicit:
            first_tasks.setdefault(id(task._role), task)
    return [*entries, *(RoleEntry(task._role, frozenset(task.tags), task.get_vars()) for task in first_tasks.values())]


def flatten_tasks(blocks: Iterable[Any]) -> Iterator[Any]:
    """Yield all tasks in blocks, at any depth."""
    for item in blocks:
        if hasattr(item, "block"):
            yield from flatten_tasks([*item.block, *item.rescue, *item.always])
        else:
            yield item


def collection_roles(play: Any, names: Container[str]) -> list[PlayRole]:
    """Return this collection's roles in the play, each once, with all tags that select it.

    names: the variables that the user has set.
    """
    roles: dict[str, PlayRole] = {}
    for entry in role_entries(play):
        path = Path(entry.role.get_role_path())
        if path.name in roles:
            roles[path.name] = roles[path.name]._replace(tags=roles[path.name].tags | entry.tags)
        elif path.resolve().parent == COLLECTION / "roles":
            switch = f"{path.name}_enabled"
            default = "" if switch in names else str(entry.role.get_default_vars().get(switch, True))
            roles[path.name] = PlayRole(
                path.name,
                path,
                entry.tags,
                frozenset(documented_options(path)),
                default,
                ROLES.get(path.name, frozenset()),
            )
    return list(roles.values())


def describe_misspelled_variables(
    roles: Iterable[PlayRole], hosts: Mapping[str, Any], extra: Mapping[str, Any]
) -> list[str]:
    """Return one sentence for each misspelled role variable, saying where to find the correct names."""
    all_options = {name for path in (COLLECTION / "roles").iterdir() for name in documented_options(path)}
    messages: dict[str, None] = {}
    for role in roles:
        problems = describe_unknown_variables(f"{role.name}_", set(role.options), hosts, [], extra, lambda: all_options)
        if problems:
            messages.update(dict.fromkeys([*problems, f"{role.path / 'defaults' / 'main.yml'} lists the variables."]))
    return list(messages)


def other_roles_options(roles: set[str]) -> dict[str, str]:
    """Return the options of the collection's other roles, with the role that each belongs to."""
    paths = [path for path in (COLLECTION / "roles").iterdir() if path.name not in roles]
    return {name: path.name for path in paths for name in documented_options(path)}


def describe_shared_machine(roles: Iterable[PlayRole], hosts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a message if several nodes are this machine, which cannot have a host name for each of them."""
    names = [name for name, variables in hosts.items() if is_local(variables)]
    if len(names) < 2 or not any(role.name == "hosts_file" for role in roles):
        return []
    launch = "ansible-playbook launch.yml -e launch_working_directory=$PWD -e launch_script=train.py"
    return [
        f"{format_list(names, MAX_NAMES)} are all this machine (ansible_connection: local), and site.yml needs a "
        f"different host name for each node. Launch without it: {adapt_commands(launch)}"
    ]


def describe_missing_collections(roles: Iterable[PlayRole]) -> list[str]:
    """Return one sentence for each collection that is not installed."""
    return [
        (
            f"the collection {name} is not installed, but these roles need it: {', '.join(users)}. Install it: "
            f"ansible-galaxy collection install {name}"
        )
        for name, users in required_collections(roles).items()
        if not is_installed(name)
    ]

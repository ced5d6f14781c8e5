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

from ansible_collections.muster.training.plugins.action.known_variables import complaints, options_of, wrong_values
from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import typed_variables
from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_arguments import refusals, sharing
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    inventory_files,
    is_installed,
    own_playbooks,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_site_options import (
    PlayRole,
    idle_switches,
    idle_tags,
    is_selected,
    needed_collections,
    unknown_tags,
    unread_variables,
    words_in,
    words_of,
    words_of_templates,
)

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {}
COLLECTION = Path(__file__).resolve().parents[2]
SITE = COLLECTION / "playbooks" / "site.yml"


class ActionModule(ActionBase):
    """Pure: compares the request with the play's roles."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail if a part of the request has no effect, or is impossible."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        play = self._task.get_play()
        hosts = {host: task_vars["hostvars"].raw_get(host) for host in task_vars["ansible_play_hosts_all"]}
        roles = roles_of(play, {name for variables in hosts.values() for name in variables})
        said = misspelt(roles, hosts, load_extra_vars(self._loader))
        typed = typed_variables(context.CLIARGS.get("extra_vars") or ())
        typed = {name: value for name, value in typed.items() if not any(one.startswith(f"{name} ") for one in said)}
        said += self._without_effect(typed, roles, hosts, task_vars)
        said += self._wrong_values(hosts, task_vars)
        if not said:
            only, skip = task_vars["ansible_run_tags"], task_vars["ansible_skip_tags"]
            used = [role for role in roles if is_selected(role, only, skip) and self._is_on(role, hosts)]
            said = [*self._missing_source(used, task_vars), *missing_collections(used)]
        if said:
            raise AnsibleActionFail("\n".join([*said, "Nothing was changed."]))
        return {"changed": False}

    def _without_effect(
        self,
        typed: Mapping[str, Any],
        roles: list[PlayRole],
        hosts: Mapping[str, Mapping[str, Any]],
        task_vars: Mapping[str, Any],
    ) -> list[str]:
        """Tags, switches and variables without effect."""
        only, skip = list(task_vars["ansible_run_tags"]), list(task_vars["ansible_skip_tags"])
        is_on = functools.cache(lambda role: self._is_on(role, hosts))
        switched_on = {name for name, value in typed.items() if boolean(value, strict=False)}
        idle = idle_switches(switched_on, only, skip, roles)
        if own_playbooks(context.CLIARGS.get("args") or ()) != [SITE]:  # others have their own tags and variables
            return [*idle_tags(only, skip, roles, is_on), *idle]
        unknown = [*unknown_tags("--tags", only, roles), *unknown_tags("--skip-tags", skip, roles)]

        def read_elsewhere() -> set[str]:
            files = [SITE, *inventory_files(task_vars)]
            values = [value for one in hosts.values() for name, value in one.items() if name not in typed]
            return words_of(files) | words_in(values) | words_of_templates(typed)

        return [
            *(unknown or [*idle_tags(only, skip, roles, is_on), *idle]),
            *unread_variables(typed, roles, is_on, options_elsewhere({role.name for role in roles}), read_elsewhere),
        ]

    def _wrong_values(self, hosts: Iterable[str], task_vars: Mapping[str, Any]) -> list[str]:
        """What the documentation of a role does not allow, of all roles that leave this to check_site."""
        play, skip, extra = self._task.get_play(), set(task_vars["ansible_skip_tags"]), load_extra_vars(self._loader)
        manager = play.get_variable_manager()
        known = {
            host: manager.get_vars(play=play, host=manager._inventory.get_host(host), task=self._task) for host in hosts
        }
        wrong, manuals = [], []
        for entry in entries_of(play):
            path = Path(entry.role.get_role_path())
            if entry.role._should_validate or path.parent != COLLECTION / "roles" or entry.tags & skip:
                continue
            own = {name: value for name, value in entry.variables.items() if name not in extra}
            nodes = {host: {**variables, **own} for host, variables in known.items()}
            for alike in sharing(options_of(path), nodes):
                said = self._wrong_values_of(path, nodes[alike[0]])
                wrong += [(path.name, why, alike) for why in said]
                manuals += [f"{path / 'defaults' / 'main.yml'} lists what can be set." for _why in said]
        return [*refusals(wrong, len(known)), *dict.fromkeys(manuals)]

    def _wrong_values_of(self, role: Path, variables: Mapping[str, Any]) -> list[str]:
        """What the documentation of one role does not allow of one node's variables."""
        templar = self._templar.copy_with_new_env(available_variables=variables)
        there, said = {}, []
        for name in sorted(options_of(role) & variables.keys()):
            try:
                there.update(templar.template({name: variables[name]}))
            except AnsibleError as error:
                said.append(f"{name} cannot be evaluated: {error}")
        return said or wrong_values(role, there.__getitem__, there)

    def _is_on(self, role: PlayRole, hosts: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether the role does something on any node."""
        roles = self._task.get_play().roles
        defaults = {name: value for one in roles for name, value in one.get_default_vars().items()}
        nodes = {host: {**defaults, **variables} for host, variables in hosts.items()}
        for alike in sharing([f"{role.name}_enabled"], nodes):
            variables = nodes[alike[0]]
            templar = self._templar.copy_with_new_env(available_variables=variables)
            switch = variables.get(f"{role.name}_enabled", True)
            try:
                if boolean(templar.template(switch), strict=False):
                    return True
            except AnsibleError:
                return True  # the role itself reports the error
        return False

    def _missing_source(self, used: Iterable[PlayRole], task_vars: dict[str, Any]) -> list[str]:
        """The missing directory on this machine that the role code should copy."""
        if not any(role.name == "code" for role in used):
            return []
        source = str(self._templar.template(task_vars["code_source"]))
        path = Path(source).expanduser()
        if not source or path.is_dir():
            return []
        found = f"{path.absolute()} is a file" if path.exists() else f"there is no {path.absolute()} on this machine"
        return [f"code_source is {source}, and {found}. Needed: the directory to copy; correct the path"]


class Entry(NamedTuple):
    """A role where a play lists it: the tags that select it, and the variables that are set there."""

    role: Any
    tags: frozenset[str]
    variables: Mapping[str, Any]


def entries_of(play: Any) -> list[Entry]:
    """The roles that the play lists, and those that its tasks import."""
    listed = [role for role in play.roles if not role.from_include]
    found = [Entry(role, frozenset([*role.tags, *play.tags]), role.vars) for role in listed]
    first: dict[int, Any] = {}  # the first task of each imported role, which has all tags and variables of the import
    for task in tasks_of([*play.pre_tasks, *play.tasks, *play.post_tasks]):
        if task._role is not None and task._role.from_include and not task.implicit:
            first.setdefault(id(task._role), task)
    return [*found, *(Entry(task._role, frozenset(task.tags), task.get_vars()) for task in first.values())]


def tasks_of(blocks: Iterable[Any]) -> Iterator[Any]:
    """All tasks of blocks, however deep."""
    for one in blocks:
        if hasattr(one, "block"):
            yield from tasks_of([*one.block, *one.rescue, *one.always])
        else:
            yield one


def roles_of(play: Any, names: Container[str]) -> list[PlayRole]:
    """The roles of this collection in the play, each once, with all tags that select it.

    names: the variables that the user has set.
    """
    found: dict[str, PlayRole] = {}
    for entry in entries_of(play):
        path = Path(entry.role.get_role_path())
        if path.name in found:
            found[path.name] = found[path.name]._replace(tags=found[path.name].tags | entry.tags)
        elif path.resolve().parent == COLLECTION / "roles":
            switch = f"{path.name}_enabled"
            default = "" if switch in names else str(entry.role.get_default_vars().get(switch, True))
            found[path.name] = PlayRole(path.name, path, entry.tags, frozenset(options_of(path)), default)
    return list(found.values())


def misspelt(roles: Iterable[PlayRole], hosts: Mapping[str, Any], extra: Mapping[str, Any]) -> list[str]:
    """One sentence for each misspelled variable of a role, and where to find the right names."""
    everything = {name for path in (COLLECTION / "roles").iterdir() for name in options_of(path)}
    said: dict[str, None] = {}
    for role in roles:
        found = complaints(f"{role.name}_", set(role.options), hosts, [], extra, lambda: everything)
        if found:
            said.update(dict.fromkeys([*found, f"{role.path / 'defaults' / 'main.yml'} lists what can be set."]))
    return list(said)


def options_elsewhere(roles: set[str]) -> dict[str, str]:
    """The options of the collection's other roles, with their roles."""
    paths = [path for path in (COLLECTION / "roles").iterdir() if path.name not in roles]
    return {name: path.name for path in paths for name in options_of(path)}


def missing_collections(roles: Iterable[PlayRole]) -> list[str]:
    """One sentence for each collection that is not installed."""
    return [
        f"the collection {name} is not installed, and these roles use it: {', '.join(users)}. "
        f"Install it: ansible-galaxy collection install {name}"
        for name, users in needed_collections(roles).items()
        if not is_installed(name)
    ]

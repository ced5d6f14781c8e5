# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The declared variables of playbooks and roles match those that Jinja's parser finds in their templates."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import Environment, meta

from ansible_collections.muster.training.plugins.plugin_utils._command_line.declared_variables import (
    PLAYBOOKS,
    PLUGIN_VARIABLES,
    ROLES,
    RUN_ROLES,
    read_variables,
    used_roles,
)
from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars import TagIgnoringLoader
from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import documented_options
from ansible_collections.muster.training.plugins.plugin_utils._project import environment_path

CHECKOUT = Path(__file__).resolve().parents[3]
PLAYBOOK_FILES = sorted((CHECKOUT / "playbooks").glob("*.yml"))
ROLE_DIRECTORIES = sorted((CHECKOUT / "roles").iterdir())
# keys whose values are expressions without braces
EXPRESSION_KEYS = {"when", "that", "failed_when", "changed_when", "until"}
# Ansible's variables, and this collection's internal ones
INTERNAL = re.compile(r"(?:_|ansible_|muster_|inventory_|playbook_)\w*")
ANSIBLE = {"item", "lookup", "query", "hostvars", "groups", "group_names", "omit", "role_path", "role_name", "now"}
# by playbook: the playbook that the module of the same name starts
STARTED = {"fit": "launch", "rehearse": "launch", "sweep": "launch", "keep": "provision"}
IMPORTED_ROLE = re.compile(r"(?:role|name): muster\.training\.(\w+)")


class AllNames(dict[str, Any]):
    """Mapping that claims to contain every filter or test name, which is sufficient for parsing."""

    def get(self, _name: str, _default: Any = None) -> Any:
        return str

    def __contains__(self, _name: object) -> bool:
        return True


JINJA = Environment()
JINJA.filters = JINJA.tests = AllNames()


def iter_strings(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yield each string of a document with its nearest key."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from iter_strings(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from iter_strings(item, key)


def iter_assigned(value: Any) -> Iterator[str]:
    """Yield the names that a document sets through vars, set_fact or register."""
    if isinstance(value, list):
        for item in value:
            yield from iter_assigned(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in ("vars", "ansible.builtin.set_fact") and isinstance(item, dict):
                yield from item
            elif key in ("register", "loop_var") and isinstance(item, str):
                yield item
            yield from iter_assigned(item)


def template_variables(text: str) -> set[str]:
    """Return the variables that a template reads."""
    return meta.find_undeclared_variables(JINJA.parse(text))


def variables_in(files: list[Path]) -> set[str]:
    """Return the variables that files read but do not set, excluding those of Ansible and internal ones."""
    read, defined = set(), set(ANSIBLE)
    for file in files:
        text = file.read_text(encoding="utf-8")
        if file.parent.name == "templates":
            read |= template_variables(text)
            continue
        document = yaml.load(text, Loader=TagIgnoringLoader)
        defined |= set(iter_assigned(document))
        for key, value in iter_strings(document):
            if "{{" in value or "{%" in value:
                read |= template_variables(value)
            elif key in EXPRESSION_KEYS:
                read |= template_variables(f"{{{{ {value} }}}}")
    return {name for name in read - defined if not INTERNAL.fullmatch(name)}


@pytest.mark.parametrize("role", ROLE_DIRECTORIES, ids=lambda role: role.name)
def test_role_declares_what_it_reads_besides_its_own_variables(role: Path) -> None:
    files = [
        file for pattern in ("*/*.yml", "templates/*") for file in role.glob(pattern) if file.parent.name != "meta"
    ]
    foreign = {name for name in variables_in(files) if not name.startswith(f"{role.name}_")} - documented_options(role)
    if role.name == "python_env":  # through its lookup
        foreign |= {name for name in environment_path.VARIABLES if not name.startswith(("python_env_", "__"))}
    assert ROLES.get(role.name, frozenset()) == foreign


@pytest.mark.parametrize("playbook", PLAYBOOK_FILES, ids=lambda playbook: playbook.stem)
def test_playbook_declares_what_it_reads(playbook: Path) -> None:
    declared = PLAYBOOKS[playbook.stem]
    read = variables_in([playbook])
    if playbook.stem in STARTED and STARTED[playbook.stem] not in declared.roles:
        read |= PLAYBOOKS[STARTED[playbook.stem]].names
    read -= {name for role in declared.roles for name in documented_options(CHECKOUT / "roles" / role)}
    if playbook.stem == "site":  # the roles of site.yml are those in its play
        read -= {name for role in ROLE_DIRECTORIES for name in documented_options(role)}
    assert declared.names - PLUGIN_VARIABLES == read


@pytest.mark.parametrize(
    "playbook", [file for file in PLAYBOOK_FILES if file.stem != "site"], ids=lambda file: file.stem
)
def test_playbook_declares_its_roles(playbook: Path) -> None:
    text = playbook.read_text(encoding="utf-8")
    imported = set(IMPORTED_ROLE.findall(text))
    if STARTED.get(playbook.stem) == "launch" or "launch" in imported:
        imported |= set(RUN_ROLES)
    assert imported <= set(PLAYBOOKS[playbook.stem].roles)


def test_variables_of_the_command_muster_are_read() -> None:
    commands = runpy.run_path(str(CHECKOUT / "roles" / "init" / "files" / "muster.py"))["COMMANDS"]
    for name, _role, _summary, options in commands.values():
        playbook = [Path(f"{name}.yml")]
        role_prefixes = tuple(f"{role}_" for role in used_roles(playbook))
        variables = {variable.partition("=")[0] for variable in options.values()}
        unread = {
            variable for variable in variables - read_variables(playbook) if not variable.startswith(role_prefixes)
        }
        assert unread == set(), name


def test_every_playbook_and_only_existing_roles_are_declared() -> None:
    assert sorted(PLAYBOOKS) == [file.stem for file in PLAYBOOK_FILES]
    assert ROLES.keys() <= {role.name for role in ROLE_DIRECTORIES}

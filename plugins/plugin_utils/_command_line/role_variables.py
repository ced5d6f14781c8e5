# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare variables with the variables that a role documents."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load
from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import abbreviate
from ansible_collections.muster.training.plugins.plugin_utils._command_line.type_errors import describe_type_errors

SIMILAR_STEM = 0.5  # similarity of two names without the role's prefix: nproc is like nproc_per_node
SIMILAR_NAME = 0.9  # for full names: sh_mesh_port is like ssh_mesh_port, but torch_home is not like python_home
FOREIGN_VARIABLES = {"launch_time"}  # host variables set by others: amazon.aws.aws_ec2 provides a machine's start time
SIMILAR_SHORT_NAME = (
    0.81  # for short names: run_di is like run_id, but node_count, which may belong to another tool, is not
)


@functools.cache
def read_entry_points(role: Path) -> dict[str, Any]:
    """Return the role's documentation by entry point. Cached: a launch needs first the names, then the values."""
    text = (role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    specs: dict[str, Any] = yaml_load(text)["argument_specs"]
    return specs


def documented_options(role: Path) -> set[str]:
    """Return the variables documented for at least one of the role's entry points."""
    return {name for entry_point in read_entry_points(role).values() for name in entry_point.get("options", {})}


def find_wrong_values(
    entry_point: Mapping[str, Any], value_of: Callable[[str], Any], existing: Container[str]
) -> list[str]:
    """Return one sentence for each value that the documentation of a role's entry point does not allow.

    value_of: returns a variable's value; existing: the names of existing variables.
    """
    options = entry_point["options"]
    values = {name: value_of(name) for name in options if name in existing}
    problems = [
        f'{name} is a string, but must be a dictionary: use -e \'{{"{name}": {{"NAME": "value"}}}}\', '
        "or write it as a dictionary in your host or group variables"
        for name, value in values.items()
        if options[name].get("type") == "dict" and isinstance(value, str)  # the text may contain a secret
    ]
    if not problems:
        result = ArgumentSpecValidator(options).validate(values, validate_role_argument_spec=True)
        problems = describe_type_errors(result.error_messages, values)
    return problems


def nearest_name(name: str, known_names: Iterable[str], prefix: str) -> str:
    """Return the known name that is most similar to a name, or an empty string."""
    stems = {known_name.removeprefix(prefix): known_name for known_name in known_names}
    matches = difflib.get_close_matches(name.removeprefix(prefix), sorted(stems), n=1, cutoff=SIMILAR_STEM)
    return stems[matches[0]] if matches else ""


def unknown_variables(
    prefix: str, known_names: set[str], names_by_host: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """Return the unknown variables that have the role's prefix, each with the hosts that set it.

    names_by_host: names of variables by host name.
    """
    unknown: dict[str, list[str]] = {}
    for host, names in names_by_host.items():
        for name in names:
            if name.startswith(prefix) and name not in known_names and name not in FOREIGN_VARIABLES:
                unknown.setdefault(name, []).append(host)
    return dict(sorted(unknown.items()))


def misspelled_short_names(short_names: Iterable[str], extra: Iterable[str]) -> dict[str, str]:
    """Return the extra variables that nearly match a short name, each with that short name."""
    short_names = sorted(short_names)
    corrections = {}
    for name in extra:
        matches = difflib.get_close_matches(name, short_names, n=1, cutoff=SIMILAR_SHORT_NAME)
        if matches and matches[0] != name:
            corrections[name] = matches[0]
    return corrections


def misspelled_prefixes(prefix: str, known_names: set[str], extra: Iterable[str]) -> dict[str, str]:
    """Return extra variables that look like a role variable with a misspelled prefix, each with that variable."""
    corrections = {}
    for name in extra:
        matches = difflib.get_close_matches(name, sorted(known_names), n=1, cutoff=SIMILAR_NAME)
        if matches and not name.startswith(prefix):
            corrections[name] = matches[0]
    return corrections


def describe_unknown_variables(  # noqa: PLR0913
    prefix: str,
    known_names: set[str],
    names_by_host: Mapping[str, Iterable[str]],
    short_names: Iterable[str],
    extra: Iterable[str],
    other_roles_variables: Callable[[], set[str]] = set,
) -> list[str]:
    """Return one sentence for each misspelled variable.

    other_roles_variables: returns other roles' variables; called only if a name may be misspelled.
    """
    extra = list(extra)
    messages = []
    for name, hosts in unknown_variables(prefix, known_names, names_by_host).items():
        match = nearest_name(name, known_names, prefix)
        origin = "with -e" if name in extra else f"for {abbreviate(hosts)}"
        hint = f"; did you mean {match}?" if match else ""
        messages.append(f"{name} is set ({origin}), but the role has no such variable{hint}")
    corrections = misspelled_prefixes(prefix, known_names, extra)
    other_variables = other_roles_variables() if corrections else set()
    corrections = {name: match for name, match in corrections.items() if name not in other_variables}
    for name, match in {**corrections, **misspelled_short_names(short_names, extra)}.items():
        messages.append(f"{name} is set (with -e), but nothing reads it; did you mean {match}?")
    return messages


def describe_overridden_names(
    role: Path, short_names: Iterable[str], extra: Mapping[str, Any], value_of: Callable[[str], Any]
) -> list[str]:
    """Return one sentence for each short name that has no effect because the long name is set to a different value.

    value_of: returns a variable's value, None if it does not exist.
    """
    options = read_entry_points(role)["main"]["options"]
    messages = []
    for short in short_names:
        name = f"{role.name}_{short}"
        if short not in extra or name not in options:
            continue
        short_value, effective_value = extra[short], value_of(name)
        if effective_value is not None and not equal_values(short_value, effective_value, options[name]["type"]):
            messages.append(
                f"{short} is {short_value} (with -e), but {name} is set to {effective_value}, which takes precedence: "
                f"use -e {name}={short_value} instead"
            )
    return messages


def equal_values(first: Any, second: Any, kind: str) -> bool:
    """Return whether two values of an option of this type are equal, whether from YAML or the command line."""
    if kind == "bool":
        return boolean(first, strict=False) is boolean(second, strict=False)
    return str(first) == str(second)

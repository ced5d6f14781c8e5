# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module known_variables. Connects to nothing."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.yaml import yaml_load
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from ansible_collections.muster.training.plugins.module_utils._rank_table import some
from ansible_collections.muster.training.plugins.plugin_utils._command_line.extra_vars_lint import refuse_lost_words
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    refuse_what_has_no_effect,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import job_keys, overruled, unknown_keys

ARGUMENT_SPEC = {
    "role_path": {"type": "path"},
    "short_names": {"type": "list", "elements": "str", "default": []},
    "settled": {"type": "list", "elements": "str", "default": []},
    "values": {"type": "bool", "default": False},
}
ALIKE = 0.5  # similarity of two names without the role's prefix: nproc is like nproc_per_node
ALMOST_THE_SAME = 0.9  # of whole names: sh_mesh_port is like ssh_mesh_port, but torch_home is not like python_home
FOREIGN = {"launch_time"}  # host variables that others set: amazon.aws.aws_ec2 gives a machine's start time
VERY_ALIKE = 0.81  # of short names: run_di is like run_id, but node_count, which may not be ours, is not


@functools.cache
def entry_points(role: Path) -> dict[str, Any]:
    """The role's documentation, by entry point. Cached: a launch needs first the names, and then the values."""
    text = (role / "meta" / "argument_specs.yml").read_text(encoding="utf-8")
    specs: dict[str, Any] = yaml_load(text)["argument_specs"]
    return specs


def options_of(role: Path) -> set[str]:
    """The variables documented for any of the role's entry points."""
    return {name for entry_point in entry_points(role).values() for name in entry_point.get("options", {})}


def wrong_values(role: Path, value_of: Callable[[str], Any], there: Container[str]) -> list[str]:
    """One sentence for each value that the role's documentation of its entry point main does not allow.

    value_of: returns a variable's value; there: the names of existing variables.
    """
    options = entry_points(role)["main"]["options"]
    values = {name: value_of(name) for name in options if name in there}
    found = [
        f'{name} is a string, but must be a dictionary: use -e \'{{"{name}": {{"NAME": "value"}}}}\', '
        "or write it as a dictionary in your host or group variables"
        for name, value in values.items()
        if options[name].get("type") == "dict" and isinstance(value, str)  # it may hold a secret
    ]
    if not found:
        found = ArgumentSpecValidator(options).validate(values, validate_role_argument_spec=True).error_messages
    return found


def nearest(name: str, known: Iterable[str], prefix: str) -> str:
    """The known name most similar to a name, "" if none is similar."""
    stems = {one.removeprefix(prefix): one for one in known}
    found = difflib.get_close_matches(name.removeprefix(prefix), sorted(stems), n=1, cutoff=ALIKE)
    return stems[found[0]] if found else ""


def unknown_variables(prefix: str, known: set[str], given: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Unknown variables with the role's prefix, each with the hosts that have it.

    given: names of variables by host name.
    """
    unknown: dict[str, list[str]] = {}
    for host, names in given.items():
        for name in names:
            if name.startswith(prefix) and name not in known and name not in FOREIGN:
                unknown.setdefault(name, []).append(host)
    return dict(sorted(unknown.items()))


def misspelt_short_names(short_names: Iterable[str], extra: Iterable[str]) -> dict[str, str]:
    """Extra variables that are almost a short name, each with that name."""
    short_names = sorted(short_names)
    found = {}
    for name in extra:
        alike = difflib.get_close_matches(name, short_names, n=1, cutoff=VERY_ALIKE)
        if alike and alike[0] != name:
            found[name] = alike[0]
    return found


def misspelt_prefixes(prefix: str, known: set[str], extra: Iterable[str]) -> dict[str, str]:
    """Extra variables that are almost one of the role's variables, with a misspelled prefix, each with that one."""
    found = {}
    for name in extra:
        alike = difflib.get_close_matches(name, sorted(known), n=1, cutoff=ALMOST_THE_SAME)
        if alike and not name.startswith(prefix):
            found[name] = alike[0]
    return found


def complaints(
    prefix: str,
    known: set[str],
    given: Mapping[str, Iterable[str]],
    short_names: Iterable[str],
    extra: Iterable[str],
    elsewhere: Callable[[], set[str]] = set,
) -> list[str]:
    """One sentence for each misspelled variable. elsewhere: returns other roles' variables, called if in doubt."""
    extra = list(extra)
    said = []
    for name, hosts in unknown_variables(prefix, known, given).items():
        right = nearest(name, known, prefix)
        where = "with -e" if name in extra else f"for {some(hosts)}"
        hint = f"; did you mean {right}?" if right else ""
        said.append(f"{name} is set ({where}), but the role has no such variable{hint}")
    foreign = misspelt_prefixes(prefix, known, extra)
    others = elsewhere() if foreign else set()
    foreign = {name: right for name, right in foreign.items() if name not in others}
    for name, right in {**foreign, **misspelt_short_names(short_names, extra)}.items():
        said.append(f"{name} is set (with -e), but nothing reads it; did you mean {right}?")
    return said


def contradictions(
    role: Path, short_names: Iterable[str], extra: Mapping[str, Any], value_of: Callable[[str], Any]
) -> list[str]:
    """One sentence for each short name without effect, because the long name is set to a different value.

    value_of: returns a variable's value, None if it does not exist.
    """
    options = entry_points(role)["main"]["options"]
    said = []
    for short in short_names:
        name = f"{role.name}_{short}"
        if short not in extra or name not in options:
            continue
        meant, counts = extra[short], value_of(name)
        if counts is not None and not same(meant, counts, options[name]["type"]):
            said.append(
                f"{short} is {meant} (with -e), but {name} is set to {counts}, which takes precedence: use -e "
                f"{name}={meant} instead"
            )
    return said


def same(one: Any, other: Any, kind: str) -> bool:
    """Whether two values are equal for an option of this type, whether from YAML or the command line."""
    if kind == "bool":
        return boolean(one, strict=False) is boolean(other, strict=False)
    return str(one) == str(other)


class ActionModule(ActionBase):
    """Pure: compares the names of Ansible's variables with those that the role documents."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Fail if a variable of the role is misspelled."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        if args["role_path"] is None:
            refuse_what_has_no_effect(task_vars)
            said = complaints("", set(), {}, args["short_names"], load_extra_vars(self._loader))
            if said:
                raise AnsibleActionFail("\n".join(said))
            return {"changed": False}
        refuse_lost_words()  # in our playbooks, the first task has already done the rest
        role = Path(args["role_path"])
        here = task_vars["inventory_hostname"]
        given = {
            host: list(task_vars["hostvars"][host]) for host in task_vars["ansible_play_hosts_all"] if host != here
        }
        given[here] = list(task_vars)
        extra = load_extra_vars(self._loader)
        said = complaints(
            f"{role.name}_",
            options_of(role),
            given,
            args["short_names"],
            extra,
            lambda: {
                name for path in role.parent.glob("*/meta/argument_specs.yml") for name in options_of(path.parents[1])
            },
        )
        if said:
            manual = f"{role / 'defaults' / 'main.yml'} lists what can be set. Correct the name, or remove it."
            raise AnsibleActionFail("\n".join([*said, manual]))
        keys = job_keys(role.parent)
        job = task_vars.get("job", {})
        said = unknown_keys(job, keys)
        if said:
            raise AnsibleActionFail("\n".join(said))

        def value_of(name: str) -> Any:
            return self._templar.template(task_vars.get(name))

        read_here = [name for name in args["short_names"] if name not in args["settled"]]
        said = contradictions(role, read_here, extra, value_of)
        own = {key: name for key, name in keys.items() if key in job and name in options_of(role)}
        said += overruled({key: self._templar.template(job[key]) for key in own}, own, extra, value_of)
        if said:
            raise AnsibleActionFail("\n".join(said))
        if args["values"]:
            said = wrong_values(role, lambda name: self._templar.template(task_vars[name]), task_vars)
            if said:
                raise AnsibleActionFail("\n".join([*said, f"{role / 'defaults' / 'main.yml'} lists what can be set."]))
        return {"changed": False}

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert the user's list of variants to a list of launches."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import (
    PLACEHOLDER,
    has_placeholder,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import Variant
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID

# number of characters in a sweep's name and in a variant's name: run_ids append "-largest-2" or "-fit-b4096"
MAX_NAME_LENGTH = 45
# short names that playbooks also read
SHORT_NAMES = {"launch_nnodes": "nnodes", "launch_nproc_per_node": "nproc_per_node"}
SIZE_VARIABLES = {*SHORT_NAMES, *SHORT_NAMES.values()}
# Variables that a sweep sets itself, or that are the same for all of its launches
SHARED_VARIABLES = {
    *("launch_run_id", "launch_detach", "launch_replace", "launch_group", "launch_runs_directory"),
    *("launch_node_directory", "launch_report", "launch_fetch_record", "launch_currency", "launch_progress_interval"),
}
EXAMPLE = "sweep_variants: [{name: one, nnodes: 1}, {name: two, nnodes: 2}]"


class ValueReaders(NamedTuple):
    """Functions that read a variant's values.

    arguments, environment: return them as written, or raise ValueError; find_errors: returns the errors in a launch's
    variables.
    """

    arguments: Callable[[object], list[str]]
    environment: Callable[[Mapping[str, Any]], dict[str, Any]]
    find_errors: Callable[[Mapping[str, Any]], list[str]]


class SweepInput(NamedTuple):
    """The user's input.

    args, fit_args: arguments of all variants, before their own; keys: a job file's keys with their variables; options:
    variables of a launch; machines: their number, 0 if unknown.
    """

    sweep: str
    variants: object
    args: list[str]
    fit_args: list[str]
    fit: bool
    keys: Mapping[str, str]
    options: Iterable[str]
    machines: int


def read_variants(sweep_input: SweepInput, readers: ValueReaders) -> tuple[list[Variant], list[str]]:
    """Return the variants, and one sentence for each problem found in them."""
    if not isinstance(sweep_input.variants, (list, tuple)):
        return [], [f"sweep_variants is {ascii(sweep_input.variants)[:80]}, but must be a list: {EXAMPLE}"]
    if not sweep_input.variants:
        return [], [f"there are no variants: list what to compare, as in {EXAMPLE}"]
    allowed = {**sweep_input.keys, **{name: name for name in sweep_input.options}}
    allowed = {
        key: name for key, name in allowed.items() if name in sweep_input.options and name not in SHARED_VARIABLES
    }
    variants: list[Variant] = []
    problems: list[str] = []
    for number, entry in enumerate(sweep_input.variants, 1):
        name = entry.get("name") if isinstance(entry, Mapping) else None
        problem = "" if isinstance(entry, Mapping) else "is not a mapping of settings"
        problem = problem or find_name_error(name, sweep_input.sweep, [variant["name"] for variant in variants])
        if problem:
            problems.append(f"variant {number} of sweep_variants {problem}")
            continue
        variant, variant_problems = read_variant(str(name), entry, allowed, sweep_input, readers)
        variants.append(variant)
        problems += [f"variant {name}: {problem}" for problem in variant_problems]
    return variants, problems


def find_name_error(name: object, sweep: str, other_names: Sequence[str]) -> str:
    """Return the problem with a variant's name, or an empty string."""
    if name is None:
        return "has no name: give it one with `name:`"
    if not isinstance(name, str) or not SAFE_RUN_ID.match(name):
        return f"has the name {ascii(name)[:80]}: use letters, digits, '.', '_' and '-', in quotes if it is a number"
    if len(f"{sweep}-{name}") > MAX_NAME_LENGTH:
        return (
            f"has a name that is too long: {sweep}-{name} has {len(sweep) + 1 + len(name)} characters, but at "
            f"most {MAX_NAME_LENGTH} are allowed"
        )
    return f"has the same name as an earlier one, {name}: names must be unique" if name in other_names else ""


def read_variant(
    name: str, entry: Mapping[str, Any], allowed: Mapping[str, str], sweep_input: SweepInput, readers: ValueReaders
) -> tuple[Variant, list[str]]:
    """Return a variant and the problems found in it."""
    variables: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in entry.items():
        variable = allowed.get(key)
        if key == "name":
            continue
        if variable is None:
            problems.append(unknown_setting_message(str(key), allowed))
        elif variable in variables:
            problems.append(f"it sets {variable} twice, once by its short name: remove one")
        else:
            variables[variable] = value
    args = fit_args = list[str]()
    try:
        variant_args = readers.arguments(variables.pop("launch_args", None))
        args, fit_args = (
            [*sweep_input.args, *variant_args],
            [*(sweep_input.fit_args or sweep_input.args), *variant_args] if sweep_input.fit else [],
        )
        if isinstance(variables.get("launch_environment"), Mapping):
            variables["launch_environment"] = readers.environment(variables["launch_environment"])
    except ValueError as error:
        problems.append(" ".join(str(error).split()))
    if has_placeholder(args):
        problems.append(
            f"its arguments contain {PLACEHOLDER}, but the runs with the same global batch size need a number: "
            "use the placeholder in fit_args, for the largest batch size, and a number in sweep_args"
        )
    elif sweep_input.fit and not has_placeholder(fit_args):
        problems.append(
            f"sweep_fit is true, but neither fit_args nor its own arguments contain {PLACEHOLDER}: add it there"
        )
    problems += readers.find_errors(variables)
    nnodes = str(variables.get("launch_nnodes", ""))
    if sweep_input.machines and nnodes.isdecimal() and int(nnodes) > sweep_input.machines:
        problems.append(f"it needs {nnodes} nodes, but the inventory has {sweep_input.machines}")
    other_variables = {key: value for key, value in variables.items() if key not in SIZE_VARIABLES}
    fingerprint = json.dumps([other_variables, args, fit_args], sort_keys=True, default=str)
    variables |= {SHORT_NAMES[key]: value for key, value in variables.items() if key in SHORT_NAMES}
    if args:
        variables["launch_args"] = args
    return Variant(name=name, variables=variables, fit_args=fit_args, kind=fingerprint), problems


def unknown_setting_message(key: str, allowed: Mapping[str, str]) -> str:
    """Return the message about a setting that variants do not support, with a hint."""
    if key in SHARED_VARIABLES:
        return f"it sets {key}, which is the same for all variants: remove it"
    matches = difflib.get_close_matches(key, allowed, n=1)
    hint = (
        f"did you mean {matches[0]}?" if matches else ("use the keys under `job` in a job file, or launch_* variables")
    )
    return f"it sets {ascii(key)[1:-1]}, but nothing reads it; {hint}"

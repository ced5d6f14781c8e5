# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turns the user's list of variants into launches. Pure.

Private to this collection, controller only.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import HOLE, has_hole
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import Variant
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID

LONGEST = 45  # characters of a sweep's name and a variant's: run_ids append "-largest-2" or "-fit-b4096"
SHORT = {"launch_nnodes": "nnodes", "launch_nproc_per_node": "nproc_per_node"}  # short names that playbooks read, too
SIZES = {*SHORT, *SHORT.values()}
# Variables that a sweep sets itself, or that are the same for all of its launches
NOT_ITS_OWN = {
    *("launch_run_id", "launch_detach", "launch_replace", "launch_group", "launch_runs_directory"),
    *("launch_node_directory", "launch_report", "launch_fetch_record", "launch_currency", "launch_progress_interval"),
}
EXAMPLE = "sweep_variants: [{name: one, nnodes: 1}, {name: two, nnodes: 2}]"


class Readers(NamedTuple):
    """Functions that read values. arguments, environment: return them as written, raise ValueError; wrong: returns the
    problems of a launch's variables."""

    arguments: Callable[[object], list[str]]
    environment: Callable[[Mapping[str, Any]], dict[str, Any]]
    wrong: Callable[[Mapping[str, Any]], list[str]]


class Given(NamedTuple):
    """The user's input. args, fit_args: arguments of all variants, before their own; keys: a job file's keys with their
    variables; options: variables of a launch; machines: their number, 0 if unknown."""

    sweep: str
    variants: object
    args: list[str]
    fit_args: list[str]
    fit: bool
    keys: Mapping[str, str]
    options: Iterable[str]
    machines: int


def read_variants(given: Given, readers: Readers) -> tuple[list[Variant], list[str]]:
    """The variants, and one sentence for each problem with them."""
    if not isinstance(given.variants, (list, tuple)):
        return [], [f"sweep_variants is {ascii(given.variants)[:80]}, and it takes a list: {EXAMPLE}"]
    if not given.variants:
        return [], [f"there are no variants: list what to compare, as in {EXAMPLE}"]
    allowed = {**given.keys, **{name: name for name in given.options}}
    allowed = {key: name for key, name in allowed.items() if name in given.options and name not in NOT_ITS_OWN}
    found: list[Variant] = []
    said: list[str] = []
    for place, one in enumerate(given.variants, 1):
        name = one.get("name") if isinstance(one, Mapping) else None
        problem = "" if isinstance(one, Mapping) else "is no mapping of settings"
        problem = problem or wrong_name(name, given.sweep, [variant["name"] for variant in found])
        if problem:
            said.append(f"variant {place} of sweep_variants {problem}")
            continue
        variant, problems = read_variant(str(name), one, allowed, given, readers)
        found.append(variant)
        said += [f"variant {name}: {problem}" for problem in problems]
    return found, said


def wrong_name(name: object, sweep: str, others: Sequence[str]) -> str:
    """What is wrong with the name of a variant, "" if nothing is."""
    if name is None:
        return "has no name: give it one with `name:`"
    if not isinstance(name, str) or not SAFE_RUN_ID.match(name):
        return f"has the name {ascii(name)[:80]}: use letters, digits, '.', '_' and '-', in quotes if it is a number"
    if len(f"{sweep}-{name}") > LONGEST:
        return f"has a name too long: {sweep}-{name} has {len(sweep) + 1 + len(name)} characters, of {LONGEST} at most"
    return f"has the name {name}, as one before it: each needs one of its own" if name in others else ""


def read_variant(
    name: str, one: Mapping[str, Any], allowed: Mapping[str, str], given: Given, readers: Readers
) -> tuple[Variant, list[str]]:
    """A variant, and its problems."""
    variables: dict[str, Any] = {}
    said: list[str] = []
    for key, value in one.items():
        variable = allowed.get(key)
        if key == "name":
            continue
        if variable is None:
            said.append(unknown(str(key), allowed))
        elif variable in variables:
            said.append(f"it sets {variable} twice, by a short name, too: leave one out")
        else:
            variables[variable] = value
    args = fit_args = list[str]()
    try:
        own = readers.arguments(variables.pop("launch_args", None))
        args, fit_args = [*given.args, *own], [*(given.fit_args or given.args), *own] if given.fit else []
        if isinstance(variables.get("launch_environment"), Mapping):
            variables["launch_environment"] = readers.environment(variables["launch_environment"])
    except ValueError as problem:
        said.append(" ".join(str(problem).split()))
    if has_hole(args):
        said.append(
            f"its arguments have {HOLE}, and a number is needed for the runs with the same global batch: "
            "write the hole into fit_args, for the largest batch, and a number into sweep_args"
        )
    elif given.fit and not has_hole(fit_args):
        said.append(f"sweep_fit is true, and fit_args with its own arguments have no {HOLE}: write it there")
    said += readers.wrong(variables)
    nnodes = str(variables.get("launch_nnodes", ""))
    if given.machines and nnodes.isdecimal() and int(nnodes) > given.machines:
        said.append(f"it takes {nnodes} nodes, and the inventory has {given.machines}")
    rest = {key: value for key, value in variables.items() if key not in SIZES}
    kind = json.dumps([rest, args, fit_args], sort_keys=True, default=str)
    variables |= {SHORT[key]: value for key, value in variables.items() if key in SHORT}
    if args:
        variables["launch_args"] = args
    return Variant(name=name, variables=variables, fit_args=fit_args, kind=kind), said


def unknown(key: str, allowed: Mapping[str, str]) -> str:
    """The message about a setting that a variant cannot have, with a hint."""
    if key in NOT_ITS_OWN:
        return f"it sets {key}, which is the same for all: leave it out"
    near = difflib.get_close_matches(key, allowed, n=1)
    hint = f"did you mean {near[0]}?" if near else "it takes what a job file has below `job`, and launch_* variables"
    return f"it sets {ascii(key)[1:-1]}, but nothing reads it; {hint}"

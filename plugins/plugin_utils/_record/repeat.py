# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeat a run from its snapshot: determine the settings to use and the environment to restore."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._python_env.paths import (
    WHEEL_KINDS,
    normalize_name,
    wheel_release,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import JOB_OPTIONS
from ansible_collections.muster.training.plugins.plugin_utils._project.environment_path import VALID_NAME
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_list,
    to_mapping,
    to_mappings,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.plain_settings import has_removed
from ansible_collections.muster.training.plugins.plugin_utils._record.snapshot import (
    Difference,
    environment_digest,
    is_same_environment,
    read_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import public_version
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

# Job options that do not affect a run's computation or that are specific to each run.
OWN_OPTIONS = ("environment", "run_id", "name", "master_port", "lifeline_port", "debug_rank", "debug_port")
OTHER_NAMES = {"interpreter": "launch_python"}
LAYER = re.compile(r"[a-z][a-z0-9_-]{0,40}")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+!-]{0,100}")
DIGEST = re.compile(r"[0-9a-f]{64}")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+!%~-]{0,200}")
TREE = re.compile(r"[~/][\w./~+\[\], -]{0,300}")
TOOLS = ("pip", "uv")  # tools that install the other packages
MAX_ROWS = 30  # number of differences that a message lists


class Restoration(NamedTuple):
    """The environment that the nodes need in order to repeat a run."""

    needed: bool = False
    home: str = ""  # directory of the environment on the nodes
    problem: str = ""  # reason why it cannot be restored


def setting_names() -> dict[str, str]:
    """Return the role variable for each job option that a snapshot keeps."""
    names = {name: OTHER_NAMES.get(name, f"launch_{name}") for name in JOB_OPTIONS if name not in OWN_OPTIONS}
    return {**names, "user": "launch_user"}


def settings_to_use(snapshot: Mapping[str, Any], extra: Iterable[str]) -> dict[str, Any]:
    """Return the recorded settings, except for those that the user sets with -e."""
    explicit = set(extra)
    # -e nnodes=4 sets the variable that launch_nnodes refers to
    explicit |= {f"launch_{name}" for name in explicit}
    settings = to_mapping(snapshot.get("settings"))
    names = {*setting_names().values()}
    chosen = {name: value for name, value in settings.items() if name in names and name not in explicit}
    return {**chosen, "launch_fitted": ""}


def nodes_to_use(snapshot: Mapping[str, Any], members: Sequence[str]) -> dict[str, Any]:
    """Return how many nodes and spares a run had, and their names if all of them are still in the inventory."""
    settings = to_mapping(snapshot.get("settings"))
    names = [str(node.get("name")) for node in to_mappings(snapshot.get("nodes"))]
    spares = str(settings.get("launch_spares") or 0)  # a string if it was set with -e
    spare_nodes = int(spares) if spares.isdecimal() and len(spares) < 7 else 0
    return {
        "nnodes": settings.get("launch_nnodes") or len(names) - spare_nodes,
        "spares": spare_nodes,
        "names": names if all(name in members for name in names) else [],
    }


def unknown_variables(snapshot: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    """Return the names of the job's environment variables whose values are neither recorded nor set."""
    known_names = {*to_mapping(snapshot.get("values")), *current}
    return [name for name in map(str, to_list(snapshot.get("variables"))) if name not in known_names]


def incomplete_settings(variables: Mapping[str, Any]) -> list[str]:
    """Return the names of recorded settings from which secrets were removed."""
    return [name for name, value in variables.items() if has_removed(value)]


def choose_restoration(snapshot: Mapping[str, Any], replies: Mapping[str, Any], directory: str) -> Restoration:
    """Return whether the nodes need the recorded environment, and where to restore it.

    An environment of the same name with other packages is unchanged: a new one is created next to it. The same happens
    if the recorded one was not where the role creates environments: a node reported that directory.

    Args:
        snapshot: that of the run to repeat.
        replies: those of node_facts with the part provenance, by node.
        directory: that of all environments on the nodes.
    """
    recorded = to_mapping(snapshot.get("environment"))
    expected = environment_digest(recorded)
    facts = [to_mapping(to_mapping(reply).get("facts")) for reply in replies.values()]
    environments = [read_environment(node) for node in facts]
    if not expected or all(is_same_environment(recorded, environment) for environment in environments):
        return Restoration()
    home = str(recorded.get("home") or "")
    if not home:
        return Restoration(
            problem="the run's environment was not created by the role python_env, so it cannot be restored: install "
            "these versions"
        )
    locks = to_mappings(recorded.get("locks"))
    installed = to_mapping(recorded.get("packages"))
    if (
        not locks
        or None in [safe_lock(lock, installed) for lock in locks]
        or recorded.get("manager") not in ("uv", "venv", "conda")
    ):
        return Restoration(problem="the lock of the environment is missing or invalid: install these versions")
    if recorded.get("manager") == "conda":
        return Restoration(problem="a conda environment cannot be restored: install these versions")
    is_occupied = any(
        environment["home"] == home and not is_same_environment(recorded, environment) for environment in environments
    )
    is_usual = home == directory or is_environment(home, directory)
    return Restoration(True, home if is_usual and not is_occupied else other_home(directory, expected))


def is_environment(home: str, directory: str) -> bool:
    """Return whether a path is that of a named environment in the directory of all environments."""
    parent, name = posixpath.split(home)
    return parent == posixpath.join(directory, "envs") and len(name) <= 100 and bool(VALID_NAME.fullmatch(name))


def other_home(directory: str, digest: str) -> str:
    """Return the directory for an environment that no project uses."""
    return posixpath.join(directory, "envs", f"like-{digest[:12]}")


def are_wheels_installed(files: Sequence[Mapping[str, Any]], installed: Mapping[str, Any]) -> bool:
    """Return whether the files in a lock have the names of wheels, either of tools that the role uses or of recorded
    packages.

    installed: recorded version by name.
    """
    # a flash-attention wheel has its build tag only in its name
    versions = {normalize_name(str(name)): public_version(str(version)) for name, version in installed.items()}
    try:
        wheels = [(file["kind"], *wheel_release(file["file"])) for file in files if file["kind"] in WHEEL_KINDS]
    except ValueError:
        return False
    return all(
        name in TOOLS if kind == "tool" else kind == "build" or versions.get(name) == public_version(version)
        for kind, name, version in wheels
    )


def safe_lock(lock: Mapping[str, Any], installed: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a lock with the fields needed for an installation, or None if a value is not one that the role writes.

    A node reported it, and its names become paths and requirements on other nodes.

    Args:
        lock: of one layer.
        installed: version of each package that the run had, by name.
    """
    files, packages = to_mappings(lock.get("files")), to_mappings(lock.get("packages"))
    editable, trees = to_list(lock.get("editable")), to_list(lock.get("trees"))
    texts = [(LAYER, lock.get("layer")), (VERSION, lock.get("python")), (DIGEST, lock.get("key"))]
    texts += [pair for file in files for pair in ((FILE_NAME, file.get("file")), (DIGEST, file.get("sha256")))]
    texts += [(LAYER, file.get("kind")) for file in files]
    texts += [(VERSION, value) for package in packages for value in (package.get("name"), package.get("version"))]
    texts += [*((TREE, path) for path in editable), *((VERSION, name) for name in trees)]
    if not all(isinstance(text, str) and pattern.fullmatch(text) for pattern, text in texts):
        return None
    if not are_wheels_installed(files, installed):
        return None
    safe = {"layer": lock["layer"], "order": to_int(lock.get("order")), "key": lock["key"], "python": lock["python"]}
    entries = [{name: file[name] for name in ("kind", "file", "sha256")} for file in files]
    names = [{name: package[name] for name in ("name", "version")} for package in packages]
    project = {name: clean_text(lock.get(name), 200) for name in ("project", "project_name")}
    return {**safe, **project, "files": entries, "packages": names, "editable": editable, "trees": trees}


def layers_to_restore(snapshot: Mapping[str, Any], home: str) -> list[dict[str, Any]]:
    """Return the layers of the recorded environment, in order, in the form that the python_env role takes."""
    environment = to_mapping(snapshot.get("environment"))
    manager = str(environment.get("manager") or "venv")
    installed = to_mapping(environment.get("packages"))
    layers = []
    for lock in filter(None, (safe_lock(lock, installed) for lock in to_mappings(environment.get("locks")))):
        version = lock["python"]
        layers.append(
            {
                "layer": lock["layer"],
                "order": lock["order"],
                "directory": home,
                "manager": manager,
                # venv offers only the system's interpreters, which are selected by minor version
                "python": version if manager == "uv" else ".".join(version.split(".")[:2]),
                "requirements": [],
                "lock": lock,
            }
        )
    return layers


def describe_differences(run_id: str, differences: Sequence[Difference], notes: Sequence[str] = ()) -> str:
    """Render the differences from the run that is repeated, one line each."""
    rows = [
        f"  {row.part:<11}{clean_text(row.name, 200)}: {clean_text(row.before, 200)} -> {clean_text(row.after, 300)}"
        for row in differences[:MAX_ROWS]
    ]
    more = [f"  and {len(differences) - MAX_ROWS} more"] if len(differences) > MAX_ROWS else []
    return "\n".join([f"differences from run {run_id}:", *rows, *more, *(f"  {note}" for note in notes)])


def seed_note(snapshot: Mapping[str, Any]) -> str:
    """Describe a run's seeds."""
    seeds = to_mapping(snapshot.get("seeds"))
    if seeds:
        return f"seeds: {format_list(f'{name} {value}' for name, value in seeds.items())}"
    return "no seed in the arguments or variables: the same inputs may give a different result"

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The snapshot of a run: everything known that affects its result, for repeating the run or comparing it with others.

Pure functions. Reports of nodes are untrusted: they are sanitized here.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from ansible.module_utils.parsing.convert_bool import boolean

from ansible_collections.muster.training.plugins.plugin_utils._checks.job_request import plain_environment
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_text,
    to_int,
    to_list,
    to_mapping,
    to_mappings,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.plain_settings import (
    is_secret_name,
    strip_secrets,
)

FILE = "snapshot.json"  # file in the record
PATCH_FILE = "code.patch"  # next to it
VERSION = 1
MAX_PACKAGES = 20_000
ROW_WIDTH = 60  # number of characters of a value in a difference
# Variables that contain no secrets and make a run deterministic, in addition to those that the checks read.
REPEATABLE_VARIABLES = re.compile(
    r"PYTHONHASHSEED|CUBLAS_WORKSPACE_CONFIG|PL_GLOBAL_SEED|(?:OMP|MKL|OPENBLAS)_NUM_THREADS|NCCL_\w+|GLOO_\w+|"
    r"TORCH_NCCL_\w+|TORCHINDUCTOR_\w+|NVIDIA_TF32_OVERRIDE|TOKENIZERS_PARALLELISM|PYTORCH_\w*ALLOC_CONF"
)
SEED_VARIABLE = re.compile(r"(?:[A-Z]+_)*SEED")
SEED = re.compile(r"[+-]?[0-9]{1,20}")  # anything else may be a wallet's seed phrase
SEED_OPTION = re.compile(r"--?(?:[\w.-]*[-_.])?seed", re.IGNORECASE)
CODE, SETTING, PACKAGE, NODE, DATA, CHECKPOINT = "code", "setting", "package", "node", "data", "checkpoint"


class NodeSnapshot(TypedDict):
    """A node of the run. Nodes are in rank order."""

    name: str
    slots: int
    gpu: str
    gpus: int
    driver: str
    python: str
    image: str  # ID of the container image; "" if there is none
    glibc: str
    packages: str  # digest of its packages and of the files from which they were installed


class EnvironmentSnapshot(TypedDict):
    """The Python environment of a run, on its first node."""

    home: str  # directory that contains the environment and its locks; "" if the role python_env did not create it
    manager: str
    packages: dict[str, str]  # versions by normalized name
    locks: list[dict[str, Any]]


class CodeSnapshot(TypedDict):
    """The code of a run."""

    source: str  # directory on the controller
    directory: str  # path on the nodes
    exclude: list[str]
    commit: str
    digest: str  # digest of all files; "" if they were not recorded
    patch: str  # PATCH_FILE, or "" if the record does not contain one
    without_patch: str  # reason why the record does not contain a patch


class Snapshot(TypedDict):
    """The content of snapshot.json."""

    version: int
    like: str  # the run that this one repeats
    settings: dict[str, Any]  # role variables
    variables: list[str]  # names of the job's environment variables
    values: dict[str, str]  # values of the variables that cannot contain a secret
    seeds: dict[str, str]
    world_size: int
    nodes: list[NodeSnapshot]
    environment: EnvironmentSnapshot
    code: CodeSnapshot
    inputs: dict[str, dict[str, Any]]
    repositories: dict[str, str]  # commit by name
    checkpoint: dict[str, Any]  # the checkpoint that the run resumes from; {} if it starts from scratch


class Difference(NamedTuple):
    """One difference between two runs."""

    part: str
    name: str
    before: str
    after: str
    is_material: bool = True  # whether it may affect the result


class JobInputs(NamedTuple):
    """The controller's data about a job that is about to start."""

    settings: Mapping[str, Any]  # role variables by name
    environment: Mapping[str, Any]  # variables whose values may be secret
    code: CodeSnapshot
    repositories: Sequence[str] = ()  # names of the models and datasets that the role hugging_face downloads
    like: str = ""  # the run that it repeats


NO_CODE: CodeSnapshot = {
    "source": "",
    "directory": "",
    "exclude": [],
    "commit": "",
    "digest": "",
    "patch": "",
    "without_patch": "the run was launched without code_source or code in a job file",
}


def is_repeatable(name: str, value: Any) -> bool:
    """Return whether a variable's value may be kept."""
    if not isinstance(value, (str, int, float)) or is_secret_name(name):
        return False
    if SEED_VARIABLE.fullmatch(name):
        return bool(SEED.fullmatch(str(value)))
    return bool(REPEATABLE_VARIABLES.fullmatch(name))


def repeatable_values(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of a job whose values may be kept because they cannot contain a secret."""
    values = {name: str(value) for name, value in environment.items() if is_repeatable(name, value)}
    return {**values, **plain_environment(environment)}


def find_seeds(arguments: Sequence[str], values: Mapping[str, str]) -> dict[str, str]:
    """Return the seeds in a job's arguments and variables."""
    seeds = {name: value for name, value in values.items() if "SEED" in name}
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        value = value if equals else next(iter(arguments[index + 1 : index + 2]), "")
        if SEED_OPTION.fullmatch(name) and SEED.fullmatch(value):
            seeds[name] = value
    return seeds


def read_environment(facts: Mapping[str, Any]) -> EnvironmentSnapshot:
    """Return the environment from a node's facts."""
    environment = to_mapping(to_mapping(facts.get("provenance")).get("environment"))
    packages = list(to_mapping(environment.get("packages")).items())[:MAX_PACKAGES]
    return {
        "home": clean_text(environment.get("home"), 500),
        "manager": clean_text(environment.get("manager"), 20),
        "packages": {clean_text(name, 100): clean_text(version, 100) for name, version in packages},
        "locks": [dict(lock) for lock in to_mappings(environment.get("locks"), 8)],
    }


def environment_digest(environment: Mapping[str, Any]) -> str:
    """Return a hash of the packages, and of the wheels that the python_env role installed; "" if there are none.

    The archive of an interpreter does not count, since each first node packs its own.
    """
    packages = dict(environment.get("packages") or {})
    if not packages:
        return ""
    wheels = sorted(
        [str(file.get("file")), str(file.get("sha256"))]
        for lock in to_mappings(environment.get("locks"))
        for file in to_mappings(lock.get("files"))
        if file.get("kind") in ("wheel", "conda-package")
    )
    return hashlib.sha256(json.dumps([sorted(packages.items()), wheels]).encode()).hexdigest()[:16]


def packages_digest(environment: Mapping[str, Any]) -> str:
    """Return a hash of the packages and their versions; "" if there are none."""
    packages = dict(environment.get("packages") or {})
    return hashlib.sha256(json.dumps(sorted(packages.items())).encode()).hexdigest()[:16] if packages else ""


def is_same_environment(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two nodes have the same packages, from the same wheels as far as both of their locks list them.

    A node may list fewer than another: only the node that solved the requirements knows all files.
    """
    wheels, others = wheel_hashes(first), wheel_hashes(second)
    return packages_digest(first) == packages_digest(second) and all(
        wheels[name] == others[name] for name in wheels.keys() & others.keys()
    )


def node_snapshot(planned: Mapping[str, Any], facts: Mapping[str, Any]) -> NodeSnapshot:
    """Return the properties of a node that affect a run's result. planned: its entry in plan.json."""
    hardware, provenance = to_mapping(planned.get("hardware")), to_mapping(facts.get("provenance"))
    environment = to_mapping(provenance.get("environment"))
    return {
        "name": clean_text(planned.get("name"), 100),
        "slots": to_int(planned.get("slots")),
        "gpu": clean_text(hardware.get("gpu"), 100),
        "gpus": to_int(hardware.get("gpus")),
        "driver": clean_text(hardware.get("driver"), 50),
        "python": clean_text(environment.get("python"), 50),
        "image": clean_text(to_mapping(facts.get("image")).get("id"), 80),
        "glibc": clean_text(facts.get("glibc"), 20),
        "packages": packages_digest(read_environment(facts)),
    }


def merge_inputs(facts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the inputs of all nodes, with a single digest for nodes that have the same content."""
    merged: dict[str, dict[str, Any]] = {}
    nodes = [to_mapping(to_mapping(node.get("provenance")).get("inputs")) for node in facts]
    for option in dict.fromkeys(option for inputs in nodes for option in inputs):
        entries = [to_mapping(inputs[option]) for inputs in nodes if option in inputs]
        digests = [clean_text(entry.get("digest"), 64) for entry in entries]
        same = len(set(digests)) == 1 and len(entries) == len(nodes)
        merged[clean_text(option, 100)] = {
            "path": clean_text(entries[0].get("path"), 500),
            "files": to_int(entries[0].get("files")),
            "bytes": to_int(entries[0].get("bytes"), 2**62),
            "digest": digests[0]
            if same
            else ""
            if "" in digests
            else hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:16],
        }
    return merged


def find_repositories(facts: Mapping[str, Any], arguments: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the commits of the models and datasets that a job uses: those named in its arguments, or in `names`."""
    cached = to_mapping(to_mapping(facts.get("provenance")).get("repositories"))
    values = {value for argument in arguments for value in (argument, argument.partition("=")[2])}
    return {
        clean_text(name, 200): clean_text(commit, 64)
        for name, commit in cached.items()
        if name in values or name in names
    }


def initial_checkpoint(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the path, step and size of the checkpoint that a run resumes from, or {} if there is none."""
    path = clean_text(plan.get("checkpoint"), 500)
    if not path:
        return {}
    listing = to_mappings(to_mapping(facts.get("checkpoints")).get("listing"))
    entry = next((entry for entry in listing if entry.get("path") == path), {})
    return {"path": path, "step": to_int(entry.get("step")), "size": to_int(entry.get("size"), 2**62)}


def make_snapshot(plan: Mapping[str, Any], facts: Mapping[str, Mapping[str, Any]], inputs: JobInputs) -> Snapshot:
    """Return the snapshot of a run that is about to start, from rank 0's plan.json and each node's facts."""
    planned = to_mappings(plan.get("nodes"))
    node_facts = [to_mapping(facts.get(str(node.get("name")))) for node in planned]
    arguments = [str(argument) for argument in to_list(plan.get("arguments"))]
    values = repeatable_values(inputs.environment)
    first = node_facts[0] if node_facts else {}
    return {
        "version": VERSION,
        "like": inputs.like,
        "settings": strip_secrets(json.loads(json.dumps(dict(inputs.settings), default=str))),
        "variables": sorted(map(str, inputs.environment)),
        "values": values,
        "seeds": find_seeds(arguments, values),
        "world_size": to_int(plan.get("world_size")),
        "nodes": [node_snapshot(node, entry) for node, entry in zip(planned, node_facts, strict=True)],
        "environment": read_environment(first),
        "code": inputs.code,
        "inputs": merge_inputs(node_facts),
        "repositories": find_repositories(first, arguments, inputs.repositories),
        "checkpoint": initial_checkpoint(plan, first),
    }


# --- comparison ------------------------------------------------------------------------------------------------------


def shorten(value: Any) -> str:
    """Return a value on one line for users."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return clean_text(text, ROW_WIDTH) or "-"


def mapping_differences(
    part: str, before: Mapping[str, Any], after: Mapping[str, Any], missing: Any = ""
) -> list[Difference]:
    """Return the differences between two mappings, in the order of their keys."""
    names = sorted({*before, *after}, key=str)
    pairs = [(name, before.get(name, missing), after.get(name, missing)) for name in names]
    return [Difference(part, str(name), shorten(old), shorten(new)) for name, old, new in pairs if old != new]


def setting_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the settings that differ in meaning: "2", as typed after -n, is 2, as in a job file."""
    same = {name for name in before.keys() & after.keys() if is_same_setting(name, before[name], after[name])}
    settings = [{name: value for name, value in values.items() if name not in same} for values in (before, after)]
    return mapping_differences(SETTING, *settings)


def is_same_setting(name: str, before: Any, after: Any) -> bool:
    """Return whether two values of a setting mean the same, such as true and "yes", or [0, 1] and "0,1"."""
    if isinstance(before, bool) or isinstance(after, bool):
        try:
            return boolean(before) == boolean(after)
        except TypeError:  # not a boolean
            return False
    if isinstance(before, list) != isinstance(after, list):
        return as_texts(split_setting(name, before)) == as_texts(split_setting(name, after))
    return bool(before == after or as_texts(before) == as_texts(after))


def split_setting(name: str, value: Any) -> Any:
    """Return the list that the text of a list-valued setting means, and other values unchanged."""
    text = str(value) if isinstance(value, (str, int)) else ""
    if not text:
        return value or []
    try:
        return shlex.split(text) if name.endswith("_args") else [item.strip() for item in text.split(",")]
    except ValueError:  # an unclosed quote
        return value


def as_texts(value: Any) -> Any:
    """Return a value with all numbers in it as text."""
    if isinstance(value, list):
        return [as_texts(item) for item in value]
    if isinstance(value, Mapping):
        return {name: as_texts(item) for name, item in value.items()}
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def node_differences(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Return the differences between nodes, in rank order. A changed name alone is not significant."""
    if len(before) != len(after):
        return [Difference(NODE, "number of nodes", str(len(before)), str(len(after)))]
    differences = []
    for rank, (old, new) in enumerate(zip(before, after, strict=True)):
        for field in NodeSnapshot.__annotations__:
            if field != "packages" and old.get(field) != new.get(field):
                values = shorten(old.get(field)), shorten(new.get(field))
                differences.append(Difference(NODE, f"node {rank}: {field}", *values, field != "name"))
        if old.get("packages") and not new.get("packages"):
            differences.append(Difference(PACKAGE, f"node {rank}: environment", str(old["packages"]), "missing"))
    return differences


def package_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the packages that differ: in version, or in the file that they were installed from."""
    old, new = to_mapping(before.get("packages")), to_mapping(after.get("packages"))
    if not old or not new:
        return []
    differences = mapping_differences(PACKAGE, old, new)
    if not differences and environment_digest(before) != environment_digest(after):
        old_files, new_files = wheel_hashes(before), wheel_hashes(after)
        differences = mapping_differences(PACKAGE, old_files, new_files) if old_files and new_files else []
    return differences


def wheel_hashes(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the beginning of each wheel's SHA-256 in an environment's locks, by wheel name."""
    files = [file for lock in to_mappings(environment.get("locks")) for file in to_mappings(lock.get("files"))]
    return {str(file.get("file")): str(file.get("sha256"))[:12] for file in files if file.get("kind") == "wheel"}


def uneven_environments(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the nodes whose packages differ from the first node's; [] if none changed between the runs."""
    nodes = to_mappings(after.get("nodes"))
    digests = [[node.get("packages") for node in to_mappings(snapshot.get("nodes"))] for snapshot in (before, after)]
    if digests[0] == digests[1]:
        return []
    first = nodes[0].get("packages") if nodes else ""
    return [
        Difference(PACKAGE, f"{clean_text(node.get('name'), 100)}: environment", str(first), str(node.get("packages")))
        for node in nodes[1:]
        if first and node.get("packages") and node.get("packages") != first
    ]


def input_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the inputs with different content; those too large to be identified are not compared."""
    differences = []
    for option in sorted({*before, *after}):
        old, new = to_mapping(before.get(option)), to_mapping(after.get(option))
        if (old.get("digest"), new.get("digest")) == ("", "") and old and new:
            continue
        if old.get("digest") != new.get("digest") or old.get("path") != new.get("path"):
            differences.append(Difference(DATA, option, describe_input(old), describe_input(new)))
    return differences


def describe_input(entry: Mapping[str, Any]) -> str:
    """Describe an input's path and content for users."""
    if not entry:
        return "missing"
    digest = clean_text(entry.get("digest"), 12) or "not identified"
    return f"{clean_text(entry.get('path'), 40)} ({to_int(entry.get('files'))} files, {digest})"


def compare_snapshots(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return all differences between the snapshots of two runs, except for those in the code files."""
    # the record from an older release contains secrets in them
    settings = [strip_secrets(to_mapping(snapshot.get("settings"))) for snapshot in (before, after)]
    return [
        *setting_differences(*settings),
        *mapping_differences(SETTING, to_mapping(before.get("values")), to_mapping(after.get("values")), "not set"),
        *(
            Difference(SETTING, name, "set" if name in to_list(before.get("variables")) else "not set", "changed")
            for name in sorted({*to_list(before.get("variables"))} ^ {*to_list(after.get("variables"))})
            if name not in to_mapping(before.get("values")) and name not in to_mapping(after.get("values"))
        ),
        *mapping_differences(
            SETTING, {"world size": before.get("world_size")}, {"world size": after.get("world_size")}
        ),
        *package_differences(to_mapping(before.get("environment")), to_mapping(after.get("environment"))),
        *node_differences(to_mappings(before.get("nodes")), to_mappings(after.get("nodes"))),
        *uneven_environments(before, after),
        *input_differences(to_mapping(before.get("inputs")), to_mapping(after.get("inputs"))),
        *mapping_differences(
            DATA, to_mapping(before.get("repositories")), to_mapping(after.get("repositories")), "missing"
        ),
        *mapping_differences(
            CHECKPOINT, to_mapping(before.get("checkpoint")), to_mapping(after.get("checkpoint")), "none"
        ),
    ]

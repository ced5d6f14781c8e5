# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a Slurm cluster: derive packages, files and services from the nodes, their states and the role's options."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ansible_collections.muster.training.plugins.plugin_utils._slurm import configuration, gpu_resources, health, logins
from ansible_collections.muster.training.plugins.plugin_utils._slurm.cluster import Cluster, SlurmNode, SlurmOptions
from ansible_collections.muster.training.plugins.plugin_utils._slurm.machine_facts import (
    machine_errors,
    validate_machine,
)

NODE_PACKAGES = ["slurmd", "slurm-client", "munge", "dbus"]
CONTROLLER_PACKAGES = ["slurmctld"]
ACCOUNTING_PACKAGES = ["slurmdbd", "mariadb-server"]
NODE_SERVICES = ["munge", "slurmd"]
CONTROLLER_SERVICES = ["slurmctld"]
ACCOUNTING_SERVICES = ["mariadb", "slurmdbd"]
CGROUP_V2_SINCE = (22, 5)
"""The first release of Slurm with a plugin for cgroup v2."""


class SlurmPlan(TypedDict):
    """The planned state of each node of the cluster, by its inventory name."""

    controller: str
    names: dict[str, str]
    directories: dict[str, list[dict[str, Any]]]
    files: dict[str, list[dict[str, Any]]]
    packages: dict[str, list[str]]
    services: dict[str, list[str]]
    pam: list[str]
    verification: str
    errors: list[str]
    notices: list[str]
    incomplete: list[str]


def slurm_name(name: str) -> str:
    """Return a node's name in Slurm, some of whose lists accept neither dots nor capital letters."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def release_of(version: str) -> tuple[int, ...]:
    """Return the release series of a Slurm version, such as (22, 5) for "22.05.8"; () if unknown."""
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])


def packages_of(name: str, controller: str, options: SlurmOptions) -> list[str]:
    """Return the packages for a node."""
    node_packages = NODE_PACKAGES + ([logins.PACKAGE] if options.adopt_logins else [])
    if name != controller:
        return node_packages
    return node_packages + CONTROLLER_PACKAGES + (ACCOUNTING_PACKAGES if options.accounting else [])


def services_of(name: str, controller: str, options: SlurmOptions) -> list[str]:
    """Return the services on a node, in the order in which they start."""
    if name != controller:
        return list(NODE_SERVICES)
    return ["munge", *(ACCOUNTING_SERVICES if options.accounting else []), *CONTROLLER_SERVICES, "slurmd"]


def version_of(state: Mapping[str, Any]) -> str:
    """Return the installed Slurm version, otherwise the version that would be installed."""
    version: Mapping[str, str] = state["version"]
    return version["installed"] or version["available"]


def find_errors(cluster: Cluster, states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the reasons why the nodes cannot form a cluster, as messages."""
    errors = []
    for name, state in states.items():
        if not state["debian"]:
            errors.append(
                f"{name}: the system is neither Debian nor Ubuntu, which the role slurm requires. "
                "Use another image, or turn the role off: -e slurm_enabled=false"
            )
        elif not state["systemd"]:
            errors.append(f"{name}: systemd is missing, but Slurm needs it. Turn the role off: -e slurm_enabled=false")
    return [
        *errors,
        *logins.adopt_errors(cluster),
        *machine_errors(states),
        *name_errors(cluster.nodes),
        *user_errors(states),
        *version_errors(states),
    ]


def name_errors(nodes: Sequence[SlurmNode]) -> list[str]:
    """Return an error for each Slurm name that is empty or that several nodes would share."""
    counts = Counter(node.name for node in nodes)
    return [
        f"{', '.join(node.inventory_name for node in nodes if node.name == name)}: all of them would be named {name!r} "
        "in Slurm, which allows only lowercase letters, digits and hyphens. Rename the hosts in the inventory"
        for name, count in counts.items()
        if count > 1 or not name
    ]


def user_errors(states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return an error if the login user is not the same on all nodes: Slurm starts jobs by numeric user ID."""
    users = {
        name: (state["user"]["name"], state["user"]["uid"], state["user"]["gid"]) for name, state in states.items()
    }
    if len(set(users.values())) == 1:
        return []
    listed = "; ".join(f"{name} has {user} with uid {uid}, gid {gid}" for name, (user, uid, gid) in users.items())
    return [
        f"the login user has different IDs on the nodes: {listed}. Slurm requires the same uid and gid everywhere. "
        "Use images with the same user, or log in as root while USER has no processes, and change the IDs: "
        "groupmod -g GID GROUP, usermod -u UID USER"
    ]


def version_errors(states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return an error if the nodes have, or would get, different Slurm releases."""
    versions = {name: version_of(state) for name, state in states.items() if version_of(state)}
    if len({release_of(version) for version in versions.values()}) <= 1:
        return []
    listed = "; ".join(f"{name} has {version}" for name, version in versions.items())
    return [f"the Slurm versions differ: {listed}. Use images with the same release of Debian or Ubuntu"]


def find_notices(cluster: Cluster, states: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return notices about the configuration, as messages for the user."""
    if cluster.cgroups:
        return []
    nodes = [name for name, state in states.items() if state["cgroups"] != "v2"]
    cause = (
        f"{', '.join(nodes)}: the machine mounts cgroup v1"
        if nodes
        else (f"Slurm {cluster.version} does not support cgroup v2")
    )
    return [
        f"{cause}, so Slurm neither limits a job's memory and devices, nor ends processes that left their session. "
        "muster's supervisor still ends all processes of its runs"
    ]


def build_cluster(
    nodes: Sequence[Mapping[str, Any]], states: Mapping[str, Mapping[str, Any]], options: SlurmOptions
) -> Cluster:
    """Return the cluster that the nodes form, in rank order."""
    machines = {name: validate_machine(state) for name, state in states.items()}
    slurm_nodes = [
        SlurmNode(
            inventory_name=node["name"],
            name=slurm_name(node["name"]),
            address=node["address"],
            hostname=machines[node["name"]]["hostname"],
            cpus=machines[node["name"]]["cpus"],
            memory=machines[node["name"]]["memory"],
            gpus=gpu_resources.read_gpus(machines[node["name"]]["gpus"]),
        )
        for node in nodes
    ]
    known_versions = [version for state in states.values() for version in [version_of(state)] if version]
    version = min(known_versions, key=release_of, default="")
    cgroups = all(state["cgroups"] == "v2" for state in states.values())
    supported = not version or release_of(version) >= CGROUP_V2_SINCE
    return Cluster(
        nodes=slurm_nodes, version=version, release=release_of(version), options=options, cgroups=cgroups and supported
    )


def directories_of(files: Iterable[Mapping[str, Any]], options: SlurmOptions) -> list[dict[str, Any]]:
    """Return the directories for files, which only root may change, parents first."""
    program = health.health_directories(options)
    paths = dict.fromkeys(file["path"].rpartition("/")[0] for file in files)
    known = {directory["path"] for directory in program}
    return program + [{"path": path, "mode": "0755", "only_root": True} for path in paths if path not in known]


def proof_of(files: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """Return a hash of everything that a verification depends on."""
    lines = [f"{name} {file['path']} {file['content']}" for name, entries in files.items() for file in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def plan_cluster(
    nodes: Sequence[Mapping[str, Any]], states: Mapping[str, Mapping[str, Any]], options: SlurmOptions
) -> SlurmPlan:
    """Return the plan of the cluster.

    Args:
        nodes: name and address of each node, in rank order; the first one becomes the controller.
        states: the part `slurm` of muster.training.node_state, by the name of the node.
    """
    cluster = build_cluster(nodes, states, options)
    controller = cluster.controller.inventory_name
    files = {node.inventory_name: configuration.files_of(cluster, node) for node in cluster.nodes}
    proof = proof_of(files)
    services = {name: services_of(name, controller, options) for name in files}
    program, pam = health.program_files(options), logins.pam_lines(cluster, states)
    expected = (states[controller]["munge_key"], proof, "".join(pam[-1:]))
    return {
        "controller": controller,
        "names": {node.inventory_name: node.name for node in cluster.nodes},
        "directories": {name: directories_of(entries, options) for name, entries in files.items()},
        "files": files,
        "packages": {name: packages_of(name, controller, options) for name in files},
        "services": services,
        "pam": pam,
        "verification": proof,
        "errors": find_errors(cluster, states),
        "notices": find_notices(cluster, states),
        "incomplete": [
            name
            for name, state in states.items()
            if not is_complete(state, files[name] + program, services[name], expected)
        ],
    }


def is_complete(
    state: Mapping[str, Any],
    files: Iterable[Mapping[str, Any]],
    services: Iterable[str],
    expected: tuple[str, str, str],
) -> bool:
    """Return whether a node is in the planned state: its files, key, services (now and at boot) and verification.

    expected: key, verification, and the last line of the rules for logins.
    """
    units = state["units"]
    return (
        (state["munge_key"], state["verification"], state["pam"]) == expected
        and all(units.get(name) == {"active": "active", "enabled": "enabled"} for name in services)
        and all(is_current(file, state["files"].get(file["path"], {})) for file in files)
    )


def is_current(file: Mapping[str, Any], present: Mapping[str, str]) -> bool:
    """Return whether a file on a node has the planned content, owner and permissions."""
    content = hashlib.sha256(file["content"].encode()).hexdigest()
    desired = (file.get("user", "root"), file["mode"], content)
    return (present.get("user"), present.get("mode"), present.get("sha256")) == desired

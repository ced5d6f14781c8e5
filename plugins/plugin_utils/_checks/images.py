# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of the image a job runs in. Pure. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case, gibibytes, listed, odd_ones
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning

SHOWN = 12  # hex digits of a digest, as docker shows it
MOVE = (
    "move Docker's data to a larger disk (ansible-playbook site.yml --tags docker_data_root "
    "-e docker_data_root_path=/LARGE_DISK/docker), or remove images with docker image prune"
)


def images(case: Case) -> dict[str, Any]:
    """Each node's facts about the image, by node name."""
    return {node.name: read for node, read in case.part("image")}


def bring(case: Case) -> str:
    """The command that distributes the image to all nodes."""
    engine = case.job.container_engine
    more = "" if engine == "docker" else f" -e container_image_engine={engine}"
    return f"ansible-playbook site.yml --tags container_image -e container_image_name={case.job.image}{more}"


def check_engine(case: Case) -> list[Finding]:
    """The run's user must be able to use the engine."""
    engine, read = case.job.container_engine, images(case)
    silent = {name: one["error"] for name, one in read.items() if one["error"]}
    if not silent:
        return []
    user = case.facts[next(iter(silent))].get("user", "")
    remedy = (
        "start it (systemctl start docker); if the user is not allowed to use it, ansible-playbook site.yml --tags "
        f'docker_engine -e docker_engine_enabled=true -e \'{{"docker_engine_users": ["{user}"]}}\', and log in again'
        if engine == "docker"
        else f"check the output of `{engine} info` as {user} on the node"
    )
    return [
        error(
            "image-unread",
            silent,
            f"{user} cannot ask {engine} whether it has {case.job.image}: " + listed(dict.fromkeys(silent.values()), 2),
            f"{engine} running, and the run's user allowed to use it",
            remedy,
        )
    ]


def check_missing(case: Case) -> list[Finding]:
    """The image must be present before the launch, which does not pull it; a missing one must fit on the disk."""
    read = {name: one for name, one in images(case).items() if not one["error"]}
    missing = [name for name, one in read.items() if not one["id"]]
    if not missing:
        return []
    findings = [
        error(
            "image-missing",
            missing,
            f"{case.job.container_engine} does not have the image {case.job.image}",
            "the image on each node before the launch, which does not pull it because launchers would time out",
            f"{bring(case)}; or correct launch_image",
        )
    ]
    size = max((one["size"] or 0 for one in read.values()), default=0)
    short = {name: read[name] for name in missing if read[name]["free"] is not None and read[name]["free"] < size}
    if short:
        one = next(iter(short.values()))
        findings.append(
            error(
                "image-no-room",
                short,
                f"{gibibytes(one['free'])} free in {one['root']}, where {case.job.container_engine} keeps images",
                f"space for {case.job.image}, which takes {gibibytes(size)} on nodes that have it",
                MOVE if case.job.container_engine == "docker" else "podman image prune, or another graphroot",
            )
        )
    return findings


def check_skew(case: Case) -> list[Finding]:
    """All nodes must have the same image under its name."""
    usual, odd = odd_ones({name: one["id"] for name, one in images(case).items() if one["id"]})
    if not odd:
        return []
    told = listed(f"{name} has {str(identity)[:SHOWN]}" for name, identity in odd.items())
    return [
        error(
            "image-skew",
            odd,
            f"{case.job.image} is a different image there: {told}; the others have {str(usual)[:SHOWN]}",
            "an image with the same digest on all nodes",
            bring(case),
        )
    ]


def check_toolkit(case: Case) -> list[Finding]:
    """If there are GPUs, the engine must be able to pass them to a container."""
    engine = case.job.container_engine
    without = [name for name, one in images(case).items() if not one["toolkit"] and case.facts[name].get("gpu_count")]
    if not without:
        return []
    remedy = (
        "ansible-playbook site.yml --tags docker_engine -e docker_engine_enabled=true"
        if engine == "docker"
        else "install nvidia-container-toolkit, then sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    )
    return [
        error(
            "image-gpu-toolkit",
            without,
            f"there are GPUs, but {engine} has no NVIDIA toolkit to pass them to a container",
            "nvidia-container-toolkit" + ("" if engine == "docker" else " and its description of the GPUs in /etc/cdi"),
            remedy,
        )
    ]


def limits_memory(options: Sequence[str]) -> bool:
    """Whether these options of the engine's run command limit a container's memory."""
    return any(re.match(r"--memory(=|$)|-m", option) for option in options)


def check_memory_limit(case: Case) -> list[Finding]:
    """The engine must be able to enforce a memory limit; otherwise it silently starts the container without one."""
    engine = case.job.container_engine
    without = [name for name, one in images(case).items() if one.get("memory_limit") is False]
    if not without or not limits_memory(case.job.container_options):
        return []
    user = case.facts[without[0]].get("user", "")
    of_root = engine == "docker" or user == "root"
    remedy = (
        "boot the node's Linux with the memory controller (cgroup_enable=memory)"
        if of_root
        else "boot with version 2 of cgroups where `stat -fc %T /sys/fs/cgroup` does not print cgroup2fs "
        "(systemd.unified_cgroup_hierarchy=1); then on each of these nodes `sudo apt-get install dbus-user-session && "
        f"sudo loginctl enable-linger {user} && sudo systemctl restart user@$(id --user {user})`, with no job "
        f"running, until `podman info` as {user} tells cgroupManager: systemd and memory among cgroupControllers"
    )
    return [
        warning(
            "image-memory-limit",
            without,
            f"container_options limit the container's memory, but {engine} there cannot enforce that for {user}: the "
            "job would run without a limit",
            f"{engine} with the cgroup memory controller"
            + ("" if of_root else ", which rootless podman gets only from the user's own systemd"),
            f"{remedy}; or remove the limit and rely on the machine's own",
        )
    ]


def check_images(case: Case) -> list[Finding]:
    """All checks of this file. program-missing reports a missing engine."""
    if not case.job.image:
        return []
    return [
        *check_engine(case),
        *check_missing(case),
        *check_skew(case),
        *check_toolkit(case),
        *check_memory_limit(case),
    ]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Checks of a job's container image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import (
    CheckContext,
    find_outliers,
    format_gib,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error, warning
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_name
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

DIGEST_DIGITS = 12  # number of hex digits of a digest, as docker shows it
MOVE_DATA_REMEDY = (
    "move Docker's data to a larger disk (ansible-playbook site.yml --tags docker_data_root "
    "-e docker_data_root_path=/LARGE_DISK/docker), or remove images with docker image prune"
)


def image_facts(context: CheckContext) -> dict[str, Any]:
    """Return each node's facts about the image, by node name."""
    return {node.name: image for node, image in context.nodes_with("image")}


def distribute_command(context: CheckContext) -> str:
    """Return the command that distributes the image to all nodes."""
    engine = context.job.container_engine
    engine_option = "" if engine == "docker" else f" -e container_image_engine={engine}"
    return (
        f"ansible-playbook site.yml --tags container_image -e container_image_name={context.job.image}{engine_option}"
    )


def check_engine(context: CheckContext) -> list[Finding]:
    """Check that the user of the run is allowed to use the engine."""
    engine, images = context.job.container_engine, image_facts(context)
    errors = {name: image["error"] for name, image in images.items() if image["error"]}
    if not errors:
        return []
    user = context.facts[next(iter(errors))].get("user", "")
    remedy = (
        (
            "start it on the node (sudo systemctl start docker); if the user is not allowed to use it, run "
            "ansible-playbook site.yml --tags docker_engine -e docker_engine_enabled=true -e "
            f'\'{{"docker_engine_users": ["{user}"]}}\', and log in again'
        )
        if engine == "docker"
        else f"check the output of `{engine} info` as {user} on the node"
    )
    return [
        error(
            "image-unread",
            errors,
            problem=f"{user} cannot query {engine} for {context.job.image}: "
            + format_list(dict.fromkeys(errors.values()), 2),
            requirement=f"{engine} running, and the run's user allowed to use it",
            remedy=remedy,
        )
    ]


def check_missing(context: CheckContext) -> list[Finding]:
    """Check that the image exists, because a launch does not pull it, and that a missing image fits on the disk."""
    images = {name: image for name, image in image_facts(context).items() if not image["error"]}
    missing = [name for name, image in images.items() if not image["id"]]
    if not missing:
        return []
    findings = [
        error(
            "image-missing",
            missing,
            problem=f"{context.job.container_engine} does not have the image {context.job.image}",
            requirement="the image on each node before the launch, which does not pull it because launchers would time "
            "out",
            remedy=f"{distribute_command(context)}; or correct launch_image",
        )
    ]
    size = max((image["size"] or 0 for image in images.values()), default=0)
    too_small = {
        name: images[name] for name in missing if images[name]["free"] is not None and images[name]["free"] < size
    }
    if too_small:
        image = next(iter(too_small.values()))
        findings.append(
            error(
                "image-no-room",
                too_small,
                problem=f"{format_gib(image['free'])} free in {image['root']}, where {context.job.container_engine} "
                "keeps images",
                requirement=(
                    f"enough space for {context.job.image}, which takes up {format_gib(size)} on nodes that have it"
                ),
                remedy=MOVE_DATA_REMEDY
                if context.job.container_engine == "docker"
                else "podman image prune, or another graphroot",
            )
        )
    return findings


def check_skew(context: CheckContext) -> list[Finding]:
    """Check that the name refers to the same image on all nodes."""
    usual, odd = find_outliers({name: image["id"] for name, image in image_facts(context).items() if image["id"]})
    if not odd:
        return []
    differences = format_list(f"{name} has {str(identity)[:DIGEST_DIGITS]}" for name, identity in odd.items())
    return [
        error(
            "image-skew",
            odd,
            problem=f"{context.job.image} is not the same image on all nodes: {differences}; the others have "
            f"{str(usual)[:DIGEST_DIGITS]}",
            requirement="an image with the same digest on all nodes",
            remedy=distribute_command(context),
        )
    ]


TOOLKITS = ("nvidia",)  # vendors whose GPUs require a toolkit in containers


def check_toolkit(context: CheckContext) -> list[Finding]:
    """Check that the engine can pass GPUs to a container, if there are any GPUs."""
    engine = context.job.container_engine
    affected = [
        name
        for name, image in image_facts(context).items()
        if not image["toolkit"]
        and context.facts[name].get("gpu_count")
        and vendor_name(context.facts[name].get("gpus")) in TOOLKITS
    ]
    if not affected:
        return []
    remedy = (
        "ansible-playbook site.yml --tags docker_engine -e docker_engine_enabled=true"
        if engine == "docker"
        else "install nvidia-container-toolkit, then run sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
    )
    return [
        error(
            "image-gpu-toolkit",
            affected,
            problem=f"the node has GPUs, but {engine} has no NVIDIA toolkit to pass them to a container",
            requirement="nvidia-container-toolkit"
            + ("" if engine == "docker" else " and its CDI specification for the GPUs in /etc/cdi"),
            remedy=remedy,
        )
    ]


def limits_memory(options: Sequence[str]) -> bool:
    """Return whether these options for the engine's run command limit a container's memory."""
    return any(re.match(r"--memory(=|$)|-m", option) for option in options)


def check_memory_limit(context: CheckContext) -> list[Finding]:
    """Check that the engine can enforce a memory limit; otherwise, it silently starts the container without it."""
    engine = context.job.container_engine
    affected = [name for name, image in image_facts(context).items() if image.get("memory_limit") is False]
    if not affected or not limits_memory(context.job.container_options):
        return []
    user = context.facts[affected[0]].get("user", "")
    runs_as_root = engine == "docker" or user == "root"
    remedy = (
        "boot the node's kernel with the memory controller (cgroup_enable=memory)"
        if runs_as_root
        else (
            "boot with cgroup v2 on nodes where `stat -fc %T /sys/fs/cgroup` does not print cgroup2fs "
            "(systemd.unified_cgroup_hierarchy=1); then, on each of these nodes, run `sudo apt-get install "
            f"dbus-user-session && sudo loginctl enable-linger {user} && sudo systemctl restart user@$(id --user "
            f"{user})`, with no job running, until `podman info` as {user} shows cgroupManager: systemd and memory "
            "among cgroupControllers"
        )
    )
    return [
        warning(
            "image-memory-limit",
            affected,
            problem=f"container_options limit the container's memory, but {engine} cannot enforce that for {user}: the "
            "job would run without a limit",
            requirement=f"{engine} with the cgroup memory controller"
            + ("" if runs_as_root else ", which rootless podman gets only from the user's own systemd"),
            remedy=f"{remedy}; or remove the limit, so that only the machine's memory limits the container",
        )
    ]


def check_images(context: CheckContext) -> list[Finding]:
    """Return the findings of all checks in this file. program-missing reports the lack of an engine."""
    if not context.job.image:
        return []
    return [
        *check_engine(context),
        *check_missing(context),
        *check_skew(context),
        *check_toolkit(context),
        *check_memory_limit(context),
    ]

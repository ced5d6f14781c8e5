# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command lines that run a node's part of a job in a container."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.storage import is_below
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import Node
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_name
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import Job

# Started in the image: puts our programs first on the image's own PATH.
SHELL_SCRIPT = 'PATH="$0:$PATH"; export PATH; exec "$@"'
AMD_DEVICES = ("--device=/dev/kfd", "--device=/dev/dri")
PASSWD_FILE = "/etc/passwd"  # user names on the node and in the image


def container_name(run_id: str, node_rank: int) -> str:
    """Return the name of a node's container; all characters allowed in a run_id are also allowed in it."""
    return f"muster-{run_id}-node{node_rank}"


def container_volumes(job: Job, facts: Mapping[str, Any], run_directory: str, temporary: str) -> list[str]:
    """Return the node's directories to mount at the same paths, so that the job's arguments remain valid in the
    container.
    """
    working_directory = facts["working_directory"]["path"]
    volumes = [f"{run_directory}:{run_directory}", f"{temporary}:{temporary}"]
    if working_directory != "/":
        volumes.append(f"{working_directory}:{working_directory}")
    script = facts.get("script")
    if script:
        directory = script["path"].rpartition("/")[0]
        if directory and not is_below(directory, working_directory):
            volumes.append(f"{directory}:{directory}:ro")
    return [*volumes, *job.container_mounts]


def gpu_options(engine: str, gpus: tuple[int, ...]) -> list[str]:
    """Return the options that give a container these GPUs of the node, or all GPUs."""
    if engine == "podman":
        devices = [f"--device=nvidia.com/gpu={gpu}" for gpu in gpus or ("all",)]
        return [*devices, "--security-opt=label=disable"]
    # docker parses the value as CSV, so a list needs quotes
    return [f'--gpus="device={",".join(map(str, gpus))}"' if gpus else "--gpus=all"]


def amd_gpu_options(engine: str, facts: Mapping[str, Any]) -> list[str]:
    """Return the options that give a container all AMD GPUs; the job sees only those in HIP_VISIBLE_DEVICES.

    The device files belong to groups whose GIDs differ between machines.
    """
    gids = (facts.get("gpus") or {}).get("groups") or {}
    groups = (
        ["--group-add=keep-groups"] if engine == "podman" else [f"--group-add={gids[name]}" for name in sorted(gids)]
    )
    return [*AMD_DEVICES, *groups]


# By GPU vendor: the options for a container with these GPUs, using this engine, on a node with these facts.
GPU_OPTIONS: dict[str, Callable[[str, tuple[int, ...], Mapping[str, Any]], list[str]]] = {
    "nvidia": lambda engine, gpus, _facts: gpu_options(engine, gpus),
    "amd": lambda engine, _gpus, facts: amd_gpu_options(engine, facts),
}


def engine_options(job: Job, facts: Mapping[str, Any]) -> list[str]:
    """Return the options that give a container the job's user and the node's network, memory, limits and GPUs."""
    engine, user = job.container_engine, facts.get("uid", 0)
    user_options = [f"--user={user}:{facts.get('gid', 0)}"]
    if engine == "podman" and user != 0:
        user_options = [
            "--userns=keep-id"
        ]  # rootless podman maps the user to root by default; files must belong to the user
    # pdsh, ssh and Python's pwd fail for a user without a name, and the node's users do not exist in images; podman
    # adds the user automatically. The node's file belongs to root: with one that the job could change, su would make
    # the job root.
    has_passwd_file = any(PASSWD_FILE in option for option in (*job.container_mounts, *job.container_options))
    mount_passwd_file = engine == "docker" and user != 0 and not has_passwd_file
    return [
        "--network=host",
        f"--shm-size={job.container_shm_size}" if job.container_shm_size else "--ipc=host",
        *(f"--ulimit={limit}" for limit in job.container_ulimits),
        *user_options,
        *([f"--volume={PASSWD_FILE}:{PASSWD_FILE}:ro"] if mount_passwd_file else []),
        *(GPU_OPTIONS[vendor_name(facts.get("gpus"))](engine, job.gpus, facts) if facts.get("gpu_count") else []),
    ]


def replace_ids_of_node(arguments: list[str], facts: Mapping[str, Any]) -> list[str]:
    """Return another node's container_argv() with this node's IDs for the user and the groups of AMD GPUs."""
    changed = list(arguments)
    user = next((index for index, word in enumerate(changed) if word.startswith("--user=")), None)
    if user is not None and "uid" in facts:
        changed[user] = f"--user={facts['uid']}:{facts.get('gid', 0)}"
    gids = (facts.get("gpus") or {}).get("groups") or {}
    if gids and AMD_DEVICES[-1] in changed:
        begin = end = changed.index(AMD_DEVICES[-1]) + 1
        while re.fullmatch("--group-add=[0-9]+", changed[end]):  # podman keeps the user's groups
            end += 1
        changed[begin:end] = [f"--group-add={gids[name]}" for name in sorted(gids)] if end > begin else []
    return changed


def shell_argv(job: Job, facts: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """Return the command for an interactive shell in the job's image, set up like a rank and with these variables."""
    return [
        job.container_engine,
        "run",
        "--rm",
        "--interactive",
        "--tty",
        "--pull=never",
        *engine_options(job, facts),
        *(f"--volume={mount}" for mount in container_volumes(job, facts, "", "")[2:]),
        f"--workdir={facts['working_directory']['path']}",
        f"--env=USER={facts.get('user', 'root')}",
        "--env=HOME=/tmp",  # the user's home directory is not in the image
        *(f"--env={name}={value}" for name, value in environment.items()),
        *job.container_options,
        "--entrypoint=/bin/sh",
        job.image,
        "-c",
        'exec "$(command -v bash || command -v sh)"',
    ]


def container_argv(  # noqa: PLR0913
    job: Job, node: Node, facts: Mapping[str, Any], run_directory: str, temporary: str, variables: Iterable[str]
) -> list[str]:
    """Return the arguments that must precede a command to run it in the job's image, in the foreground.

    Variables are passed by name only, so that no value is in a command line.
    """
    return [
        job.container_engine,
        "run",
        "--rm",
        "--pull=never",  # a pull would exceed the launchers' timeouts; the role container_image does it
        f"--name={container_name(job.run_id, node.node_rank)}",
        *engine_options(job, facts),
        *(f"--volume={mount}" for mount in container_volumes(job, facts, run_directory, temporary)),
        f"--workdir={facts['working_directory']['path']}",
        f"--env=USER={facts.get('user', 'root')}",  # the node's users do not exist in the image
        f"--env=HOME={run_directory}",
        *(f"--env={name}" for name in sorted({"MUSTER_RUN_DIRECTORY", "TMPDIR", *variables})),
        *job.container_options,
        "--entrypoint=/bin/sh",
        job.image,
        "-c",
        SHELL_SCRIPT,
        f"{run_directory}/bin",
    ]


def removal_argv(job: Job, node: Node) -> list[str]:
    """Return the command that removes a node's container, even if the process that started it no longer exists."""
    return [job.container_engine, "rm", "--force", container_name(job.run_id, node.node_rank)]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's command inside a container: the words put before it. Pure. Private to this collection."""

from __future__ import annotations

from typing import Any, Iterable, Mapping

from ansible_collections.muster.training.plugins.module_utils._job import Job
from ansible_collections.muster.training.plugins.module_utils._rank_table import Node

# What is started in the image: our programs first on its path, whatever that is.
SHELL = 'PATH="$0:$PATH"; export PATH; exec "$@"'
# The users that the image knows, and the file of the run directory that takes its place.
USERS, USERS_FILE = "/etc/passwd", "passwd"


def container_name(run_id: str, node_rank: int) -> str:
    """Name of a node's container; a run_id has no character that names may not have."""
    return f"muster-{run_id}-node{node_rank}"


def below(path: str, directory: str) -> bool:
    """Whether a path is in a directory or below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def mounts(job: Job, facts: Mapping[str, Any], run_directory: str, temporary: str) -> list[str]:
    """What the container sees of the node, all at the same paths as there: the job's words mean the same inside."""
    work = facts["working_directory"]["path"]
    found = [f"{run_directory}:{run_directory}", f"{temporary}:{temporary}"]
    if work != "/":
        found.append(f"{work}:{work}")
    script = facts.get("script")
    if script:
        directory = script["path"].rpartition("/")[0]
        if directory and not below(directory, work):
            found.append(f"{directory}:{directory}:ro")
    return [*found, *job.container_mounts]


def users(job: Job, facts: Mapping[str, Any], run_directory: str) -> str:
    """Content of /etc/passwd in the container, "" where the image's own is right or the job brings one.

    pdsh, ssh and Python's getpass refuse to work for a user who has no name, and no image knows the node's users.
    podman adds the user by itself.
    """
    uid = facts.get("uid", 0)
    brought = any(USERS in words for words in (*job.container_mounts, *job.container_options))
    if not job.image or job.container_engine != "docker" or uid == 0 or brought:
        return ""
    user = f"{facts.get('user', 'user')}:x:{uid}:{facts.get('gid', 0)}::{run_directory}:/bin/sh"
    return f"root:x:0:0:root:/root:/bin/sh\n{user}\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"


def engine_words(job: Job, facts: Mapping[str, Any]) -> list[str]:
    """The words by which a container is on the node as the job's user: its network, memory, limits and GPUs."""
    engine, user = job.container_engine, facts.get("uid", 0)
    gpus = {"docker": ["--gpus=all"], "podman": ["--device=nvidia.com/gpu=all", "--security-opt=label=disable"]}
    as_user = [f"--user={user}:{facts.get('gid', 0)}"]
    if engine == "podman" and user != 0:
        as_user = ["--userns=keep-id"]  # a user's podman has root for itself; files are to be the user's own
    return [
        "--network=host",
        f"--shm-size={job.container_shm_size}" if job.container_shm_size else "--ipc=host",
        *(f"--ulimit={limit}" for limit in job.container_ulimits),
        *as_user,
        *(gpus[engine] if facts.get("gpu_count") else []),
    ]


def shell_words(job: Job, facts: Mapping[str, Any], environment: Mapping[str, str]) -> list[str]:
    """The words that give a person a shell in the job's image, where a rank would be, with these variables."""
    return [
        job.container_engine,
        "run",
        "--rm",
        "--interactive",
        "--tty",
        "--pull=never",
        *engine_words(job, facts),
        *(f"--volume={mount}" for mount in mounts(job, facts, "", "")[2:]),
        f"--workdir={facts['working_directory']['path']}",
        f"--env=USER={facts.get('user', 'root')}",
        "--env=HOME=/tmp",  # the home of that user is not in the image
        *(f"--env={name}={value}" for name, value in environment.items()),
        *job.container_options,
        "--entrypoint=/bin/sh",
        job.image,
        "-c",
        'exec "$(command -v bash || command -v sh)"',
    ]


def container_words(
    job: Job, node: Node, facts: Mapping[str, Any], run_directory: str, temporary: str, variables: Iterable[str]
) -> list[str]:
    """The words before a command that has to run in the job's image, in the foreground.

    Variables are handed on by their names alone: no value is in a command line.
    """
    return [
        job.container_engine,
        "run",
        "--rm",
        "--pull=never",  # it would take longer than the launchers wait for each other; role container_image brings it
        f"--name={container_name(job.run_id, node.node_rank)}",
        *engine_words(job, facts),
        *([f"--volume={run_directory}/{USERS_FILE}:{USERS}:ro"] if users(job, facts, run_directory) else []),
        *(f"--volume={mount}" for mount in mounts(job, facts, run_directory, temporary)),
        f"--workdir={facts['working_directory']['path']}",
        f"--env=USER={facts.get('user', 'root')}",  # an image does not know the node's users
        f"--env=HOME={run_directory}",
        *(f"--env={name}" for name in sorted({"MUSTER_RUN_DIRECTORY", "TMPDIR", *variables})),
        *job.container_options,
        "--entrypoint=/bin/sh",
        job.image,
        "-c",
        SHELL,
        f"{run_directory}/bin",
    ]


def removal(job: Job, node: Node) -> list[str]:
    """What ends a node's container, whatever became of the command that started it."""
    return [job.container_engine, "rm", "--force", container_name(job.run_id, node.node_rank)]

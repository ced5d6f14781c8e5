# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A shell in a rank's environment: over ssh or on this machine, with the job's interpreter or in its image."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._plan.shell_command import login_argv, shell_script
from tests.unit.supervised import make_job

FACTS: dict[str, Any] = {
    "interpreter": "/opt/my env/bin/python",
    "interface": "ens5",
    "address": "10.0.0.9",
    "working_directory": {"path": "/data/my project"},
    "script": {"path": "/data/my project/train.py"},
    "user": "me",
    "uid": 1000,
    "gid": 1001,
    "gpu_count": 2,
}


def test_shell_has_the_environment_and_directory_of_a_rank() -> None:
    assert shell_script(make_job(), FACTS) == (
        "export PATH='/opt/my env/bin':$PATH NCCL_SOCKET_IFNAME==ens5 NCCL_SOCKET_FAMILY=AF_INET "
        "GLOO_SOCKET_IFNAME=ens5 TP_SOCKET_IFNAME=ens5; cd '/data/my project'; exec \"$SHELL\" -i"
    )
    bare = {**FACTS, "interface": None, "interpreter": ""}
    assert shell_script(make_job(), bare) == "cd '/data/my project'; exec \"$SHELL\" -i"


def test_shell_opens_in_the_jobs_image_or_the_runs_container() -> None:
    job = make_job(image="torch:1", container_mounts=("/data:/data:ro",), variables=("TOKEN",))
    arguments = shlex.split(shell_script(job, FACTS))
    assert arguments[:7] == ["exec", "docker", "run", "--rm", "--interactive", "--tty", "--pull=never"]
    assert {"--gpus=all", "--user=1000:1001", "--volume=/data/my project:/data/my project"} < set(arguments)
    assert {"--volume=/data:/data:ro", "--workdir=/data/my project", "--env=NCCL_SOCKET_IFNAME==ens5"} < set(arguments)
    assert arguments[-4:-1] == ["--entrypoint=/bin/sh", "torch:1", "-c"] and "TOKEN" not in " ".join(arguments)
    assert shell_script(job, FACTS, "first") == (
        "exec docker exec --interactive --tty \"$(docker ps --quiet --filter name='^muster-first-node')\" /bin/sh"
    )


def test_login_uses_ansibles_connection_settings() -> None:
    host = {
        "ansible_host": "203.0.113.2",
        "ansible_port": 2222,
        "ansible_user": "me",
        "ansible_ssh_common_args": "-o ProxyJump=gate",
    }
    *arguments, remote = login_argv(host, "gpu2", "", "cd '/a b'; exec sh")
    assert arguments == shlex.split("ssh -t -o ProxyJump=gate -p 2222 -l me 203.0.113.2")
    assert shlex.split(remote) == ["sh", "-c", "cd '/a b'; exec sh"]
    assert login_argv({}, "gpu2", "", "x")[:3] == ["ssh", "-t", "gpu2"]


@pytest.mark.parametrize("connection", ["local", "ansible.builtin.local"])
def test_shell_on_this_machine_needs_no_ssh(connection: str) -> None:
    assert login_argv({"ansible_connection": connection}, "here", "bob", "x") == [
        *("sudo", "-u", "bob", "-H", "sh", "-c", "x")
    ]

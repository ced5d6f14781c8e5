# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unreachable nodes are reported once, regardless of their number."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.unit.typed import give_collection, typed

CLOSED = "{ansible_host: 127.0.0.1, ansible_port: 1, node_address: 10.0.0.%d}"  # tcpmux: nothing listens on it
CONNECTION_REFUSED = "nothing is listening on its port 1: Connection refused"


def inventory(directory: Path, hosts: dict[str, str]) -> None:
    """Write an inventory and the other files that the nodes need."""
    give_collection(directory)
    written = ", ".join(f"{name}: {variables}" for name, variables in hosts.items())
    (directory / "machines.yml").write_text(
        f"training: {{hosts: {{{written}}}, vars: {{ansible_python_interpreter: {sys.executable}, node_slots: 1}}}}\n"
    )


# site.yml needs ansible.posix, which is installed in the environment of only one ansible-core version
@pytest.mark.parametrize(
    "playbook",
    [
        "launch",
        *(pytest.param(name, marks=pytest.mark.one_core) for name in ("preflight", "site")),
        # These use the same modules as preflight, site and launch
        *(
            pytest.param(name, marks=[pytest.mark.one_core, pytest.mark.thorough])
            for name in ("ping", "docker", "status")
        ),
    ],
)
def test_same_problem_on_64_nodes_is_printed_once(tmp_path: Path, playbook: str) -> None:
    inventory(tmp_path, {f"node{n}": CLOSED % n for n in range(1, 65)})
    completed = typed(tmp_path, ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml"])
    assert completed.returncode == 2, completed.stdout
    verb = "used" if playbook in ("site", "docker") else "reached"  # these playbooks also check for root
    assert (
        completed.stdout.count(CONNECTION_REFUSED) == 1 and f"none of the 64 nodes can be {verb}" in completed.stdout
    ), completed.stdout
    assert len(completed.stdout.splitlines()) < 25, completed.stdout


@pytest.mark.parametrize(
    "playbook",
    [
        "preflight",
        *(pytest.param(name, marks=[pytest.mark.one_core, pytest.mark.thorough]) for name in ("ping", "launch")),
    ],
)
def test_unreachable_nodes_share_one_finding_when_others_respond(tmp_path: Path, playbook: str) -> None:
    here = f"{{ansible_connection: local, node_address: 10.0.0.9, launch_node_directory: {tmp_path}/node}}"
    inventory(tmp_path, {"a": here, "b": CLOSED % 2, "c": CLOSED % 3})
    arguments = ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml"]
    arguments += [] if playbook == "ping" else ["-e", "launch_script=/bin/true"]
    completed = typed(tmp_path, arguments)
    assert completed.returncode == 2 and "UNREACHABLE!" not in completed.stdout, completed.stdout
    output = " ".join(completed.stdout.split())
    assert "unreachable on b, c" in output or "unreachable b, c" in output, completed.stdout


def test_empty_group_error_names_the_group_with_machines(tmp_path: Path) -> None:
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(f"gpus: {{hosts: {{a: {CLOSED % 1}}}}}\n")
    arguments = ["ansible-playbook", "muster.training.ping", "-i", "machines.yml"]
    completed = typed(tmp_path, arguments)
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 2 and output.count("the group 'training' has no hosts.") <= 2, completed.stdout
    assert "has the group gpus: rename yours, or choose it with -e launch_group=gpus" in output, completed.stdout
    assert CONNECTION_REFUSED in typed(tmp_path, [*arguments, "-e", "launch_group=gpus"]).stdout


# Closes its standard input before Ansible has written everything, as ssh sometimes does.
DEAF = """#!/bin/sh
exec <&-
sleep 1
echo "ssh: connect to host 10.0.0.2 port 22: Connection refused" >&2
exit 255
"""


@pytest.mark.parametrize(
    "playbook", ["launch", pytest.param("ping", marks=[pytest.mark.one_core, pytest.mark.thorough])]
)
def test_error_of_ssh_that_exits_immediately_is_shown(tmp_path: Path, playbook: str) -> None:
    (tmp_path / "ssh").write_text(DEAF)
    (tmp_path / "ssh").chmod(0o755)
    here = f"{{ansible_connection: local, node_address: 10.0.0.9, launch_node_directory: {tmp_path}/node}}"
    inventory(tmp_path, {"a": here, "b": f"{{node_address: 10.0.0.2, ansible_ssh_executable: {tmp_path}/ssh}}"})
    arguments = ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml"]
    arguments += [] if playbook == "ping" else ["-e", "launch_script=/bin/true"]
    completed = typed(tmp_path, arguments)
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 2 and "nothing is listening on its port 22: Connection refused" in output, (
        completed.stdout
    )

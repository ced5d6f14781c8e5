# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""call_nodes uses a single process only if each call is identical to the call Ansible would make for that node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core

# Stand-in for ssh that runs commands locally and records its arguments; node b rejects the user "stranger".
SSH = """#!/bin/sh
printf '%s\\n' "$*" >> ssh.log
case "$*" in *stranger*) echo "stranger@b: Permission denied (publickey)." >&2; exit 255;; esac
for command; do :; done
sh -c "$command" && exit
status=$?
cat > /dev/null  # as sshd does for a command that ends without reading its standard input
exit $status
"""
CALL: dict[str, Any] = {
    "action": "node_facts",
    "options": {"parts": ["system"], "run_id": "{{ name_of_run | default('') }}"},
}
NAMES = ["a", "b"]


def call_two_nodes(
    directory: Path,
    host_b: dict[str, Any],
    host_a: dict[str, Any] | None = None,
    check: bool = False,
    block: dict[str, Any] | None = None,
    **play: Any,
) -> dict[str, Any]:
    """Call the nodes a and b in a play; return the registered results, with the arguments of each call in "ssh"."""
    give_collection(directory)
    (directory / "ssh").write_text(SSH)
    (directory / "ssh").chmod(0o755)
    ssh = {"ansible_ssh_executable": str(directory / "ssh"), "ansible_python_interpreter": "/usr/bin/python3"}
    hosts = {"a": {"ansible_host": "10.0.0.1", **(host_a or {})}, "b": {"ansible_host": "10.0.0.2", **host_b}}
    (directory / "hosts.yml").write_text(yaml.safe_dump({"training": {"hosts": hosts, "vars": ssh}}))
    together = {
        "muster.training.call_nodes": {**CALL, "nodes": NAMES},
        "register": "together",
        "run_once": True,
        "ignore_unreachable": True,
    }
    each = {
        "muster.training.call_nodes": {**CALL, "results": "{{ together.by_node }}"},
        "register": "each",
        "when": "not together.complete",
        "ignore_errors": True,
        "ignore_unreachable": True,
    }
    by_node = "dict(groups.training | zip(groups.training | map('extract', hostvars, 'each')))"
    result = f"{{{{ {{'together': together, 'each': {by_node}}} }}}}"
    show = {"ansible.builtin.copy": {"content": result, "dest": "result.json"}, "delegate_to": "localhost"}
    local = {"vars": {"ansible_connection": "local"}, "run_once": True, "check_mode": False}
    tasks = [{"block": [together, each], **(block or {})}, {**show, **local}]
    document = [{"hosts": "training", "gather_facts": False, "tasks": tasks, **play}]
    (directory / "play.yml").write_text(yaml.safe_dump(document))
    command = ["ansible-playbook", "play.yml", "-i", "hosts.yml", *(["--check"] if check else [])]
    completed = typed(directory, command)
    assert (directory / "result.json").exists(), completed.stdout
    log = directory / "ssh.log"
    return {
        **json.loads((directory / "result.json").read_text()),
        "ssh": log.read_text().splitlines() if log.exists() else [],
    }


def test_nodes_are_called_from_one_process_with_their_own_connections(tmp_path: Path) -> None:
    options = {"ansible_port": 2222, "ansible_user": "other", "ansible_ssh_common_args": "-o ProxyJump=bastion"}
    result = call_two_nodes(tmp_path, options)
    assert result["together"]["complete"]
    assert [bool(result["together"]["by_node"][name]["facts"]) for name in NAMES] == [True, True]
    assert all(result["each"][name]["skipped"] for name in NAMES)
    (b_arguments,) = [line for line in result["ssh"] if "10.0.0.2" in line]
    assert "Port=2222" in b_arguments and 'User="other"' in b_arguments and "ProxyJump=bastion" in b_arguments
    (a_arguments,) = [line for line in result["ssh"] if "10.0.0.1" in line]
    assert "2222" not in a_arguments and "ProxyJump" not in a_arguments


def test_unreachable_node_gets_its_own_error(tmp_path: Path) -> None:
    result = call_two_nodes(tmp_path, {"ansible_user": "stranger"})
    assert result["together"]["complete"], "a fact as any other"
    assert "Permission denied (publickey)" in result["together"]["by_node"]["b"]["msg"]
    assert result["together"]["by_node"]["b"]["facts"] is None


def test_failed_node_fails_in_its_own_task(tmp_path: Path) -> None:
    result = call_two_nodes(tmp_path, {"ansible_python_interpreter": "/nonexistent/python"})
    assert not result["together"]["complete"]
    assert "facts" in result["each"]["a"] and not result["each"]["a"]["failed"]
    assert result["each"]["b"]["failed"] and "no Python interpreter on this node" in result["each"]["b"]["msg"]
    assert len(result["ssh"]) == len(NAMES), "no node is called again"


@pytest.mark.parametrize(
    ("host_b", "play"),
    [
        pytest.param({"name_of_run": "b"}, {}, id="option-of-a-host"),
        *(
            pytest.param({}, {"vars": variables}, id=name, marks=pytest.mark.thorough)
            for name, variables in (
                ("option-with-the-host's-name", {"name_of_run": "{{ inventory_hostname }}"}),
                ("connection-of-the-play", {"ansible_user": "other"}),
                ("interpreter-of-the-play", {"ansible_python_interpreter": "/usr/bin/../bin/python3"}),
            )
        ),
    ],
)
def test_nodes_have_their_own_processes_if_they_differ(
    tmp_path: Path, host_b: dict[str, Any], play: dict[str, Any]
) -> None:
    result = call_two_nodes(tmp_path, host_b, **play)
    assert not result["together"]["complete"] and result["together"]["by_node"] == {}
    assert [bool(result["each"][name]["facts"]) for name in NAMES] == [True, True]
    assert len(result["ssh"]) == len(NAMES)
    assert all(('User="other"' in line) == ("ansible_user" in play.get("vars", {})) for line in result["ssh"])


@pytest.mark.parametrize("where", [pytest.param("play", marks=pytest.mark.thorough), "block"])
def test_keyword_that_a_play_or_block_renders_for_each_node_applies(tmp_path: Path, where: str) -> None:
    user: dict[str, Any] = {"remote_user": "{{ login }}"}
    result = call_two_nodes(
        tmp_path,
        {"login": "of_b"},
        {"login": "of_a"},
        block=user if where == "block" else None,
        **(user if where == "play" else {}),
    )
    assert not result["together"]["complete"] and len(result["ssh"]) == len(NAMES)
    assert all(('User="of_b"' in line) == ("10.0.0.2" in line) for line in result["ssh"])


def test_keywords_of_the_play_apply(tmp_path: Path) -> None:
    result = call_two_nodes(tmp_path, {}, remote_user="other", port=2222)
    assert result["together"]["complete"]
    assert len(result["ssh"]) == len(NAMES)
    assert all('User="other"' in line and "Port=2222" in line for line in result["ssh"])


def test_check_mode_calls_nodes_as_before(tmp_path: Path) -> None:
    result = call_two_nodes(tmp_path, {}, check=True)
    assert not result["together"]["complete"]
    assert [bool(result["each"][name]["facts"]) for name in NAMES] == [True, True]


def test_settings_of_the_first_node_are_not_used_for_another(tmp_path: Path) -> None:
    result = call_two_nodes(tmp_path, {}, host_a={"ansible_port": 2222})
    assert [bool(result["each"][name]["facts"]) for name in NAMES] == [True, True]
    assert ["Port=2222" in line for line in sorted(result["ssh"], key=lambda line: "10.0.0.2" in line)] == [True, False]

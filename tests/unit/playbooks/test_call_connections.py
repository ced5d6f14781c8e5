# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""call_nodes with passwords, vaults, other connections, keywords of plays, nodes that do not respond, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.vault import VaultLib, VaultSecret

from tests.unit.node_stub import node_stubs, noted
from tests.unit.supervised import eventually
from tests.unit.typed import begun, give_collection, typed

pytestmark = pytest.mark.one_core

NAMES = ["a", "b", "c"]
CALL: dict[str, Any] = {"action": "node_facts", "options": {"parts": ["system"]}}
VAULT_PASSWORD = "correct horse"


class Vaulted(str):
    """Text to encrypt in an inventory."""

    __slots__ = ()


def vaulted_node(dumper: yaml.SafeDumper, value: Vaulted) -> yaml.Node:
    """Return the text as Ansible Vault would write it."""
    vault = VaultLib([("default", VaultSecret(VAULT_PASSWORD.encode()))])
    return dumper.represent_scalar("!vault", vault.encrypt(value).decode(), style="|")


class Dumper(yaml.SafeDumper):
    """YAML dumper for inventories with vaulted values."""


Dumper.add_representer(Vaulted, vaulted_node)


def write_play(directory: Path, *hosts: dict[str, Any], task: dict[str, Any] | None = None, **play: Any) -> None:
    """Write a play that calls the hosts a, b and c, and prints the results as JSON; `hosts` holds their variables."""
    give_collection(directory)
    inventory = {
        name: {"ansible_host": f"10.0.0.{number}", **variables}
        for number, (name, variables) in enumerate(zip(NAMES, hosts, strict=False), 1)
    }
    variables = {"ansible_python_interpreter": "/usr/bin/python3", **node_stubs(directory)}
    (directory / "hosts.yml").write_text(
        yaml.dump({"training": {"hosts": inventory, "vars": variables}}, Dumper=Dumper)
    )
    (directory / "vault_password").write_text(VAULT_PASSWORD)
    together = {
        "muster.training.call_nodes": {**CALL, "nodes": "{{ ansible_play_hosts }}"},
        "register": "together",
        "run_once": True,
        "ignore_unreachable": True,
    }
    each = {
        "muster.training.call_nodes": {**CALL, "results": "{{ together.by_node }}"},
        "register": "each",
        "when": "not together.complete",
    }
    replies = "ansible_play_hosts_all | map('extract', hostvars, 'each') | map('default', none)"
    by_node = f"dict(ansible_play_hosts_all | zip({replies}))"
    result = f"{{{{ {{'together': together, 'each': {by_node}}} }}}}"
    show = {
        "ansible.builtin.copy": {"content": result, "dest": f"{directory}/result.json"},
        "delegate_to": "localhost",
        "become": False,
        "vars": {"ansible_connection": "local"},
        "run_once": True,
        "no_log": True,  # so that secrets can only leak through calls
    }
    tasks = [{**together, **(task or {})}, {**each, **(task or {})}, show]
    document = [{"hosts": "training", "gather_facts": False, "tasks": tasks, **play}]
    (directory / "play.yml").write_text(yaml.safe_dump(document))


def run(directory: Path, *options: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """Run the play; return its results and its output."""
    completed = typed(directory, ["ansible-playbook", "play.yml", "-i", "hosts.yml", *options])
    assert completed.returncode == code, completed.stdout
    file = directory / "result.json"
    return json.loads(file.read_text()) if file.exists() else {}, completed.stdout


def assert_called_at_once(results: dict[str, Any], names: list[str]) -> None:
    """Assert that a single process called the nodes and that each node replied."""
    assert results["together"]["complete"]
    assert [name for name in names if results["together"]["by_node"][name].get("facts")] == names


def test_each_node_gets_its_own_passwords_and_none_is_shown(tmp_path: Path) -> None:
    passwords = [
        {"ansible_password": f"login-s3cr3t-{name}", "ansible_become_password": f"root-s3cr3t-{name}"} for name in "abc"
    ]
    write_play(tmp_path, *passwords, become=True)
    results, output = run(tmp_path, "-vvvv")
    assert_called_at_once(results, NAMES)
    assert sorted(noted(tmp_path)) == [f"10.0.0.{number} login-s3cr3t-{name}" for number, name in enumerate("abc", 1)]
    assert sorted(noted(tmp_path, "sudo.log")) == [
        f"10.0.0.{number} root-s3cr3t-{name}" for number, name in enumerate("abc", 1)
    ]
    assert "s3cr3t" not in output, [line for line in output.splitlines() if "s3cr3t" in line]
    assert "s3cr3t" not in "".join(noted(tmp_path, "arguments.log"))
    assert all(f"<10.0.0.{number}>" in output for number in (1, 2, 3)), "each line says which node it is about"


def test_password_of_the_first_node_is_not_sent_to_others(tmp_path: Path) -> None:
    write_play(
        tmp_path,
        {"ansible_become_password": "s3cr3t"},
        {"ansible_become": False},
        {"ansible_become": False},
        become=True,
    )
    results, _output = run(tmp_path)
    assert not results["together"]["complete"]
    assert all(results["each"][name]["facts"] for name in NAMES)
    assert noted(tmp_path, "sudo.log") == ["10.0.0.1 s3cr3t"]


def test_vaulted_variables_are_decrypted_for_their_node(tmp_path: Path) -> None:
    write_play(tmp_path, *({"ansible_become_password": Vaulted(f"root-{name}")} for name in "abc"), become=True)
    results, output = run(tmp_path, "--vault-password-file", "vault_password", "-vvv")
    assert_called_at_once(results, NAMES)
    assert sorted(noted(tmp_path, "sudo.log")) == [
        f"10.0.0.{number} root-{name}" for number, name in enumerate("abc", 1)
    ]
    assert "root-a" not in output


def test_vaulted_variable_that_no_call_needs_is_not_decrypted(tmp_path: Path) -> None:
    write_play(tmp_path, *({"unused": Vaulted(name), "nested": {"unused": Vaulted(name)}} for name in "abc"))
    results, _output = run(tmp_path)
    assert_called_at_once(results, NAMES)


def test_host_variables_with_names_similar_to_task_variables_are_ignored(tmp_path: Path) -> None:
    """Dynamic inventories set many variables, with names such as name, id, state, when, options."""
    write_play(
        tmp_path,
        *({"name": name, "options": name, "parts": name, "state": name, "facts": {"name": name}} for name in "abc"),
        task={"vars": {"x": "{{ settings.name | default('name') }}"}},
    )
    results, _output = run(tmp_path)
    assert_called_at_once(results, NAMES)


def test_other_connection_types_are_called_concurrently_with_ssh(tmp_path: Path) -> None:
    podman = tmp_path / "podman"
    podman.write_text(
        "#!/bin/sh\n"
        'echo "$*" >> podman.log\n'
        'case $1 in mount) exit 1;; exec) for word; do command=$word; done; exec sh -c "$command";; esac\n'
    )
    podman.chmod(podman.stat().st_mode | stat.S_IXUSR)
    container = {"ansible_connection": "containers.podman.podman", "ansible_podman_executable": str(podman)}
    write_play(tmp_path, {}, {"ansible_connection": "local"}, {**container, "ansible_host": "box"})
    results, _output = run(tmp_path)
    assert_called_at_once(results, NAMES)
    assert len(noted(tmp_path)) == 1
    assert any(line.startswith("exec") and " box " in line for line in noted(tmp_path, "podman.log"))


def test_limit_and_retries_of_the_command_line_apply(tmp_path: Path) -> None:
    write_play(tmp_path, {}, {"ansible_ssh_executable": "/bin/false"}, {})
    (tmp_path / "broken").write_text("#!/bin/sh\n[ -t 0 ] || cat > /dev/null\necho broken >> calls.log\nexit 255\n")
    (tmp_path / "broken").chmod(0o755)
    results, _output = run(tmp_path, "--limit", "a,c")
    assert_called_at_once(results, ["a", "c"])
    assert len(noted(tmp_path)) == 2
    results, _output = run(tmp_path, "-e", "ansible_ssh_retries=1", "-e", f"ansible_ssh_executable={tmp_path}/broken")
    assert noted(tmp_path) == ["broken"] * 12, "two attempts for each node, and two to learn why, from one process only"


def test_unknown_connection_type_fails_only_its_node(tmp_path: Path) -> None:
    write_play(tmp_path, {}, {"ansible_connection": "nonexistent"}, {})
    results, output = run(tmp_path, code=2)
    assert results["together"]["by_node"]["a"]["facts"] and "nonexistent" in output
    assert len(noted(tmp_path)) == 2


def test_serial_calls_each_batch_once(tmp_path: Path) -> None:
    write_play(tmp_path, {}, {}, {}, serial=2)
    results, _output = run(tmp_path)
    assert results["together"]["complete"]


def test_unreachable_node_is_removed_from_the_play_unless_ignored(tmp_path: Path) -> None:
    refused = {"ansible_ssh_executable": "/bin/false", "ansible_ssh_args": "-o ControlMaster=no"}
    write_play(
        tmp_path,
        {},
        {**refused, "ansible_ssh_executable": str(tmp_path / "refuse")},
        {},
        task={"ignore_unreachable": None},
    )
    (tmp_path / "refuse").write_text(
        "#!/bin/sh\n[ -t 0 ] || cat > /dev/null\necho refused >> calls.log\necho 'Permission denied' >&2\nexit 255\n"
    )
    (tmp_path / "refuse").chmod(0o755)
    play = yaml.safe_load((tmp_path / "play.yml").read_text())
    for task in play[0]["tasks"]:
        task.pop("ignore_unreachable", None)
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    _results, output = run(tmp_path, code=4)
    assert "Permission denied" in output
    assert noted(tmp_path).count("refused") == 2
    play[0]["ignore_unreachable"] = True
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    results, _output = run(tmp_path)
    assert results["together"]["by_node"]["b"]["facts"] is None
    assert noted(tmp_path).count("refused") == 2


def test_no_log_hides_results_and_calls(tmp_path: Path) -> None:
    write_play(tmp_path, {}, {}, {}, task={"no_log": True})
    results, output = run(tmp_path, "-vvvv")
    assert_called_at_once(results, NAMES)
    assert "MUSTER-ANSWER" not in output and "python_version" not in output


def alive(pids: list[str]) -> list[str]:
    """Return the processes that are still running."""

    def state(pid: str) -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "X"

    return [pid for pid in pids if state(pid) not in ("X", "Z")]


@pytest.mark.parametrize(
    ("number", "password"),
    [
        pytest.param(signal.SIGINT, {}, id="ctrl-c-key"),
        pytest.param(signal.SIGTERM, {"ansible_password": "s3cr3t"}, id="terminated-password"),
        pytest.param(signal.SIGINT, {"ansible_password": "s3cr3t"}, id="ctrl-c-password", marks=pytest.mark.thorough),
        pytest.param(signal.SIGTERM, {}, id="terminated-key", marks=pytest.mark.thorough),
    ],
)
def test_interrupted_calls_end_their_processes(
    tmp_path: Path, password: dict[str, str], number: signal.Signals
) -> None:
    """With a password, ssh runs in its own session, so a signal to the process group does not reach it."""
    write_play(tmp_path, *({**password, "ansible_host": f"silent{name}"} for name in "abc"))
    process = begun(tmp_path, ["ansible-playbook", "play.yml", "-i", "hosts.yml", "--forks", "8"])
    pids: list[str] = []
    try:
        silent = tmp_path / "silent.pids"
        eventually(
            lambda: process.poll() is not None or (silent.exists() and len(silent.read_text().split()) == 3), 240
        )
        pids = silent.read_text().split()
        assert alive(pids) == pids
        os.killpg(process.pid, number)
        output, _none = process.communicate(timeout=60)
        assert process.returncode != 0, output
        eventually(lambda: not alive(pids), 60)
    finally:
        for pid in alive(pids):
            os.kill(int(pid), signal.SIGKILL)
        process.kill()


@pytest.mark.parametrize("playbook", [pytest.param("status", marks=pytest.mark.thorough), "stop"])
def test_interrupted_command_explains_what_to_do(tmp_path: Path, playbook: str) -> None:
    """Concurrent calls of all nodes are interrupted like individual calls."""
    write_play(tmp_path, {}, {"ansible_host": "silent"})
    command = ["ansible-playbook", f"muster.training.{playbook}", "-i", "hosts.yml", "-e", "run_id=first"]
    (tmp_path / "ansible.cfg").write_text("[defaults]\nstdout_callback = muster.training.roll\n")
    process = begun(tmp_path, command)
    silent = tmp_path / "silent.pids"
    eventually(lambda: process.poll() is not None or silent.exists(), 240)
    os.killpg(process.pid, signal.SIGINT)
    output, _none = process.communicate(timeout=60)
    expected = "the run may still be active" if playbook == "stop" else "nothing was changed"
    assert f"{playbook} was interrupted: {expected}" in " ".join(output.split()), output

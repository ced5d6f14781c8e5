"""Nodes behind a bastion, with different passwords for login and sudo in a vault; and interrupted calls."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lab import Lab
from tests.support import drive

SUDOERS = "/etc/sudoers.d/90-muster"
TWO = ["node1", "node2"]
LOGIN, ROOT = "l0gin-Kq9-{}", "l0gin-Kq9-{}"  # sudo asks for the login user's password
VAULT_PASSWORD = "correct horse"
CALLS = "/home/muster/.muster"


@pytest.fixture
def passwords(lab: Lab, nodes: list[str]) -> Iterator[None]:
    """Give the user of the nodes a password, which sudo requires."""
    for name in TWO:
        text = f"muster:{LOGIN.format(name)}"
        drive.output_of(lab, name, "sh", "-c", f"echo '{text}' | chpasswd")
        drive.output_of(lab, name, "sed", "-i", "s/NOPASSWD://", SUDOERS)
    yield
    for name in TWO:
        drive.output_of(lab, name, "sed", "-i", "s/ALL$/NOPASSWD:ALL/", SUDOERS)
        drive.output_of(lab, name, "passwd", "--lock", "muster")


def encrypt(directory: Path, text: str) -> str:
    """Return a text encrypted with Ansible Vault, for an inventory."""
    command = [str(drive.CHECKOUT / ".venv/bin/ansible-vault"), "encrypt", "--vault-password-file"]
    command += [str(directory / "password"), "--output", "-", "-"]
    return subprocess.run(command, input=text, check=True, capture_output=True, text=True).stdout


def inventory(lab: Lab, directory: Path, **more: Any) -> Path:
    """Write an inventory of two nodes with passwords in a vault; the second is reached through the first."""
    (directory / "password").write_text(VAULT_PASSWORD)
    training = yaml.safe_load(lab.inventory.read_text())["training"]
    variables = training["vars"]
    key = variables.pop("ansible_ssh_private_key_file")
    lines = ["training:", "  vars:"]
    overrides = {"ansible_ssh_args": "-o ControlMaster=no -o ControlPath=none", "launch_fetch_record": False, **more}
    for name, value in {**variables, "ansible_ssh_pipelining": True, **overrides}.items():
        lines.append(f"    {name}: {json.dumps(value)}")
    lines.append("  hosts:")
    common = variables.get("ansible_ssh_common_args", "")
    for name in TWO:
        lines += [f"    {name}:", f"      node_address: {lab.node(name).address}"]
        lines += [f"      ansible_host: {lab.node(name).address}"]
        for variable, text in (("ansible_password", LOGIN), ("ansible_become_password", ROOT)):
            cipher = encrypt(directory, text.format(name)).splitlines()
            lines += [f"      {variable}: !vault |", *(f"        {line}" for line in cipher)]
        if name == "node2":
            jump = f"ssh -i {key} {common} -W %h:%p muster@{lab.node('node1').address}"
            arguments = f"{common} -o ProxyCommand={shlex.quote(jump)}"
            lines += [f"      ansible_ssh_common_args: {json.dumps(arguments)}"]
    path = directory / "machines.yml"
    path.write_text("\n".join(lines) + "\n")
    return path


def options(directory: Path) -> tuple[str, ...]:
    """Return the options for all commands, with the most verbose output."""
    return ("--vault-password-file", str(directory / "password"), "-vvvv")


def test_nodes_behind_a_bastion_work_with_passwords_from_a_vault(lab: Lab, passwords: None, tmp_path: Path) -> None:
    machines = inventory(lab, tmp_path)
    command_lines: set[str] = set()

    def run(playbook: str, **extra: Any) -> drive.Play:
        play = drive.start(playbook, machines, options=options(tmp_path), **extra)

        def ended() -> bool:
            listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
            command_lines.update(listed.splitlines())
            return play.rc is not None

        drive.eventually(f"{playbook} ends", ended, 400, play.last_lines)
        assert play.rc == 0, play.output[-3000:]
        assert "Kq9" not in play.output, [line for line in play.output.splitlines() if "Kq9" in line]
        return play

    script = {"launch_script": str(drive.JOBS / "ticks.py"), "launch_launcher": "env"}
    run("preflight.yml", preflight_user="muster", preflight_names=False, preflight_launcher="env", **script)
    run("launch.yml", launch_user="muster", run_id="bastion", detach=True, **script)
    for command in ("status.yml", "stacks.yml", "stop.yml", "runs.yml"):
        play = run(command, launch_user="muster", **({} if command == "runs.yml" else {"run_id": "bastion"}))
        assert "on all nodes at once" in play.output or "of all nodes at once" in play.output, play.output[-3000:]
    assert any("ansible-playbook" in line for line in command_lines)
    assert not [line for line in command_lines if "Kq9" in line]
    for name in TWO:
        assert "Kq9" not in drive.output_of(lab, name, "journalctl", "--no-pager", "--output=cat")
    drive.nothing_left(lab, TWO, within=60)


# tests/unit/playbooks/test_call_connections.py interrupts calls with keys
@pytest.mark.parametrize("login", [pytest.param("key", marks=pytest.mark.thorough), "password"])
def test_interrupted_calls_have_no_leftovers_on_controller_or_nodes(
    lab: Lab, nodes: list[str], tmp_path: Path, login: str, request: pytest.FixtureRequest
) -> None:
    """Ctrl-C ends calls that hang on the nodes."""
    machines = lab.inventory
    if login == "password":
        request.getfixturevalue("passwords")
        machines = inventory(lab, tmp_path)
    busy = "import sys, time; sys.argv[1:]; time.sleep(1000)"
    # the interpreter used for the calls hangs before it reads anything
    for name in TWO:
        drive.output_of(
            lab,
            name,
            "sh",
            "-c",
            f"printf '#!/bin/sh\\nexec python3 -c \"{busy}\" hanging-call\\n' > /tmp/hangs; chmod 755 /tmp/hangs",
        )
    command = [str(drive.CHECKOUT / ".venv/bin/ansible-playbook"), f"{drive.CHECKOUT}/playbooks/status.yml"]
    command += ["-i", str(machines), "--limit", "localhost,node1,node2", "-e", "ansible_python_interpreter=/tmp/hangs"]
    command += options(tmp_path)[:2] if login == "password" else ()
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=drive.CHECKOUT,
        env={**os.environ, "ANSIBLE_STDOUT_CALLBACK": "muster.training.roll"},  # Molecule sets a different one
        start_new_session=True,
    )

    def calls(name: str) -> list[str]:
        return [item.command for item in lab.processes(name) if "hanging-call" in item.command]

    try:
        drive.eventually("both nodes are called", lambda: process.poll() is not None or all(map(calls, TWO)), 120)
        process.send_signal(signal.SIGINT)
        output, _none = process.communicate(timeout=60)
        assert "status was interrupted: nothing was changed" in output, output
        listed = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
        assert not [line for line in listed.splitlines() if "/tmp/hangs" in line and "ssh" in line]
    finally:
        process.kill()
        for name in TWO:
            lab.exec(name, ["pkill", "-f", "hanging-call"])
            lab.exec(name, ["rm", "-f", "/tmp/hangs"])

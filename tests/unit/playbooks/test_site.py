# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml: each role has a tag, a switch and a group; arguments without effect are refused before any change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import documented_options
from tests.unit.typed import CHECKOUT, give_collection, typed

PLAY: dict[str, Any] = yaml.safe_load((CHECKOUT / "playbooks" / "site.yml").read_text())[1]
IMPORTS = [(task["ansible.builtin.import_role"], task["tags"]) for task in PLAY["tasks"]]
ENTRIES = [(role["name"].removeprefix("muster.training."), tags) for role, tags in IMPORTS]
ROLES = list(dict.fromkeys(role for role, _tags in ENTRIES))  # a role may occur twice, once for each part of its work
# Roles that do not prepare nodes: their own playbooks and other roles run them.
REACH_NODES_TASK = next(task["name"] for task in PLAY["pre_tasks"] if "muster.training.reach_nodes" in task)
ROLES_OUTSIDE_SITE = {
    *("benchmark", "checkpoints", "fit", "init", "launch", "preflight", "rehearse", "stage_data", "sweep"),
    *("data_mounts", "s3_client"),  # roles that other roles call
}


def test_site_includes_each_role_that_prepares_nodes() -> None:
    assert set(ROLES) == {path.name for path in (CHECKOUT / "roles").iterdir()} - ROLES_OUTSIDE_SITE


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("nvidia_driver", "docker_engine"),  # docker_engine checks for GPUs
        ("firewall", "docker_engine"),
        ("docker_engine", "docker_data_root"),
        ("docker_data_root", "container_image"),
        ("firewall", "open_mpi"),  # open_mpi's test needs open ports
        ("open_mpi", "python_env"),  # python_env may have to compile mpi4py
        ("code", "python_env"),  # the code may contain requirements files
    ],
)
def test_role_comes_after_the_roles_it_needs(first: str, second: str) -> None:
    assert ROLES.index(first) < ROLES.index(second)


@pytest.mark.parametrize("role", ROLES)
def test_each_role_has_a_tag_a_switch_and_a_group(role: str) -> None:
    assert all(role in ([tags] if isinstance(tags, str) else tags) for item, tags in ENTRIES if item == role)
    defaults = yaml.safe_load((CHECKOUT / "roles" / role / "defaults" / "main.yml").read_text())
    assert f"{role}_enabled" in defaults
    group = f"{role}_group"
    assert (group in defaults) == (group in PLAY["vars"]), "all roles see the same group"


def test_roles_are_imported_without_argument_validation_per_node() -> None:
    assert [role for role, _tags in IMPORTS if role["rolespec_validate"] is not False] == []


TYPED = " (ansible-playbook site.yml --tags "  # followed by the name of the role


def texts(node: ast.AST) -> Iterator[str]:
    """Yield each string in a program; f-strings are combined with the possible strings of their values."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        parts = [(isinstance(part, ast.Constant), " ".join(texts(part))) for part in node.values]
        yield "".join(text if written else f" {text} " for written, text in parts)
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


@pytest.mark.parametrize(
    "path", sorted((CHECKOUT / "plugins" / "plugin_utils" / "_checks").glob("*.py")), ids=lambda p: p.name
)
def test_remedies_name_roles_by_a_working_command(path: Path) -> None:
    text = "\n".join(texts(ast.parse(path.read_text())))
    without_command = [
        name for name, command in re.findall(r"\brole +(\w*)(.*)", text) if not command.startswith(f"{TYPED}{name}")
    ]
    assert without_command == [], "a role is named, and the command is not"
    for tag, arguments in re.findall(r"ansible-playbook site\.yml --tags (\w+)([^),;\n]*)", text):
        assert tag in ROLES
        assert set(re.findall(r"-e (\w+)=", arguments)) <= documented_options(CHECKOUT / "roles" / tag)
        switch = yaml.safe_load((CHECKOUT / "roles" / tag / "defaults" / "main.yml").read_text())[f"{tag}_enabled"]
        assert switch is not False or f"-e {tag}_enabled=true" in arguments, "it is off without"


# --- Requests


WRONG = """\
training:
  hosts:
    a: {ansible_host: 127.0.4.1, wandb_mode: on}
    b: {ansible_host: 127.0.4.2, firewall_open: [{prt: 1}], ssh_mesh_port: "{{ of_b }}", of_b: x}
    c: {ansible_host: 127.0.4.3, ssh_mesh_port: "{{ of_b }}", of_b: 2222, wandb_mode: "{{ 'on' }}line"}
  vars: {ansible_port: 1, docker_engine_enabled: "{{ nobody_says }}", hosts_file_enabled: 7}
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection and two unreachable nodes, where commands that are not refused end without changes."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text(
        "training:\n  hosts:\n    a: {ansible_port: 1}\n    b: {ansible_port: 1, node_address: '{{ of_b }}'}\n"
        "  vars: {ansible_host: 127.0.0.1, of_b: 127.0.4.2}\n"
        "  children: {empty: {hosts: {}}}\n"
    )
    (tmp_path / "wrong.yml").write_text(WRONG)
    (tmp_path / "settings.yml").write_text("nnodes: 4\ndocker_engine_enabled: true\nopen_mpi_compiler: true\n")
    (tmp_path / "mine.yml").write_text(
        "- ansible.builtin.import_playbook: muster.training.site\n"
        "- {hosts: training, gather_facts: false, tags: own, tasks: [{ansible.builtin.debug: {msg: '{{ own }}'}}]}\n"
    )
    (tmp_path / "site.yml").write_text("- ansible.builtin.import_playbook: muster.training.site\n")
    return tmp_path


REFUSED = [
    (
        "--tags opn_mpi --skip-tags firewal -e open_mpi_compilr=true -e checkpoints_bucket=b -e nnodes=4",
        [
            "--tags opn_mpi: no role has this tag; did you mean open_mpi?",
            "--skip-tags firewal: no role has this tag; did you mean firewall?",
            "open_mpi_compilr is set (with -e), but the role has no such variable; did you mean open_mpi_compiler?",
            "checkpoints_bucket is set (with -e), but only the role checkpoints, which this playbook",
            "nnodes is set (with -e), but nothing reads it",
        ],
    ),
    (
        "--tags open_mpi,cifs_share,docker_data_root -e cifs_share_enabled=false -e docker_engine_enabled=true "
        "-e open_mpi_compiler=true",
        [
            "--tags open_mpi selects nothing: the role open_mpi is disabled on all nodes (to enable it, add -e "
            "open_mpi_enabled=true)",
            "the role cifs_share is disabled on all nodes (to enable it, add -e cifs_share_enabled=true)",
            "the role docker_data_root is disabled on all nodes (to enable it, set docker_data_root_path)",
            "docker_engine_enabled is set (with -e), but the tags exclude the role docker_engine",
            "open_mpi_compiler is set (with -e), but the role open_mpi is disabled on all nodes",
        ],
    ),
    ("-e code_source=nowhere", ["code_source is nowhere, but {}/nowhere does not exist on this machine"]),
]


@pytest.mark.parametrize(("arguments", "messages"), REFUSED)
def test_arguments_without_effect_are_refused_before_nodes_are_contacted(
    directory: Path, arguments: str, messages: list[str]
) -> None:
    completed = typed(directory, ["ansible-playbook", "site.yml", "-i", "machines.yml", *arguments.split()])
    output = " ".join(completed.stdout.split())
    assert completed.returncode == 2, output
    assert [item for item in messages if item.format(directory) not in output] == [], output
    assert output.count("open_mpi_compilr is set") <= 2, "told once, and once more as JSON"
    assert REACH_NODES_TASK not in output


def test_wrong_values_of_all_roles_are_refused_before_nodes_are_contacted(directory: Path) -> None:
    completed = typed(directory, ["ansible-playbook", "site.yml", "-i", "wrong.yml", "-e", "firewall_close=maybe"])
    output = [line.strip() for line in completed.stdout.replace("\\n", "\n").splitlines()]
    result = [line for line in output if " rejects a value" in line]
    assert completed.returncode == 2 and REACH_NODES_TASK not in completed.stdout, completed.stdout
    for role, where, reason in (
        ("wandb", " on a", "value of wandb_mode must be one of: online, offline, disabled, got: True"),
        ("firewall", " on b", "missing required arguments: port found in firewall_open"),
        ("ssh_mesh", " on b", "ssh_mesh_port is 'x', but must be an integer"),
        ("docker_engine", "", "docker_engine_enabled cannot be evaluated: 'nobody_says' is undefined"),
        ("hosts_file", "", "hosts_file_enabled is 7, but must be true or false"),
        ("firewall", "", "firewall_close is 'maybe', but must be true or false"),
    ):
        text = f"the role {role} rejects a value{where}: {reason}"
        # a second time as JSON
        assert len([line for line in result if text in line]) in (1, 2), f"{text}\n{completed.stdout}"
    assert "wandb_mode" not in "".join(line for line in result if " on c" in line)
    assert f"{CHECKOUT}/roles/ssh_mesh/defaults/main.yml lists the variables." in completed.stdout
    skipped = typed(directory, ["ansible-playbook", "site.yml", "-i", "wrong.yml", "--skip-tags", "ssh_mesh"])
    assert "the role ssh_mesh" not in skipped.stdout and "the role firewall" in skipped.stdout


@pytest.mark.one_core  # the environment of this ansible-core has ansible.posix
def test_arguments_with_an_effect_are_accepted(directory: Path) -> None:
    """Unknown variables in a file are also accepted, because the file may belong to other playbooks."""
    arguments = "-e site_group=training -e of_b=127.0.4.3 -e ansible_port=1 -e @settings.yml"
    completed = typed(directory, ["ansible-playbook", "muster.training.site", "-i", "machines.yml", *arguments.split()])
    assert f"TASK [{REACH_NODES_TASK}" in completed.stdout, completed.stdout


def test_tags_and_variables_of_other_plays_are_accepted(directory: Path) -> None:
    command = "ansible-playbook mine.yml -i machines.yml --tags own,hosts_file -e own=1"
    completed = typed(directory, command.split())
    assert f"TASK [{REACH_NODES_TASK}" in completed.stdout, completed.stdout


@pytest.mark.parametrize(("arguments", "refused"), [("", True), ("--tags hosts_file", False)])
def test_missing_collection_is_named_before_nodes_are_contacted(directory: Path, arguments: str, refused: bool) -> None:
    command = ["ansible-playbook", "site.yml", "-i", "machines.yml", *arguments.split()]
    completed = typed(directory, command, ANSIBLE_COLLECTIONS_SCAN_SYS_PATH="false")
    output = " ".join(completed.stdout.split())
    assert ("Install it: ansible-galaxy collection install ansible.posix" in output) == refused, output
    assert (REACH_NODES_TASK in output) != refused, output


@pytest.mark.one_core  # the environment of this ansible-core has ansible.posix
@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        ("", True),
        ("--tags hosts_file", True),
        ("--tags ssh_mesh", False),
        pytest.param("-e hosts_file_enabled=false", False, marks=pytest.mark.thorough),
        ("--limit a", False),  # a single node, which may be this machine
    ],
)
def test_several_nodes_on_this_machine_are_refused_before_any_change(
    directory: Path, arguments: str, refused: bool
) -> None:
    # without an interpreter, nothing can be changed on this machine
    (directory / "machines.yml").write_text(
        "training:\n  hosts: {a: {node_address: 127.0.4.1}, b: {node_address: 127.0.4.2}}\n"
        "  vars: {ansible_connection: local, ansible_python_interpreter: /nonexistent/python}\n"
    )
    command = ["ansible-playbook", "site.yml", "-i", "machines.yml", *arguments.split(), "--check"]
    completed = typed(directory, command)
    output = " ".join(completed.stdout.split())
    assert completed.returncode != 0, output
    assert ("a, b are all this machine (ansible_connection: local)" in output) == refused, output
    assert (REACH_NODES_TASK in output) != refused, output

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an installed collection to a running job, as a user types it: nothing is read from the checkout."""

from __future__ import annotations

import configparser
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support.paperspace_server.account import PaperspaceAccount
from tests.support.paperspace_server.objects import machine
from tests.support.paperspace_server.server import PaperspaceServer
from tests.unit.supervised import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
OTHER_CLOUDS = ("azure_rm", "digitalocean", "gcp_compute", "hcloud", "lambda_cloud", "openstack", "slurm", "terraform")
INVENTORY_FILES = {
    "paperspace": ["paperspace.yml"],
    "aws_ec2": ["aws_ec2.yml", "ranks.yml"],
    "static": ["static.yml", "ranks.yml"],
    "local": ["local.yml"],
    **{name: [f"{name}.yml", "ranks.yml"] for name in OTHER_CLOUDS},
}
# For sources without an API, the machines listed in their files.
MACHINES = {"local": ["local0", "local1"], "static": ["node0", "node1"]}
OTHER_FILES = [
    ".gitignore",
    "ansible.cfg",
    "benchmark.yml",
    "bucket_move.yml",
    "check.yml",
    "checkpoints.yml",
    "cost.yml",
    "diff.yml",
    "docker.yml",
    "env.yml",
    "fetch.yml",
    "fit.yml",
    "forgive.yml",
    "group_vars/training.yml",
    "image.yml",
    "join.yml",
    "keep.yml",
    "keys.yml",
    "launch.yml",
    "logs.yml",
    "muster",
    "page.yml",
    "ping.yml",
    "preflight.yml",
    "profile.yml",
    "provision.yml",
    "rehearse.yml",
    "report.yml",
    "runs.yml",
    "save.yml",
    "shell.yml",
    "site.yml",
    "stacks.yml",
    "stage_data.yml",
    "status.yml",
    "stop.yml",
    "sweep.yml",
    "teardown.yml",
]
SOURCES = yaml.safe_load((CHECKOUT / "roles/init/vars/main.yml").read_text())["__init_sources"]


class Run(NamedTuple):
    """One run of a command."""

    code: int
    output: str


class Shell:
    """A directory in which commands are typed."""

    def __init__(self, collections: Path, directory: Path, home: Path) -> None:
        self.collections = collections
        self.directory = directory
        self.home = home

    def __call__(self, command: str, **environment: str) -> Run:
        completed = subprocess.run(
            command.split(),
            check=False,
            cwd=self.directory,
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "HOME": str(self.home),
                "LC_ALL": "C.UTF-8",
                "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
                "ANSIBLE_COLLECTIONS_SCAN_SYS_PATH": "false",
                "ANSIBLE_NOCOLOR": "1",
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        return Run(completed.returncode, completed.stdout)

    def files(self) -> list[str]:
        """Return all files of the directory, including hidden ones."""
        return sorted(str(file.relative_to(self.directory)) for file in self.directory.rglob("*") if file.is_file())


@pytest.fixture(scope="session")
def collections(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection, built and installed with ansible-galaxy as its users install it: once, by the first worker."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "installed"
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "ansible_collections").exists():
            install(directory)
    return directory


def install(directory: Path) -> None:
    """Build the collection and install it."""
    shell = Shell(directory, CHECKOUT, directory)
    built = shell(f"ansible-galaxy collection build --output-path {directory}")
    assert built.code == 0, built.output
    (archive,) = directory.glob("muster-training-*.tar.gz")
    # ansible.posix is installed next to ansible itself, in a directory that this ansible-galaxy does not search
    installed = shell(f"ansible-galaxy collection install --offline --no-deps --collections-path {directory} {archive}")
    assert installed.code == 0, installed.output


def test_readme_installation_works_beside_a_linked_checkout(collections: Path, tmp_path: Path) -> None:
    """After `make demo` in an active .venv, Ansible already finds the same version of the collection."""
    (archive,) = collections.glob("muster-training-*.tar.gz")
    line = next(
        line for line in (CHECKOUT / "README.md").read_text().splitlines() if "install" in line and "./training" in line
    )
    arguments = line.partition("#")[0].replace("./training", f"--offline --no-deps -p {tmp_path}/there {archive}")
    run = Shell(tmp_path / "nowhere", tmp_path, tmp_path)(arguments, ANSIBLE_COLLECTIONS_SCAN_SYS_PATH="true")
    assert run.code == 0 and "was installed successfully" in run.output, run.output
    assert (tmp_path / "there" / "ansible_collections" / "muster" / "training" / "README.md").is_file()


@pytest.fixture
def shell(collections: Path, tmp_path: Path) -> Shell:
    """Return a user's shell in an empty directory."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir(mode=0o755)
    return Shell(collections, tmp_path / "project", tmp_path / "home")


@pytest.fixture(scope="module")
def paperspace_project(collections: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A newly written project, for tests that inspect or copy it."""
    directory = tmp_path_factory.mktemp("project")
    directory.chmod(0o755)
    run = Shell(collections, directory, directory)("ansible-playbook muster.training.init -e source=paperspace")
    assert run.code == 0, run.output
    return directory


@pytest.fixture
def paperspace() -> Iterator[PaperspaceServer]:
    """An account with four machines, all of which are this machine under different addresses."""
    machines = [machine(n, privateIp=f"127.0.3.{n + 1}", publicIp=f"127.0.3.{n + 1}") for n in range(4)]
    with PaperspaceServer(PaperspaceAccount(machines), key="test-key") as server:
        yield server


# --- Written files


@pytest.mark.parametrize(
    ("source", "directory", "where"),
    [
        ("paperspace", "", "."),
        pytest.param("aws_ec2", "my-project", "my-project", marks=pytest.mark.one_core),
        pytest.param("static", "~/my-project", "../home/my-project", marks=pytest.mark.one_core),
        ("local", "{home}/my-project", "../home/my-project"),
        *(pytest.param(name, "", ".", marks=[pytest.mark.one_core, pytest.mark.thorough]) for name in OTHER_CLOUDS),
    ],
)
def test_project_is_written_completely(shell: Shell, source: str, directory: str, where: str) -> None:
    option = f" -e directory={directory.format(home=shell.home)}" if directory else ""
    run = shell(f"ansible-playbook -i localhost, muster.training.init -e source={source}{option}")
    assert run.code == 0 and "WARNING" not in run.output, run.output
    shell.directory = (shell.directory / where).resolve()
    assert shell.files() == sorted([*OTHER_FILES, *INVENTORY_FILES[source]])
    assert f"Written to {shell.directory}: {', '.join(shell.files())}" in run.output
    assert "Existing files" not in run.output
    for name in INVENTORY_FILES[source]:
        assert (shell.directory / name).read_text() == (CHECKOUT / "inventories" / name).read_text()
    steps = run.output.partition("Next: ")[2]
    assert ("./muster site" in steps) == (source != "local") and " -i " not in steps, "ansible.cfg names the inventory"
    first_step = SOURCES[source]["first"]
    assert "{{" in first_step or first_step in steps
    assert '""' not in steps, "a source without a first step has no empty line"
    for name in shell.files():
        if name.endswith(".yml"):
            yaml.safe_load((shell.directory / name).read_text())
    if source in MACHINES:
        listed = shell("ansible-inventory --list")
        assert listed.code == 0, listed.output
        assert json.loads(listed.output)["training"]["hosts"] == MACHINES[source]


@pytest.mark.one_core
@pytest.mark.parametrize(
    ("arguments", "hosts"),
    [
        ("-e source=static -e machines=10.0.0.4,10.0.0.5", ["node0", "node1"]),
        ("-e source=hostfile -e hostfile=hosts.txt", ["gpu1.invalid", "node0"]),
    ],
)
def test_passed_machines_become_the_inventory(shell: Shell, arguments: str, hosts: list[str]) -> None:
    (shell.directory / "hosts.txt").write_text("gpu1.invalid slots=2\n10.0.0.5 slots=2\n")
    run = shell(f"ansible-playbook muster.training.init {arguments} -e directory=there")
    assert run.code == 0 and "reserved" not in run.output, run.output
    assert f"./muster launch -n {len(hosts)} train.py" in run.output
    shell.directory /= "there"
    assert shell.files() == sorted([*OTHER_FILES, *INVENTORY_FILES["static"]])
    listed = json.loads(shell("ansible-inventory -i static.yml --list").output)
    assert listed["training"]["hosts"] == hosts


@pytest.mark.one_core  # the launch needs torch
def test_next_steps_for_local_nodes_work_as_printed(shell: Shell) -> None:
    """The project's path contains a space and a non-ASCII character."""
    project = shell.directory / "mein projekt ü"
    options = shell.directory / "options.json"
    options.write_text(json.dumps({"directory": str(project)}))
    run = shell(f"ansible-playbook -i localhost, muster.training.init -e source=local -e @{options}")
    assert f"Next: cd '{project}'" in run.output, run.output
    steps = run.output.partition("Next: ")[2].partition("All commands")[0].splitlines()
    commands = [step.strip(' ",') for step in steps if step.strip(' ",')]
    assert [command.split()[0] for command in commands] == ["cd", "./muster", "cp", "./muster"]
    inventory = (project / "local.yml").read_text()
    (project / "local.yml").write_text(inventory.replace("127.0.0.", "127.0.53."))  # no other test's run is there
    with (project / "group_vars" / "training.yml").open("a") as settings:
        settings.write(f"\nlaunch_master_port: {free_port()}\nlaunch_lifeline_port: {free_port()}\n")
    typed = shell.directory / "typed.sh"
    typed.write_text("\n".join(["set -e", *commands]))
    completed = shell(f"sh {typed}")
    assert completed.code == 0 and "succeeded" in completed.output, completed.output


@pytest.mark.one_core
def test_existing_files_are_kept_and_named(shell: Shell) -> None:
    (shell.directory / "site.yml").write_text("mine")
    (shell.directory / ".gitignore").write_text("")
    first = shell("ansible-playbook muster.training.init -e source=static")
    assert "Existing files, left unchanged: .gitignore, site.yml" in first.output
    before = {name: (shell.directory / name).read_bytes() for name in shell.files()}
    again = shell("ansible-playbook muster.training.init -e source=static -v")
    assert again.code == 0, again.output
    assert " changed=0 " in again.output
    # The project's ansible.cfg allows YAML to break long lines.
    assert f"Existing files, left unchanged: {', '.join(shell.files())}" in " ".join(again.output.split())
    assert {name: (shell.directory / name).read_bytes() for name in shell.files()} == before
    assert before["site.yml"] == b"mine"


@pytest.mark.one_core
def test_check_mode_lists_files_and_writes_nothing(shell: Shell) -> None:
    run = shell("ansible-playbook muster.training.init -e source=local -e directory=a/b --check --diff")
    assert run.code == 0, run.output
    assert f"Written to {shell.directory}/a/b: .gitignore, ansible.cfg" in run.output
    assert shell.files() == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "no source of machines is set: choose the source of your machines with -e source=paperspace, -e"),
        (
            "-e source=hostfile -e hostfile=none",
            "/none: name the file that lists your machines with -e hostfile=hosts.txt",
        ),
        pytest.param(
            "-e source=static -e machines=a,a",
            "-e machines: host 2: a is listed twice. List each machine once",
            marks=pytest.mark.thorough,
        ),
        ("-e source=azure", "unknown source azure: choose the source of your machines with -e source=paperspace"),
        ("-e source=local -e directory=file", "/file is not a directory: remove it, or choose another directory with"),
        (
            "-e source=local -e directory=open",
            "/open is world-writable, and Ansible ignores an ansible.cfg in",
        ),
    ],
)
@pytest.mark.one_core
def test_invalid_arguments_are_refused_and_nothing_is_written(shell: Shell, arguments: str, text: str) -> None:
    (shell.directory / "file").touch()
    (shell.directory / "open").mkdir()
    (shell.directory / "open").chmod(0o777)
    run = shell(f"ansible-playbook muster.training.init {arguments}")
    assert run.code == 2
    assert text in run.output and "Finalization of task args" not in run.output
    assert shell.files() == ["file"]


@pytest.mark.one_core
def test_ansible_cfg_has_checkout_settings_and_the_inventory(paperspace_project: Path) -> None:

    def settings(path: Path) -> dict[tuple[str, str], str]:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(path)
        return {(section, key): value for section in parser.sections() for key, value in parser[section].items()}

    checkout, project = settings(CHECKOUT / "ansible.cfg"), settings(paperspace_project / "ansible.cfg")
    assert project.pop(("defaults", "inventory")) == "paperspace.yml"
    assert project.pop(("inventory", "enable_plugins")) == "auto, yaml, host_list"
    assert project == checkout


@pytest.mark.one_core
def test_group_vars_hold_only_role_variables(paperspace_project: Path) -> None:
    text = (paperspace_project / "group_vars" / "training.yml").read_text()
    # Every commented-out line that looks like a setting, and every active setting.
    lines = [line.removeprefix("# ") for line in text.splitlines()]
    names = {line.partition(":")[0] for line in lines if line.partition(":")[0].isidentifier()}
    variables = set().union(*(yaml.safe_load(path.read_text()) for path in CHECKOUT.glob("roles/*/defaults/main.yml")))
    variables |= {"ansible_ssh_private_key_file", "ansible_ssh_common_args"}
    assert names <= variables
    assert names >= {
        "code_source",
        "launch_image",
        "launch_pass_environment",
        "python_env_requirements",
        "python_env_requirements_files",
        "pytorch_version",
        "wandb_project",
    }


def test_project_has_every_playbook_of_the_collection() -> None:
    """The playbook init itself is excluded."""
    assert {path.name for path in (CHECKOUT / "playbooks").glob("*.yml")} - {"init.yml"} <= set(OTHER_FILES)


@pytest.mark.one_core
def test_secrets_stay_out_of_git(paperspace_project: Path, shell: Shell) -> None:
    assert shell("git init --quiet").code == 0
    (shell.directory / ".gitignore").write_bytes((paperspace_project / ".gitignore").read_bytes())
    for name in (".env", "wandb.key", "id_ed25519", "group_vars/secrets.yml", ".vault_pass", "runs/x"):
        assert shell(f"git check-ignore --quiet {name}").code == 0
    for name in ("train.py", "group_vars/training.yml", "paperspace.yml", "ansible.cfg"):
        assert shell(f"git check-ignore --quiet {name}").code == 1


# --- How the written files are used


def test_paperspace_inventory_lists_the_machines(
    shell: Shell, paperspace_project: Path, paperspace: PaperspaceServer
) -> None:
    shutil.copytree(paperspace_project, shell.directory, dirs_exist_ok=True)
    run = shell("ansible-inventory --list", PAPERSPACE_API_KEY=paperspace.key, PAPERSPACE_API_URL=paperspace.url)
    assert json.loads(run.output)["training"]["hosts"] == ["node-0", "node-1", "node-2", "node-3"]


def test_failing_inventory_source_stops_every_command(
    shell: Shell, paperspace_project: Path, paperspace: PaperspaceServer
) -> None:
    shutil.copytree(paperspace_project, shell.directory, dirs_exist_ok=True)
    settings = {"PAPERSPACE_API_KEY": "wrong", "PAPERSPACE_API_URL": paperspace.url}
    for command in (
        "ansible-playbook launch.yml -v -e nnodes=4",
        "ansible-playbook status.yml -v",
        "ansible-inventory --list",
    ):
        run = shell(command, **settings)
        assert run.code != 0
        assert "muster.training.paperspace: GET /machines: HTTP 401 UNAUTHORIZED: You must be logged in" in run.output
        assert "PLAY" not in run.output


SCRIPT = """
import os
print("train.py runs on node", os.environ["NODE_RANK"], flush=True)
"""


def test_paperspace_project_launches_a_job(
    shell: Shell, paperspace_project: Path, paperspace: PaperspaceServer
) -> None:
    """`ansible-playbook launch.yml -e nnodes=4`, on machines that the API lists."""
    shutil.copytree(paperspace_project, shell.directory, dirs_exist_ok=True)
    (shell.home / "train.py").write_text(SCRIPT)
    with (shell.directory / "group_vars" / "training.yml").open("a") as settings:
        # All nodes are this machine: without SSH, each with its own ports.
        settings.write(
            f"""
ansible_connection: local
ansible_python_interpreter: {sys.executable}
launch_python: {sys.executable}
launch_launcher: env
launch_working_directory: {shell.home}
launch_node_directory: {shell.home}/runs
launch_master_port: {free_port()}
launch_lifeline_port: {free_port()}
"""
        )
    environment = {"PAPERSPACE_API_KEY": paperspace.key, "PAPERSPACE_API_URL": paperspace.url}
    run = shell("ansible-playbook launch.yml -e nnodes=4", **environment)
    assert run.code == 0, run.output
    assert "train.py runs on node 0" in run.output
    assert "succeeded" in run.output
    assert "4 nodes, world size 8" in run.output
    assert len(list((shell.directory / "runs").iterdir())) > 0
    status = shell("ansible-playbook status.yml", **environment)
    assert status.code == 0, status.output
    assert "succeeded" in status.output

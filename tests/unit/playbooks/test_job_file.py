# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job from a job file runs as written, and the command line overrides it."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.supervised import free_port, own_network
from tests.unit.typed import CHECKOUT, give_collection, typed

pytestmark = pytest.mark.one_core
JOB = """
job:
  nnodes: 2
  nproc_per_node: 1
  launcher: env
  script: show.py
  working_directory: {directory}
  python: {python}
  args: [--lr, 1e-3, 007, "a b", !unsafe '{{{{ x }}}}']
  environment:
    COLOUR: "7"
"""
SHOW = "import json, os, sys; print('told', json.dumps([*sys.argv[1:], os.environ['COLOUR']]), flush=True)"

REFUSING = ("preflight", "site")  # these playbooks reject an invalid job file in the same way as launch


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create two local nodes, a script, and a job file."""
    give_collection(tmp_path)
    settings = {
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "launch_node_directory": str(tmp_path / "runs"),
        "launch_master_port": free_port(),
        "launch_lifeline_port": free_port(),
    }
    hosts = {name: {"node_address": f"{own_network(4)}.{number}"} for number, name in enumerate(("a", "b"), 1)}
    (tmp_path / "machines.yml").write_text(json.dumps({"training": {"hosts": hosts, "vars": settings}}))
    (tmp_path / "show.py").write_text(SHOW)
    (tmp_path / "job.yml").write_text(JOB.format(directory=tmp_path, python=sys.executable))
    return tmp_path


def run(directory: Path, playbook: str, *more: str) -> tuple[int, str]:
    arguments = ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", "-e", "@job.yml", *more]
    completed = typed(directory, arguments)
    return completed.returncode, completed.stdout


def test_job_file_runs_with_literal_and_additional_arguments(directory: Path) -> None:
    code, output = run(directory, "launch", "-e", '{"more_args": ["--epochs", "4"]}')
    assert code == 0, output
    assert 'told ["--lr", "1e-3", "007", "a b", "{{ x }}", "--epochs", "4", "7"]' in output
    assert "2 nodes, world size 2, env" in output
    query = ["ansible-playbook", "muster.training.status", "-i", "machines.yml", "-e", "jmespath=nodes[].state"]
    completed = typed(directory, query, ANSIBLE_STDOUT_CALLBACK="muster.training.roll")
    assert json.loads(completed.stdout) == ["succeeded", "succeeded"], "and nothing about the end of the run"


def test_command_line_overrides_job_file(directory: Path) -> None:
    code, output = run(directory, "launch", "-e", "nnodes=1", "-e", "launch_args='--epochs 3'", "--check")
    assert code == 0, output
    assert "1 node, world size 1, env" in output and "show.py --epochs 3" in output


@pytest.mark.parametrize(
    ("extra_variables", "result"),
    [
        pytest.param(("code_source=/somewhere/project",), "/project", marks=pytest.mark.thorough),
        (("code_source=/somewhere/project", "code_directory=other"), "/other"),
        pytest.param(("code_source=.",), "/home", marks=pytest.mark.thorough),
        ((), ""),
    ],
)
def test_job_starts_in_the_directory_its_code_is_copied_to(
    directory: Path, extra_variables: tuple[str, ...], result: str
) -> None:
    path = directory / "job.yml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "working_directory" not in line))
    (directory / "home").mkdir()
    more = [word for item in extra_variables for word in ("-e", item)]
    arguments = [
        "ansible-playbook",
        "muster.training.launch",
        "-i",
        "../machines.yml",
        "-e",
        "@../job.yml",
        "--check",
        *more,
    ]
    completed = typed(directory, ["sh", "-c", f"cd home && exec {shlex.join(arguments)}"])
    assert f"directory    {pwd.getpwuid(os.getuid()).pw_dir}{result}\n" in completed.stdout, completed.stdout


@pytest.mark.parametrize("playbook", ["launch", *(pytest.param(p, marks=pytest.mark.thorough) for p in REFUSING)])
def test_unknown_key_in_job_file_is_refused_before_anything_starts(directory: Path, playbook: str) -> None:
    path = directory / "job.yml"
    path.write_text(path.read_text().replace("launcher:", "lancher:"))
    code, output = run(directory, playbook)
    assert code == 2 and "job has lancher, but nothing reads it; did you mean launcher?" in output, output
    assert not (directory / "runs").exists()


def test_preflight_checks_the_script_of_the_job_file(directory: Path) -> None:
    (directory / "show.py").unlink()
    code, output = run(directory, "preflight")
    assert code == 2 and f"{directory}/show.py is missing or not readable" in " ".join(output.split()), output


def set_in_project(directory: Path, **settings: object) -> None:
    """Set variables for all nodes, as in group_vars/training.yml."""
    path = directory / "machines.yml"
    inventory = json.loads(path.read_text())
    inventory["training"]["vars"].update(settings)
    path.write_text(json.dumps(inventory))


def write_job(directory: Path, **keys: object) -> None:
    """Write a job file and its script to a separate directory."""
    (directory / "toy").mkdir()
    (directory / "toy/show.py").write_text(SHOW)
    (directory / "job.yml").rename(directory / "toy/job.yml")
    job = {"nnodes": 2, "nproc_per_node": 1, "launcher": "env", "script": "show.py", "python": sys.executable, **keys}
    (directory / "toy/job.yml").write_text(json.dumps({"job": job}))


def run_toy(directory: Path, playbook: str, *more: str) -> str:
    command = ["ansible-playbook", f"muster.training.{playbook}", "-i", "machines.yml", "-e", "@toy/job.yml", *more]
    return " ".join(typed(directory, command).stdout.split())


def test_job_file_replaces_the_job_of_the_project(directory: Path) -> None:
    """Each command uses the program that belongs to the code of the job file."""
    write_job(directory, code=".")
    set_in_project(
        directory,
        launch_script="train.py",
        launch_args=["--resume"],
        launch_working_directory=str(directory),
        code_source=str(directory / "project"),
        launch_user="",
    )
    home = pwd.getpwuid(os.getuid()).pw_dir
    line = f"toy/job.yml overrides these project settings: code_source: {directory}/project"[:100]
    launched = run_toy(directory, "launch", "--check")
    assert line in launched and f"directory {home}/toy " in launched and "show.py " in launched, launched
    assert "launch_script: train.py" in launched and "--resume" not in launched, launched
    checked = run_toy(directory, "preflight")
    assert line in checked and f"{home}/toy" in checked and f"{directory}/project" not in checked.partition("FAILED")[2]
    prepared = run_toy(directory, "site", "--check")
    assert line in prepared and "code_source is" not in prepared, prepared


def test_paths_in_a_job_file_are_relative_to_it(directory: Path) -> None:
    write_job(directory, code="../toy/../missing")
    output = run_toy(directory, "site", "--check")
    assert f"code_source is {directory}/missing, but {directory}/missing does not exist on this machine" in output


@pytest.mark.parametrize("playbook", [pytest.param("launch", marks=pytest.mark.thorough), *REFUSING])
def test_value_that_cannot_be_evaluated_is_named_with_its_file(directory: Path, playbook: str) -> None:
    write_job(directory, environment={"A": "b", "X": "{{ undefined_name }}"})
    output = run_toy(directory, playbook)
    assert "toy/job.yml: environment: X cannot be evaluated: 'undefined_name' is undefined. If the braces" in output
    assert "put !unsafe before it: X: !unsafe '...'" in output, output


def test_program_of_a_role_runs_despite_a_job_file(directory: Path) -> None:
    """For example, the open_mpi role verifies its installation while a job is being prepared."""
    refused = {"scheduler": "slurm", "spares": 1, "restarts": 2, "checkpoints": "out", "cost_limit": 1, "gpus": [7]}
    write_job(directory, args=["--epochs", "3"], **refused)
    tasks = yaml.safe_load((CHECKOUT / "roles/open_mpi/tasks/verify.yml").read_text())
    (block,) = (task["block"] for task in tasks if "block" in task)
    vars_ = block[-2]["vars"]
    role_variables = yaml.safe_load((CHECKOUT / "roles/open_mpi/vars/main.yml").read_text())
    launch_variables = {
        **{name: value for name, value in vars_.items() if "{{" not in str(value)},
        "launch_script": str(directory / "own.py"),
        "launch_launcher": "env",
        "launch_no_python": False,
        "launch_python": sys.executable,
        "launch_skip": role_variables["__open_mpi_skip_of_jobs"],
    }
    assert "__open_mpi_skip_of_jobs" in vars_["launch_skip"]
    (directory / "own.py").write_text("import sys; print('own', sys.argv[1:], flush=True)")
    play = {"hosts": "training", "gather_facts": False}
    play["tasks"] = [{"ansible.builtin.include_role": {"name": "muster.training.launch"}, "vars": launch_variables}]
    (directory / "own.yml").write_text(json.dumps([play]))
    completed = typed(directory, ["ansible-playbook", "own.yml", "-i", "machines.yml", "-e", "@toy/job.yml"])
    assert completed.returncode == 0 and "own []" in completed.stdout, completed.stdout
    assert "code-older" not in completed.stdout, completed.stdout

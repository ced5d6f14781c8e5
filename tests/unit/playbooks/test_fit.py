# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fit.yml on two local nodes, with a real memory limit and after interruptions; launch.yml with its batch size."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.unit.two_nodes import state_of, two_nodes, wait_until_it_runs
from tests.unit.typed import begun, killed, typed

pytestmark = pytest.mark.one_core  # needs ansible-runner

NODES = ["one", "other"]
# On the second node, allocates 100 MiB per batch with a limit of 1 GiB; waits while a file exists next to the script.
JOB = """
import os, resource, sys, time

batch = int(sys.argv[1])
while os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "wait")):
    time.sleep(0.1)
if os.environ["NODE_RANK"] == "1":
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    kept = bytearray(batch * (100 << 20))
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection, an inventory of two nodes, and a job."""
    two_nodes(tmp_path, 11, NODES, launch_launcher="env", launch_report=False)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def fit_command(directory: Path, *more: str) -> list[str]:
    job = ["-e", f"launch_script={directory}/job.py", "-e", '{"fit_args": ["{batch_size}"]}', "-e", "fit_multiple=4"]
    return ["ansible-playbook", "muster.training.fit", "-i", "machines.yml", *job, *more]


def launch_fitted(directory: Path, script: str, *more: str) -> tuple[int, str]:
    """Launch with the batch size of the search; return the exit status and the output on one line."""
    job = ["-e", f"launch_script={directory}/{script}", "-e", "fitted=fit", "-e", "run_id=whole"]
    completed = typed(directory, ["ansible-playbook", "muster.training.launch", "-i", "machines.yml", *job, *more])
    return completed.returncode, " ".join(completed.stdout.split())


def test_largest_batch_is_determined_and_used_by_a_launch(directory: Path) -> None:
    completed = typed(directory, fit_command(directory, "-e", "fit_start=8", "-e", "fit_max=12"))
    assert completed.returncode == 0, completed.stdout
    assert "[fit] batch 8 fits" in completed.stdout and "[fit] batch 12 does not fit: MemoryError" in completed.stdout
    assert "fit: the largest batch size per rank is 4, after 3 probes" in completed.stdout, completed.stdout
    code, output = launch_fitted(directory, "job.py", "-e", '{"launch_args": ["{batch_size}", "--lr", 1e-5]}')
    assert code == 0 and "[fit] batch 4, found by fit" in output, output
    plan = json.loads((directory / "runs" / "whole" / "plan.json").read_text())
    assert plan["command"][-4:] == [f"{directory}/job.py", "4", "--lr", "1e-5"], "all else is as it was written"


@pytest.mark.thorough  # the test above, and test_sweep.py for an interrupted sequence
def test_interrupted_search_resumes_and_finds_the_memory_limit(directory: Path) -> None:
    (directory / "wait").touch()
    command = fit_command(directory, "-e", "fit_start=8", "-e", "fit_max=12")
    process = begun(directory, command)
    try:
        wait_until_it_runs(directory, process, "fit-b8")
    finally:
        os.killpg(process.pid, signal.SIGINT)  # like Ctrl-C
        output, _none = process.communicate(timeout=240)
    assert process.returncode != 0, output
    assert state_of(directory, "fit-b8") != "running", "the run was stopped before the command ended"
    assert json.loads((directory / "runs" / "fit" / "fit.json").read_text())["running"] == "fit-b8"
    code, output = launch_fitted(directory, "job.py")
    assert code == 2 and "fit is an unfinished search, after 0 launches" in output, output
    process = begun(directory, command)
    try:
        wait_until_it_runs(directory, process, "fit-b8-2")
    finally:
        output = killed(process)
    assert state_of(directory, "fit-b8-2") == "running", output
    (directory / "wait").unlink()
    completed = typed(directory, command)
    assert completed.returncode == 0, completed.stdout
    assert "[fit] batch 8 fits" in completed.stdout and "[fit] batch 12 does not fit: MemoryError" in completed.stdout
    assert "fit: the largest batch size per rank is 4, after 3 probes" in completed.stdout, completed.stdout
    record = json.loads((directory / "runs" / "fit" / "fit.json").read_text())
    assert [item["run_id"] for item in record["history"]] == ["fit-b8-3", "fit-b12", "fit-b4"]
    assert state_of(directory, "fit-b8-2") != "running", "which nobody had watched any more"

    code, output = launch_fitted(directory, "other.py")
    assert code == 2 and f"fit is a search with {directory}/job.py, but this run starts" in output, output
    code, output = launch_fitted(directory, "job.py", "-e", "fitted=fti")
    assert code == 2 and "fitted is fti, but " in output and "(it has fit): run ansible-playbook" in output, output
    assert sorted(path.name for path in (directory / "nodes").iterdir()) == [
        *("fit-b12", "fit-b4", "fit-b8", "fit-b8-2", "fit-b8-3")
    ]
    code, output = launch_fitted(directory, "job.py", "-e", '{"launch_args": ["{batch_size}", "--lr", 1e-5]}')
    assert code == 0 and "[fit] batch 4, found by fit" in output, output
    plan = json.loads((directory / "runs" / "whole" / "plan.json").read_text())
    assert plan["command"][-4:] == [f"{directory}/job.py", "4", "--lr", "1e-5"], "all else is as it was written"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            '{"fit_args": ["--batch_size", "8"]}',
            "fit_args, the script's arguments, do not contain {batch_size}: put it where the script takes its "
            "batch size, such as ",
        ),
        ("fitted=fit", "fitted is the result of a search and cannot be used in another search: remove it"),
        pytest.param("fit_strat=4", "did you mean fit_start?", marks=pytest.mark.thorough),
        ("fit_start=9000", "fit_start is 9000, but must be between 1 and fit_max, which is 4096"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_starts(directory: Path, more: str, message: str) -> None:
    completed = typed(directory, fit_command(directory, "-e", more))
    assert completed.returncode == 2 and message in " ".join(completed.stdout.split()), completed.stdout
    assert not (directory / "runs").exists() and not (directory / "nodes").exists()


def test_two_playbooks_in_one_command_are_refused(directory: Path) -> None:
    first, *arguments = fit_command(directory)
    completed = typed(directory, [first, "muster.training.fit", *arguments])
    assert completed.returncode == 2 and "2 playbooks were passed together" in " ".join(completed.stdout.split()), (
        completed.stdout
    )
    assert not (directory / "runs").exists()


@pytest.mark.thorough  # unit/plugins/plugin_utils/experiments/fit stops at such a failure
def test_script_error_ends_the_search_at_the_first_launch(directory: Path) -> None:
    (directory / "job.py").write_text("print(modle)\n")
    completed = typed(directory, fit_command(directory))
    assert (
        completed.returncode == 2
        and "fit-b8 failed for a reason other than a lack of memory: NameError" in completed.stdout
    ), completed.stdout
    assert sorted(path.name for path in (directory / "nodes").iterdir()) == ["fit-b8"]

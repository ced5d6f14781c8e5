# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After Ctrl-C, a detached launch or fetched logs, the output names the active run and the next commands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from tests.unit.supervised import eventually
from tests.unit.two_nodes import two_nodes
from tests.unit.typed import typed

LAUNCH = "ansible-playbook muster.training.launch -i machines.yml"
ROLL = {"ANSIBLE_STDOUT_CALLBACK": "muster.training.roll"}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Create the collection, an inventory of two local nodes, and a job that waits for a file."""
    two_nodes(
        tmp_path, 8, launch_launcher="env", launch_report=False, launch_script=f"{tmp_path}/wait.py", launch_skip=[]
    )
    (tmp_path / "wait.py").write_text(
        "import pathlib, time\n"
        "print('MUSTER_RESULT {\"loss\": 0.5}')\n"
        "print('it waits', flush=True)\n"
        f"while not pathlib.Path({str(tmp_path / 'end')!r}).exists():\n    time.sleep(0.1)\n"
    )
    yield tmp_path
    for name in ("local0", "local1"):
        for run in ("first", "second"):
            run_stop.stop({"run_id": run, "runs_directory": f"{tmp_path}/nodes", "node": name, "check": False})


def commands(printed: str, run: str) -> dict[str, str]:
    """Return the three commands that are printed for a run, by playbook."""
    result = re.findall(r"^  [a-z ]+:  +(ansible-playbook muster\.training\.(\w+) .*)$", printed, re.MULTILINE)
    assert [name for _command, name in result] == ["status", "logs", "stop"], printed
    assert all(command.endswith(f" -i machines.yml -e run_id={run}") for command, _name in result)
    return {name: command for command, name in result}


@pytest.mark.one_core
def test_closing_hints_are_commands_that_work(directory: Path) -> None:
    environment = {
        **{"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(directory), "LC_ALL": "C.UTF-8"},
        **{"ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"), "ANSIBLE_NOCOLOR": "1", **ROLL},
    }
    output = directory / "output"  # a file, as with "> output"
    with output.open("w") as stream:
        watched = subprocess.Popen(
            [*LAUNCH.split(), "-e", "run_id=first"],
            cwd=directory,
            env=environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    eventually(lambda: "it waits" in output.read_text() or watched.poll() is not None)
    assert watched.poll() is None, output.read_text()
    os.killpg(watched.pid, signal.SIGINT)  # like a terminal
    watched.wait(timeout=120)
    printed = output.read_text()
    end = printed.partition("it waits")[2]
    assert "run first keeps running on its nodes.\n" in end, printed
    hints = commands(end, "first")
    assert "running" in typed(directory, hints["status"].split(), **ROLL).stdout
    stopped = typed(directory, hints["stop"].split(), **ROLL)
    assert stopped.returncode == 0, stopped.stdout
    result = json.loads((directory / "runs" / "first" / "result.json").read_text())
    assert result["job_results"] == {"loss": 0.5}, "though nobody was there when it ended"

    detached = typed(directory, [*LAUNCH.split(), "-e", "run_id=second", "-e", "detach=true"], **ROLL)
    assert detached.returncode == 0 and detached.stdout.count("run second keeps running on its nodes.\n") == 1, (
        detached.stdout
    )
    hints = commands(detached.stdout, "second")
    (directory / "end").touch()
    fetched = typed(directory, [*hints["logs"].split(), "-e", "fetch=true"], **ROLL)
    logs = directory / "runs" / "second" / "logs"
    assert fetched.returncode == 0 and fetched.stdout.count(f"the logs of run second are in {logs}, ") == 1
    assert (logs / "node0" / "launcher.log").exists()
    # no hints after a launch that was watched to completion
    third = typed(directory, [*LAUNCH.split(), "-e", "run_id=third"], **ROLL)
    assert third.returncode == 0 and "keeps running on its nodes" not in third.stdout, third.stdout

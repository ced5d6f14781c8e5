# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container ends with its run: real supervisors, and a stand-in for the engine.

Its daemon starts the container, so that is not the supervisor's child. As docker does, it finishes a creation whose
client was killed, and knows no container of that name before.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import container_creation, unit
from ansible_collections.muster.training.plugins.module_utils._run.container_creation import (
    ID_FILE,
    MARKER,
    ContainerCreation,
    is_creating,
    removal_command,
)
from tests.unit.supervised import Run, end_by_force, eventually, make_run

# The container is `daemon.pid`; `started` exists once it is running.
ENGINE = """#!/bin/sh
cd "$(dirname "$0")"
if [ "$1" = rm ]; then
    echo "$@" >> requests
    if [ ! -e started ] || [ -e removed ]; then
        echo "Error: No such container: $3" >&2
        exit $(cat code_without_container)
    fi
    touch removed
    kill -9 $(cat daemon.pid)
    echo $3
    exit
fi
for argument in "$@"; do
    case $argument in
        --cidfile=*) file=${argument#*=} ;;
    esac
done
[ ! -e "$file" ] || exit 125
echo $$ > client.pid
echo run > daemon
while [ ! -e started ]; do sleep 0.02; done
echo 0123456789ab > "$file"
while kill -0 $(cat daemon.pid); do sleep 0.1; done
exit 137
"""
DAEMON = (
    "read -r _ < daemon; touch requested; while [ ! -e finish ]; do sleep 0.02; done; touch started; exec sleep 631"
)
NAME = ["rm", "--force", "it"]
CLIENT = "client.pid"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a run of one node in a container."""
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    (tmp_path / "code_without_container").write_text("1")
    run = make_run(tmp_path, [["unused"]])
    run.plans[0].update(wrap=[str(engine), "run"], remove=[str(engine), *NAME])
    return run


@pytest.fixture
def container(run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process that the engine creates as the run's container."""
    os.mkfifo(run.directory / "daemon")
    with subprocess.Popen(["/bin/sh", "-c", DAEMON], cwd=run.directory) as container:
        (run.directory / "daemon.pid").write_text(str(container.pid))
        try:
            yield container
            end_by_force(run)
        finally:
            container.kill()


def requests(run: Run) -> list[str]:
    path = run.directory / "requests"
    return path.read_text().splitlines() if path.exists() else []


def end(run: Run, how: str) -> None:
    if how == "stop":
        run.stop()
    elif how == "engine":
        os.kill(int((run.directory / CLIENT).read_text()), signal.SIGKILL)
    else:
        os.kill(run.supervisor(0), signal.SIGKILL)


@pytest.mark.parametrize("how", ["stop", "engine", "supervisor"])
def test_running_container_ends_with_the_run(run: Run, container: subprocess.Popen[bytes], how: str) -> None:
    (run.directory / "finish").touch()
    run.start()
    eventually((run.directory / "started").exists)
    run.wait_for("running")
    eventually(lambda: not (run.node(0) / MARKER).exists())
    assert container.poll() is None
    end(run, how)
    eventually(lambda: container.poll() is not None)
    run.wait_until_gone()
    assert set(requests(run)) == {" ".join(NAME)}
    assert len(requests(run)) <= 2, "the removal of a container that exists is not repeated"


@pytest.mark.parametrize(
    ("code", "how"),
    [
        *(("0", how) for how in ("stop", "engine", "supervisor")),
        *(pytest.param("1", how, marks=pytest.mark.thorough) for how in ("stop", "engine", "supervisor")),
    ],
)
def test_container_that_is_created_late_ends_with_the_run(
    run: Run, container: subprocess.Popen[bytes], how: str, code: str
) -> None:
    """The exit code of docker and podman if no such container exists depends on their version."""
    (run.directory / "code_without_container").write_text(code)
    run.start()
    eventually((run.directory / "requested").exists)
    run.wait_for("running")
    end(run, how)
    eventually(lambda: requests(run))
    (run.directory / "finish").touch()
    eventually(lambda: container.poll() is not None)
    run.wait_until_gone()
    assert not (run.node(0) / MARKER).exists()


def test_removal_is_not_repeated_forever(run: Run, container: subprocess.Popen[bytes]) -> None:
    run.set_constant("CONTAINER_CREATION_TIMEOUT", 1.0)
    run.start()
    eventually((run.directory / "requested").exists)
    run.wait_for("running")
    end(run, "supervisor")
    run.wait_until_gone()
    assert len(requests(run)) > 1 and container.poll() is None


def test_creation_ends_when_the_container_id_is_known_or_the_client_exits(tmp_path: Path) -> None:
    directory = str(tmp_path)
    creation = ContainerCreation(directory)
    assert creation.begin([]) == [] and not is_creating(directory), "there is no container"
    (tmp_path / ID_FILE).write_text("of an earlier attempt")
    command = creation.begin(["docker", "run", "--rm", "image"])
    assert command == ["docker", "run", f"--cidfile={tmp_path / ID_FILE}", "--rm", "image"]
    assert not (tmp_path / ID_FILE).exists() and is_creating(directory)
    creation.step(None)
    creation.step(-signal.SIGTERM)
    assert is_creating(directory), "the client was killed, but the engine continues"
    (tmp_path / ID_FILE).touch()
    creation.step(None)
    assert is_creating(directory), "docker's client creates the file first, and writes it last"
    (tmp_path / ID_FILE).write_text("0123456789ab")
    assert not is_creating(directory)
    creation.step(None)
    assert not (tmp_path / MARKER).exists()
    for code in (0, 125):
        creation.begin(["docker", "run"])
        creation.step(code)
        assert not is_creating(directory)


def test_removal_costs_nothing_unless_container_creation_was_interrupted(tmp_path: Path) -> None:
    plan: Any = {"remove": ["docker", *NAME]}
    assert removal_command(plan, str(tmp_path), 5.0) == plan["remove"]
    (tmp_path / MARKER).touch()
    assert container_creation.OPTION in removal_command(plan, str(tmp_path), 5.0)


@pytest.mark.parametrize("program", ["removes", "fails", None])
@pytest.mark.parametrize("creating", [True, False])
def test_unit_removes_the_container(tmp_path: Path, program: str | None, creating: bool) -> None:
    """The command of ExecStopPost, after systemd has split it, in a directory whose name needs quotes."""
    directory = tmp_path / "it's a $HOME dir"
    directory.mkdir()
    if program:
        (directory / "supervisor.py").write_text(f"import sys; print(sys.argv[1:]); sys.exit({program == 'fails'})")
    if creating:
        (directory / MARKER).touch()
    command = container_creation.unit_removal({"remove": ["echo", *NAME]}, str(directory), sys.executable, 60.0)
    result = subprocess.run([word.replace("$$", "$") for word in command], capture_output=True, text=True, check=False)
    repeated = f"{[container_creation.OPTION, str(directory), '60']}\n" if program and creating else ""
    single = "" if program == "removes" and creating else " ".join(NAME) + "\n"
    assert result.returncode == 0 and result.stdout == repeated + single


def test_unit_has_time_to_remove_a_container(run: Run) -> None:
    command = unit.unit_command(run.plans[0], "/runs/a b/node0", "me", ["/usr/bin/python3"])
    (removal,) = (word for word in command if word.startswith("--property=ExecStopPost=-"))
    arguments = shlex.split(removal.partition("=-")[2])
    assert arguments[:2] == ["/bin/sh", "-c"] and arguments[3] == "/runs/a b/node0"
    assert arguments[6:] == run.plans[0]["remove"]
    assert "--property=TimeoutStopSec=140.5" in command, json.dumps(command)

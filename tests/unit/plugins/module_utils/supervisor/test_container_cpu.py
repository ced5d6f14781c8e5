# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU time of jobs in containers: from made-up cgroups, and real processes that are not the supervisor's children.

The scenario `docker` of Molecule reads that of real containers.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.processes import descendants
from ansible_collections.muster.training.plugins.module_utils._supervisor.health import container_cpu
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.container_cpu import (
    ACCOUNTING,
    TICKS,
    ContainerCpu,
    group_ticks,
    is_separate,
    outermost,
    parse_group,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.health.idle import JobCpu
from tests.unit.plugins.module_utils.supervisor.test_idle import BUSY, SLEEPS, TEXT
from tests.unit.supervised import end_by_force, eventually, free_port, make_run

DOCKER = "/system.slice/docker-0123.scope"
ENGINE = """#!/bin/sh
if [ "$1" = rm ]; then echo $3; exit; fi
exec sleep 600
"""


@pytest.mark.parametrize(
    ("text", "group"),
    [
        (f"0::{DOCKER}\n", ("", DOCKER)),
        (f"12:pids:/a\n4:cpu,cpuacct:/docker/0123\n0::{DOCKER}\n", (ACCOUNTING, "/docker/0123")),
        (f"2:cpuacct:/\n1:cpu:/\n0::{DOCKER}\n", ("", DOCKER)),
        ("12:pids:/a\n", ("", "")),
        ("", ("", "")),
        ("0::/a:b\nrubbish\n", ("", "/a:b")),
    ],
)
def test_cgroup_of_a_process_is_parsed(text: str, group: tuple[str, str]) -> None:
    assert parse_group(text) == group


@pytest.mark.parametrize(
    ("path", "own_path", "separate"),
    [
        (DOCKER, "/system.slice/muster-a.service", True),
        (DOCKER, "/", True),
        ("/system.slice/muster-a.service", "/system.slice/muster-a.service", False),
        ("/system.slice", "/system.slice/muster-a.service", False),
        ("/system.slice/muster-a.service/libpod-1", "/system.slice/muster-a.service", True),
        ("/", "/system.slice/muster-a.service", False),
        ("/../../docker/0123", "/", False),
        ("", "/", False),
    ],
)
def test_cgroup_that_contains_other_processes_is_not_the_container(path: str, own_path: str, separate: bool) -> None:
    assert is_separate(("", path), ("", own_path)) == separate


def test_nested_cgroup_usage_is_counted_once() -> None:
    assert outermost([("", "/a/b"), ("", "/a"), ("", "/ab"), ("", "/a")]) == [("", "/a"), ("", "/ab")]


def test_usage_of_a_cgroup_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_cpu, "GROUPS", str(tmp_path))
    for path, text in {
        "a/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
        "cpuacct/a/cpuacct.usage": "2500000000\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    assert group_ticks(("", "/a")) == group_ticks((ACCOUNTING, "/a")) == 2.5 * TICKS
    (tmp_path / "a/cpu.stat").write_text("rubbish\n")
    assert group_ticks(("", "/a")) is None and group_ticks(("", "/b")) is None


@pytest.fixture
def contained(tmp_path: Path) -> Iterator[Callable[[Path, list[str]], subprocess.Popen[bytes]]]:
    """Start processes as an engine does: with the variables of a run, but not as children of its supervisor."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(directory: Path, command: list[str]) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "MUSTER_RUN_DIRECTORY": str(directory)}
        processes.append(subprocess.Popen(command, env=environment))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def test_cgroup_is_read_until_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The next attempt has another container."""
    process = contained(tmp_path, SLEEPS)
    monkeypatch.setattr(container_cpu, "GROUPS", str(tmp_path))
    monkeypatch.setattr(container_cpu, "descendants", lambda _pid: [])
    paths = {process.pid: "/docker/a"}
    monkeypatch.setattr(container_cpu, "group_of", lambda pid: ("", paths.get(pid, "/own")))
    for name in "ab":
        (tmp_path / "docker" / name).mkdir(parents=True)
        (tmp_path / "docker" / name / "cpu.stat").write_text("usage_usec 1000000\n")
    cpu = ContainerCpu()
    assert cpu.ticks(str(tmp_path)) == {("", "/docker/a"): TICKS}
    paths[process.pid] = "/docker/b"
    assert cpu.ticks(str(tmp_path)) == {("", "/docker/a"): TICKS}
    (tmp_path / "docker/a/cpu.stat").unlink()
    assert cpu.ticks(str(tmp_path)) == {("", "/docker/b"): TICKS}


def test_cpu_usage_of_a_container_without_a_cgroup_is_that_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """The engine's client, a child of the supervisor with the same variables, is not a part of it."""
    client = contained(tmp_path, BUSY)
    monkeypatch.setattr(
        container_cpu, "descendants", lambda pid: [client.pid] if pid == os.getpid() else descendants(pid)
    )
    monkeypatch.setattr(container_cpu, "group_of", lambda _pid: ("", "/shared"))
    cpu, seconds = JobCpu(str(tmp_path)), itertools.count()
    plan: Any = {"wrap": ["docker"]}
    assert [cpu.cores(float(next(seconds)), plan) for _ in range(2)] == [None, None], "nothing is known of it yet"
    process = contained(tmp_path, ["/bin/sh", "-c", f'env -i "{sys.executable}" -c "while True: pass"; :'])
    eventually(lambda: (cpu.cores(float(next(seconds)), plan) or 0) > 0)
    eventually(lambda: cpu.cores(float(next(seconds)), plan) and len(cpu.ticks) == 2)
    assert process.pid in cpu.ticks and client.pid not in cpu.ticks
    for pid in cpu.ticks:
        os.kill(int(str(pid)), 9)


def test_idle_node_is_named_in_a_run_that_uses_containers(
    tmp_path: Path, contained: Callable[..., subprocess.Popen[bytes]]
) -> None:
    ports: Any = {"lifeline_port": free_port(), "master_port": free_port()}
    run = make_run(tmp_path, [["unused"], ["unused"]], first_address=198, **ports)
    engine = tmp_path / "engine"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    for plan in run.plans:
        plan.update(wrap=[str(engine), "run"], remove=[str(engine), "rm", "--force", "it"])
    run.set_constant("PACE_WINDOW", 2.0)
    run.set_constant("WORKING_CORES", 0.01)  # regardless of other load on this machine
    run.set_constant("IDLE_CORES", 0.005)
    try:
        run.start()
        run.wait_for("running")
        contained(run.node(0), BUSY)
        contained(run.node(1), SLEEPS)
        eventually(lambda: f"node1 is idle: {TEXT} 2 s, while others are working" in run.events())
        run.stop()
    finally:
        end_by_force(run)

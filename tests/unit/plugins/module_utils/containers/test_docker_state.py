"""The reported state of containers if the engine does not respond, with a fake engine and systemd."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._containers import docker_state as state

DOWN = "echo 'Cannot connect to the Docker daemon' >&2; exit 1"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install programs in place of docker and systemctl."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(state, "shim_pids", lambda: [])

    def put(**programs: str) -> None:
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)

    return put


def test_running_containers_are_listed(stand_in: Callable[..., None]) -> None:
    stand_in(docker="echo train; echo serve")
    assert state.list_running() == (["train", "serve"], "")
    stand_in(docker="")
    assert state.list_running() == ([], "")


def test_no_containers_are_listed_without_an_engine(stand_in: Callable[..., None]) -> None:
    assert state.list_running() == ([], ""), "there is no docker"
    for unit in ("inactive", "failed"):
        stand_in(docker=DOWN, systemctl=f"echo {unit}")
        assert state.list_running() == ([], "")


def test_engine_that_cannot_be_queried_is_an_error(
    stand_in: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(docker=DOWN, systemctl="echo active")
    expected_error = "`docker ps` failed (Cannot connect to the Docker daemon), docker.service is active"
    assert state.list_running() == ([], expected_error)
    stand_in(docker="exit 3")
    assert state.list_running() == ([], "`docker ps` failed (code 3), docker.service is active")
    (tmp_path / "docker").chmod(0o644)
    assert state.list_running() == ([], "docker cannot be run (Permission denied), docker.service is active")
    stand_in(systemctl="exit 1")
    assert "systemd does not report whether the engine is running" in state.list_running()[1]
    stand_in(docker="exec /bin/sleep 60", systemctl="echo active")
    run = subprocess.run
    timeout = {"docker": 0.2, "systemctl": 120}

    def run_with_timeout(arguments: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
        more["timeout"] = timeout[arguments[0]]
        return run(arguments, check=more.pop("check"), **more)

    monkeypatch.setattr(subprocess, "run", run_with_timeout)
    assert state.list_running() == ([], "`docker ps` did not respond within 60 s, docker.service is active")


def test_containers_that_outlived_their_engine_are_an_error(
    stand_in: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(docker=DOWN, systemctl="echo failed")
    monkeypatch.setattr(state, "shim_pids", lambda: ["12", "34"])
    assert state.list_running()[1].endswith(
        "is failed, and containers are still alive (containerd-shim, process 12, 34)"
    )


def test_only_dockers_containerd_shims_are_listed() -> None:
    arguments = ["-c", "input()", "-namespace"]
    foreign_commands = [["/usr/bin/containerd-shim-runc-v2", *arguments, "k8s.io"], ["python3", *arguments, "moby"]]
    shim = ["/usr/bin/containerd-shim-runc-v2", *arguments, "moby"]
    started = [
        subprocess.Popen(item, executable=sys.executable, stdin=subprocess.PIPE) for item in (shim, *foreign_commands)
    ]
    try:
        result = state.shim_pids()
        assert [str(item.pid) in result for item in started] == [True, False, False]
    finally:
        for item in started:
            item.communicate(b"\n")

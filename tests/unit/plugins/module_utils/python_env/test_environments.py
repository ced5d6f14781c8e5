"""Environments of a node: listed with their sizes, and removed if unused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._python_env import environments


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with the default environment and those of two projects that share a large file."""
    directory = tmp_path / "muster"
    for home in (directory, directory / "envs" / "toy", directory / "envs" / "nano"):
        site = home / "env" / "lib" / "python3.11" / "site-packages"
        (site / "torch-2.13.0+cpu.dist-info").mkdir(parents=True)
        (home / "env" / "bin").mkdir()
        (home / "env" / "bin" / "python").symlink_to(sys.executable)
        (home / "env" / ".muster").write_text("uv")
        (home / "store").mkdir()
        (home / "store" / "own.whl").write_bytes(b"x" * 100_000)
    shared = directory / "envs" / "toy" / "env" / "lib" / "python3.11" / "site-packages" / "torch.so"
    shared.write_bytes(b"y" * 1_000_000)
    os.link(shared, str(shared).replace("/toy/", "/nano/"))
    (directory / "envs" / "not-one").mkdir()
    return directory


def call(directory: Path, remove: str = "", check: bool = False) -> dict[str, Any]:
    return environments.main({"directory": str(directory), "remove": remove, "check": check})


def names(reply: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in reply["environments"]]


def test_environments_are_listed_with_versions_and_sizes(directory: Path) -> None:
    reply = call(directory)
    assert names(reply) == ["env", "nano", "toy"] and reply["changed"] is False
    toy = reply["environments"][2]
    assert (toy["python"], toy["torch"]) == ("3.11", "2.13.0+cpu")
    assert toy["size"] > 1_100_000 > 1_000_000 > toy["freed"] > 100_000, "a shared file stays"
    assert toy["path"] == f"{directory}/envs/toy/env" and toy["processes"] == []


def test_removing_an_environment_keeps_the_others(directory: Path) -> None:
    assert names(call(directory, "toy", check=True)) == ["env", "nano"] and (directory / "envs" / "toy").exists()
    assert call(directory, "toy")["removed"] and not (directory / "envs" / "toy").exists()
    again = call(directory, "toy")
    assert (again["changed"], again["removed"], again["error"]) == (False, False, "")
    assert (directory / "envs" / "nano" / "env" / "lib" / "python3.11" / "site-packages" / "torch.so").exists()
    assert call(directory, "env")["removed"] and os.listdir(directory) == ["envs"]
    assert names(call(directory)) == ["nano"]


def test_removal_of_the_default_environment_keeps_other_files_in_its_directory(directory: Path) -> None:
    """The directory may be the user's disk: python_env_directory=/data."""
    (directory / "datasets").mkdir()
    (directory / "datasets" / "big").write_bytes(b"x" * 3_000_000)
    (directory / "checkpoint.pt").write_text("weights")
    (before,) = [entry for entry in call(directory)["environments"] if entry["name"] == "env"]
    assert before["size"] < 1_000_000
    assert call(directory, "env")["removed"]
    assert sorted(os.listdir(directory)) == ["checkpoint.pt", "datasets", "envs"]
    assert (directory / "datasets" / "big").exists()


def test_environment_in_use_is_kept_and_the_run_using_it_is_named(directory: Path) -> None:
    python = directory / "envs" / "toy" / "env" / "bin" / "python"
    process = subprocess.Popen(
        [python, "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"MUSTER_RUN_ID": "train-1"},
    )
    try:
        assert process.stdout and process.stdout.readline()
        reply = call(directory, "toy")
        assert reply["error"].startswith(f"{directory}/envs/toy/env is in use by run train-1.")
        assert "ansible-playbook stop.yml -e run_id=train-1" in reply["error"] and names(reply) == [
            "env",
            "nano",
            "toy",
        ]
        assert call(directory, "nano")["removed"]
    finally:
        process.communicate(b"\n")
    assert call(directory, "toy")["removed"]


def test_environment_of_another_user_is_kept(directory: Path) -> None:
    (directory / "envs" / "toy" / "env" / ".muster").unlink()
    assert "was not created by the role python_env" in call(directory, "toy")["error"]

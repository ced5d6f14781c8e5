# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docker.yml always enables the engine and does not ignore arguments silently."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.typed import CHECKOUT, give_collection, typed


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Create the collection and an inventory with an unreachable node."""
    give_collection(tmp_path)
    (tmp_path / "machines.yml").write_text("training: {hosts: {a: {ansible_host: 127.0.0.1, ansible_port: 1}}}\n")
    return tmp_path


def run_playbook(directory: Path, *arguments: str) -> str:
    """Run docker.yml and return its output without line breaks."""
    command = ["ansible-playbook", "muster.training.docker", "-i", "machines.yml", *arguments]
    return " ".join(typed(directory, command).stdout.split())


def test_playbook_always_enables_docker_engine() -> None:
    play = yaml.safe_load((CHECKOUT / "playbooks" / "docker.yml").read_text())[1]
    assert {item["role"]: item.get("vars") for item in play["roles"]} == {
        "muster.training.docker_engine": {"docker_engine_enabled": True},
        "muster.training.docker_data_root": None,  # the role is enabled if the directory is set
    }


@pytest.mark.parametrize("expected_text", [pytest.param("", marks=pytest.mark.thorough), "--limit a"])
def test_delete_old_without_data_root_path_is_refused(directory: Path, expected_text: str) -> None:
    output = run_playbook(directory, "-e", "docker_data_root_delete_old=true", *expected_text.split())
    assert "docker_data_root_delete_old is true, and docker_data_root_path is not set, for a." in output, output
    assert "Add -e docker_data_root_path=DIRECTORY" in output and "Connection refused" not in output
    with_path = run_playbook(
        directory, "-e", "docker_data_root_delete_old=true docker_data_root_path=/a", *expected_text.split()
    )
    assert "is not set" not in with_path and "Connection refused" in with_path, with_path


@pytest.mark.parametrize("expected_text", [pytest.param("", marks=pytest.mark.thorough), "--limit a"])
def test_tags_and_variables_without_effect_are_refused_with_limit_too(directory: Path, expected_text: str) -> None:
    output = run_playbook(directory, "--tags", "docker_engine", "-e", "container_image_name=b", *expected_text.split())
    assert "--tags docker_engine: this playbook has no tags; remove the option" in output, output
    assert "only the role container_image, which this playbook does not run, reads it" in output, output

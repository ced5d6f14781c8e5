"""The environment of a project: its name and directory, from the variables of a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._project.environment_path import (
    FIXED_NAME,
    code_name,
    find_environment,
)

ROLES = Path(__file__).parents[5] / "roles"


def test_linked_code_keeps_the_name_of_the_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The role code copies the project to a directory of that name."""
    (tmp_path / "toy-v2").mkdir()
    (tmp_path / "toy").symlink_to("toy-v2")
    monkeypatch.chdir(tmp_path / "toy-v2")
    for source in (f"{tmp_path}/toy", f"{tmp_path}/toy/", "../toy", f"{tmp_path}/other/../toy"):
        assert code_name({"code_source": source}) == "toy"
    assert code_name({"code_source": "."}) == "toy-v2"
    assert code_name({"job": {"code": f"{tmp_path}/toy"}}) == "toy"


def test_name_given_with_e_does_not_rename_a_roles_environment() -> None:
    variables = {"python_env_name": "mine", "python_env_directory": "/usr/local/lib/muster/s3"}
    assert find_environment(variables).home == "/usr/local/lib/muster/s3/envs/mine"
    assert find_environment({**variables, FIXED_NAME: "env"}).home == "/usr/local/lib/muster/s3"


@pytest.mark.parametrize("tasks", ["s3_client/tasks/main.yml", "hugging_face/tasks/models.yml"])
def test_roles_with_their_own_environment_fix_its_name(tasks: str) -> None:
    text = (ROLES / tasks).read_text()
    assert f"    {FIXED_NAME}: env" in text and "    python_env_name:" not in text

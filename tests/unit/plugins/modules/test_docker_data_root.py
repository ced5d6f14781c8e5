"""The module's results with and without a move of data, with a fake engine."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.module_utils._containers import data_root
from ansible_collections.muster.training.plugins.modules import docker_data_root


def run_module(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args({"path": "/data/docker", **arguments}), pytest.raises(SystemExit):
        docker_data_root.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_previous_data_root_is_returned_and_shown_in_the_diff(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def keep(*arguments: Any) -> tuple[bool, str]:
        calls.append(arguments)
        return True, "/var/lib/docker"

    monkeypatch.setattr(data_root, "ensure", keep)
    result = run_module(capsys, _ansible_check_mode=True)
    assert calls == [("/data/docker", 5, False, True)]
    assert (result["changed"], result["previous"]) == (True, "/var/lib/docker")
    assert result["diff"] == {"before": "data-root /var/lib/docker\n", "after": "data-root /data/docker\n"}


def test_missing_docker_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = run_module(capsys)
    assert result["failed"]
    assert result["msg"] == "Docker's data was not moved: docker cannot be run: No such file or directory."


def test_old_data_that_cannot_be_deleted_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: Any) -> tuple[bool, str]:
        raise data_root.OldDataError("Docker's data is in /data/docker, but the old data could not be deleted")

    monkeypatch.setattr(data_root, "ensure", fail)
    result = run_module(capsys, delete_old=True)
    assert result["failed"]
    assert result["msg"] == "Docker's data is in /data/docker, but the old data could not be deleted."


def test_check_mode_accounts_for_an_engine_that_would_be_installed_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = run_module(capsys, _ansible_check_mode=True, engine_expected=True)
    assert result["changed"] and result["diff"]["after"] == "data-root /data/docker\n"
    assert run_module(capsys, _ansible_check_mode=True)["failed"] and run_module(capsys, engine_expected=True)["failed"]

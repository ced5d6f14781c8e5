"""What the module reports when data are moved and when they are not. The engine is a stand-in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.module_utils._containers import data_root
from ansible_collections.muster.training.plugins.modules import docker_data_root


def ask(capsys: pytest.CaptureFixture[str], **given: Any) -> dict[str, Any]:
    with patch_module_args({"path": "/data/docker", **given}), pytest.raises(SystemExit):
        docker_data_root.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_previous_data_root_is_returned_and_shown_in_the_diff(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def keep(*words: Any) -> tuple[bool, str]:
        asked.append(words)
        return True, "/var/lib/docker"

    monkeypatch.setattr(data_root, "ensure", keep)
    result = ask(capsys, _ansible_check_mode=True)
    assert asked == [("/data/docker", 5, False, True)]
    assert (result["changed"], result["previous"]) == (True, "/var/lib/docker")
    assert result["diff"] == {"before": "data-root /var/lib/docker\n", "after": "data-root /data/docker\n"}


def test_missing_docker_is_reported(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = ask(capsys)
    assert result["failed"]
    assert result["msg"] == "Docker's data was not moved: docker cannot be run: No such file or directory."


def test_check_mode_accounts_for_an_engine_that_would_be_installed_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    result = ask(capsys, _ansible_check_mode=True, engine_expected=True)
    assert result["changed"] and result["diff"]["after"] == "data-root /data/docker\n"
    assert ask(capsys, _ansible_check_mode=True)["failed"] and ask(capsys, engine_expected=True)["failed"]

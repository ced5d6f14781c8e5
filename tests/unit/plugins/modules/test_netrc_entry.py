"""A user's netrc is written once, readable only by its owner, and its content is never revealed."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.modules import netrc_entry

ME = pwd.getpwuid(os.geteuid())
KEY = "k" * 40
OTHER_ENTRY = "machine other login me password theirs\n"
ENTRY = f"machine api.wandb.ai\n  login user\n  password {KEY}\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    entry = pwd.struct_passwd([*ME[:5], str(tmp_path), ME[6]])
    monkeypatch.setattr(pwd, "getpwnam", lambda name: {ME.pw_name: entry}[name])
    return tmp_path


def run_module(capsys: pytest.CaptureFixture[str], check: bool = False, user: str = ME.pw_name) -> dict[str, Any]:
    arguments = {"user": user, "machine": "api.wandb.ai", "login": "user", "password": KEY}
    with (
        patch_module_args({**arguments, "_ansible_check_mode": check, "_ansible_diff": True}),
        pytest.raises(SystemExit),
    ):
        netrc_entry.main()
    output = capsys.readouterr().out
    assert KEY not in output and "theirs" not in output
    result: dict[str, Any] = json.loads(output)
    return result


def test_file_is_written_once_and_is_readable_only_by_its_owner(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / ".netrc"
    first = run_module(capsys, check=True)
    assert (first["changed"], path.exists()) == (True, False)
    assert "api.wandb.ai" in first["diff"]["after"]
    assert run_module(capsys)["changed"]
    assert (path.read_text(), path.stat().st_mode & 0o777) == (ENTRY, 0o600)
    assert not run_module(capsys)["changed"]
    path.chmod(0o644)
    assert run_module(capsys)["changed"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_other_entries_are_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".netrc").write_text(OTHER_ENTRY)
    assert run_module(capsys)["changed"]
    assert (home / ".netrc").read_text() == OTHER_ENTRY + ENTRY


def test_pipe_and_unknown_user_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(home / ".netrc")
    assert "is not a regular file. Remove it: sudo rm " in run_module(capsys)["msg"]
    assert "there is no user nobody-knows" in run_module(capsys, user="nobody-knows")["msg"]

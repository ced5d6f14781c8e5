"""Who runs the jobs on a node, or what is missing there and what to do."""

from __future__ import annotations

import json
import os
import pwd
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.modules import job_user_info

ME = pwd.getpwuid(os.geteuid())
OTHER = next(entry for entry in pwd.getpwall() if entry.pw_uid != ME.pw_uid)


def answer(capsys: pytest.CaptureFixture[str], **given: Any) -> dict[str, Any]:
    with patch_module_args({"variable": "code_user", **given}), pytest.raises(SystemExit):
        job_user_info.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_job_user_is_the_login_user_unless_another_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = answer(capsys, programs=["sh"])
    account = (result["login"], result["name"], result["gid"], result["home"])
    assert account == (ME.pw_name, ME.pw_name, ME.pw_gid, ME.pw_dir)
    assert not result["changed"] and result["missing"] == []
    other = answer(capsys, user=OTHER.pw_name)
    account = (other["login"], other["name"], other["gid"], other["home"])
    assert account == (ME.pw_name, OTHER.pw_name, OTHER.pw_gid, OTHER.pw_dir)


def test_missing_user_or_program_is_named_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, user="nobody-knows")["msg"] == (
        "there is no user nobody-knows. Create the user who runs the jobs, with the same name on all nodes, "
        "or set code_user."
    )
    programs = {"programs": ["sh", "none-a", "none-b"]}
    assert answer(capsys, **programs)["msg"] == (
        "none-a and none-b are not installed. Install missing programs with the role base_packages."
    )
    # if the role that installs them has run only in check mode
    assert answer(capsys, **programs, _ansible_check_mode=True)["missing"] == ["none-a", "none-b"]

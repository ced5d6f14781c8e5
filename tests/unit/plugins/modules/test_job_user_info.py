"""The user who runs the jobs on a node, and advice about missing requirements."""

from __future__ import annotations

import json
import os
import pwd
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.modules import job_user_info

ME = pwd.getpwuid(os.geteuid())
OTHER_ACCOUNT = next(entry for entry in pwd.getpwall() if entry.pw_uid != ME.pw_uid)


def run_module(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args({"variable": "code_user", **arguments}), pytest.raises(SystemExit):
        job_user_info.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_job_user_is_the_login_user_unless_another_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_module(capsys, programs=["sh"])
    account = (result["login"], result["name"], result["gid"], result["home"])
    assert account == (ME.pw_name, ME.pw_name, ME.pw_gid, ME.pw_dir)
    assert not result["changed"] and result["missing"] == []
    other_result = run_module(capsys, user=OTHER_ACCOUNT.pw_name)
    account = (other_result["login"], other_result["name"], other_result["gid"], other_result["home"])
    assert account == (ME.pw_name, OTHER_ACCOUNT.pw_name, OTHER_ACCOUNT.pw_gid, OTHER_ACCOUNT.pw_dir)


def test_missing_user_or_program_is_named_with_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_module(capsys, user="nobody-knows")["msg"] == (
        "there is no user nobody-knows. Create the user who runs the jobs, with the same name on all nodes, "
        "or set code_user."
    )
    programs = {"programs": ["sh", "none-a", "none-b"]}
    assert run_module(capsys, **programs)["msg"] == (
        "none-a and none-b are not installed. To install what is missing: ansible-playbook site.yml --tags "
        "base_packages"
    )
    # if the role that installs them has run only in check mode
    assert run_module(capsys, **programs, _ansible_check_mode=True)["missing"] == ["none-a", "none-b"]

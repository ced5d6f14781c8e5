"""The login user is determined from the owners of the parent processes."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._ssh import login_user

ME = pwd.getpwuid(os.geteuid())


def processes(proc: Path, *lines: tuple[int, int, int]) -> str:
    """Write the contents of /proc: the number, parent and owner of each process."""
    for pid, parent, uid in lines:
        (proc / str(pid)).mkdir()
        text = f"Name:\tx\nPid:\t{pid}\nPPid:\t{parent}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        (proc / str(pid) / "status").write_text(text)
    return str(proc)


def test_login_user_under_sudo_is_the_user_who_called_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sshd (root), its process for the user, the user's shell, sudo, python."""
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: ME if uid == 1000 else pwd.struct_passwd(["root", *ME[1:]]))
    proc = processes(tmp_path, (10, 1, 0), (20, 10, 1000), (30, 20, 1000), (40, 30, 0), (50, 40, 0))
    assert login_user.login_user(50, proc) == ME.pw_name


def test_login_user_is_root_if_root_logged_in(tmp_path: Path) -> None:
    proc = processes(tmp_path, (10, 1, 0), (20, 10, 0), (50, 20, 0))
    assert login_user.login_user(50, proc) == pwd.getpwuid(0).pw_name


def test_missing_parent_process_ends_the_search(tmp_path: Path) -> None:
    proc = processes(tmp_path, (50, 40, 0))
    assert login_user.login_user(50, proc) == pwd.getpwuid(0).pw_name


def test_login_user_of_this_process_is_known() -> None:
    if os.geteuid():
        assert login_user.login_user() == ME.pw_name
    else:
        assert pwd.getpwnam(login_user.login_user())

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Selection of outdated files from the report of a node."""

from __future__ import annotations

import base64
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.filter.outdated_files import outdated_files
from ansible_collections.muster.training.plugins.module_utils._files import file_state

ME = pwd.getpwuid(os.geteuid()).pw_name
TEXT = "één\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "site"
    path.write_text(TEXT)
    path.chmod(0o644)
    return path


def is_outdated(path: Path, mark: str = "", **expected: Any) -> bool:
    """Return whether a file is outdated; its attributes default to those of the fixture."""
    expected = expected if "line" in expected else {"content": TEXT, **expected}
    result = file_state.read_files([str(path)], mark)
    return bool(outdated_files([{"path": str(path), "mode": "0644", "user": ME, **expected}], result))


def test_content_mode_and_owner_are_compared(path: Path, tmp_path: Path) -> None:
    assert not is_outdated(path)
    assert not is_outdated(path, content=base64.b64encode(TEXT.encode()).decode(), base64=True)
    assert is_outdated(path, content="één")
    assert is_outdated(path, mode="0600")
    assert is_outdated(path, user="nobody")
    assert is_outdated(tmp_path / "none")


def test_root_is_the_default_owner() -> None:
    result = {"/a": {"user": "root", "mode": "0644", "sha256": "", "line": "x"}}
    assert outdated_files([{"path": "/a", "mode": "0644", "line": "x"}], result) == []


def test_links_pipes_and_directories_are_outdated(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o644)
    assert is_outdated(link) and is_outdated(tmp_path / "pipe", content="") and is_outdated(tmp_path)


def test_file_in_a_directory_that_others_can_write_is_outdated(path: Path) -> None:
    path.parent.chmod(0o777)
    assert is_outdated(path)
    path.parent.chmod(0o755)
    assert not is_outdated(path)


def test_last_line_with_the_mark_is_compared(path: Path) -> None:
    path.write_text("old ours\nnew ours\nof others\n")
    assert not is_outdated(path, " ours", line="new ours")
    assert is_outdated(path, " ours", line="old ours")
    assert is_outdated(path, " theirs", line="new theirs")

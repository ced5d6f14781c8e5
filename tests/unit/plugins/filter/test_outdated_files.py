# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Root's files that are already right need not be written: what a node reports of them, and what is chosen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.filter.outdated_files import outdated_files
from ansible_collections.muster.training.plugins.module_utils import _root_files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "site"
    path.write_text("één\n")
    path.chmod(0o644)
    return path


def left(path: Path, content: str = "één\n", mode: str = "0644") -> int:
    """How many of the one file are left to write."""
    wanted = [{"path": str(path), "mode": mode, "content": content}]
    return len(outdated_files(wanted, _root_files.as_they_are([str(path)])))


@pytest.mark.skipif(os.geteuid() != 0, reason="files of root are made by root")
def test_file_is_left_alone_only_if_content_mode_and_owner_match(path: Path, tmp_path: Path) -> None:
    assert left(path) == 0
    assert left(path, "één") == left(path, mode="0600") == left(tmp_path / "none") == left(tmp_path) == 1
    link = tmp_path / "link"
    link.symlink_to(path)
    assert left(link) == 1
    os.mkfifo(tmp_path / "pipe", 0o644)
    assert left(tmp_path / "pipe", "") == 1
    os.chown(path, 1, 0)
    assert left(path) == 1

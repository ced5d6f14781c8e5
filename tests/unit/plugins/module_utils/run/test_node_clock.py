# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The clock of a node, as packed with its files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.node_clock import read_clock, zone_name


def test_node_clock_reports_its_time_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Asia/Kolkata")
    assert zone_name(str(link)) == "Asia/Kolkata"
    link.unlink()
    link.write_bytes(b"TZif")
    assert zone_name(str(link)) == ""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    try:
        time.tzset()
        before, clock, after = time.time(), read_clock(), time.time()
    finally:
        del os.environ["TZ"]
        time.tzset()
    assert (clock["utc_offset"], clock["zone"]) == (19800, "Asia/Kolkata")
    assert before <= clock["now"] <= after

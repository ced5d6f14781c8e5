# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel log: records of the ring buffer, lines of the journal, and a log that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import health
from ansible_collections.muster.training.plugins.module_utils._health import kernel_log

XID = "NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"


def test_record_has_only_the_kernels_time_and_text() -> None:
    assert kernel_log.parse_record(f"3,1234,5000000,-;{XID}\n SUBSYSTEM=pci\n".encode(), 100.0) == (105.0, XID)
    assert kernel_log.parse_record(f"12,1234,5000000,-;{XID}\n".encode(), 100.0) is None, "a program's own message"
    assert kernel_log.parse_record(b"nonsense", 100.0) is None


def test_repeated_errors_count_as_one() -> None:
    second_xid = XID.replace("44", "45")
    errors = kernel_log.find_errors([(1.0, XID), (2.0, "other"), (3.0, second_xid), (4.0, XID)])
    assert [(error["pci"], error["time"], error["count"]) for error in errors] == [
        ("0000:45:00", 3.0, 1),
        ("0000:44:00", 4.0, 2),
    ]


def test_journal_is_parsed() -> None:
    text = f"1764236400.123456 gpu3 kernel: {XID}\n-- Boot 4ac3 --\n"
    assert kernel_log.parse_journal(text) == [(1764236400.123456, f"gpu3 kernel: {XID}")]


def test_new_errors_arrive_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    log = kernel_log.KernelLog(str(tmp_path / "kmsg"))
    assert log.new_errors() == []
    writer = os.open(tmp_path / "kmsg", os.O_WRONLY)
    assert log.new_errors() == []
    os.write(writer, f"3,1,1,-;{XID}\n".encode())
    assert [error.code for error in log.new_errors()] == [79]
    assert log.new_errors() == []
    os.close(writer)
    log.close()
    assert log.new_errors() == []


def test_log_that_cannot_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = kernel_log.KernelLog(str(tmp_path / "missing"))
    assert (log.error, log.new_errors()) == ("No such file or directory", [])
    monkeypatch.setattr(health, "journal_command", lambda *_options: [])
    query = health.KernelLogQuery(str(tmp_path / "missing"))
    expected = {"readable": False, "reason": "No such file or directory", "errors": []}
    assert query.result(0.0) == expected


def test_journal_is_read_if_only_root_can_read_the_kernel_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "journal_command", lambda *_options: ["echo", f"1764236400.1 gpu3 kernel: {XID}"])
    result = health.KernelLogQuery(str(tmp_path / "missing")).result(0.0)
    assert result["readable"] and [error["code"] for error in result["errors"]] == [79]
    monkeypatch.setattr(health, "journal_command", lambda *_options: ["true"])
    result = health.KernelLogQuery(str(tmp_path / "missing")).result(0.0)
    assert not result["readable"], "the kernel log is never empty: this user is not allowed to read it"

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""TensorBoard event files: each form of a scalar, and truncated files."""

from __future__ import annotations

import io
import struct

import pytest
from hypothesis import given, strategies

from ansible_collections.muster.training.plugins.plugin_utils._report.event_files import (
    MAX_RECORD,
    Scalar,
    read_scalars,
)
from tests.unit.plugins.plugin_utils.report.records import event, message, record


def read(data: bytes) -> list[Scalar]:
    return list(read_scalars(io.BytesIO(data)))


@pytest.mark.parametrize("form", ["simple", "content", "packed", "double"])
@given(
    tag=strategies.text(max_size=40),
    step=strategies.integers(-(2**62), 2**62),
    when=strategies.floats(allow_nan=False),
    value=strategies.floats(width=32, allow_nan=False),
)
def test_written_scalar_is_read_back(form: str, tag: str, step: int, when: float, value: float) -> None:
    tag = tag.encode("utf-8", "replace").decode()
    assert read(event(tag, step, when, value, form)) == [Scalar(tag, step, when, value)]


def test_truncated_last_record_keeps_the_earlier_ones() -> None:
    complete, last = event("loss", 1, 1.0, 0.5) + event("loss", 2, 2.0, 0.25), event("loss", 3, 3.0, 0.125)
    for size in range(len(last)):
        assert [scalar.step for scalar in read(complete + last[:size])] == [1, 2]
    assert [scalar.step for scalar in read(complete + last)] == [1, 2, 3]


@given(strategies.binary(max_size=200))
def test_any_bytes_are_read_without_error(data: bytes) -> None:
    read(data)
    read(record(data) + event("loss", 1, 1.0, 0.5))


def test_records_other_than_scalars_are_skipped() -> None:
    version = record(b"\x09" + struct.pack("<d", 1.0) + message(3, b"brain.Event:2"))
    picture = record(message(5, message(1, message(1, b"picture") + message(4, b"png"))))
    text = record(message(5, message(1, message(1, b"text") + message(8, b"\x08\x07" + message(8, b"words")))))
    large = record(b"\0" * (MAX_RECORD + 1))
    broken = record(b"\xff\xff\xff")
    assert [item.tag for item in read(version + picture + text + large + broken + event("loss", 1, 1.0, 0.5))] == [
        "loss"
    ]
    assert read(struct.pack("<QI", 1 << 62, 0) + event("loss", 1, 1.0, 0.5)) == []

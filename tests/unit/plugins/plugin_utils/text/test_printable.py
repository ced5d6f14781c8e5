# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Untrusted text cannot move the cursor, and becomes one short line in a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._text.printable import printable, single_line


@pytest.mark.parametrize("text", ["\x1b[2Jgone", "a\rb", "\a", "\u202egnp", "tab\there", "\x9b31m"])
def test_control_characters_are_replaced_one_for_one(text: str) -> None:
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("two\n\twords ", "two words"),
        ("a\x1b[2Jb\u202ec\ud800d", "a [2Jb c d"),
        (404, "404"),
        ("x" * 10, "x" * 10),
        ("x" * 11, "x" * 7 + "..."),
    ],
)
def test_one_line_joins_cleans_and_cuts_text(text: object, line: str) -> None:
    assert single_line(text, 10) == line


@given(st.text(), st.integers(min_value=3, max_value=20))
def test_one_line_is_short_printable_and_idempotent(text: str, limit: int) -> None:
    line = single_line(text, limit)
    assert len(line) <= limit and line.isprintable()
    assert single_line(line, limit) == line

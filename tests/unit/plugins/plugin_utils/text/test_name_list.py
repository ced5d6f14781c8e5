# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of names in messages."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list


def test_long_lists_are_shortened() -> None:
    assert format_list(["a", "b", "c"], 3) == "a, b, c"
    assert format_list(["a", "b", "c", "d", "e"], 3) == "a, b, c and 2 more"
    assert format_list(name for name in "abcdefgh") == "a, b, c, d, e, f and 2 more"
    assert format_list([]) == ""

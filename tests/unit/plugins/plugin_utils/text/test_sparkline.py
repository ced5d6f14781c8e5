# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A curve on a single line of a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._text.sparkline import MAX_BARS, sparkline


def test_each_value_is_shown_as_a_bar_between_the_limits() -> None:
    assert sparkline([0, 12.5, 50, 99, 100]) == "▁▂▅██"
    assert sparkline([-1, 0, 1], -1, 1) == "▁▅█"
    assert sparkline([-5, 500]) == "▁█"
    assert sparkline([3, 3], 3, 3) == "▁▁"
    assert len(sparkline([50] * 1000)) == MAX_BARS


@pytest.mark.parametrize("values", [None, "55", [], [5], [1, "2"], [1, None], [1, float("nan")], [1, 1e300], {"a": 1}])
def test_other_values_have_no_bars(values: Any) -> None:
    assert sparkline(values) == ""

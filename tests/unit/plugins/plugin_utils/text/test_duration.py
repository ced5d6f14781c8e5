"""Durations as text."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.9, "0:00:59"), (3661, "1:01:01"), (360000, "100:00:00")]
)
def test_durations_are_formatted_as_hours_minutes_seconds(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text

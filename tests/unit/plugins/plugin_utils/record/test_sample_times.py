"""Sample times, read in a time zone other than that of the node that wrote them."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.node_clock import read_clock, zone_name
from ansible_collections.muster.training.plugins.plugin_utils._record.sample_times import clock_of, epoch_seconds

if TYPE_CHECKING:
    from ansible_collections.muster.training.plugins.module_utils._run.node_clock import Clock

BERLIN = "Europe/Berlin"
SUMMER_ENDS = 1792890000.0  # 2026-10-25 01:00 UTC: 3:00 becomes 2:00
SUMMER_BEGINS = 1774746000.0  # 2026-03-29 01:00 UTC: 2:00 becomes 3:00


def written(moment: float, zone: str) -> str:
    """A time as nvidia-smi writes it in a zone."""
    return datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


def clock(moment: float, zone: str) -> Any:
    """A clock.json of a node in a zone."""
    offset = datetime.fromtimestamp(moment, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    return {"utc_offset": int(offset.total_seconds()), "now": moment, "zone": zone}


@given(
    st.floats(0.0, 2.0**32),
    st.sampled_from(["UTC", BERLIN, "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Kiritimati"]),
)
def test_time_is_read_correctly_from_any_time_zone(moment: float, zone: str) -> None:
    read = epoch_seconds(written(moment, zone), clock(moment, zone), after=moment)
    assert read == pytest.approx(moment, abs=0.0011)


@pytest.mark.parametrize("change", [SUMMER_ENDS, SUMMER_BEGINS])
@pytest.mark.parametrize("packed", [-7200.0, 7200.0])
def test_run_across_a_dst_change_has_no_gap_and_no_fold(change: float, packed: float) -> None:
    """Whether the files were packed before or after the change."""
    moments = [change + 15.0 * number for number in range(-300, 300)]
    told, last = [], 0.0
    for moment in moments:
        last = epoch_seconds(written(moment, BERLIN), clock(change + packed, BERLIN), after=last) or 0.0
        told.append(last)
    assert told == pytest.approx(moments)


def test_unknown_or_wrong_zone_falls_back_to_the_utc_offset() -> None:
    for zone in ("", "No/Where", "../../etc/passwd", "x" * 5000, "\0", "Asia/Tokyo"):  # the last one does not fit
        node: Clock = {"utc_offset": 3600, "now": SUMMER_ENDS, "zone": zone}
        assert epoch_seconds("2026/10/25 02:00:00.000", node) == SUMMER_ENDS, ascii(zone)[:40]


def test_invalid_time_gives_none() -> None:
    for text in ("", "[N/A]", "2026/13/01 00:00:00", "2026/02/30 00:00:00.5", "0000/01/01 00:00:00", "10:15:00"):
        assert epoch_seconds(text, clock(SUMMER_ENDS, BERLIN)) is None, text


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        {},
        {"utc_offset": "3600", "now": 1.0, "zone": "UTC"},
        {"utc_offset": True, "now": 1.0, "zone": "UTC"},
        {"utc_offset": 86400, "now": 1.0, "zone": "UTC"},
        {"utc_offset": 0, "now": -1.0, "zone": "UTC"},
        {"utc_offset": 0, "now": float("nan"), "zone": "UTC"},
        {"utc_offset": 0, "now": float("inf"), "zone": "UTC"},
    ],
)
def test_invalid_clock_gives_none(told: Any) -> None:
    assert clock_of(told) is None


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
        told = read_clock()
    finally:
        del os.environ["TZ"]
        time.tzset()
    assert (told["utc_offset"], told["zone"]) == (19800, "Asia/Kolkata")
    assert clock_of(told) == told

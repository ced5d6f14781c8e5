"""User-written limits of a run."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import DEFAULTS
from ansible_collections.muster.training.plugins.plugin_utils._plan.limits import parse_duration, unpriced_nodes
from ansible_collections.muster.training.plugins.plugin_utils._plan.read_job import read_job


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0), (None, 0), (90, 90), ("90", 90), ("90m", 5400), ("1.5h", 5400), ("2 d", 172800), ("1w", 604800)],
)
def test_duration_is_parsed(text: Any, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["-1", "1y", "h", "1h30m", True, "1e99", "12 hours", [1]])
def test_other_durations_are_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration: use a number and a unit"):
        parse_duration(text)


def test_limits_reach_the_job() -> None:
    job = read_job({**DEFAULTS, "script": "a.py", "environment": {}, "time_limit": "12h", "stall_limit": "30m"})
    assert (job.time_limit, job.stall_limit, job.cost_limit, job.notice_grace) == (43200, 1800, 0, 100)


def test_all_problems_of_limits_are_reported() -> None:
    args = {**DEFAULTS, "script": "a.py", "environment": {}}
    wrong = {"time_limit": "soon", "stall_limit": "1y", "cost_limit": -1.0, "notice_grace": 0}
    with pytest.raises(ValueError, match="launch_time_limit") as caught:
        read_job({**args, **wrong})
    problems = str(caught.value).splitlines()
    assert [problem.split()[0].rstrip(":") for problem in problems] == [
        "launch_time_limit", "launch_stall_limit", "launch_cost_limit", "launch_notice_grace",
    ]  # fmt: skip


def test_cost_limit_names_nodes_without_a_price() -> None:
    assert unpriced_nodes(5.0, {"a": 1.0, "b": None}, ["a", "b", "c"]) == ["b", "c"]
    assert unpriced_nodes(0.0, {}, ["a"]) == []

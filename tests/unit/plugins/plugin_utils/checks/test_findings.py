"""The text of a finding."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import (
    error,
    render_findings,
    sort_by_severity,
    warning,
)

SLOW = warning("slow", ["b"], problem="it is slow", requirement="a fast one", remedy="buy one")
BUSY = error("busy", ["a", "b"], problem="it is busy", requirement="a free one", remedy="wait")
TORN = error("torn", [], problem="the plan is torn", requirement="a whole one", remedy="mend it")


def test_errors_come_first_and_order_is_kept_within_a_severity() -> None:
    assert sort_by_severity([SLOW, TORN, SLOW, BUSY]) == [TORN, BUSY, SLOW, SLOW]


def test_each_finding_is_rendered_on_three_lines() -> None:
    assert render_findings([SLOW, BUSY, TORN]) == (
        "ERROR busy on a, b: it is busy\n"
        "    needed: a free one\n"
        "    do:     wait\n"
        "ERROR torn on the cluster: the plan is torn\n"
        "    needed: a whole one\n"
        "    do:     mend it\n"
        "WARNING slow on b: it is slow\n"
        "    needed: a fast one\n"
        "    do:     buy one"
    )
    assert render_findings([]) == ""


def test_finding_as_dict_is_plain_data() -> None:
    assert BUSY.as_dict() == {
        "severity": "error",
        "id": "busy",
        "nodes": ["a", "b"],
        "problem": "it is busy",
        "requirement": "a free one",
        "remedy": "wait",
    }

"""The check catalogue: IDs, skippable checks, and agreement with the manual."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.catalogue import IDS, REQUIRED, find_skip_errors
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import (
    error,
    merge,
    render_table,
    warning,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.job_environment import SERVICES
from ansible_collections.muster.training.plugins.plugin_utils._checks.software import EQUALITY_CHECKS
from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import CHECK_ID as UNREACHABLE
from tests.unit.healthy import Facts, cluster, findings, spoilt

CHECKOUT = Path(__file__).resolve().parents[5]
SOURCES = sorted((CHECKOUT / "plugins/plugin_utils/_checks").glob("*.py"))


def test_catalogue_contains_exactly_the_ids_that_checks_report() -> None:
    texts = [path.read_text(encoding="utf-8") for path in SOURCES]
    pattern = r"\b(?:error|warning|make_finding)\(\s*\"([a-z-]+)\""
    reported = {match for text in texts for match in re.findall(pattern, text)}
    reported |= {identity for identity, *_others in [*EQUALITY_CHECKS, *SERVICES.values()]} | {UNREACHABLE}
    assert reported == set(IDS)


def test_healthy_cluster_has_no_findings() -> None:
    for count in (1, 2, 9):
        for gpu_count in (0, 8):
            assert findings(cluster(count, gpu_count)) == []
            assert findings(cluster(count, gpu_count), launcher="env") == []
            assert findings(cluster(count, gpu_count), rdzv_backend="c10d") == []


def test_same_finding_on_several_nodes_is_merged() -> None:
    item = error("x", ["a"], problem="found", requirement="needed", remedy="do")
    duplicate = error("x", ["b", "a"], problem="found", requirement="needed", remedy="do")
    assert merge([item, warning("y", ["b"], problem="f", requirement="n", remedy="d"), duplicate]) == [
        error("x", ["a", "b"], problem="found", requirement="needed", remedy="do"),
        warning("y", ["b"], problem="f", requirement="n", remedy="d"),
    ]


def test_individual_checks_can_be_skipped() -> None:
    def spoil(facts: dict[str, Facts]) -> None:
        facts["node2"]["kernel"] = "5.15.0"
        facts["node3"]["hostname"] = "node2"

    assert spoilt(spoil, skip=["skew-kernel"]) == [("error", "duplicate-hostname", ("node2", "node3"))]
    assert spoilt(spoil, skip=["skew-kernel", "duplicate-hostname"]) == []
    assert spoilt(spoil, skip=["[skew-kernel", "duplicate-hostname]"]) == []  # as -e preflight_skip=[a,b] is parsed


@pytest.mark.parametrize(
    ("skip", "message"),
    [
        ("skew-kernal", "cannot skip 'skew-kernal': unknown check; did you mean skew-kernel"),
        ("own_name_loopback", "did you mean own-name-loopback?"),
        ("all", "cannot skip 'all': unknown check; valid checks: unreachable, address-not-here,"),
        ("unreachable", "the check unreachable cannot be skipped: the node is not responding"),
    ],
)
def test_skipping_an_unknown_or_required_check_is_refused(skip: str, message: str) -> None:
    assert message in find_skip_errors([skip])
    with pytest.raises(ValueError, match=re.escape(message)):
        findings(cluster(2), skip=[skip])
    assert find_skip_errors(set(IDS) - set(REQUIRED)) == ""


def test_unequal_slots_are_refused_if_the_launcher_does_not_support_them() -> None:
    facts = cluster(2)
    nodes = [{"name": name, "address": f"10.0.0.{number}", "slots": number} for number, name in enumerate(facts, 11)]
    assert [finding.id for finding in findings(facts, nodes=nodes, launcher="env")] == ["launcher"]
    assert findings(facts, nodes=nodes) == []


def test_table_keeps_its_columns_and_strips_escape_sequences() -> None:
    rows = [
        warning("slow", ["b"], problem="it is \x1b[2Jslow", requirement="a fast one " * 20, remedy="buy one"),
        error("very-busy", ["a", "b"], problem="it is busy", requirement="a free one", remedy="wait"),
        error("torn", [], problem="the plan is torn", requirement="a whole one", remedy="mend it"),
    ]
    lines = render_table(rows).splitlines()
    assert lines[0] == "SEVERITY  CHECK      NODES"
    assert lines[1:5] == [
        "ERROR     very-busy  a, b",
        "          found:  it is busy",
        "          needed: a free one",
        "          do:     wait",
    ]
    assert lines[5] == "ERROR     torn       the cluster"
    assert "\x1b" not in "".join(lines)
    assert all(len(line) <= 110 for line in lines)
    needed = [line for line in lines[9:] if "fast one" in line]
    assert len(needed) > 1
    assert all(line[:18].strip() in ("", "needed:") and line[18] != " " for line in needed)

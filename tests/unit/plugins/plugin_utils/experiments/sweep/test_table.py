# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables of runs: medians, ranges, efficiency, the best variant, and required notes."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import (
    LARGEST,
    SAME,
    Variant,
    VariantRun,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.table import (
    build_table,
    render_markdown,
    render_text,
)


def run(variant: str, rate: float | None, repeat: int = 1, **more: Any) -> VariantRun:
    usual: VariantRun = {
        "variant": variant,
        "batch": SAME,
        "repeat": repeat,
        "run_id": f"sweep-{variant}-{repeat}",
        "settings": "",
        "succeeded": True,
        "reason": "",
        "launch_seconds": 40.0,
        "run_seconds": 30.0,
        "nnodes": 1,
        "ranks": 1,
        "batch_size": 64.0,
        "global_batch_size": 64.0,
        "samples_per_second": rate,
        "memory_mib": 1024.0,
        "cost": None,
        "per_hour": None,
        "currency": "USD",
        "cost_missing": "",
    }
    return {**usual, **more}  # type: ignore[typeddict-item]


def variants(*kinds: str) -> list[Variant]:
    """Return variants named a, b and so on, of these kinds."""
    return [
        {"name": name, "variables": {}, "fit_args": [], "kind": kind} for name, kind in zip("abcd", kinds, strict=False)
    ]


def test_efficiency_is_relative_to_the_fewest_nodes_of_the_same_kind() -> None:
    two = {"nnodes": 2, "ranks": 2}
    table = build_table(SAME, variants("x", "x", "y"), [run("a", 100.0), run("b", 150.0, **two), run("c", 400.0)])
    assert [(row["variant"], row["per_rank"], row["efficiency"]) for row in table["rows"]] == [
        ("c", 400.0, None),
        ("b", 75.0, 0.75),
        ("a", 100.0, 1.0),
    ], "the fastest comes first, and what nothing is compared with has none"


def test_repeats_give_median_and_range_and_overlap_is_noted() -> None:
    runs = [run("a", rate, repeat) for repeat, rate in enumerate((100.0, 120.0, 110.0), 1)]
    runs += [run("b", rate, repeat) for repeat, rate in enumerate((90.0, 105.0, 95.0), 1)]
    runs += [run("c", 50.0, 1), run("c", 51.0, 2), run("c", None, 3, succeeded=False, reason="gpu1, rank 0: lost")]
    table = build_table(SAME, variants("x", "y", "z"), runs)
    assert [row["samples_per_second"] for row in table["rows"]] == [110.0, 95.0, 50.5]
    assert table["notes"] == [
        "b: not measurably slower than a in these repeats",
        "c, repeat 3 failed: gpu1, rank 0: lost",
    ]
    assert "110 (100 to 120)" in render_text(table)


def test_single_measurement_of_each_variant_is_noted() -> None:
    (note,) = build_table(SAME, variants("x", "y"), [run("a", 100.0), run("b", 101.0)])["notes"]
    assert note.startswith("each was measured once")
    assert build_table(SAME, variants("x"), [run("a", 100.0)])["notes"] == []


@pytest.mark.parametrize(
    ("batch", "message"),
    [(SAME, "the global batch sizes differ (64, 128)"), (LARGEST, "the global batch sizes differ: speeds can be")],
)
def test_differing_global_batches_are_noted(batch: str, message: str) -> None:
    runs = [run("a", 1.0, batch=batch), run("b", 1.0, batch=batch, global_batch_size=128.0)]
    assert build_table(batch, variants("x", "y"), runs)["notes"][0].startswith(message)
    assert (
        build_table(SAME if batch == LARGEST else LARGEST, variants("x", "y"), runs)["rows"][0]["reason"]
        == "it was not run"
    )


def test_unreported_values_are_noted_and_have_no_column() -> None:
    silent: dict[str, Any] = {"batch_size": None, "global_batch_size": None, "memory_mib": None}
    table = build_table(SAME, variants("x"), [run("a", None, **silent, cost_missing="price of gpu1 not known")])
    assert [note.partition(":")[0] for note in table["notes"]] == ["a", "a", "cost"]
    assert 'MUSTER_RESULT {"samples_per_second": ...}' in table["notes"][1]
    assert render_text(table).splitlines()[1] == "variant  nodes  ranks  time"


def test_cost_is_given_per_run_and_per_1000_samples() -> None:
    (row,) = build_table(SAME, variants("x"), [run("a", 10.0, cost=2.0, per_hour=36.0)])["rows"]
    assert row["cost"] == 2.0 and row["per_1000_samples"] == pytest.approx(1.0)
    assert "2.00 USD" in render_text({"batch": SAME, "rows": [row], "notes": []})


def test_markdown_table_has_best_in_bold_and_escapes_text() -> None:
    hostile = "<script>|`*[x](http://evil.example)"
    runs = [run("a", 100.0, memory_mib=2048.0), run("b", 50.0), run("c", None, succeeded=False, reason=hostile)]
    text = render_markdown(build_table(SAME, variants("x", "y", "z"), runs))
    assert "| a | 1 | 1 | 64 | 64 | **100** | **100** | 2.00 GiB |" in text
    assert "| b | 1 | 1 | 64 | 64 | 50 | 50 | **1.00 GiB** |" in text
    assert "- c failed: &lt;script&gt;" in text and "[x](" not in text


def test_table_of_failures_alone_shows_only_the_reasons() -> None:
    table = build_table(SAME, variants("x"), [run("a", None, succeeded=False, reason="no")])
    assert render_text(table).splitlines() == ["The same global batch", "a failed: no"]
    assert "|" not in render_markdown(table)

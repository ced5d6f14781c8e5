# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics in the output of training programs become curves, and other output does not."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report import printed_metrics
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import CurveSet, curves_from_metrics
from ansible_collections.muster.training.plugins.plugin_utils._report.printed_metrics import (
    MAX_LINE,
    MAX_METRICS,
    PrintedMetrics,
    curves_from_patterns,
    curves_from_printed,
    drop_copies,
    is_companion,
    is_metric,
    merge_printed,
)
from tests.unit.plugins.plugin_utils.report.printed_outputs import TRAINING, UNRELATED, Values


def curves_of(text: str) -> CurveSet:
    return curves_from_printed("stdout.log", re.split(r"[\r\n]", text))


def points(curve_set: CurveSet) -> Values:
    return {name: list(zip(curve.step, curve.value, strict=True)) for name, curve in curve_set.curves.items()}


@pytest.mark.parametrize("program", TRAINING)
def test_metrics_of_training_programs_become_curves(program: str) -> None:
    text, expected = TRAINING[program]
    curves = points(curves_of(text))
    assert {name: curves.get(name) for name in expected} == expected, curves


@pytest.mark.parametrize("program", TRAINING)
def test_all_curves_of_training_programs_are_metrics(program: str) -> None:
    text, _expected = TRAINING[program]
    assert [name for name in curves_of(text).curves if not (is_metric(name) or is_companion(name))] == []


@pytest.mark.parametrize("program", UNRELATED)
def test_output_of_other_programs_yields_no_curve(program: str) -> None:
    assert points(curves_of(UNRELATED[program] * 3)) == {}


def test_enough_programs_are_covered() -> None:
    assert len(TRAINING) >= 30 and len(UNRELATED) >= 20


def test_metrics_are_extracted_from_mixed_output() -> None:
    text, expected = TRAINING["nanoGPT train.py"]
    noise = "\n".join(UNRELATED.values())
    curves = points(curves_of(noise + "\n" + text + noise))
    assert {name: curves.get(name) for name in expected} == expected


def test_non_numeric_loss_is_noted_with_its_step() -> None:
    assert curves_of("step 1: loss 2.5\nstep 2: loss 2.4\nstep 3: loss nan\n").non_finite == {"loss": 3.0}


def test_steps_of_a_later_epoch_continue_those_of_the_previous_epoch() -> None:
    lines = [f"epoch {epoch} step {step}: loss={step / 10 + epoch}" for epoch in range(3) for step in (0, 50, 100)]
    steps = [step for step, _value in points(curves_of("\n".join(lines)))["loss"]]
    assert steps == sorted(set(steps)) and len(steps) == 9


def test_number_of_metrics_and_length_of_lines_are_bounded() -> None:
    line = " ".join(f"loss_head{number}=0.5" for number in range(60))
    assert len(curves_of(f"step 1 {line}\nstep 2 {line}\n").curves) == MAX_METRICS
    long_line = "loss=0.5 " * MAX_LINE
    assert points(curves_of(f"step 1 {long_line}\nstep 2 {long_line}\n")) == {}


@pytest.mark.parametrize(
    "piece",
    [
        "loss",
        "loss ",
        "loss:",
        "a ",
        "1",
        "1 ",
        "1/",
        "[",
        "[1/",
        "loss=1e",
        "step ",
        "step:",
        " | ",
        "\t",
        "'",
        "epoch ",
        "-",
        "loss loss ",
    ],
)
def test_hostile_line_takes_little_time(piece: str) -> None:
    line = "step 1 loss=0.5 " + piece * ((MAX_LINE - 20) // len(piece))
    start = time.process_time()
    curves_from_printed("x", [line] * 20)
    assert time.process_time() - start < 5.0, "hundredths of a second unless a pattern backtracks"


@given(st.text(alphabet="loss=acc:1.5e/[]()|,'\" \tepochstep-%\x1b[nainf\u2501", max_size=300))
def test_any_text_is_examined_without_an_error(text: str) -> None:
    curves_from_printed("x", [text, text, text])


def test_curves_of_a_better_source_replace_printed_ones() -> None:
    printed = curves_of("step 1: loss 2.5 acc 0.5\nstep 2: loss 2.4 acc 0.6\n")
    assert set(merge_printed("log", [printed], ["train/loss"]).curves) == {"acc"}
    assert set(merge_printed("log", [printed], ["val/loss"]).curves) == {"loss", "acc"}


def test_results_by_epoch_that_a_table_lists_under_another_name_are_omitted() -> None:
    """timm prints them at the end, the best epoch first."""
    text = '"epoch": 1, "top1": 34.375\n"epoch": 0, "top1": 46.875\n"epoch": 2, "top1": 50.0\n'
    assert points(curves_of(text)) == {"top1": [(0, 46.875), (1, 34.375), (2, 50.0)]}
    table = curves_from_metrics("summary.csv", ["epoch,eval_top1", "0,46.875", "1,34.375", "2,50.0"])
    assert not drop_copies(curves_of(text), [table]).curves
    differing = curves_from_metrics("summary.csv", ["epoch,eval_top1", "0,46.875", "1,34.375", "2,50.5"])
    assert set(drop_copies(curves_of(text), [differing]).curves) == {"top1"}


def test_longer_of_two_output_curves_is_kept() -> None:
    short, long = (
        curves_of("step 1: loss 2.5\nstep 2: loss 2.4\n"),
        curves_of("step 1: loss 9.5\nstep 2: loss 8.5\nstep 3: loss 7.5\n"),
    )
    assert points(merge_printed("log", [short, long], []))["loss"] == [(1, 9.5), (2, 8.5), (3, 7.5)]


def test_named_groups_of_a_pattern_become_curves() -> None:
    pattern = re.compile(r"it (?P<step>\d+) -> (?P<energy>[-\d.,]+)(?: gap (?P<gap>\S+))?")
    lines = [
        "it 10 -> 1,024.5",
        "it 20 -> -3.5 gap 0.1",
        "x",
        "it 30 -> ,",
        "it 40 -> 1 gap none",
        "it 50 -> 2 gap 0.2",
    ]
    assert points(curves_from_patterns("log", lines, [pattern])) == {
        "energy": [(10, 1024.5), (20, -3.5), (40, 1), (50, 2)],
        "gap": [(20, 0.1), (50, 0.2)],
    }


def test_any_number_of_epochs_takes_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed_metrics, "MAX_EPOCHS", 3)
    metrics = PrintedMetrics()
    for number in range(20):
        metrics.feed(f"{{'loss': 0.5, 'epoch': {number / 10}}}")
    assert metrics.series and all(len(series.offsets) <= 3 for series in metrics.series.values())
    assert sum(len(series.value) for series in metrics.series.values()) == 20

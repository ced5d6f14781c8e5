# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of Hugging Face's Trainer are assigned the steps at which they were printed, if its last line implies them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.curves import CurveSet
from ansible_collections.muster.training.plugins.plugin_utils._report.printed_metrics import curves_from_printed
from ansible_collections.muster.training.plugins.plugin_utils._report.trainer_log import TrainerLog


def entry(values: dict[str, float], as_text: bool) -> str:
    """Return a line as printed by Trainer 5, with numbers as four-digit text, or by Trainer 4."""
    return str({name: f"{value:.4g}" if as_text else value for name, value in values.items()})


def training(logged: Sequence[int], steps: int, per_epoch: int, seconds: float, as_text: bool = True) -> list[str]:
    """Return the lines of a job with this many steps that logs at some of them."""
    epochs = {step: step / per_epoch for step in (*logged, steps)}
    if not as_text:
        epochs = {step: round(epoch, 2) for step, epoch in epochs.items()}
    lines = [entry({"loss": 3 / step, "grad_norm": 1.5, "epoch": epochs[step]}, as_text) for step in logged]
    summary = {
        "train_runtime": round(seconds, 4),
        "train_samples_per_second": round(8 * steps / seconds, 3),
        "train_steps_per_second": round(steps / seconds, 3),
        "train_loss": 1.5,
        "epoch": epochs[steps],
    }
    return [*lines, entry(summary, as_text)]


def loss(lines: Sequence[str | None]) -> tuple[str, list[float]]:
    """Return the unit and the positions of the curve of the loss."""
    curves: CurveSet = curves_from_printed("stdout.log", lines)
    return curves.curves["loss"].unit, list(curves.curves["loss"].step)


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("steps", "every", "per_epoch", "seconds"),
    [(10, 1, 30, 15.89), (100, 10, 25, 61.2), (1000, 500, 125, 320.0), (23, 5, 7, 8.4), (300, 50, 100, 400.0)],
)
def test_steps_are_multiples_of_logging_steps(
    steps: int, every: int, per_epoch: int, seconds: float, as_text: bool
) -> None:
    logged = range(every, steps + 1, every)
    assert loss(training(logged, steps, per_epoch, seconds, as_text)) == ("step", [float(step) for step in logged])


def test_first_step_may_also_be_logged() -> None:
    assert loss(training([1, 10, 20, 30, 40], 40, 20, 30.0)) == ("step", [1.0, 10.0, 20.0, 30.0, 40.0])


def test_evaluations_have_their_own_steps() -> None:
    lines = training(range(5, 21, 5), 20, 10, 12.0)
    lines[2:2] = [entry({"eval_loss": 2.0, "eval_runtime": 1.0, "epoch": 1.0}, True)]
    lines[-1:-1] = [entry({"eval_loss": 1.5, "eval_runtime": 1.0, "epoch": 2.0}, True)]
    curve = curves_from_printed("stdout.log", lines).curves["eval_loss"]
    assert (curve.unit, list(curve.step)) == ("step", [10.0, 20.0])


def test_epochs_are_kept_while_the_number_of_steps_is_unknown() -> None:
    assert loss(training(range(2, 11, 2), 10, 4, 5.0)[:-1]) == ("epoch", [0.5, 1.0, 1.5, 2.0, 2.5])


def test_values_are_counted_if_rounding_hides_even_the_epochs() -> None:
    lines = [entry({"loss": 3 / step, "epoch": 0.01}, False) for step in range(1, 5)]
    assert loss(lines) == ("value", [1.0, 2.0, 3.0, 4.0])


def test_too_inexact_number_of_steps_yields_no_steps() -> None:
    unit, _positions = loss(training(range(2500, 100_001, 2500), 100_000, 50_000, 360_000.0))
    assert unit == "epoch"


def test_next_attempt_replaces_the_values_that_it_repeats() -> None:
    lines = training(range(1, 11), 10, 5, 9.0)
    assert loss([*lines[:6], None, *lines[4:]]) == ("step", [float(step) for step in range(1, 11)])


def test_other_dictionaries_are_not_attributed_to_the_trainer() -> None:
    for line in ("{'loss': 0.5}", '{"loss": 0.5, "epoch": 1}', "epoch: 1", "{'epoch': 1}"):
        assert TrainerLog().feed(line) is None


@given(st.lists(st.text(alphabet="{}'los epochtrain_runtimesteps_per_second:,.0189eE+-", max_size=120), max_size=8))
def test_any_line_is_examined_without_an_error(lines: list[str]) -> None:
    log = TrainerLog()
    epochs = [epoch for line in lines for epoch in [log.feed(f"{{'loss': {line}, 'epoch': 1e9}}")] if epoch is not None]
    log.derive_steps(epochs)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the metrics that the Hugging Face Trainer prints: its lines contain only the epoch, which is rounded.

The last line has the seconds and the steps per second of the training, from which the number of steps follows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

FIELD = r"'%s': ('?)([0-9]{1,9}(?:\.[0-9]{0,20})?(?:[eE][-+]?[0-9]{1,2})?)'?"
EPOCH = re.compile(r"\{'[\w/.@-]{1,80}': [^{}]{1,1900}, " + FIELD % "epoch" + r"\}\s*\Z")
RUNTIME = re.compile(FIELD % "train_runtime")
SPEED = re.compile(FIELD % "train_steps_per_second")
SIGNIFICANT_DIGITS = 4  # significant digits of the numbers that Trainer 5 prints as text
TOLERANCE = 0.02  # number of steps by which an exact interval may differ from an integer


@dataclass(frozen=True)
class Estimate:
    """A rounded number, and its largest possible rounding error."""

    value: float
    error: float

    @property
    def relative_error(self) -> float:
        """Return the error relative to the number."""
        return self.error / self.value if self.value else math.inf


def rounded_number(match: re.Match[str], decimals: int) -> Estimate:
    """Return a number from a line that is rounded to the given decimals and, as text, also to SIGNIFICANT_DIGITS."""
    value = float(match[2])
    error = 0.5 * 10.0**-decimals
    if match[1] and value > 0:
        error = max(error, 0.5 * 10.0 ** (math.floor(math.log10(value)) + 1 - SIGNIFICANT_DIGITS))
    return Estimate(value, error)


class TrainerLog:
    """The epoch in each line of the Trainer's output, and the number of training steps once training has ended."""

    def __init__(self) -> None:
        self.steps: Estimate | None = None
        self.end: Estimate | None = None  # epoch at the end of the training
        self.last: Estimate | None = None  # epoch of the last line

    def feed(self, text: str) -> float | None:
        """Examine a line, and return its epoch if the Trainer printed it."""
        match = EPOCH.search(text)
        if match is None:
            return None
        self.last = rounded_number(match, decimals=9 if match[1] else 2)
        runtime, speed = RUNTIME.search(text), SPEED.search(text)
        if runtime is not None and speed is not None:
            seconds, rate = rounded_number(runtime, decimals=4), rounded_number(speed, decimals=3)
            steps = seconds.value * rate.value
            if steps and self.last.value:
                self.steps = Estimate(steps, steps * (seconds.relative_error + rate.relative_error))
                self.end = self.last
        return self.last.value

    def derive_steps(self, epochs: Sequence[float]) -> list[float] | None:
        """Return the step for each value of a metric from the epochs, or None if the steps cannot be determined
        exactly.

        Values are printed at multiples of logging_steps, and with logging_first_step also at step 1. Evaluations may
        begin at step 0.
        """
        if self.steps is None or self.end is None or self.last is None or not epochs or not epochs[-1] > 0:
            return None
        for first_steps in ([], [1.0], [0.0]):
            count = len(epochs) - len(first_steps)
            interval = self.interval(epochs[-1], count)
            if interval is None or first_steps == [float(interval)]:
                continue
            steps = first_steps + [float(interval * number) for number in range(1, count + 1)]
            if self.agrees(steps, epochs, interval):
                return steps
        return None

    def interval(self, last_epoch: float, count: int) -> int | None:
        """Return the number of steps between consecutive values, or None if it cannot be determined.

        There are `count` values, and the last is from `last_epoch`.
        """
        if self.steps is None or self.end is None or count < 1:
            return None
        exact = self.steps.value * last_epoch / self.end.value / count
        error = exact * self.steps.relative_error
        if last_epoch != self.end.value:  # otherwise the last value is from the last step
            error += exact * (self.end.relative_error + self.epoch_error(last_epoch) / last_epoch)
        if error >= 0.5 or abs(exact - round(exact)) > max(error, TOLERANCE):
            return None
        return max(1, round(exact))

    def epoch_error(self, epoch: float) -> float:
        """Return the rounding error of an epoch."""
        if self.last is None:
            return 0.0
        return max(self.last.error, epoch * self.last.relative_error if self.last.value else 0.0)

    def agrees(self, steps: Sequence[float], epochs: Sequence[float], interval: int) -> bool:
        """Return whether these steps match these epochs, within the limits of rounding."""
        if self.steps is None or self.end is None:
            return False
        rate = self.steps.value / self.end.value
        return all(
            abs(step - epoch * rate) <= interval / 2 + rate * self.epoch_error(epoch) + step * self.steps.relative_error
            for step, epoch in zip(steps, epochs, strict=True)
        )

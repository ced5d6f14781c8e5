# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics next to rich's progress bars and in its tables are read even if they span several lines."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._report.printed_metrics import curves_from_printed
from ansible_collections.muster.training.plugins.plugin_utils._report.rich_output import MAX_LINES, RichOutput


def bar(epoch: int, loss: float) -> str:
    """Return a finished bar of Lightning's RichProgressBar, as it is written to a file."""
    return f"""\
Epoch {epoch}/1  ━━━━━━━━━━━━━━━━━ 20/20 0:00:12 • 0:00:00 1.55it/s v_num: 0.000
                                                              val/loss: {loss - 0.1:.3f}
                                                              val/acc: 0.619
                                                              val/acc_best:
                                                              0.619 train/loss:
                                                              {loss:.3f} train/acc:
                                                              0.635
"""


TABLE = """\
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━━━━┓
┃        Test metric        ┃       DataLoader 0        ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━━━━┩
│         test/acc          │    0.8740000128746033     │
│         test/loss         │    0.6021000146865845     │
└───────────────────────────┴───────────────────────────┘
"""


def test_metrics_next_to_a_progress_bar_are_read_even_if_wrapped() -> None:
    single = curves_from_printed("launcher.log", (bar(1, 1.252) + "`Trainer.fit` stopped\n").splitlines()).single
    assert single == {"val/loss": 1.152, "val/acc": 0.619, "train/loss": 1.252, "train/acc": 0.635}


def test_progress_bars_of_several_epochs_become_curves() -> None:
    curves = curves_from_printed("launcher.log", (bar(0, 1.5) + bar(1, 1.252)).splitlines()).curves
    assert list(curves["train/loss"].value) == [1.5, 1.252]
    assert list(curves["val/loss"].value) == [1.4, 1.152]


def test_metrics_in_a_table_are_read() -> None:
    single = curves_from_printed("launcher.log", TABLE.splitlines()).single
    assert single == {"test/acc": 0.8740000128746033, "test/loss": 0.6021000146865845}


def test_progress_bars_take_limited_memory() -> None:
    rich = RichOutput()
    rich.feed("Epoch 0/1  ━━━━━━━━ 1/20")
    for _ in range(10 * MAX_LINES):
        rich.feed(" " * 20 + "train/loss: 1.0")
        assert len(rich.progress) <= MAX_LINES


@example(["1━━━│"])
@given(st.lists(st.text(alphabet="━│┃ \tloss:1.", max_size=60), max_size=30))
def test_no_other_line_is_lost(lines: list[str]) -> None:
    rich = RichOutput()
    output = [line for text in lines for line in rich.feed(text)] + rich.flush()
    plain = "".join(output).replace("|", "").replace(" ", "").replace("\t", "")
    expected = "".join(lines)
    for mark in "━│┃ \t":
        expected = expected.replace(mark, "")
    assert plain.replace("━", "") == expected

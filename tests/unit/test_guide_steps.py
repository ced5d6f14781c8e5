# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each step of the guides is in a row of docs/coming_from_guides.md, next to its replacement."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.unit.pages import text_of

pytestmark = pytest.mark.one_core
STEPS = yaml.safe_load((Path(__file__).parent / "fixtures" / "guide_steps.yml").read_text(encoding="utf-8"))


class Row(NamedTuple):
    """A row of a table on the page."""

    before: str
    now: str


def table_rows() -> list[Row]:
    """Return the rows of all tables on the page, without their heads."""
    rows = []
    for line in text_of("docs/coming_from_guides.md").splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            assert len(cells) == 2, f"not two cells: {line}"
            rows.append(Row(*cells))
    return [row for row in rows if row != ("before", "now") and not re.fullmatch(r"-+", row.before)]


ROWS = table_rows()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(step["before"], step["now"], id=f"{guide}: {step['step']}")
        for guide, steps in STEPS.items()
        for step in steps
    ],
)
def test_guide_step_has_a_row_with_its_replacement(before: str, now: str) -> None:
    rows = [row for row in ROWS if before in row.before]
    assert rows, f"no row has {before!r} on the left"
    assert any(now in row.now for row in rows), f"beside {before!r} is {[row.now for row in rows]}"


def test_each_row_names_what_replaces_the_step() -> None:
    assert len(ROWS) > 80 and all(row.before and row.now for row in ROWS)

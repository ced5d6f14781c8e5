# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The number of nodes of a rehearsal."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.action.rehearse import count_nodes


@pytest.mark.parametrize(
    ("nnodes", "nodes", "count"),
    [("", [], 8), ("", ["gpu1"], 1), ("2", ["gpu1", "gpu2", "gpu3"], 2), ("2:4", [], 4)],
)
def test_rehearsal_takes_requested_number_of_nodes(nnodes: str, nodes: list[str], count: int) -> None:
    assert count_nodes(nnodes, nodes, 8) == count


def test_invalid_nnodes_is_refused() -> None:
    with pytest.raises(ValueError, match="nnodes is 'two'"):
        count_nodes("two", [], 8)

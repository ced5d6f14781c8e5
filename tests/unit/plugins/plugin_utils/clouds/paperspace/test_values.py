# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values that the API represents in several forms."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.values import (
    gpu_count,
    parse_integer,
    region_code,
)


@pytest.mark.parametrize("region", ["ny2", "NY2", "East Coast (NY2)", " East Coast (ny2) "])
def test_region_code_is_read_from_every_form(region: str) -> None:
    assert region_code(region) == "ny2"


@pytest.mark.parametrize(
    ("value", "number"),
    [(5, 5), ("5", 5), (5.0, 5), ("x", None), ("", None), (None, None), (True, None), ({}, None), (1e999, None)],
)
def test_integer_is_read_from_number_or_text_or_is_none(value: Any, number: int | None) -> None:
    assert parse_integer(value) == number


@pytest.mark.parametrize(
    ("accelerators", "machine_type", "gpus"),
    [
        ([{"name": "A6000", "memory": 1, "count": 2}], "A6000x2", 2),
        ([{"name": "A6000", "memory": "1", "count": "2"}], "A6000", 2),
        ([{"name": "a", "count": 2}, {"name": "b", "count": 1}], "mixed", 3),
        (None, "A100-80Gx8", 8),
        ([], "V100-32Gx4", 4),
        ([{"name": "a", "count": 0}], "A4000x2", 2),
        ([{"name": "a", "count": -4}, "odd"], "A4000x2", 2),
        ("odd", "A4000", 1),
        (None, "GPU+", 1),
        (None, "C5", 0),
        (None, "C10", 0),
        (None, None, 0),
        (None, "A4000x99999", 1),
    ],
)
def test_gpu_count_comes_from_accelerators_or_machine_type(
    accelerators: Any, machine_type: str | None, gpus: int
) -> None:
    assert gpu_count({"accelerators": accelerators, "machineType": machine_type}) == gpus

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""User-written variants: overrides of the job, and invalid settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader

from ansible_collections.muster.training.plugins.plugin_utils._command_line.role_variables import documented_options
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.documents import Variant
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sweep.variants import (
    SweepInput,
    ValueReaders,
    read_variants,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_arguments import (
    parse_arguments,
    parse_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import read_job_keys

ROLES = Path(__file__).resolve().parents[6] / "roles"
LOADER = DataLoader()


def wrong(variables: Mapping[str, Any]) -> list[str]:
    return ["its image is no text"] if variables.get("launch_image") == [] else []


READERS = ValueReaders(
    arguments=lambda value: parse_arguments(value, LOADER),
    environment=lambda value: parse_environment(value, LOADER),
    find_errors=wrong,
)


def read(variants: object, **more: Any) -> tuple[list[Variant], list[str]]:
    usual: dict[str, Any] = {"sweep": "sweep", "args": [], "fit_args": [], "fit": False, "machines": 4}
    keys, options = read_job_keys(ROLES), documented_options(ROLES / "launch")
    return read_variants(
        SweepInput(**{**usual, "variants": variants, "keys": keys, "options": options, **more}), READERS
    )


def test_variant_overrides_the_job_by_short_or_long_names() -> None:
    variant = {"name": "a", "nnodes": 2, "launcher": "env", "launch_debug": True, "args": "--x '1 2'"}
    (item,), output = read([variant], args=["--steps", "3"])
    assert output == []
    assert item["variables"] == {
        "launch_nnodes": 2,
        "nnodes": 2,  # the playbook reads it, and a user may have given it on the command line
        "launch_launcher": "env",
        "launch_debug": True,
        "launch_args": ["--steps", "3", "--x", "1 2"],
    }
    assert item["fit_args"] == []


def test_variant_without_arguments_keeps_those_of_the_job() -> None:
    (item,), output = read([{"name": "a", "nproc_per_node": 1}])
    assert output == [] and item["variables"] == {"launch_nproc_per_node": 1, "nproc_per_node": 1}


def test_batch_search_has_its_own_arguments() -> None:
    variants = [{"name": "a", "args": ["-a"]}]
    (item,), output = read(variants, fit=True, args=["-g", "8"], fit_args=["-b", "{batch_size}"])
    assert output == [] and item["fit_args"] == ["-b", "{batch_size}", "-a"]
    assert item["variables"]["launch_args"] == ["-g", "8", "-a"]


def test_variants_that_differ_only_in_nodes_are_of_the_same_kind() -> None:
    variants = [
        {"name": "a", "nnodes": 1, "args": "x"},
        {"name": "b", "launch_nnodes": 2, "nproc_per_node": 3, "args": ["x"]},
        {"name": "c", "nnodes": 2, "args": "y"},
    ]
    a, b, c = [item["kind"] for item in read(variants)[0]]
    assert a == b != c


@pytest.mark.parametrize(
    ("variants", "more", "message"),
    [
        ([], {}, "there are no variants: list what to compare"),
        ("ddp", {}, "sweep_variants is 'ddp', but must be a list"),
        (["ddp"], {}, "variant 1 of sweep_variants is not a mapping of settings"),
        ([{"nnodes": 1}], {}, "variant 1 of sweep_variants has no name"),
        ([{"name": 1}], {}, "has the name 1: use letters, digits, '.', '_' and '-', in quotes if it is a number"),
        ([{"name": "../a"}], {}, "has the name '../a'"),
        ([{"name": "a" * 40}], {}, "has a name that is too long"),
        ([{"name": "a"}, {"name": "a"}], {}, "variant 2 of sweep_variants has the same name as an earlier one, a"),
        ([{"name": "a", "nnodse": 1}], {}, "variant a: it sets nnodse, but nothing reads it; did you mean nnodes?"),
        ([{"name": "a", "code": "."}], {}, "variant a: it sets code, but nothing reads it"),
        ([{"name": "a", "launch_run_id": "b"}], {}, "it sets launch_run_id, which is the same for all"),
        ([{"name": "a", "nnodes": 1, "launch_nnodes": 1}], {}, "it sets launch_nnodes twice"),
        ([{"name": "a", "nnodes": 5}], {}, "it needs 5 nodes, but the inventory has 4"),
        ([{"name": "a", "args": "'"}], {}, "variant a: launch_args is the string"),
        (
            [{"name": "a", "args": "{batch_size}"}],
            {"fit": True},
            "its arguments contain {batch_size}, but the runs with the same global batch size need a number",
        ),
        (
            [{"name": "a"}],
            {"fit": True},
            "sweep_fit is true, but neither fit_args nor its own arguments contain {batch_size}",
        ),
        ([{"name": "a", "image": []}], {}, "variant a: its image is no text"),
    ],
)
def test_invalid_variants_are_refused(variants: object, more: dict[str, Any], message: str) -> None:
    _variants, output = read(variants, **more)
    assert len(output) == 1 and message in output[0], output


def test_all_errors_are_reported_at_once() -> None:
    assert len(read([{"name": "a", "b": 1}, {"name": "a"}, {"name": "c", "nnodes": 9}])[1]) == 3

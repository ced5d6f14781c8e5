# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings that distinguish the results of one job from those of another."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import (
    common_settings,
    salted_hash,
)


class Hosts:
    """A stand-in for the inventory's host variables."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.first = first

    def raw_get(self, name: str) -> dict[str, Any]:
        return self.first if name == "gpu0" else {}


def common(first: dict[str, Any] | None = None, members: tuple[str, ...] = ("gpu0", "gpu1"), **here: Any) -> str:
    usual = {"launch_script": "train.py", "job": {"image": "one", "environment": {1: "a", "B": "b"}}}
    groups = {"training": list(members)}
    return common_settings({**usual, "groups": groups, "hostvars": Hosts(first or {}), **here}, "training")


@pytest.mark.parametrize(
    "overrides",
    [
        {"launch_script": "other.py"},
        {"job": {"image": "two", "environment": {1: "a", "B": "b"}}},
        {"job": {"image": "one", "environment": {1: "a", "B": "{{ c }}"}}},
        {"nnodes": 2},
        {"nodes": "gpu1"},
        {"nproc_per_node": 1},
        {"first": {"launch_image": "three"}},
        {"members": ("gpu0",)},
    ],
)
def test_different_job_or_nodes_give_different_settings(overrides: dict[str, Any]) -> None:
    assert common(**overrides) != common()


def test_run_names_and_order_do_not_change_settings() -> None:
    job = {"environment": {"B": "b", 1: "a"}, "image": "one"}
    assert common(job=job, run_id="a", launch_run_id="b", members=("gpu1", "gpu0"), anything=3) == common()


def test_sealed_text_is_reproducible_and_hides_the_secret() -> None:
    assert salted_hash("salt", "s3cret") == salted_hash("salt", "s3cret") != salted_hash("other", "s3cret")
    assert "s3cret" not in salted_hash("salt", "s3cret")

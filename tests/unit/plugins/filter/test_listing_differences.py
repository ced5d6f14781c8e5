# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts in which nodes see different files."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._cluster.mount_listings import listing_differences

A, B, NONE = {"count": 2, "digest": "a"}, {"count": 2, "digest": "b"}, {"count": 0, "digest": "c"}


@pytest.mark.parametrize(
    ("listings", "messages"),
    [
        ({}, []),
        ({"n0": {"/d": A}}, []),
        ({"n0": {"/d": A}, "n1": {"/d": A}}, []),
        ({"n0": {"/d": A}, "n1": {}}, []),
        ({"n0": {"/d": A}, "n1": {"/d": NONE}}, ["/d: 2 names on n0, 0 names on n1"]),
        ({"n0": {"/d": B}, "n1": {"/d": A}, "n2": {"/d": A}}, ["/d: 2 names on n1, n2, 2 other names on n0"]),
        ({"n0": {"/d": A, "/e": A}, "n1": {"/d": A, "/e": B}}, ["/e: 2 names on n0, 2 other names on n1"]),
    ],
)
def test_mounts_that_differ_are_reported_with_their_nodes(listings: dict[str, Any], messages: list[str]) -> None:
    assert listing_differences(listings) == messages

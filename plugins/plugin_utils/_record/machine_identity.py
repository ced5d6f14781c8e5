# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine's identity, as its node's facts or another document contain it, with bounded texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._health.identity import MAX_LENGTH

TEXTS = ("serial", "asset", "machine_id")
GPU_UUID = re.compile(r"(GPU|MIG)-[A-Za-z0-9/-]{1,60}")
MAX_GPUS = 64


def parse_uuids(values: Any) -> list[str]:
    """Return the GPU UUIDs in a list of arbitrary values."""
    uuids = [value for value in values if isinstance(value, str) and GPU_UUID.fullmatch(value)]
    return uuids[:MAX_GPUS]


def parse_identity(identity: Mapping[str, Any]) -> dict[str, str]:
    """Return serial, asset and machine_id of an identity, if present, with a limited length."""
    return {name: str(identity[name] or "")[:MAX_LENGTH] for name in TEXTS if name in identity}


def summarize_identity(health: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a node's identity from its facts: serial, asset, machine_id, and the UUID of each GPU."""
    facts = health or {}
    return {
        **parse_identity(facts.get("identity") or {}),
        "gpus": parse_uuids(gpu.get("uuid") for gpu in facts.get("gpus") or []),
    }

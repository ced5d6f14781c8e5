# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parse instances from a response of the Lambda API, version 1: https://docs.lambda.ai/api/cloud."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import natural_key
from ansible_collections.muster.training.plugins.plugin_utils._cluster.terraform_state import host_name


class ResponseError(Exception):
    """The response deviates from the API documentation; the message describes how."""


class LambdaInstance(NamedTuple):
    """An instance as an inventory host."""

    name: str
    variables: dict[str, Any]


def parse_instances(document: Any, region: str = "") -> list[LambdaInstance]:
    """Return the active instances, sorted by name, then by ID.

    Args:
        document: The parsed response of `GET /instances`.
        region: Only instances of this region, such as `us-east-1`. If empty, those of all regions.

    Raises:
        ResponseError: `data` is not a list.
    """
    entries = document.get("data") if isinstance(document, Mapping) else None
    if not isinstance(entries, list):
        raise ResponseError("the response has no `data` list")
    active = [entry for entry in entries if isinstance(entry, Mapping) and entry.get("status") == "active"]
    selected = [entry for entry in active if not region or _text(entry, "region", "name") == region]
    names = [_text(entry, "name") for entry in selected]
    instances = []
    for entry in selected:
        name, identifier = _text(entry, "name"), _text(entry, "id")
        unique = f"{name}-{identifier[:8]}" if name and names.count(name) > 1 else name or identifier
        instances.append((name, identifier, LambdaInstance(host_name(unique), make_variables(entry))))
    return [instance for _name, _identifier, instance in sorted(instances, key=sort_key)]


def sort_key(entry: tuple[str, str, LambdaInstance]) -> tuple[Any, str]:
    """Return a sort key that puts node2 before node10, and orders instances with the same name by ID."""
    return natural_key(entry[0]), entry[1]


def make_variables(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an instance's host variables, omitting values that the API does not list."""
    cents = _read_number(entry, "instance_type", "price_cents_per_hour")
    gpus = _read_number(entry, "instance_type", "specs", "gpus")
    private = _address(entry, "private_ip")
    variables = {
        "ansible_host": _address(entry, "ip") or private,
        "node_address": private,
        "node_slots": int(gpus) if gpus else None,
        "node_price_per_hour": None if cents is None else cents / 100,
        "lambda_id": _text(entry, "id"),
        "lambda_instance_type": _text(entry, "instance_type", "name"),
        "lambda_region": _text(entry, "region", "name"),
    }
    return {name: value for name, value in variables.items() if value not in (None, "")}


def _value(entry: Any, *path: str) -> Any:
    """Return the value at a path of keys, or None."""
    for key in path:
        entry = entry.get(key) if isinstance(entry, Mapping) else None
    return entry


def _read_number(entry: Mapping[str, Any], *path: str) -> float | None:
    """Return the number from 0 to ten million at a path of keys, or None."""
    value = _value(entry, *path)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= 1e7 else None


def _text(entry: Mapping[str, Any], *path: str) -> str:
    """Return the printable text at a path of keys, at most 255 characters, or an empty string."""
    value = _value(entry, *path)
    return "".join(filter(str.isprintable, value))[:255] if isinstance(value, str) else ""


def _address(entry: Mapping[str, Any], *path: str) -> str:
    """Return the IP address at a path of keys, or an empty string."""
    try:
        return str(ipaddress.ip_address(_text(entry, *path)))
    except ValueError:
        return ""

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide which resources belong to a cluster on EC2, by tags set at creation.

One request creates all machines of a set, so all have the same tag with the set's numbers; a machine's own number is
the one at its launch index. Security group and placement group are named muster-CLUSTER and have the tags as well; a
group with that name but without the tags is foreign.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    CLUSTER_NAME,
    node_name,
    node_number,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

CLUSTER_TAG = "muster:cluster"
CREATOR_TAG = "muster:made-by"
CREATOR = "muster.training"
NUMBERS_TAG = "muster:numbers"
NODE_TAG = "muster:node"  # a machine's name, which is also its name in the inventory; set once it is running
TOPOLOGY_TAG = "muster:topology"  # the machine's location in AWS's network, outermost part first: topology.py
PRICE_TAG = "muster:usd-per-hour"
PRICE_SOURCE_TAG = "muster:price-source"
TOKEN_PREFIX = "muster-"
# maximum number of characters in a tag's value: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html
MAX_TAG_LENGTH = 256


def parse_tags(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of a resource as EC2 describes it."""
    return {str(tag.get("Key")): str(tag.get("Value")) for tag in raw.get("Tags") or []}


def parse_cluster(raw: Mapping[str, Any]) -> str | None:
    """Return the cluster that this collection created a resource for, or None if the collection did not create it."""
    tags = parse_tags(raw)
    name = tags.get(CLUSTER_TAG, "")
    return name if tags.get(CREATOR_TAG) == CREATOR and CLUSTER_NAME.fullmatch(name) else None


def instance_node_name(raw: Mapping[str, Any]) -> str | None:
    """Return the node name of an instance created by this collection, or None for any other instance.

    An instance launched from the console with "launch more like this" has the tags, but not the client token.
    """
    cluster, index = parse_cluster(raw), raw.get("AmiLaunchIndex")
    numbers = parse_numbers(parse_tags(raw).get(NUMBERS_TAG, ""))
    if cluster is None or not str(raw.get("ClientToken") or "").startswith(TOKEN_PREFIX):
        return None
    return node_name(cluster, numbers[index]) if isinstance(index, int) and 0 <= index < len(numbers) else None


def foreign_name(raw: Mapping[str, Any]) -> str:
    """Return the quoted name of an instance that this collection did not create; no node name contains quotes."""
    return f"'{single_line(parse_tags(raw).get('Name') or 'without a name', 80)}'"


def format_numbers(numbers: Iterable[int]) -> str:
    """Format ascending numbers for a tag, for example 0-3 7."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1].append(number)
        else:
            ranges.append([number])
    return " ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in ranges)


def parse_numbers(text: str) -> list[int]:
    """Return the numbers in a tag, or [] if it is not in the format of format_numbers()."""
    numbers: list[int] = []
    for part in text[:MAX_TAG_LENGTH].split(" "):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part, re.ASCII)
        if not match:
            return []
        numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
    return numbers if format_numbers(numbers) == text else []


def build_tags(cluster: str, numbers: Iterable[int] | None = None, **extra: str) -> list[dict[str, str]]:
    """Return the tags for a cluster's resources, in EC2's format. extra: price and price_source."""
    tags = {"Name": cluster if numbers is not None else f"muster-{cluster}", CLUSTER_TAG: cluster, CREATOR_TAG: CREATOR}
    if numbers is not None:
        tags[NUMBERS_TAG] = format_numbers(numbers)
    names = {"price": PRICE_TAG, "price_source": PRICE_SOURCE_TAG}
    tags |= {names[name]: value for name, value in extra.items() if value}
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def build_client_token(group: str, placement: Sequence[str], names: Iterable[str], requested_at: float) -> str:
    """Return a client token, the same each time a request for these machines is repeated; EC2 allows 64 characters.

    Args:
        group: id of the security group, new for each cluster.
        placement: machine type, market and subnet.
        requested_at: when the machines were first requested, according to the journal. It makes the token differ from
            that of earlier machines with the same names: AWS remembers a token for a day after its instances are
            gone, and would return those.
    """
    text = json.dumps([group, *placement, *sorted(names), f"{requested_at:.3f}"])
    return TOKEN_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:48]


def node_numbers(cluster: str, names: Iterable[str]) -> list[int]:
    """Return the numbers in node names, in ascending order."""
    return sorted(number for number in (node_number(cluster, name) for name in names) if number is not None)

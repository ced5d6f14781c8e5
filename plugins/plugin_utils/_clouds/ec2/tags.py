# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide what belongs to a cluster at EC2, by tags set at creation. Private to this collection, pure.

One request makes all machines of a set, so all have the same tag with the set's numbers; a machine's own number is the
one at its launch index. Security group and placement group are named muster-CLUSTER and have the tags as well; one with
that name but without the tags is not ours.
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
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

CLUSTER = "muster:cluster"
MADE_BY = "muster:made-by"
MAKER = "muster.training"
NUMBERS = "muster:numbers"
PRICE = "muster:usd-per-hour"
PRICE_SOURCE = "muster:price-source"
TOKEN = "muster-"
MOST_LETTERS = 256  # of a tag's value: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html


def tags_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """The tags of a thing described by EC2."""
    return {str(one.get("Key")): str(one.get("Value")) for one in raw.get("Tags") or []}


def cluster_in(raw: Mapping[str, Any]) -> str | None:
    """The cluster that this collection made a thing for, None if it is not ours."""
    tags = tags_of(raw)
    name = tags.get(CLUSTER, "")
    return name if tags.get(MADE_BY) == MAKER and CLUSTER_NAME.fullmatch(name) else None


def own_name(raw: Mapping[str, Any]) -> str | None:
    """The name of an instance made by this collection, None if it is not ours.

    One launched from the console with "launch more like this" has our tags, but no client token of ours.
    """
    cluster, place = cluster_in(raw), raw.get("AmiLaunchIndex")
    numbers = numbers_in(tags_of(raw).get(NUMBERS, ""))
    if cluster is None or not str(raw.get("ClientToken") or "").startswith(TOKEN):
        return None
    return node_name(cluster, numbers[place]) if isinstance(place, int) and 0 <= place < len(numbers) else None


def strange_name(raw: Mapping[str, Any]) -> str:
    """The name of an instance that is not ours, in quotes, which no node's name can have."""
    return f"'{one_line(tags_of(raw).get('Name') or 'without a name', 80)}'"


def numbers_text(numbers: Iterable[int]) -> str:
    """Ascending numbers in a tag's form: 0-3 7."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def numbers_in(text: str) -> list[int]:
    """The numbers in a tag, none if it is not in numbers_text()'s form."""
    found: list[int] = []
    for part in text[:MOST_LETTERS].split(" "):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part, re.ASCII)
        if not match:
            return []
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found if numbers_text(found) == text else []


def tags_for(cluster: str, numbers: Iterable[int] | None = None, **more: str) -> list[dict[str, str]]:
    """Tags for a cluster's things, in EC2's form. more: additional ones, by lower-case name."""
    tags = {"Name": cluster if numbers is not None else f"muster-{cluster}", CLUSTER: cluster, MADE_BY: MAKER}
    if numbers is not None:
        tags[NUMBERS] = numbers_text(numbers)
    names = {"price": PRICE, "price_source": PRICE_SOURCE}
    tags |= {names[name]: value for name, value in more.items() if value}
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def client_token(group: str, way: Sequence[str], names: Iterable[str], asked: float) -> str:
    """A token that is the same for the same request, and differs from earlier sets. Up to 64 ASCII characters.

    group: id of the security group, new for each cluster. asked: when the set was first requested, from the record: AWS
    remembers a token for a day after its instances are gone, and would return those.
    """
    text = json.dumps([group, *way, *sorted(names), f"{asked:.3f}"])
    return TOKEN + hashlib.sha256(text.encode()).hexdigest()[:48]


def numbers_for(cluster: str, names: Iterable[str]) -> list[int]:
    """The numbers in the names of nodes, in ascending order."""
    return sorted(number for number in (node_number(cluster, name) for name in names) if number is not None)

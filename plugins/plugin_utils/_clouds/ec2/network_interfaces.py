# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network interfaces of EC2 machines: an address, and EFAs (Elastic Fabric Adapters) on one or all network cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EFA_TYPES = {"efa", "efa-only"}


def find_efa_cards(network: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the indexes of the network cards that support EFA, from the NetworkInfo of an instance type.

    If the cards do not list their interface types, those without EFA are assumed to come first.
    """
    if not network.get("EfaSupported"):
        return ()
    cards = [card for card in network.get("NetworkCards") or [] if isinstance(card.get("NetworkCardIndex"), int)]
    indexes = sorted(card["NetworkCardIndex"] for card in cards) or [0]
    typed = [card["NetworkCardIndex"] for card in cards if EFA_TYPES & set(card.get("InterfaceTypes") or [])]
    if typed:
        return tuple(sorted(typed))
    count = (network.get("EfaInfo") or {}).get("MaximumEfaInterfaces")
    count = count if isinstance(count, int) and 0 < count <= len(indexes) else 1
    return tuple(indexes[len(indexes) - count :]) if count > 1 else tuple(indexes[:1])


def build_interfaces(subnet: str, group: str, efa: bool, cards: Sequence[int]) -> list[dict[str, Any]]:
    """Return a machine's interfaces, in the format of NetworkInterfaces in a request.

    Each of the cards has an EFA-only interface, next to the interface with the address, as AWS recommends:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html. Such a machine cannot have a public
    address: AWS assigns one only to machines with a single interface.

    Args:
        efa: whether the single interface is an EFA, too.
        cards: indexes of the network cards to use for EFA; empty for a single interface.
    """
    common = {"SubnetId": subnet, "Groups": [group], "DeleteOnTermination": True}
    first: dict[str, Any] = {"DeviceIndex": 0, **common}
    if not cards:
        return [{**first, "AssociatePublicIpAddress": True, **({"InterfaceType": "efa"} if efa else {})}]
    return [
        {"NetworkCardIndex": 0, **first, "InterfaceType": "interface"},
        *(
            {"NetworkCardIndex": card, "DeviceIndex": 0 if card else 1, **common, "InterfaceType": "efa-only"}
            for card in cards
        ),
    ]


def describe_unused_cards(name: str, cards: Sequence[int]) -> str:
    """Return a note about an instance type's unused EFA network cards, or "" if there are none."""
    if len(cards) < 2:
        return ""
    return (
        f"{name} has {len(cards)} network cards with EFA, but only one of them is used, since machines that use "
        "several have no public address. To use them all, set -e provision_efa=all -e provision_subnet_id=..., "
        "with a subnet that has a NAT gateway and whose private addresses you can reach"
    )

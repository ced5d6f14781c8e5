# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines and disks cost at EC2, with source and date. Private to this collection.

Only the price of a public address is built in. A price that AWS does not report is None, and shown as unknown.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import Aws, Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import Price, Prices

PAGE = "https://aws.amazon.com/ec2/pricing"
#: US dollars an hour for each public IPv4 address, in all regions, since 2024-02-01:
#: https://aws.amazon.com/blogs/aws/new-aws-public-ipv4-address-charge-public-ip-insights/
ADDRESS = 0.005


def on_demand(aws: Aws, machine_type: str) -> Price | None:
    """The hourly on-demand price of a machine and its public address, with Linux on shared hardware."""
    wanted = {
        "instanceType": machine_type,
        "regionCode": aws.region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    found = _listed(aws, wanted)
    return found and with_address(found)


def with_address(price: Price) -> Price:
    """The price of a machine plus that of its public address."""
    return price._replace(usd=round(price.usd + ADDRESS, 6), source=f"{price.source} and {ADDRESS} for its address")


def disk(aws: Aws) -> Price | None:
    """The monthly price of a GB on a gp3 volume."""
    wanted = {"volumeApiName": "gp3", "regionCode": aws.region, "productFamily": "Storage"}
    return _listed(aws, wanted)


def spot(aws: Aws, machine_type: str) -> dict[str, Price]:
    """The current hourly price of a spot machine and its public address, by zone."""
    try:
        entries = aws.pages(
            "describe_spot_price_history",
            "SpotPriceHistory",
            InstanceTypes=[machine_type],
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.datetime.now(datetime.UTC),
        )
    except Ec2Error as error:
        aws.say(f"the spot price of {machine_type} is not known: {error}")
        return {}
    return newest(entries)


def newest(entries: Iterable[dict[str, Any]]) -> dict[str, Price]:
    """The newest price of each zone."""
    found: dict[str, tuple[datetime.datetime, Price]] = {}
    for entry in entries:
        zone, when = str(entry.get("AvailabilityZone")), entry.get("Timestamp")
        usd = _positive(entry.get("SpotPrice"))
        if usd is not None and isinstance(when, datetime.datetime) and (zone not in found or when > found[zone][0]):
            price = Price(usd, "AWS's history of spot prices", when.date().isoformat())
            found[zone] = when, with_address(price)
    return {zone: price for zone, (_when, price) in found.items()}


def prices_with(machine_type: str, price: Price | None, of_disk: Price | None) -> Prices:
    """The prices in the planner's form."""

    def of_size(size_gb: int | None) -> Price | None:
        if of_disk is None or size_gb is None:
            return None
        return of_disk._replace(usd=round(of_disk.usd * size_gb, 4))

    return Prices(
        lambda asked: price if asked == machine_type else None, of_size, PAGE, "as noted on each when it was made"
    )


def _listed(aws: Aws, wanted: dict[str, str]) -> Price | None:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    try:
        answer = aws.call("pricing", "get_products", ServiceCode="AmazonEC2", Filters=filters, FormatVersion="aws_v1")
    except Ec2Error as error:
        aws.say(f"AWS's price list cannot be read: {error}")
        return None
    return one_price(answer.get("PriceList") or [])


def one_price(products: Iterable[str]) -> Price | None:
    """The only price in a price list, None if there is none or several differ."""
    found = set()
    for text in products:
        try:
            product = json.loads(text)
            date = str(product.get("publicationDate") or "")[:10]
            for term in product["terms"]["OnDemand"].values():
                for part in term["priceDimensions"].values():
                    usd = _positive(part["pricePerUnit"].get("USD"))
                    if usd is not None:
                        found.add(Price(usd, "AWS's price list", date))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return found.pop() if len({price.usd for price in found}) == 1 else None


def _positive(text: Any) -> float | None:
    try:
        usd = float(text)
    except (TypeError, ValueError):
        return None
    return usd if 0 < usd < 100_000 else None

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prices of machines and disks on EC2, with source and date.

Only the price of a public address is built in. A price that AWS does not report is None, shown as unknown.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient, Ec2Error
from ansible_collections.muster.training.plugins.plugin_utils._clouds.prices import CloudPrices, Price

PAGE = "https://aws.amazon.com/ec2/pricing"
# US dollars per hour for each public IPv4 address, in all regions, since 2024-02-01:
# https://aws.amazon.com/blogs/aws/new-aws-public-ipv4-address-charge-public-ip-insights/
ADDRESS_PRICE = 0.005
# AWS keeps spot prices for 90 days; an older price is no longer valid.
MAX_SPOT_PRICE_AGE = datetime.timedelta(days=90)


def read_on_demand_price(aws: AwsClient, machine_type: str) -> Price | None:
    """Return the hourly on-demand price of a machine and its public address, for Linux on shared hardware."""
    criteria = {
        "instanceType": machine_type,
        "regionCode": aws.region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    price = _read_listed_price(aws, criteria)
    return price and add_address_price(price)


def add_address_price(price: Price) -> Price:
    """Return the price of a machine plus that of its public address."""
    return price._replace(
        usd=round(price.usd + ADDRESS_PRICE, 6), source=f"{price.source} and {ADDRESS_PRICE} for its address"
    )


def read_disk_price(aws: AwsClient) -> Price | None:
    """Return the monthly price per GB of a gp3 volume."""
    criteria = {"volumeApiName": "gp3", "regionCode": aws.region, "productFamily": "Storage"}
    return _read_listed_price(aws, criteria)


def read_spot_prices(aws: AwsClient, machine_type: str) -> dict[str, Price]:
    """Return the current hourly price of a spot instance and its public address, by zone."""
    now = datetime.datetime.now(datetime.UTC)
    try:
        entries = aws.list_all(
            "describe_spot_price_history",
            "SpotPriceHistory",
            InstanceTypes=[machine_type],
            ProductDescriptions=["Linux/UNIX"],
            StartTime=now,
        )
    except Ec2Error as error:
        aws.show(f"cannot read the spot price of {machine_type}: {error}")
        return {}
    return newest_by_zone(entries, now - MAX_SPOT_PRICE_AGE)


def newest_by_zone(entries: Iterable[dict[str, Any]], earliest: datetime.datetime) -> dict[str, Price]:
    """Return the newest price in each zone, or no price for a zone whose prices are all from before `earliest`."""
    newest: dict[str, tuple[datetime.datetime, Price]] = {}
    for entry in entries:
        zone, when = str(entry.get("AvailabilityZone")), entry.get("Timestamp")
        usd = _parse_price(entry.get("SpotPrice"))
        if usd is None or not isinstance(when, datetime.datetime) or when < earliest:
            continue
        if zone not in newest or when > newest[zone][0]:
            price = Price(usd, "AWS's spot price history", when.date().isoformat())
            newest[zone] = when, add_address_price(price)
    return {zone: price for zone, (_when, price) in newest.items()}


def make_prices(machine_type: str, price: Price | None, gb_price: Price | None) -> CloudPrices:
    """Return the prices in the planner's format. gb_price: the monthly price per GB of disk space."""

    def disk_price(size_gb: int | None) -> Price | None:
        if gb_price is None or size_gb is None:
            return None
        return gb_price._replace(usd=round(gb_price.usd * size_gb, 4))

    return CloudPrices(
        lambda requested_type: price if requested_type == machine_type else None,
        disk_price,
        PAGE,
        "recorded on each machine when it was created",
    )


def _read_listed_price(aws: AwsClient, criteria: dict[str, str]) -> Price | None:
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in criteria.items()]
    try:
        reply = aws.call("pricing", "get_products", ServiceCode="AmazonEC2", Filters=filters, FormatVersion="aws_v1")
    except Ec2Error as error:
        aws.show(f"cannot read AWS's price list: {error}")
        return None
    return single_price(reply.get("PriceList") or [])


def single_price(products: Iterable[str]) -> Price | None:
    """Return the only price in a price list, or None if the list has no price or several different prices."""
    prices = set()
    for text in products:
        try:
            product = json.loads(text)
            date = str(product.get("publicationDate") or "")[:10]
            for term in product["terms"]["OnDemand"].values():
                for part in term["priceDimensions"].values():
                    usd = _parse_price(part["pricePerUnit"].get("USD"))
                    if usd is not None:
                        prices.add(Price(usd, "AWS's price list", date))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
    return prices.pop() if len({price.usd for price in prices}) == 1 else None


def _parse_price(text: Any) -> float | None:
    try:
        usd = float(text)
    except (TypeError, ValueError):
        return None
    return usd if 0 < usd < 100_000 else None

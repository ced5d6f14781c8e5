# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vCPU limits of an AWS account.

Each type family has separate quotas for spot and on-demand; a new account's may be 0 in one market.
https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
"""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.plugin_utils._clouds.ec2.client import AwsClient, Ec2Error

# Codes in Service Quotas. P5 and newer have their own spot quota, whose code is unknown.
QUOTA_CODES = {
    ("on-demand", "standard"): "L-1216C47A",
    ("on-demand", "g"): "L-DB2E81BA",
    ("on-demand", "p"): "L-417A185B",
    ("spot", "standard"): "L-34B43A08",
    ("spot", "g"): "L-3819A6DF",
    ("spot", "p"): "L-7212CCBC",
}


def type_family(machine_type: str) -> str | None:
    """Return the family whose types share a quota: standard, g (G and VT), p; None for others."""
    match = re.match(r"[a-z]+", machine_type)
    letters = match[0] if match else ""
    if letters in ("g", "gr", "vt"):
        return "g"
    if letters == "p":
        return "p"
    return "standard" if letters in tuple("acdhimrtz") else None


def quota_code(market: str, machine_type: str) -> str | None:
    """Return the code of the quota that a type counts toward, or None if it is unknown."""
    if market == "spot" and re.match(r"p([5-9]|\d\d)", machine_type):
        return None
    return QUOTA_CODES.get((market, type_family(machine_type) or ""))


def read_quota(aws: AwsClient, code: str) -> float | None:
    """Return a vCPU quota, or None if it cannot be read: many users lack the permission."""
    try:
        return float(
            aws.call("service-quotas", "get_service_quota", ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"]
        )
    except (Ec2Error, KeyError, TypeError, ValueError):
        return None


def check_quota(  # noqa: PLR0913
    market: str, machine_type: str, count: int, vcpus: int | None, quota: float | None, used: int | None
) -> tuple[str, str]:
    """Return the reason why the machines exceed the quota, and a note for the user. Either may be empty.

    vcpus: vCPUs of one machine. used: vCPUs of the family in use in this market.
    """
    code = quota_code(market, machine_type)
    if quota is None or vcpus is None:
        return "", f"cannot read the quota for {machine_type} {format_market(market)}, so it may be too small"
    needed = count * vcpus
    if (used or 0) + needed > quota:
        usage = "an unknown number is in use" if used is None else f"{used} are in use"
        return (
            f"{count} {machine_type} {format_market(market)} need {needed} vCPUs, but the account's quota for this "
            f"family ({code}) is {quota:g}, of which {usage}. Request more: https://console.aws.amazon.com/servicequotas"
        ), ""
    return "", "" if used is not None else f"cannot determine how much of the quota {code} is in use"


def format_market(market: str) -> str:
    """Format a market as part of a sentence."""
    return "on the spot market" if market == "spot" else "on demand"

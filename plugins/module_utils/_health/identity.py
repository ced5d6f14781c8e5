# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What identifies a machine, so that it is recognized under another name or address."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._health.host_health import read_value

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Mapping

DMI = "/sys/class/dmi/id"
MACHINE_ID = "/etc/machine-id"
# What manufacturers and hypervisors write if they have no number.
PLACEHOLDER = re.compile(
    r"(?i)(to be filled.*|default string|not (specified|applicable|available)|none|n/?a|unknown|system serial number"
    r"|chassis.*|amazon ec2|[0 .-]*|x+|1234567890?|0123456789)\Z"
)
MAX_LENGTH = 100


def checked_number(text: str) -> str:
    """Return a serial number, "" for a placeholder."""
    return "" if PLACEHOLDER.match(text) else text[:MAX_LENGTH]


def read_identity(dmi: str = DMI, machine_id: str = MACHINE_ID) -> dict[str, str]:
    """Return serial, asset and machine_id of this machine, "" if unknown.

    serial: of the machine, which only root may read. asset: its asset tag, on EC2 the id of the instance. machine_id:
    of its installation, which clones of a disk share.
    """
    return {
        "serial": checked_number(read_value(f"{dmi}/product_serial")),
        "asset": checked_number(read_value(f"{dmi}/board_asset_tag")),
        "machine_id": checked_number(read_value(machine_id)),
    }


def summarize_identity(health: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what identifies a node, from its facts: serial, asset, machine_id, and the UUID of each GPU."""
    identity = dict((health or {}).get("identity") or {})
    return {**identity, "gpus": [gpu["uuid"] for gpu in (health or {}).get("gpus") or [] if gpu["uuid"]]}

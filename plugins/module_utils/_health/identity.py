# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine's identity, which survives changes to its name and address."""

from __future__ import annotations

import re

from ansible_collections.muster.training.plugins.module_utils._files.text import read_value

DMI = "/sys/class/dmi/id"
MACHINE_ID = "/etc/machine-id"
# Placeholders that manufacturers and hypervisors use for a missing number.
PLACEHOLDER = re.compile(
    r"(?i)(to be filled.*|default string|not (specified|applicable|available)|none|n/?a|unknown|system serial number"
    r"|chassis.*|amazon ec2|[0 .-]*|x+|1234567890?|0123456789)\Z"
)
MAX_LENGTH = 100


def clean_serial_number(text: str) -> str:
    """Return a serial number, or "" for a placeholder."""
    return "" if PLACEHOLDER.match(text) else text[:MAX_LENGTH]


def read_identity(dmi: str = DMI, machine_id: str = MACHINE_ID) -> dict[str, str]:
    """Return serial, asset and machine_id of this machine, or "" if unknown.

    serial: the machine's, readable only by root. asset: its asset tag, on EC2 the instance ID. machine_id: that of its
    installation, which clones of a disk share.
    """
    return {
        "serial": clean_serial_number(read_value(f"{dmi}/product_serial")),
        "asset": clean_serial_number(read_value(f"{dmi}/board_asset_tag")),
        "machine_id": clean_serial_number(read_value(machine_id)),
    }

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPU health as reported by nvidia-smi: memory, throttling, PCI Express and NVLink. Pure parsers and their queries.

The queries are separate because nvidia-smi refuses a whole query for one field that a driver does not have.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

# Fields supported by all drivers since 418.
DEVICE_FIELDS = (
    "index",
    "uuid",
    "serial",
    "pci.bus_id",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "ecc.errors.uncorrected.aggregate.total",
)
# Fields supported by drivers since 450, for GPUs since Ampere.
ROW_FIELDS = (
    "gpu_uuid",
    "remapped_rows.correctable",
    "remapped_rows.uncorrectable",
    "remapped_rows.pending",
    "remapped_rows.failure",
)
# Fields that change while a job is running. The first of the two throttle fields is given by the name it had before
# driver 535.
PACE_FIELDS = ("index", "uuid", "clocks.current.sm", "clocks.max.sm", "power.draw", "power.limit", "utilization.gpu")
THROTTLE_FIELDS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")
# Bits of the throttle reasons (nvml.h, nvmlClocksEventReasons) that make a GPU slower than expected.
THROTTLE_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_CAP = 0x4  # this reason is normal under load
MAX_GPUS = 64
NVLINK_GPU = re.compile(r"GPU (?P<index>[0-9]{1,3}): ")
NVLINK_STATE = re.compile(r"\s*Link (?P<link>[0-9]{1,3}): (?P<state>[^:\n]+)\Z")
NVLINK_ERRORS = re.compile(
    r"\s*Link (?P<link>[0-9]{1,3}): (?P<kind>Replay|Recovery|CRC)(?: Errors)?: (?P<count>[0-9]{1,18})\Z"
)


def query(smi: str, target: str, fields: Iterable[str]) -> list[str]:
    """Return a query's command; its output has a line of names, then one line per GPU."""
    return [smi, f"--query-{target}={','.join(fields)}", "--format=csv,nounits"]


def parse_rows(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """Return the lines of a query's output as dictionaries, or [] for an error. fields: in the order of the query.

    Only the first field is compared with the names in the output, since drivers print some under another name.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start = next((number for number, line in enumerate(lines) if line.partition(",")[0] == fields[0]), None)
    if start is None:
        return []
    rows = [line.split(", ") for line in lines[start + 1 :]]
    return [dict(zip(fields, row)) for row in rows[:MAX_GPUS] if len(row) == len(fields)]


def parse_number(text: str) -> float | None:
    """Return the number at the start of a value such as "1980", or None for [N/A] and similar values."""
    match = re.match(r"[0-9]{1,15}(\.[0-9]{1,6})?", text)
    return float(match[0]) if match else None


def parse_integer(text: str) -> int | None:
    """Return the integer at the start of a value, or None for [N/A] and similar values."""
    value = parse_number(text)
    return None if value is None else int(value)


def text_or_empty(text: str) -> str:
    """Return a string, or "" for [N/A], [Not Supported] and similar values."""
    return "" if text.startswith("[") or text in ("0", "N/A") else text


def parse_devices(text: str, fields: Sequence[str] = DEVICE_FIELDS) -> list[dict[str, Any]]:
    """Return index, uuid, serial, pci, PCI Express links and ECC errors of each GPU; None if unknown.

    fields: those of the query, which may include more than DEVICE_FIELDS.
    """
    return [
        {
            "index": parse_integer(row["index"]),
            "uuid": text_or_empty(row["uuid"]),
            "serial": text_or_empty(row["serial"]),
            "pci": text_or_empty(row["pci.bus_id"]),
            "pcie_gen": parse_integer(row["pcie.link.gen.current"]),
            "pcie_gen_max": parse_integer(row["pcie.link.gen.max"]),
            "pcie_width": parse_integer(row["pcie.link.width.current"]),
            "pcie_width_max": parse_integer(row["pcie.link.width.max"]),
            "ecc_aggregate": parse_integer(row["ecc.errors.uncorrected.aggregate.total"]),
        }
        for row in parse_rows(text, fields)
    ]


def parse_remapped(text: str) -> dict[str, dict[str, Any]]:
    """Return each GPU's remapped rows by UUID: correctable, uncorrectable, pending, failure."""
    return {
        row["gpu_uuid"]: {
            "correctable": parse_integer(row["remapped_rows.correctable"]),
            "uncorrectable": parse_integer(row["remapped_rows.uncorrectable"]),
            "pending": row["remapped_rows.pending"] in ("Yes", "1"),
            "failure": row["remapped_rows.failure"] in ("Yes", "1"),
        }
        for row in parse_rows(text, ROW_FIELDS)
    }


def throttle_reasons(mask: int) -> list[str]:
    """Return the reasons why a GPU is throttled; mask: as printed by nvidia-smi."""
    return [text for bit, text in THROTTLE_REASONS.items() if mask & bit]


def parse_mask(text: str) -> int:
    """Return a bit mask such as "0x0000000000000004", or 0 if it is unknown."""
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) else 0


def parse_throttling(text: str, fields: Sequence[str]) -> list[int]:
    """Return each GPU's throttle reasons in index order, or [] if the query has none. fields: the query's fields."""
    names = [field for field in THROTTLE_FIELDS if field in fields]
    return [parse_mask(row[names[0]]) for row in parse_rows(text, fields)] if names else []


def parse_pace(text: str) -> list[dict[str, Any]]:
    """Return each GPU's clock, power, utilization and throttle reasons; None if unknown."""
    return [
        {
            "index": parse_integer(row["index"]),
            "uuid": text_or_empty(row["uuid"]),
            "clock": parse_number(row["clocks.current.sm"]),
            "clock_max": parse_number(row["clocks.max.sm"]),
            "power": parse_number(row["power.draw"]),
            "power_limit": parse_number(row["power.limit"]),
            "utilization": parse_number(row["utilization.gpu"]),
            "throttling": parse_mask(row[THROTTLE_FIELDS[0]]),
        }
        for row in parse_rows(text, (*PACE_FIELDS, THROTTLE_FIELDS[0]))
    ]


def parse_nvlinks(status: str, errors: str) -> list[dict[str, Any]]:
    """Return the active links, inactive links and error count of each GPU with NVLink.

    status, errors: the output of `nvidia-smi nvlink --status` and of `nvidia-smi nvlink -e`.
    """
    gpus: dict[int, dict[str, Any]] = {}
    for text in (status, errors):
        gpu: dict[str, Any] = {}
        for line in text.splitlines():
            header = NVLINK_GPU.match(line)
            if header:
                index = int(header["index"])
                empty = {"index": index, "active": [], "inactive": [], "errors": 0}
                gpu = gpus.setdefault(index, empty) if len(gpus) < MAX_GPUS else {}
                continue
            add_link(gpu, line)
    return [gpu for gpu in gpus.values() if gpu["active"] or gpu["inactive"]]


def add_link(gpu: dict[str, Any], line: str) -> None:
    """Add a line about a link to its GPU; {} means no GPU."""
    counter = NVLINK_ERRORS.match(line)
    if counter and gpu:
        gpu["errors"] += int(counter["count"])
        return
    state = NVLINK_STATE.match(line)
    if state and gpu:
        gpu["active" if re.match(r"[0-9.]+ GB/s", state["state"]) else "inactive"].append(int(state["link"]))

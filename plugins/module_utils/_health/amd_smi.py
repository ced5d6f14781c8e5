# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pure parsers for the JSON output of amd-smi, AMD's GPU management tool, in all versions since ROCm 6.0.

A list has one object per GPU. Since ROCm 7.0, `static` and `metric` wrap it: {"gpu_data": [...]}. A quantity is
{"value": 42, "unit": "%"}, or "N/A" if the GPU does not report it.
"""

from __future__ import annotations

import json
import re

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

# Searched in addition to PATH: ROCm adds itself to PATH only for login shells.
DIRECTORIES = ("/opt/rocm/bin", "/usr/bin", "/usr/local/bin")
STATIC = ("static", "--asic", "--bus", "--vram", "--driver", "--json")
METRIC = ("metric", "--usage", "--mem-usage", "--power", "--temperature", "--json")
ECC = ("metric", "--ecc", "--json")  # queried separately: virtual machines do not support the option
LIST = ("list", "--json")
PROCESS = ("process", "--json")
MAX_OUTPUT = 4 << 20  # number of characters; 64 partitions print 300 KiB
MAX_GPUS = 256
MIB_PER_UNIT = {"B": 2.0**-20, "KB": 2.0**-10, "MB": 1.0, "GB": 2.0**10}  # amd-smi divides by 1024
KERNEL_VERSION = re.compile(r"Linux ?version ?([0-9][^\s(]{0,60})")


def parse_gpus(text: str) -> list[dict[str, Any]]:
    """Return the GPU objects in amd-smi's output, in its order, or [] if it is not a list of GPUs.

    Lines before the JSON, such as warnings about missing groups, are skipped.
    """
    start = re.search(r"^[\[{]", text, re.MULTILINE)
    if start is None or len(text) > MAX_OUTPUT:
        return []
    try:
        document, _end = json.JSONDecoder().raw_decode(text, start.start())
    except (ValueError, RecursionError):
        return []
    if isinstance(document, dict):
        document = document.get("gpu_data")
    entries = document if isinstance(document, list) else []
    return [entry for entry in entries[:MAX_GPUS] if isinstance(entry, dict) and is_index(entry.get("gpu"))]


def is_index(value: object) -> bool:
    """Return whether a value is a GPU index."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_GPUS


def section(gpu: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of a GPU's object, or {} if the GPU does not report it."""
    part = gpu.get(name)
    return part if isinstance(part, dict) else {}


def text_of(part: dict[str, Any], name: str) -> str:
    """Return a string, or "" for N/A and similar values."""
    value = part.get(name)
    return "" if not isinstance(value, str) or value.startswith("N/A") else value[:200]


def parse_quantity(value: object) -> float | None:
    """Return the number in a quantity, or None if the GPU does not report it."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value < 1e15 else None


def parse_mebibytes(value: object) -> float | None:
    """Return an amount of memory in MiB, or None if it is not reported."""
    number = parse_quantity(value)
    unit = value.get("unit") if isinstance(value, dict) else "MB"
    factor = MIB_PER_UNIT.get(unit) if isinstance(unit, str) else None
    return None if number is None or factor is None else number * factor


def to_integer(value: float | None) -> int | None:
    """Return a number as an integer, or None if it is not reported."""
    return None if value is None else int(value)


def driver_version(text: str) -> str:
    """Return the version of the amdgpu driver; the in-tree driver reports the kernel's version banner instead."""
    match = KERNEL_VERSION.match(text)
    return f"of kernel {match[1]}" if match else text[:60]


def parse_identities(text: str) -> dict[int, str]:
    """Return the UUID of each GPU by its index, from the output of `list`."""
    return {gpu["gpu"]: text_of(gpu, "uuid") for gpu in parse_gpus(text)}


def parse_devices(static: str, metric: str, ecc: str, identities: dict[int, str]) -> list[dict[str, Any]]:
    """Return the GPUs in the format used for the facts, from the output of STATIC, METRIC and ECC.

    `target` is the architecture that torch's kernels are compiled for, such as gfx942; `fault` is "", since amd-smi
    reports no faults.
    """
    metrics = {gpu["gpu"]: gpu for gpu in parse_gpus(metric)}
    errors = {gpu["gpu"]: section(gpu, "ecc") for gpu in parse_gpus(ecc)}
    devices = []
    for gpu in parse_gpus(static):
        index, asic, memory = gpu["gpu"], section(gpu, "asic"), section(metrics.get(gpu["gpu"], {}), "mem_usage")
        pci = text_of(section(gpu, "bus"), "bdf")
        devices.append(
            {
                "index": index,
                "uuid": identities.get(index) or pci or f"amd-{index}",
                "name": text_of(asic, "market_name") or text_of(asic, "device_id") or "AMD GPU",
                "driver": driver_version(text_of(section(gpu, "driver"), "version")),
                "memory_mib": to_integer(parse_mebibytes(section(gpu, "vram").get("size"))),
                "memory_used_mib": to_integer(parse_mebibytes(memory.get("used_vram"))),
                "compute_mode": "Default",
                "ecc_uncorrected": to_integer(parse_quantity(errors.get(index, {}).get("total_uncorrectable_count"))),
                "page_retirement_pending": False,
                "error": "",
                "target": text_of(asic, "target_graphics_version"),
                "pci": pci,
            }
        )
    return devices


def parse_processes(text: str, identities: dict[int, str]) -> list[dict[str, Any]]:
    """Return the processes that use a GPU, from the output of `process`: gpu (its UUID), pid, command, memory_mib."""
    processes = []
    for gpu in parse_gpus(text):
        entries = gpu.get("process_list")
        for entry in entries if isinstance(entries, list) else []:
            info = section(entry, "process_info") if isinstance(entry, dict) else {}
            pid = info.get("pid")
            if isinstance(pid, int) and not isinstance(pid, bool) and pid > 0:
                memory = section(info, "memory_usage").get("vram_mem")
                uuid = identities.get(gpu["gpu"]) or f"amd-{gpu['gpu']}"
                command = text_of(info, "name")
                processes.append(
                    {"gpu": uuid, "pid": pid, "command": command, "memory_mib": to_integer(parse_mebibytes(memory))}
                )
    return processes


def parse_sample(text: str) -> list[dict[str, float | None]]:
    """Return each GPU's values in METRIC's output by gpus.csv column; None if not reported.

    amd-smi reports the power limit only in `static`, so it is omitted here.
    """
    samples: list[dict[str, float | None]] = []
    for gpu in parse_gpus(text):
        memory, temperature = section(gpu, "mem_usage"), section(gpu, "temperature")
        power, heat = section(gpu, "power"), [parse_quantity(temperature.get(name)) for name in ("hotspot", "edge")]
        samples.append(
            {
                "index": float(gpu["gpu"]),
                "utilization_percent": parse_quantity(section(gpu, "usage").get("gfx_activity")),
                "memory_used_mib": parse_mebibytes(memory.get("used_vram")),
                "memory_total_mib": parse_mebibytes(memory.get("total_vram")),
                "temperature_celsius": next((value for value in heat if value is not None), None),
                "power_watts": parse_quantity(power.get("socket_power")),
                "power_limit_watts": None,
            }
        )
    return samples

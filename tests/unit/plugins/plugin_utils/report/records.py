# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of runs for tests of reports: a writer of event files, scripted samples, and page readers."""

from __future__ import annotations

import html.parser
import json
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

START = 1_795_600_000.0  # 2026-11-25 09:46:40 UTC
INTERVAL = 15
HEADER = (
    "timestamp, index, utilization_percent, memory_used_mib, memory_total_mib, temperature_celsius, power_watts, "
    "power_limit_watts"
)
# Hostile text for every field that a node or job can fill
HOSTILE = "<script>alert(1)</script>|`*[x](http://evil.example)\x1b[31m\x1b]0;t\x07'\"&\u202e{{ 7*7 }}"
Sample = tuple[float, float, float, float]  # utilization, memory, temperature, power


def varint(value: int) -> bytes:
    result = b""
    while value > 0x7F:
        result += bytes([value & 0x7F | 0x80])
        value >>= 7
    return result + bytes([value])


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def event(tag: str, step: int, when: float, value: float, form: str = "simple") -> bytes:
    """Return a record of an event file, in the form of SummaryWriter or in one of its new_style forms."""
    if form == "simple":
        output = varint(2 << 3 | 5) + struct.pack("<f", value)
    elif form == "content":
        output = message(8, varint(1 << 3) + varint(1) + message(4, struct.pack("<f", value)))
    elif form == "packed":
        output = message(8, varint(1 << 3) + varint(1) + message(5, struct.pack("<f", value)))
    else:
        output = message(8, varint(1 << 3) + varint(2) + message(6, struct.pack("<d", value)))
    summary = message(1, message(1, tag.encode()) + output)
    data = (
        varint(1 << 3 | 1) + struct.pack("<d", when) + varint(2 << 3) + varint(step % (1 << 64)) + message(5, summary)
    )
    return record(data)


def record(data: bytes) -> bytes:
    return struct.pack("<QI", len(data), 0) + data + struct.pack("<I", 0)


def line(when: float, index: int, sample: Sample, limit: str = ", 400.00") -> str:
    """Return a line of gpus.csv."""
    stamp = time.strftime("%Y/%m/%d %H:%M:%S", time.gmtime(when))
    used, memory, degrees, watts = sample
    return f"{stamp}.000, {index}, {used:g}, {memory:g}, 40960, {degrees:g}, {watts:.2f}{limit}"


def plan_of(run_id: str, nodes: int, gpus: int, /, **more: Any) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "launcher": "torchrun",
        "program": "train.py",
        "command": ["python3", "-m", "torch.distributed.run", "train.py", "--lr", "1e-3", "--batch_size=32"],
        "working_directory": "/home/me/code",
        "environment": {"NCCL_SOCKET_IFNAME": "secret-value"},
        "variables": ["HF_TOKEN"],
        "world_size": nodes * gpus,
        "nodes": [
            {
                "name": f"gpu{rank}",
                "address": f"10.0.0.{rank + 1}",
                "slots": gpus,
                "first_rank": rank * gpus,
                "hardware": {"gpu": "NVIDIA A100-SXM4-40GB", "gpus": gpus, "memory_mib": 40960, "driver": "550.54.15"},
                "software": {"python": "3.11.9", "torch": "2.6.0", "cuda": "12.4"},
                "price_per_hour": 10.0,
            }
            for rank in range(nodes)
        ],
        **more,
    }


def result_of(run_id: str, nodes: int, seconds: float, **more: Any) -> dict[str, Any]:
    ends = [{"name": f"gpu{rank}", "node_rank": rank, "state": "ended", "exit_code": 0} for rank in range(nodes)]
    return {
        "run_id": run_id,
        "state": "succeeded",
        "reason": "",
        "started": START,
        "ended": START + seconds,
        "first_failure": None,
        "nodes": ends,
        "job_results": {"accuracy": 0.5, "samples_per_second": 100.0, "batch_size": 32},
        **more,
    }


def write_record(  # noqa: PLR0913
    runs: Path,
    run_id: str = "first",
    nodes: int = 1,
    gpus: int = 1,
    seconds: float = 600,
    sample: Callable[[int, int, float], Sample | None] = lambda _node, _gpu, _second: (50.0, 30000.0, 60.0, 300.0),
    plan: dict[str, Any] | None = None,
    result: dict[str, Any] | None = None,
) -> Path:
    """Write a record of a run whose GPUs follow a script: (node, GPU, seconds since the start) -> sample."""
    directory = runs / run_id
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text(json.dumps(plan_of(run_id, nodes, gpus, **(plan or {}))))
    (directory / "result.json").write_text(json.dumps(result_of(run_id, nodes, seconds, **(result or {}))))
    for node in range(nodes):
        logs = directory / "logs" / f"node{node}"
        logs.mkdir(parents=True)
        lines = [HEADER]
        for second in range(0, int(seconds) + 1, INTERVAL):
            for gpu in range(gpus):
                matches = sample(node, gpu, second)
                if matches is not None:
                    lines.append(line(START + second, gpu, matches))
        (logs / "gpus.csv").write_text("\n".join(lines) + "\n")
    went = {"time": START + 10, "event": "go", "text": "all nodes have checked in"}
    (directory / "logs" / "node0" / "events.jsonl").write_text(json.dumps(went) + "\n")
    return directory


def write_events(path: Path, tag: str, values: Iterable[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(event(tag, step, START + step, value) for step, value in enumerate(values)))


class Page(html.parser.HTMLParser):
    """A parsed page: its tags with their attributes, in order, and its text."""

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def elements(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.tags if tag == name]

    def addresses(self) -> list[str]:
        """Return everything that a browser would load or follow."""
        names = ("href", "src", "xlink:href", "srcset", "data", "action", "poster", "background", "style")
        return [value for _tag, attributes in self.tags for name, value in attributes.items() if name in names]

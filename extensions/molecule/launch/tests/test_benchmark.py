"""benchmark.yml reports only a host with a slow network, and nothing if no network is slow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive

RATE = 198  # Mb/s per host, which this machine's CPUs can sustain
LIMIT = "tc qdisc replace dev eth0 root tbf rate {rate}mbit burst 128kb latency 100ms"


@pytest.mark.thorough
@pytest.mark.parametrize("slow", ["node2", ""])
def test_only_the_host_with_a_slow_network_is_named(lab: Lab, nodes: list[str], slow: str) -> None:
    run_id = f"benchmark-{slow or 'well'}"
    settings: dict[str, Any] = {
        "benchmark_seconds": 24,
        "benchmark_largest": 65536,
        "benchmark_collectives": ["all_reduce"],
    }
    try:
        for name in nodes:
            drive.output_of(lab, name, *LIMIT.format(rate=RATE // 3 if name == slow else RATE).split())
        play = drive.run(
            "benchmark.yml", lab.inventory, run_id=run_id, nnodes=3, benchmark_network_gbps=RATE / 1000, **settings
        )
    finally:
        for name in nodes:
            lab.exec(name, ["tc", "qdisc", "delete", "dev", "eth0", "root"])
    assert play.rc == 0, play.output
    result = json.loads((lab.inventory.parent / "runs" / run_id / "benchmark.json").read_text())
    findings = [(item["id"], item["about"]) for item in result["findings"] if item["id"].endswith("-slow")]
    assert findings == [("benchmark-node-slow", [slow])] * bool(slow)

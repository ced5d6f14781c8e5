"""torch's own tool and the node's reader interpret flight recorder files identically."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.flight_recorder import FILE, read_operations
from ansible_collections.muster.training.plugins.plugin_utils._failures.flight_records import describe_operations

fr_trace = pytest.importorskip("torch.distributed.flight_recorder.fr_trace")

pytestmark = pytest.mark.one_core
DUMPS = Path(__file__).parents[1] / "fixtures" / "flight_recorder"


def test_torchs_flight_recorder_tool_names_the_same_rank_and_operation(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    fr_trace.main([str(DUMPS / "loop"), "--prefix", FILE])
    output = caplog.text
    number = re.search(r"Not all ranks joining collective, sequence number: (\d+)", output)
    missing = re.search(r"missing ranks: \{([\d, ]+)\}", output)
    operation = re.search(r"collective: nccl:(\w+)", output)
    assert number and missing and operation, output
    plan = {"node": {"first_rank": 0, "slots": 4}}
    text, ranks = describe_operations(read_operations(str(DUMPS / "loop"), plan, 0.0, 120.0))  # type: ignore[arg-type]
    assert [int(rank) for rank in missing[1].split(",")] == ranks
    assert f"ranks 0-2 wait in {operation[1]} {number[1]}" in text

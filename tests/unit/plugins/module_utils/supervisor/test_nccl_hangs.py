"""Hangs of NCCL jobs on one GPU: the report, the verdict, and evidence of the flight recorder and RAS."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_result
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from tests.unit import supervised
from tests.unit.plugins.module_utils.supervisor.test_torch_hangs import (
    LONGEST,
    make_torch_run,
    output,
    reported_hang,
    start_with_short_limits,
)
from tests.unit.supervised import Run, end_by_force, eventually, free_port

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, with torch's NCCL"),
]
NETWORK = supervised.own_network(174)
SCRIPT = Path(__file__).parents[4] / "jobs" / "nccl_hangs.py"
NCCL = 25  # torch's own timeout, before which the hang is reported
LAST = 3
# How the report describes the rank, the verdict after torch's timeout, and the flight recorder's evidence.
KINDS = {
    "loop": (r"is in load \(nccl_hangs\.py:\d+\)", "it was in load", r"ranks? [0-2, -]+ waits? in all_?reduce"),
    "lazy": (r"is in load \(nccl_hangs\.py:\d+\)", "it was in load", r"ranks? [0-2, -]+ waits? in all_?reduce"),
    "uneven": (r"waits in barrier", "it was waiting in barrier", r"rank 3 has completed all_reduce_barrier"),
    "stopped": (r"is stopped \(process state T", "it was stopped", r"ranks 0-2 wait in all_?reduce"),
    "sizes": ("", "", r"of sizes"),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Run]]:
    monkeypatch.setattr(supervised, "NETWORK", NETWORK)
    monkeypatch.setattr("tests.unit.plugins.module_utils.supervisor.test_torch_hangs.NETWORK", NETWORK)
    runs: list[Run] = []
    yield runs
    for run in runs:
        end_by_force(run)


@pytest.mark.parametrize("kind", KINDS)
def test_nccl_hang_names_the_rank_and_the_operation(tmp_path: Path, runs: list[Run], kind: str) -> None:
    described, verdict, evidence = KINDS[kind]
    run = make_torch_run(tmp_path, "torchrun", kind, SCRIPT, NCCL)
    ras = f"localhost:{free_port()}"  # otherwise, runs on the same machine would share a port
    for plan in run.plans:
        plan["environment"]["NCCL_RAS_ADDR"] = ras
    runs.append(run)
    start_with_short_limits(run)
    if described:
        hang = reported_hang(run, rf"rank {LAST} on node\d+ {described}", f"nccl {kind}")
        assert hang["awaited_ranks"] == [LAST], hang
    result = validate_result(eventually(lambda: run.read(0, "result.json"), LONGEST))
    assert result is not None
    failure = verdict_from_hub(run.plans[0], result)["first_failure"]
    assert failure is not None
    print(f"nccl {kind}: {failure['rank']}: {failure['error']}")
    if verdict:
        assert failure["rank"] == LAST, f"{json.dumps(failure)}\n{output(run)}"
        assert verdict in failure["error"]
    assert re.search(evidence, failure["error"]), failure["error"]
    run.wait_until_gone(LONGEST)

"""A run that saves after a notice: it ends as soon as it has saved, and the next attempt continues from there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.save_watch import SaveWatch
from tests.unit import supervised
from tests.unit.plugins.module_utils.supervisor.test_notices import MetadataServer
from tests.unit.supervised import Run, eventually, free_port, make_run, own_network, started_runs

# Counts steps, saves the current one when it receives SIGTERM, and does not exit by itself.
COUNTS = """
import os, pathlib, re, signal, time, zipfile
directory, received = pathlib.Path("checkpoints"), []
signal.signal(signal.SIGTERM, lambda *_: received.append(1))
resumed = re.search(r"step-(\\d+)", os.environ.get("MUSTER_CHECKPOINT", ""))
step = int(resumed[1]) if resumed else 0
while not received:
    step += 1
    print("step", step, flush=True)
    time.sleep(0.05)
directory.mkdir(exist_ok=True)
while True:
    if os.environ["NODE_RANK"] == "0":
        with zipfile.ZipFile(directory / "new.tmp", "w") as archive:
            archive.writestr("archive/data.pkl", "weights")
        os.replace(directory / "new.tmp", directory / f"step-{step}.pt")
    time.sleep(12)
"""
INTERRUPTION = '{"action": "terminate", "time": "2036-11-27T12:00:00Z"}'
Starter = Callable[..., Run]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    """Start a run whose nodes share a checkpoint directory."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(32))
    with started_runs() as start:

        def launcher(nodes: int, metadata: dict[int, str], **options: Any) -> Run:
            ports: dict[str, Any] = {"lifeline_port": free_port(), "master_port": free_port()}
            run = make_run(tmp_path, [[sys.executable, "-c", COUNTS]] * nodes, **ports, **options)
            for number, plan in enumerate(run.plans):
                plan["working_directory"], plan["checkpoints"] = str(tmp_path), str(tmp_path / "checkpoints")
                plan["notices"].update(grace=600.0, metadata_interval=0.1)
                plan["notices"]["metadata"] = {"ec2": metadata[number]} if number in metadata else {}
            return start(run)

        yield launcher


@pytest.fixture
def service() -> Iterator[MetadataServer]:
    server = MetadataServer()
    server.replies["/latest/api/token"] = (200, "token")
    yield server
    server.server.shutdown()
    server.server.server_close()


def steps(run: Run, member: int, attempt: int) -> list[int]:
    path = run.node(member) / (f"attempt-{attempt}" if attempt else "") / "launcher.log"
    text = path.read_text() if path.exists() else ""
    return [int(line.split()[1]) for line in text.rpartition("\n")[0].splitlines()]  # the last line may be incomplete


def test_no_step_is_lost_at_a_restart_after_a_notice(launch: Starter, service: MetadataServer) -> None:
    run = launch(3, {1: service.address}, restarts=1, restart_when=("interrupted",), spares=1)
    eventually(lambda: len(steps(run, 0, 0)) > 3 and steps(run, 1, 0))
    service.replies["/latest/meta-data/spot/instance-action"] = (200, INTERRUPTION)
    eventually(lambda: steps(run, 0, 1) and steps(run, 2, 1))
    assert steps(run, 0, 1)[0] == steps(run, 0, 0)[-1] + 1, "the next attempt continues with the next step"
    assert steps(run, 2, 1)[0] == steps(run, 0, 1)[0]
    last = steps(run, 0, 0)[-1]
    assert f"step {last} (step-{last}.pt) was saved after the notice: the ranks are ending now" in run.events()
    run.stop()
    run.wait_for("stopped", 0)
    first = run.result()["attempts"][0]
    assert (first["end_class"], first["node"], first["step"]) == ("interrupted", "node1", last)


def test_run_without_restarts_is_interrupted_once_it_has_saved(launch: Starter) -> None:
    """This is long before the end of the grace period, which exceeds the test's time limit."""
    run = launch(2, {})
    eventually(lambda: steps(run, 0, 0) and steps(run, 1, 0))
    (run.node(0) / "drain").touch()
    run.wait_for("interrupted")
    assert run.result()["reason"] == "requested to save and end"


def listed(name: str, saved: float, complete: bool = True, size: int = 7) -> Any:
    parts = {"": size}
    return {
        **{"name": name, "path": f"/c/{name}", "format": "torch", "step": 1, "unit": "step", "saved": saved},
        **{"seconds": 0.0, "size": size, "parts": parts, "damaged": {} if complete else {"": "cut"}, "required": {}},
        **{"recorded": {}, "world_size": None, "fixed_world": False, "complete": complete, "reason": ""},
    }


class Replies:
    """A watch whose nodes reply immediately with their current list."""

    def __init__(self) -> None:
        self.watch = SaveWatch({"nodes": [{"name": "a"}], "checkpoints": "/c"}, self.reply)  # type: ignore[typeddict-item]
        self.listing: list[Any] = []
        self.now = 0.0
        self.requests: list[tuple[int, Any]] = []

    def reply(self, member: int, request: Any) -> None:
        self.requests.append((member, request))

    def turn(self, *listing: Any) -> str:
        """Check once, with the node listing these checkpoints."""
        self.now += 100.0
        assert self.watch.step([0], 1, self.now) == ""
        member, request = self.requests[-1]
        for checkpoint in listing:
            self.watch.take(member, {"kind": "check", "number": request["number"], "checkpoint": checkpoint})
        self.watch.take(member, {"kind": "check", "number": request["number"], "problems": [], "store": ""})
        return self.watch.step([0], 1, self.now)


@pytest.mark.parametrize(
    ("listings", "saved"),
    [
        ([[listed("old.pt", 1.0)]] * 4, False),  # nothing new
        ([[], [listed("new.pt", 5.0)], [listed("new.pt", 5.0)]], True),
        ([[], [listed("new.pt", 5.0)], [listed("new.pt", 6.0)]], False),  # the checkpoint is still changing
        ([[listed("last.pt", 1.0)], [listed("last.pt", 5.0)], [listed("last.pt", 5.0)]], True),  # written again
        ([[listed("was.pt", 1.0, complete=False)], [listed("was.pt", 5.0)], [listed("was.pt", 5.0)]], False),
        ([[], [listed("new.pt", 5.0, complete=False)]] * 2, False),
    ],
)
def test_only_a_checkpoint_started_after_the_notice_is_accepted(listings: list[list[Any]], saved: bool) -> None:
    replies = Replies()
    texts = [replies.turn(*listing) for listing in listings]
    assert bool(texts[-1]) is saved and not any(texts[:-1])

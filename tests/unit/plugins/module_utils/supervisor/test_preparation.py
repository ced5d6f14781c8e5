"""Preparation of an attempt: nodes check themselves, agree on a checkpoint, and copy its missing files."""

from __future__ import annotations

import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints.find import find_checkpoints
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation import node_check
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.hub_preparation import (
    HubPreparation,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.node_preparation import (
    CHECK,
    FETCH,
    SERVE,
    NodePreparation,
)
from tests.unit import supervised
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run, own_network

# Each node records the checkpoint that it was given, and whether it exists here.
JOB = (
    'echo "checkpoint ${MUSTER_CHECKPOINT#$HERE}"; [ -e "$MUSTER_CHECKPOINT" ] && echo "it is here"; '
    '[ -z "$AFTER" ] || eval "$AFTER"; exec sleep 600'
)
Starter = Callable[..., Run]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Starter]:
    """Yield a function that starts a run whose nodes each have a checkpoint directory, DIRECTORY/nodeN."""
    monkeypatch.setattr(supervised, "NETWORK", own_network(31))
    runs: list[Run] = []

    def launcher(nodes: int = 3, script: str = JOB, start: bool = True, **options: Any) -> Run:
        policy = {"restarts": 3, "restart_when": ("node_lost", "rank_failed", "interrupted"), **options}
        ports: dict[str, Any] = {"lifeline_port": free_port(), "master_port": free_port()}
        commands = [["/bin/sh", "-c", script, "sh", str(number)] for number in range(nodes)]
        run = make_run(tmp_path, commands, **ports, **policy)
        for number, plan in enumerate(run.plans):
            plan["checkpoints"] = str(tmp_path / f"node{number}")
            plan["environment"] = {**plan["environment"], "HERE": plan["checkpoints"] + "/"}
            plan["restart"]["counts_progress"] = True
        runs.append(run)
        if start:
            run.start()
        return run

    yield launcher
    for run in runs:
        end_by_force(run)


def save(directory: Path, name: str, content: bytes = b"weights" * 1000, torn: bool = False) -> Path:
    """Write a file in the format of torch.save, or only its first half."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    if torn:
        path.write_bytes(path.read_bytes()[:-200])
    return path


def kill_rank(run: Run, member: int) -> None:
    """End the job of a node, which restarts the run."""
    pid = run.read(member, "status.json")["launcher_pid"]
    os.kill(pid, signal.SIGKILL)


def log(run: Run, member: int, attempt: int = 1) -> list[str]:
    path = run.node(member) / f"attempt-{attempt}" / "launcher.log"
    return path.read_text().splitlines() if path.exists() else []


def restart(run: Run, member: int = 1) -> None:
    run.wait_for("running")
    kill_rank(run, member)


def wait_for_resume(run: Run, name: str, *members: int) -> None:
    """Wait until these nodes have resumed from a checkpoint, and each has a copy of it."""
    expected = [f"checkpoint {name}", "it is here"]
    eventually(lambda: all(log(run, member) == expected for member in members))


def test_request_to_copy_names_the_parts_that_were_agreed_on(tmp_path: Path) -> None:
    shards(tmp_path / "a", 40, 0, 1)
    shards(tmp_path / "b", 40, 1)
    sent: list[tuple[int, dict[str, Any]]] = []
    nodes = [{"name": name, "address": f"10.0.0.{number}"} for number, name in enumerate("ab")]
    plan: Any = {"run_id": "bert", "nodes": nodes, "node": nodes[1]}
    hub = HubPreparation(plan, lambda member, request: sent.append((member, request)), lambda text, node: None)
    hub.begin(1)
    hub.check_nodes([0, 1], [0, 1], 0.0)
    for member, name in enumerate("ab"):
        for checkpoint in find_checkpoints(str(tmp_path / name)):
            hub.take(member, {"kind": CHECK, "number": 1, "checkpoint": checkpoint})
        hub.take(member, {"kind": CHECK, "number": 1, "problems": [], "store": ""})
    assert not hub.agree([0, 1], [0, 1], 2, 0.0)
    hub.take(0, {"kind": SERVE, "number": 1, "port": 4711})
    assert not hub.agree([0, 1], [0, 1], 2, 0.0)
    member, request = sent[-1]
    assert (member, request["kind"], request["name"]) == (1, FETCH, "step-40")
    assert (request["sources"], request["parts"]) == ([["10.0.0.0", 4711]], ["model_rank_0.pt"])
    journal: Any = None
    assert NodePreparation(journal, plan, "token").child_request(request)["parts"] == ["model_rank_0.pt"]


def test_checkpoint_that_every_node_has_is_used(launch: Starter, tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / f"node{number}", "step-20.pt")
    run = launch()
    restart(run)
    wait_for_resume(run, "step-20.pt", 0, 1, 2)
    assert not any("copying" in event for event in run.events())


def test_nodes_copy_the_newest_checkpoint_that_only_the_first_has(launch: Starter, tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / f"node{number}", "step-20.pt")
    newest = save(tmp_path / "node0", "step-40.pt", os.urandom(3_000_000))
    run = launch()
    restart(run)
    wait_for_resume(run, "step-40.pt", 0, 1, 2)
    for number in (1, 2):
        assert (tmp_path / f"node{number}" / "step-40.pt").read_bytes() == newest.read_bytes()
        assert sorted(os.listdir(tmp_path / f"node{number}")) == ["step-20.pt", "step-40.pt"], "no part is left"
    assert [event for event in run.events() if event.startswith("copying step 40 (step-40.pt)")]


def test_first_node_copies_a_checkpoint_that_it_lacks(launch: Starter, tmp_path: Path) -> None:
    save(tmp_path / "node1", "step-40.pt")
    save(tmp_path / "node2", "step-40.pt")
    run = launch()
    restart(run)
    wait_for_resume(run, "step-40.pt", 0, 1, 2)
    record = run.read(0, "status.json")
    assert record["attempt"] == 1


def test_torn_file_is_replaced_by_a_whole_copy(launch: Starter, tmp_path: Path) -> None:
    complete = save(tmp_path / "node0", "step-40.pt")
    save(tmp_path / "node1", "step-40.pt", torn=True)
    save(tmp_path / "node2", "step-40.pt")
    run = launch()
    restart(run)
    wait_for_resume(run, "step-40.pt", 0, 1, 2)
    assert (tmp_path / "node1" / "step-40.pt").read_bytes() == complete.read_bytes()


def test_checkpoint_that_is_torn_everywhere_is_not_used(launch: Starter, tmp_path: Path) -> None:
    for number in range(3):
        save(tmp_path / f"node{number}", "step-20.pt")
        save(tmp_path / f"node{number}", "step-40.pt", torn=True)
    run = launch()
    restart(run)
    wait_for_resume(run, "step-20.pt", 0, 1, 2)
    assert any(event.startswith("step 40 (step-40.pt) cannot be used, since") for event in run.events())
    assert run.read(0, "status.json")["attempt"] == 1


def shards(directory: Path, step: int, *ranks: int) -> None:
    """Write the shards of ranks, as with FSDP's LOCAL_STATE_DICT."""
    for rank in ranks:
        save(directory, f"step-{step}/model_rank_{rank}.pt", os.urandom(1000))


def test_shards_are_exchanged_between_the_nodes_that_have_them(launch: Starter, tmp_path: Path) -> None:
    for number in range(3):
        shards(tmp_path / f"node{number}", 40, number)
    run = launch()
    restart(run)
    wait_for_resume(run, "step-40", 0, 1, 2)
    names = [f"model_rank_{rank}.pt" for rank in range(3)]
    assert all(sorted(os.listdir(tmp_path / f"node{number}" / "step-40")) == names for number in range(3))


def test_shards_lost_with_their_node_select_an_older_checkpoint(launch: Starter, tmp_path: Path) -> None:
    for number in range(4):
        shards(tmp_path / f"node{number}", 20, 0, 1, 2)
        if number < 3:
            shards(tmp_path / f"node{number}", 40, number)
    run = launch(nodes=4, spares=1)
    run.wait_for("running", 0, 1, 2)
    kill_node(run, 1)
    wait_for_resume(run, "step-20", 0, 2, 3)
    expected = "step 40 (step-40) cannot be used, since the shard of rank 1 is missing: using step 20 (step-20) instead"
    assert expected in run.events()


def kill_node(run: Run, member: int) -> None:
    """End a node as in a power failure."""
    directory = str(run.node(member)).encode()
    for pid in list(run.processes()):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            if directory + b"\0" in arguments:
                os.kill(pid, signal.SIGKILL)
        except OSError:  # it has ended
            continue


def test_failed_copy_selects_the_checkpoint_that_every_node_has(launch: Starter, tmp_path: Path) -> None:
    for number in range(2):
        save(tmp_path / f"node{number}", "step-20.pt")
    save(tmp_path / "node0", "step-40/model.pt")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "node1" / ".step-40.muster.part").symlink_to(tmp_path / "elsewhere")  # where the copy would be staged
    run = launch(nodes=2)
    restart(run)
    wait_for_resume(run, "step-20.pt", 0, 1)
    assert any("step 40 (step-40) is not used: node1 could not copy it" in event for event in run.events())
    assert not os.listdir(tmp_path / "elsewhere")


GPU_ROW = "2026/11/27 20:00:00.000, 0, 0, {memory}, 81559, 40, 60.00, 700.00"


def test_spare_replaces_a_node_whose_gpu_memory_is_not_freed(launch: Starter, tmp_path: Path) -> None:
    run = launch(nodes=3, spares=1, start=False)
    for number, plan in enumerate(run.plans):
        row = GPU_ROW.format(memory=20000 if number == 1 else 3)
        plan["gpu_samples"] = ["/bin/echo", row]
        plan["timeouts"]["gpu_free"] = 1.0
    run.start()
    run.wait_for("running", 0, 1)
    kill_rank(run, 1)
    eventually(lambda: log(run, 2))
    assert log(run, 1) == []
    problem = "memory is in use on GPU 0 (20000 MiB); the limit is 512 MiB"
    assert f"node1 cannot take part in attempt 1: {problem}" in run.events()
    run.stop()
    run.wait_for("stopped", 0)
    assert run.result()["attempts"][0]["unusable"] == {"node1": problem}


def test_run_ends_with_the_reason_if_too_few_nodes_are_healthy(launch: Starter, tmp_path: Path) -> None:
    run = launch(nodes=2, start=False)
    mount = tmp_path / "mounted"
    mount.mkdir()
    run.plans[1]["mounts"] = [str(mount)]
    run.start()
    run.wait_for("running")
    mount.rmdir()
    kill_rank(run, 1)
    run.wait_for("failed", 0)
    reason = run.result()["not_restarted"]
    assert reason.startswith("at least 2 nodes are needed, but only node0 can be used; node1 cannot take part: ")
    assert f"the mount {mount} cannot be read: No such file or directory" in reason


def test_attempt_waits_for_gpu_memory_to_be_free(launch: Starter, tmp_path: Path) -> None:
    """The memory is in use until the second check."""
    checks = tmp_path / "looks"
    program = f"echo x >> {checks}; [ $(wc -l < {checks}) -lt 3 ] && m=9000 || m=3; echo " + GPU_ROW.format(memory="$m")
    run = launch(nodes=2, start=False)
    run.plans[1]["gpu_samples"] = ["/bin/sh", "-c", program]
    run.plans[1]["timeouts"].update(sample=1e6)
    run.start()
    run.wait_for("running")
    kill_rank(run, 1)
    eventually(lambda: log(run, 1))
    assert len(checks.read_text().splitlines()) >= 3 and not any("cannot take part" in event for event in run.events())


def test_port_in_use_on_the_first_node_is_reported() -> None:
    plan: Any = {"node": {"node_rank": 0}, "restart": {"master_port": 65535}, "lifeline": {"port": 65535}}
    assert node_check.busy_ports(plan) == ["the rendezvous port 65535 is in use, and so are the ports after it"]

"""Runs that restart automatically: real supervisors, each on its own loopback address."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.status import describe
from tests.unit.supervised import Run, eventually, free_port, make_run, started_runs

# In each attempt, each node writes its member number, its rank and the world size, and keeps running.
WAIT = 'echo "member $1 rank $NODE_RANK of $WORLD_SIZE"; exec sleep 600'
Starter = Callable[..., Run]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Starter]:
    """Yield a function that starts a run whose nodes execute a shell script.

    $1 is the node's number, and $NODE_RANK is its rank.
    """
    with started_runs() as start:

        def launcher(script: str, nodes: int = 2, timeouts: dict[str, float] | None = None, **options: Any) -> Run:
            commands = [["/bin/sh", "-c", script, "sh", str(number)] for number in range(nodes)]
            policy = {"restarts": 3, "restart_when": ("node_lost", "hang"), **options}
            ports = {"lifeline_port": free_port(), "master_port": free_port()}
            run = make_run(tmp_path, commands, timeouts, first_address=200, **ports, **policy)
            return start(run)

        yield launcher


def log(run: Run, member: int, attempt: int) -> str:
    """Return the output of a node's job in an attempt."""
    path = run.node(member) / (f"attempt-{attempt}" if attempt else "") / "launcher.log"
    return path.read_text() if path.exists() else ""


def wait_for_log(run: Run, attempt: int, lines: dict[int, str]) -> None:
    """Wait until the nodes have printed the lines in an attempt."""

    def is_complete() -> bool:
        return all(line in log(run, member, attempt).splitlines() for member, line in lines.items())

    eventually(is_complete)


def kill_supervisor(run: Run, member: int) -> None:
    """Kill all of a node's processes at once, as in a power failure."""
    directory, pids = str(run.node(member)), []
    for pid in run.processes():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
            if directory.encode() + b"\0" in arguments or f"MUSTER_RUN_DIRECTORY={directory}\0".encode() in arguments:
                os.kill(pid, signal.SIGSTOP)
                pids.append(pid)
        except OSError:  # it has ended
            continue
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def test_run_restarts_on_the_same_nodes_after_a_rank_was_killed(launch: Starter) -> None:
    script = 'echo "attempt $MUSTER_ATTEMPT"; [ $MUSTER_ATTEMPT$1 = 01 ] && kill -9 $$; '
    run = launch(script + "[ $MUSTER_ATTEMPT = 1 ] || exec sleep 600", restart_when=("rank_failed",))
    run.wait_for("succeeded")
    result = run.result()
    first, second = result["attempts"]
    assert (first["end_class"], first["node"], first["nodes"]) == ("rank_failed", "node1", ["node0", "node1"])
    assert (second["end_class"], second["reason"]) == ("succeeded", "")
    assert result["state"] == "succeeded" and [node["state"] for node in result["nodes"]] == ["ended", "ended"]
    assert [log(run, 0, 0), log(run, 0, 1)] == ["attempt 0\n", "attempt 1\n"], "no attempt overwrites another's logs"
    messages = [event for event in run.events() if event.startswith("attempt 1 starts")]
    assert messages and messages[0].endswith("3 restarts allowed, 2 remain")
    run.wait_until_gone()


@pytest.mark.parametrize(
    ("kind", "text"), [("pipe", "not a regular file"), ("a list", "does not contain environment variables")]
)
def test_run_ends_with_the_reason_if_the_job_replaced_the_attempt_variables(
    launch: Starter, kind: str, text: str
) -> None:
    replace = "mkfifo $file" if kind == "pipe" else "echo '[1]' > $file"
    script = f"cd $MUSTER_RUN_DIRECTORY; file=environment.json; rm $file; {replace}; kill -9 $$"
    run = launch(f"[ $1 = 0 ] && exec sleep 600; {script}", restart_when=("rank_failed",))
    run.wait_for("failed")
    assert "muster: cannot start /bin/sh" in log(run, 1, 1) and text in log(run, 1, 1)
    run.wait_until_gone()


def test_run_without_restarts_ends_at_the_first_failure(launch: Starter) -> None:
    run = launch("[ $1 = 0 ] && exec sleep 600; kill -9 $$", restarts=0, restart_when=("rank_failed",))
    run.wait_for("failed")
    assert "restart" not in run.read(0, "plan.json") and run.result()["attempts"] == []


def test_script_that_raises_is_not_started_again(launch: Starter) -> None:
    program = 'echo "Traceback (most recent call last):"; echo "  line"; echo "ValueError: boom"; exit 1'
    run = launch(f"[ $1 = 0 ] && exec sleep 600; {program}", restart_when=("node_lost", "rank_failed"))
    run.wait_for("failed")
    result = run.result()
    assert [record["end_class"] for record in result["attempts"]] == ["deterministic"]
    assert "the same error would end the next attempt as well" in result["not_restarted"]


def test_run_ends_when_all_its_restarts_have_been_used(launch: Starter) -> None:
    run = launch("[ $1 = 0 ] && exec sleep 600; kill -9 $$", restarts=2, restart_when=("rank_failed",))
    run.wait_for("failed")
    result = run.result()
    assert [record["number"] for record in result["attempts"]] == [0, 1, 2]
    assert result["not_restarted"] == "all 2 restarts are used up (launch_restarts)"
    run.wait_until_gone()


def test_run_continues_with_fewer_nodes_after_two_losses(launch: Starter) -> None:
    run = launch(WAIT, nodes=4, restart_min_nodes=2)
    wait_for_log(run, 0, {member: f"member {member} rank {member} of 4" for member in range(4)})
    kill_supervisor(run, 1)
    wait_for_log(run, 1, {0: "member 0 rank 0 of 3", 2: "member 2 rank 1 of 3", 3: "member 3 rank 2 of 3"})
    kill_supervisor(run, 2)
    wait_for_log(run, 2, {0: "member 0 rank 0 of 2", 3: "member 3 rank 1 of 2"})
    plan = run.read(3, "plan.json")
    assert describe(str(run.node(3)), plan)["ranks"] == [1]
    kill_supervisor(run, 3)
    run.wait_for("failed", 0)
    result = run.result()
    assert [record["node"] for record in result["attempts"]] == ["node1", "node2", "node3"]
    assert "at least 2 nodes are needed, but only node0 can be used" in result["not_restarted"]
    run.wait_until_gone()


def test_lost_node_ends_a_run_that_requires_all_nodes(launch: Starter) -> None:
    run = launch(WAIT)
    run.wait_for("running")
    kill_supervisor(run, 1)
    run.wait_for("failed", 0)
    assert "at least 2 nodes are needed, but only node0" in run.result()["not_restarted"]


def test_spare_takes_over_the_rank_of_a_lost_node(launch: Starter) -> None:
    run = launch(WAIT, nodes=4, spares=1)
    wait_for_log(run, 0, {member: f"member {member} rank {member} of 3" for member in range(3)})
    run.wait_for("spare", 3)
    assert log(run, 3, 0) == "" and run.state(0) == "running"
    kill_supervisor(run, 1)
    wait_for_log(run, 1, {0: "member 0 rank 0 of 3", 3: "member 3 rank 1 of 3", 2: "member 2 rank 2 of 3"})
    assert any("; node3 joins;" in event for event in run.events())
    assert run.read(0, "status.json")["attempt"] == 1
    run.stop()
    run.wait_for("stopped", 0, 2, 3)
    run.wait_until_gone()


def test_run_continues_after_the_loss_of_a_waiting_spare(launch: Starter) -> None:
    run = launch('[ -e "$PWD/end" ] || exec sleep 600', nodes=3, spares=1)
    run.wait_for("running", 0, 1)
    run.wait_for("spare", 2)
    kill_supervisor(run, 2)
    eventually(lambda: any("one fewer spare" in event for event in run.events()))
    assert run.state(0) == run.state(1) == "running"


def test_spare_ends_with_the_run(launch: Starter) -> None:
    run = launch("exit 0", nodes=3, spares=1)
    run.wait_for("succeeded")
    result = run.result()
    assert [node["state"] for node in result["nodes"]] == ["ended", "ended", "spare"] and result["nnodes"] == 2
    run.wait_until_gone()


def test_node_lost_while_an_attempt_starts_costs_another_attempt(launch: Starter) -> None:
    script = "if [ $MUSTER_ATTEMPT = 1 ] && [ $1 = 2 ]; then kill -9 $PPID; fi; " + WAIT
    run = launch(script, nodes=4, restart_min_nodes=2)
    wait_for_log(run, 0, {2: "member 2 rank 2 of 4"})
    kill_supervisor(run, 1)
    wait_for_log(run, 2, {0: "member 0 rank 0 of 2", 3: "member 3 rank 1 of 2"})


def test_attempt_that_cannot_start_is_a_failure(launch: Starter) -> None:
    """The log directory's path is already taken on one node."""
    run = launch("[ $MUSTER_ATTEMPT$1 = 01 ] && kill -9 $$; exec sleep 600", restart_when=("rank_failed",), restarts=1)
    (run.node(1) / "attempt-1").write_text("in the way")
    run.wait_for("failed")
    assert [record["number"] for record in run.result()["attempts"]] == [0, 1]


def test_user_stops_a_run_that_waits_for_a_node(launch: Starter) -> None:
    run = launch(WAIT, nodes=3, timeouts={"silence": 5.0}, restart_min_nodes=2)
    run.wait_for("running")
    os.kill(run.supervisor(2), signal.SIGSTOP)
    run.wait_for("restarting", 0)
    run.stop(0)
    run.wait_for("stopped", 0, 1)
    assert run.result()["state"] == "stopped" and len(run.result()["attempts"]) == 1


def test_silent_node_that_returns_keeps_its_rank(launch: Starter) -> None:
    run = launch(WAIT, nodes=3, timeouts={"silence": 5.0}, spares=1)
    wait_for_log(run, 0, {1: "member 1 rank 1 of 2"})
    pid = run.supervisor(1)
    os.kill(pid, signal.SIGSTOP)
    run.wait_for("restarting", 0)
    os.kill(pid, signal.SIGCONT)
    wait_for_log(run, 1, {0: "member 0 rank 0 of 2", 1: "member 1 rank 1 of 2"})
    assert run.state(2) == "spare"


def test_all_nodes_end_when_the_first_is_lost(launch: Starter) -> None:
    run = launch(WAIT, restart_min_nodes=1)
    run.wait_for("running")
    kill_supervisor(run, 0)
    run.wait_for("failed", 1)
    assert "node0 is lost" in run.read(1, "status.json")["message"]
    run.wait_until_gone()

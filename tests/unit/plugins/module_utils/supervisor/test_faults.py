"""The table of faults in docs/recovery.md with real supervisors: class, end and cleanup of each."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._supervisor.ports import LIFELINE_PORTS, lifeline_port
from tests.unit.restarting import (
    WAIT,
    Maker,
    check_end,
    log,
    make,
    power_off,
    processes_of,
    result_of,
    signal_nodes,
    wait_for_ranks,
)
from tests.unit.supervised import Run, eventually, free_port

__all__ = ["make"]  # the fixture

# A safetensors file: the length of its header, the header, four bytes of data.
HEADER = r"{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
SAVE = f"""
save() {{
  header="{HEADER}"
  length="$(printf %03o ${{#header}})"
  printf "\\\\$length\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0%s$2" "$header" > "$directory/step_$1.safetensors"
}}
directory="$PWD/saved"; mkdir -p "$directory"
"""


def classes(result: Any) -> list[str]:
    return [record["end_class"] for record in result["attempts"]]


def end_by_user(run: Run, leader: int = 0) -> Any:
    """Stop a run and return its result."""
    run.stop(leader)
    result = result_of(run, leader)
    check_end(run, leader)
    return result


def test_loss_of_two_nodes_at_once_is_handled(make: Maker) -> None:
    run = make(nodes=5, restart_min_nodes=3)
    wait_for_ranks(run, 0, range(5))
    power_off(run, 2, 4)
    wait_for_ranks(run, 1, [0, 1, 3])
    result = end_by_user(run)
    assert classes(result) == ["node_lost", "stopped"]


def test_processes_of_a_killed_supervisor_end_and_its_node_is_lost(make: Maker) -> None:
    run = make()
    wait_for_ranks(run, 0, range(3))
    os.kill(run.supervisor(2), signal.SIGKILL)
    wait_for_ranks(run, 1, [0, 1])
    eventually(lambda: not processes_of(run, 2))
    result = end_by_user(run)
    assert (result["attempts"][0]["end_class"], result["attempts"][0]["node"]) == ("node_lost", "node2")


def test_successor_takes_over_when_the_supervisor_of_node_0_is_killed(make: Maker) -> None:
    run = make()
    wait_for_ranks(run, 0, range(3))
    os.kill(run.supervisor(0), signal.SIGKILL)
    wait_for_ranks(run, 1, [1, 2])
    assert not processes_of(run, 0)
    end_by_user(run, 1)


def test_loss_of_node_0_while_an_attempt_starts_is_handled(make: Maker) -> None:
    run = make(nodes=5)
    wait_for_ranks(run, 0, range(5))
    power_off(run, 4)
    eventually(lambda: (run.node(1) / "attempt-1").exists())
    power_off(run, 0)
    wait_for_ranks(run, 2, [1, 2, 3])
    result = end_by_user(run, 1)
    assert classes(result) == ["node_lost", "node_lost", "stopped"]


def test_connection_cut_in_one_direction_loses_the_node(make: Maker) -> None:
    """The hub receives nothing from the node: its supervisor is blocked, and its guard ends it."""
    run = make(timeouts={"silence": 8.0})
    wait_for_ranks(run, 0, range(3))
    os.kill(run.supervisor(1), signal.SIGSTOP)
    wait_for_ranks(run, 1, [0, 2])
    eventually(lambda: not processes_of(run, 1))
    result = end_by_user(run)
    assert classes(result) == ["node_lost", "stopped"]


def test_run_is_not_restarted_after_a_full_disk(make: Maker) -> None:
    error = "OSError: [Errno 28] No space left on device"
    crash = f'echo "Traceback (most recent call last):"; echo "  line"; echo "{error}"; exit 1'
    run = make(f"[ $1 = 1 ] || exec sleep 600; {crash}", restart_when=("node_lost", "rank_failed"))
    result = result_of(run, 0)
    assert classes(result) == ["deterministic"] and "the same error" in result["not_restarted"]
    check_end(run, 0)


def test_run_restarts_on_the_same_nodes_after_a_hang(make: Maker) -> None:
    def prepare(run: Run) -> None:
        for name, seconds in {
            "HANG_CONFIRM_INTERVAL": 0.5,
            "HANG_GAP_FACTOR": 0,
            "PROGRESS_CHECK_INTERVAL": 0.1,
        }.items():
            run.set_constant(name, seconds)
        for plan in run.plans:
            plan["on_hang"] = "stop"

    wait = f'exec "{sys.executable}" -c "import time; print(1, flush=True); time.sleep(600)"'
    script = f'if [ "$MUSTER_ATTEMPT" = 0 ]; then {wait}; fi; exit 0'
    run = make(script, timeouts={"hang": 1.0}, prepare=prepare)
    result = result_of(run, 0)
    assert classes(result) == ["hang", "succeeded"] and result["attempts"][1]["nodes"] == ["node0", "node1", "node2"]
    check_end(run, 0)


def test_restart_budget_is_kept_across_leaders(make: Maker) -> None:
    run = make(restarts=1)
    wait_for_ranks(run, 0, range(3))
    power_off(run, 0)
    wait_for_ranks(run, 1, [1, 2])
    power_off(run, 2)
    result = result_of(run, 1)
    assert result["not_restarted"] == "all 1 restarts are used up (launch_restarts)"
    check_end(run, 1)


@pytest.mark.parametrize("torn", [False, True])
def test_run_resumes_from_the_last_complete_checkpoint_if_a_node_is_lost_during_a_save(
    make: Maker, tmp_path: Path, torn: bool
) -> None:
    """The save ends with a part of a file, under its final name or another."""
    second = "save 2 ab" if torn else 'echo part > "$directory/step_2.tmp"'
    begin = f'if [ "$MUSTER_ATTEMPT$NODE_RANK" = 00 ]; then save 1 abcd; {second}; fi; '
    note = 'echo "from $MUSTER_CHECKPOINT"; '

    def prepare(run: Run) -> None:
        for plan in run.plans:
            plan["checkpoints"] = str(tmp_path / "saved")

    run = make(SAVE + begin + note + WAIT, prepare=prepare)
    wait_for_ranks(run, 0, range(3))
    power_off(run, 1)
    wait_for_ranks(run, 1, [0, 2])
    assert f"from {tmp_path}/saved/step_1.safetensors" in log(run, 2, 1)
    end_by_user(run)


def test_attempts_without_progress_are_counted_across_leaders(make: Maker, tmp_path: Path) -> None:
    def prepare(run: Run) -> None:
        for plan in run.plans:
            plan["checkpoints"], plan["restart"]["counts_progress"] = str(tmp_path / "saved"), True

    run = make(WAIT, nodes=5, restarts=9, prepare=prepare)
    wait_for_ranks(run, 0, range(5))
    power_off(run, 4)
    wait_for_ranks(run, 1, [0, 1, 2, 3])
    power_off(run, 0)
    wait_for_ranks(run, 2, [1, 2, 3])
    power_off(run, 3)
    result = result_of(run, 1)
    assert result["not_restarted"] == "3 attempts ended without a newer checkpoint"
    check_end(run, 1)


def has_jumped(run: Run, before: float) -> bool:
    """Return whether node 0's clock has jumped since then."""
    return bool(abs(run.read(0, "status.json")["updated"] - before) > 1000)


def test_clock_jump_does_not_end_the_run(make: Maker, tmp_path: Path) -> None:
    """Each supervisor's clock goes back by a day, then forward by two."""
    shift = f"""
import time as _time, pathlib as _pathlib
_clock, _shift = _time.time, _pathlib.Path({str(tmp_path / "shift")!r})
_time.time = lambda: _clock() + (float(_shift.read_text()) if _shift.exists() else 0.0)
"""

    def prepare(run: Run) -> None:
        path = next(name for name in run.sources if name == "supervisor.py")
        marker = "from __future__ import annotations\n"
        head, matches, tail = run.sources[path].partition(marker)
        run.sources[path] = head + matches + shift + tail if matches else shift + run.sources[path]

    run = make(prepare=prepare)
    wait_for_ranks(run, 0, range(3))
    for seconds in ("-86400", "86400"):
        (tmp_path / "shift").write_text(seconds)
        before = run.read(0, "status.json")["updated"]
        eventually(functools.partial(has_jumped, run, before))
    assert [run.state(member) for member in range(3)] == ["running"] * 3
    power_off(run, 2)
    wait_for_ranks(run, 1, [0, 1])
    result = end_by_user(run)
    assert classes(result) == ["node_lost", "stopped"]


def test_spare_lost_before_it_is_needed_is_not_used(make: Maker) -> None:
    run = make(nodes=4, spares=1, restart_min_nodes=2)
    wait_for_ranks(run, 0, range(3))
    run.wait_for("spare", 3)
    power_off(run, 3)
    eventually(lambda: any("one fewer spare" in event for event in run.events()))
    power_off(run, 2)
    wait_for_ranks(run, 1, [0, 1])
    end_by_user(run)


def other_programs(run: Run, member: int, ports: int) -> contextlib.ExitStack:
    """Listen on the ports from which a node would lead a run, from the planned one on."""
    stack, planned = contextlib.ExitStack(), run.plans[member]["lifeline"]["port"]
    for number in range(ports):
        address = (run.plans[member]["node"]["address"], lifeline_port(planned, number))
        stack.enter_context(socket.create_server(address))
    return stack


def test_successor_that_cannot_listen_hands_leadership_to_the_next_node(make: Maker) -> None:
    run = make(nodes=5, restart_min_nodes=2)
    wait_for_ranks(run, 0, range(5))
    with other_programs(run, 1, LIFELINE_PORTS):
        power_off(run, 0)
        wait_for_ranks(run, 1, [2, 3, 4])
    run.wait_for("failed", 1)
    end_by_user(run, 2)


def test_successor_uses_a_different_port_from_a_run_on_the_same_node(make: Maker) -> None:
    """Nodes 1 and 2 of a run are the first two of another one, whose lifeline has the same port."""

    def prepare(run: Run, gpu: int) -> None:
        for plan in run.plans:
            plan["gpus"] = [gpu]
            plan["lifeline"]["port"] = port

    port = free_port()
    run = make(nodes=3, restart_min_nodes=2, prepare=functools.partial(prepare, gpu=0))
    second_run = make(nodes=2, first_address=2, prepare=functools.partial(prepare, gpu=1))
    assert second_run.lifeline == (run.plans[1]["node"]["address"], port)
    wait_for_ranks(run, 0, range(3))
    wait_for_ranks(second_run, 0, range(2))
    power_off(run, 0)
    wait_for_ranks(run, 1, [1, 2])
    assert second_run.state(0) == second_run.state(1) == "running", "the nodes of the first run do not disturb it"
    end_by_user(run, 1)
    end_by_user(second_run)


def test_node_isolated_with_the_hub_follows_no_leader(make: Maker) -> None:
    """Nodes 0 and 1 of five stall together, the others continue, and the two end when they resume."""
    run = make(nodes=5, timeouts={"silence": 8.0})
    wait_for_ranks(run, 0, range(5))
    pids = signal_nodes(run, signal.SIGSTOP, 0, 1)
    wait_for_ranks(run, 1, [2, 3, 4])
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not processes_of(run, 0) and not processes_of(run, 1))
    assert not (run.node(0) / "attempt-1").exists() and not (run.node(1) / "attempt-1").exists()
    end_by_user(run, 2)

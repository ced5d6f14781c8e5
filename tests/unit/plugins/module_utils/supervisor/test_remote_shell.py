"""bin/ssh: arguments of launchers, and runs in which one node's launcher starts commands on the others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import logs
from ansible_collections.muster.training.plugins.module_utils._run import outputs as run_outputs
from ansible_collections.muster.training.plugins.module_utils._run import start as run_start
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs import muster_rank, ssh_shim
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.ssh_shim import (
    node_rank_of,
    read_arguments,
)
from tests.unit.supervised import Run, end_by_force, eventually, make_run

NODES: list[dict[str, Any]] = [
    {"name": "node0.example.com", "address": "10.0.0.9"},
    {"name": "node1", "address": "10.0.0.10"},
    {"name": "node2.a", "address": "10.0.0.11"},
    {"name": "node2.b", "address": "10.0.0.12"},
]


@pytest.mark.parametrize(
    ("arguments", "host", "command"),
    [
        (["node1", "orted", "-mca", "x"], "node1", "orted -mca x"),  # Open MPI
        (["-x", "10.0.0.10", "     orted --hnp 'a;b'"], "10.0.0.10", "     orted --hnp 'a;b'"),
        (["-2", "-a", "-x", "-lme", "node1", "cd /; python"], "node1", "cd /; python"),  # pdsh
        (["-p", "22", "-o", "BatchMode=yes", "-l", "me", "me@node1", "true"], "node1", "true"),
        (["-p22", "--", "node1", "-x"], "node1", "-x"),
        (["node1"], "node1", ""),
    ],
)
def test_ssh_arguments_of_launchers_are_parsed(arguments: list[str], host: str, command: str) -> None:
    assert read_arguments(arguments) == (host, command)


@pytest.mark.parametrize(
    ("host", "rank"),
    [("node0.example.com", 0), ("node0", 0), ("NODE0", 0), ("10.0.0.10", 1), ("node1", 1), ("node2.b", 3)],
)
def test_host_is_identified_by_name_short_name_or_address(host: str, rank: int) -> None:
    assert node_rank_of(host, NODES) == rank


@pytest.mark.parametrize("host", ["node2", "node9", "10.0.0.1", "", "localhost"])
def test_host_that_is_not_a_node_is_refused(host: str) -> None:
    with pytest.raises(SystemExit, match="is not one of the run's nodes"):
        node_rank_of(host, NODES)


def test_shell_query_is_answered_without_contacting_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query also does not count as the node's one command."""
    monkeypatch.setattr(ssh_shim, "request_start", lambda *_arguments: pytest.fail("a node was asked"))
    (tmp_path / "plan.json").write_text(json.dumps({"nodes": NODES, "node": {"node_rank": 0}}))
    for _time in range(2):
        assert ssh_shim.main([str(tmp_path / "bin" / "ssh"), "10.0.0.10", "echo $SHELL"]) == 0
    assert capsys.readouterr().out == "/bin/bash\n" * 2
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


# --- Real supervisors, and a launcher that starts a command on each other node, like mpirun -------------------------

Maker = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    """Make runs of three nodes in which the first node's launcher is a script, and clean up after them."""
    runs: list[Run] = []

    def maker(script: str, ranks: bool = False, **timeouts: float) -> Run:
        run = make_run(tmp_path, [["/bin/sh", "-c", script], [], []], timeouts=timeouts or None)
        rules = '{"rank": ["MY_RANK"], "world": [], "command": ["/bin/sh", "-c"], "arguments": ["exit $MY_EXIT"]}'
        for plan in run.plans:
            plan.update(remote_start=True, files={"rank.json": rules}, rank_logs="ranks" if ranks else "launcher")
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def start(run: Run) -> None:
    """Start the nodes with the product's programs installed, as training_run does."""
    sources = {"ssh": ssh_shim, "muster-rank": muster_rank}
    programs = {name: Path(str(module.__file__)).read_text() for name, module in sources.items()}
    for rank, plan in enumerate(run.plans):
        more = {"token": run.token, "environment": {"FROM_PLAN": f"node {rank}"}, "programs": programs}
        run_start.start(run.request(rank, plan=plan, supervisor=run.sources, **more))


def log(run: Run, rank: int) -> str:
    return (run.node(rank) / "launcher.log").read_text()


def test_commands_are_executed_on_their_intended_nodes(make: Maker) -> None:
    run = make('ssh node1 \'echo "one $FROM_PLAN"\' & ssh -x node2 "echo two" & wait; echo all')
    start(run)
    run.wait_for("succeeded")
    assert (log(run, 0), log(run, 1), log(run, 2)) == ("all\n", "one node 1\n", "two\n")
    run.wait_until_gone()


def test_exit_code_of_a_remote_command_is_returned(make: Maker) -> None:
    run = make("ssh node2 true & ssh node1 'exit 3'; echo told $?; wait; exit 4")
    start(run)
    run.wait_for("failed")
    assert "told 3" in log(run, 0) or "told" not in log(run, 0), "unless the end of the run came first"
    assert run.result()["first_node"] == "node1"


def test_launcher_that_starts_nothing_on_a_node_fails_the_run(make: Maker) -> None:
    run = make("ssh node1 true; exit 0")
    start(run)
    run.wait_for("failed")
    assert run.result()["reason"] == "the launcher on node0 started no processes on node2"
    run.wait_until_gone()


def test_launcher_that_starts_nothing_in_time_fails_the_run(make: Maker) -> None:
    run = make("sleep 600", start=5.0, heartbeat=0.2, silence=3.0, grace=0.5)
    start(run)
    run.wait_for("failed")
    assert run.result()["reason"] == "the launcher on node0 started no processes on node1, node2"
    run.wait_until_gone()


def test_second_command_for_a_node_is_ignored(make: Maker, tmp_path: Path) -> None:
    """DeepSpeed ends pdsh's processes by pattern, which would end those of other runs."""
    run = make(
        f"ssh node1 true; ssh node1 'touch {tmp_path}/second'; ssh node0 true; ssh node0 'touch {tmp_path}/third'; "
        "ssh node2 true"
    )
    start(run)
    run.wait_for("succeeded")
    assert "node1 already has its command, this one is ignored" in log(run, 0)
    assert not (tmp_path / "second").exists() and not (tmp_path / "third").exists()


def test_remote_processes_end_when_the_launcher_is_killed(make: Maker) -> None:
    run = make("ssh node1 'setsid -f sleep 611; sleep 612' & ssh node2 'sleep 613' & sleep 614")
    start(run)
    eventually(lambda: sum("sleep 61" in line for line in run.processes().values()) >= 5)
    launcher = next(pid for pid, line in run.processes().items() if line.startswith("sleep 614"))
    os.kill(launcher, 9)
    run.wait_for("failed")
    run.wait_until_gone()


def test_stop_ends_remote_processes(make: Maker) -> None:
    run = make("ssh node1 'sleep 621' & ssh node2 'sleep 622' & wait")
    start(run)
    eventually(lambda: sum("sleep 62" in line for line in run.processes().values()) >= 2)
    run.stop(1)
    run.wait_for("stopped")
    run.wait_until_gone()


def ranks_script(exits: list[int], code: int) -> str:
    """Return a launcher with one rank per node; it ends with `code` regardless of its ranks."""
    parts = [f"MY_RANK=0 MY_EXIT={exits[0]} muster-rank & "]
    parts += [f"ssh node{n} 'MY_RANK={n} MY_EXIT={exits[n]} muster-rank' & " for n in (1, 2)]
    return "".join(parts) + f"wait; exit {code}"


def test_only_files_that_the_job_wrote_count_as_outputs(make: Maker) -> None:
    """Files of a start, the supervisor, its watchers, launcher programs and log requests do not count."""
    job = "echo 1 > $MUSTER_RUN_DIRECTORY/model.bin; echo 2 > $MUSTER_RUN_DIRECTORY/measured/loss.csv; "
    run = make(job + ranks_script([0, 0, 0], 0), ranks=True)
    for plan in run.plans:
        plan["gpu_samples"] = ["/bin/echo", "0"]
    start(run)
    run.wait_for("succeeded")
    run.wait_until_gone()
    assert logs.pack(run.request(0, selection="measured"))["size"]
    for rank, expected in enumerate((["run/model.bin", "run/measured/loss.csv"], [], [])):
        reply = run_outputs.main(run.request(rank, operation="tell", outputs=[]))
        assert [file["name"] for file in reply["files"]] == expected


def test_run_succeeds_when_all_ranks_succeed(make: Maker) -> None:
    run = make(ranks_script([0, 0, 0], 0), ranks=True)
    start(run)
    run.wait_for("succeeded")
    assert [rank["exit_code"] for node in run.result()["nodes"] for rank in node["report"]["ranks"]] == [0, 0, 0]


def test_failed_rank_fails_the_run_although_the_launcher_exits_with_0(make: Maker) -> None:
    run = make(ranks_script([0, 0, 5], 0), ranks=True)
    start(run)
    run.wait_for("failed")
    result = run.result()
    assert result["first_node"] == "node2" and "node2" in result["reason"]
    assert result["nodes"][2]["report"]["ranks"][0]["exit_code"] == 5


def test_rank_that_was_never_started_fails_the_run(make: Maker) -> None:
    run = make(
        "MY_RANK=0 MY_EXIT=0 muster-rank & ssh node1 'MY_RANK=1 MY_EXIT=0 muster-rank' & ssh node2 true; wait",
        ranks=True,
    )
    start(run)
    run.wait_for("failed")
    report = run.result()["nodes"][2]["report"]
    assert report["launcher_error"] == "the launcher ended with exit code 0, but rank 2 did not"

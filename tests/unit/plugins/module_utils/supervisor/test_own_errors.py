"""Ranks that had an error before they were ended with the run, in runs of real supervisors and from planted files."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import (
    validate_report,
    validate_result,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.own_errors import (
    Mark,
    RanksEnd,
    mark_ranks,
    own_error,
    recorded_traceback,
    watchdog_error,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.rank_reports import (
    MAX_OTHER,
    MAX_OTHERS,
    last_lines,
    other_outputs,
    rank_reports,
    torchrun_errors,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan, get_launcher
from tests.unit.hostile import DIGITS
from tests.unit.plugins.module_utils.supervisor.test_rank_reports import PLANTS, TORCHRUN, plant
from tests.unit.supervised import TIMEOUTS, Run, end_by_force, eventually, free_port, make_job, own_network

NETWORK = own_network(42)
TERMINATED = -15
RAISED = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/job/train.py", line 15, in <module>
[rank{rank}]:     raise {error}
[rank{rank}]: {error}
"""


def watchdog(rank: int, number: int, operation: str) -> str:
    """Return the output of NCCL's watchdog up to a minute before it aborts the process."""
    return (
        f"[rank{rank}]:[E626 06:24:44.903 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation "
        f"timeout: WorkNCCL(SeqNum={number}, OpType={operation}, NumelIn=4096, NumelOut=4096, Timeout(ms)=1800000) ran "
        "for 1800060 milliseconds before timing out.\n"
    )


Maker = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Maker]:
    """Yield a function that makes runs whose nodes execute the given shell scripts."""
    runs: list[Run] = []

    def maker(*scripts: str, launcher: str = "env", slots: int = 1, grace: float = 0.5) -> Run:
        job = make_job(launcher=launcher, lifeline_port=free_port(), master_port=free_port())
        hosts = [HostSpec(f"node{n}", f"{NETWORK}.{n + 1}", slots) for n in range(len(scripts))]
        table = get_launcher(job).order(build_rank_table(hosts))
        facts = {"interface": "lo", "runs_directory": str(tmp_path), "working_directory": {"path": str(tmp_path)}}
        plans: list[Any] = [
            build_node_plan(job, table, node, {"interpreter": "/bin/sh", **facts}) for node in table.nodes
        ]
        run = Run(tmp_path, plans)
        for number, (plan, script) in enumerate(zip(plans, scripts, strict=True)):
            plan["command"] = ["/bin/sh", "-c", script, str(tmp_path), str(run.node(number))]
            plan["timeouts"] = {**TIMEOUTS, "grace": grace}
        runs.append(run)
        run.start()
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def first_failure(run: Run) -> dict[str, Any]:
    """Return the first failure according to the verdict."""
    result = validate_result(run.result())
    assert result is not None
    failure: dict[str, Any] = verdict_from_hub(run.plans[0], result)["first_failure"]
    return failure


def printed(run: Run, rank: int, text: str) -> Callable[[], bool]:
    log = run.node(rank) / "launcher.log"
    return lambda: log.exists() and text in log.read_text()


WAITS = 'while [ ! -e "$0/go" ]; do sleep 0.05; done; '
FOREVER = "exec sleep 600"


def test_timeout_of_a_rank_that_the_end_of_the_run_cuts_off_counts(make: Maker, tmp_path: Path) -> None:
    """Both ranks time out in the same second, in different collectives; only one of them still aborts by itself."""
    for rank, (number, operation) in enumerate(((619725, "_ALLGATHER_BASE"), (619727, "_REDUCE_SCATTER_BASE"))):
        (tmp_path / f"output-{rank}").write_text(watchdog(rank, number, operation))
    run = make(
        f'cat "$0/output-0" >&2; {WAITS} kill -ABRT $$',
        f'cat "$0/output-1" >&2; {FOREVER}',
    )
    eventually(printed(run, 1, "Watchdog"))
    (tmp_path / "go").touch()
    failure = first_failure(run)
    expected = "ranks wait in different collectives: rank 0 in _ALLGATHER_BASE 619725, rank 1 in _REDUCE_SCATTER_BASE"
    assert failure["error"].startswith(expected)
    cut_off = run.result()["nodes"][1]["report"]["ranks"][0]
    assert (cut_off["exit_code"], cut_off["ended_by_us"], cut_off["own_error"]) == (TERMINATED, True, True)
    assert 0 <= cut_off["before_end"] < 120


def test_exception_of_a_rank_that_hung_afterwards_is_the_first_failure(make: Maker, tmp_path: Path) -> None:
    """It ignores SIGTERM, reports another error then, and is killed."""
    (tmp_path / "raised").write_text(RAISED.format(rank=1, error="ValueError: boom"))
    (tmp_path / "later").write_text(RAISED.format(rank=1, error="KeyError: 'while it was ended'"))
    (tmp_path / "waited").write_text(watchdog(0, 7, "ALLREDUCE"))
    run = make(
        f'{WAITS} cat "$0/waited" >&2; kill -ABRT $$',
        'cat "$0/raised" >&2; trap "cat $0/later >&2" TERM; while :; do sleep 0.05; done',
    )
    eventually(printed(run, 1, "boom"))
    (tmp_path / "go").touch()
    failure = first_failure(run)
    assert (failure["node"], failure["rank"], failure["error"]) == ("node1", 1, "ValueError: boom")
    assert any("ValueError: boom" in line for line in failure["last_lines"])
    assert printed(run, 1, "while it was ended")()


def test_error_that_a_rank_caught_before_it_was_ended_does_not_count(make: Maker, tmp_path: Path) -> None:
    caught = RAISED.format(rank=1, error="KeyError: 'caught'").replace("[rank1]: ", "")
    (tmp_path / "caught").write_text(caught)
    (tmp_path / "waited").write_text(watchdog(0, 7, "ALLREDUCE"))
    run = make(f'{WAITS} cat "$0/waited" >&2; kill -ABRT $$', f'cat "$0/caught" >&2; {FOREVER}')
    eventually(printed(run, 1, "caught"))
    (tmp_path / "go").touch()
    assert "KeyError" not in first_failure(run)["error"]
    assert "own_error" not in run.result()["nodes"][1]["report"]["ranks"][0]


# The output of torchrun after a rank has failed and the others were ended.
TABLE = """\
W1121 04:35:39.121000 1 torch/distributed/elastic/multiprocessing/api.py] Sending process 10601 closing signal SIGTERM
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_04:35:38
  host      : node0
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 10601)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 10601
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_04:35:38
  host      : node0
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 10602)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
LOST = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
DECISIVE = "gpu1:4711:4802 [0] NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory"


def test_decisive_message_of_another_rank_of_the_node_explains_the_run(make: Maker, tmp_path: Path) -> None:
    """torchrun ends rank 0, whose log has the cause, because rank 1 has lost the connection to it."""
    (tmp_path / "table").write_text(TABLE)
    (tmp_path / "reacted").write_text(RAISED.format(rank=1, error=LOST))
    write = 'logs="$1/ranks/x/attempt_0"; mkdir -p "$logs/0" "$logs/1"; '
    write += f'echo "{DECISIVE}" > "$logs/0/stderr.log"; cat "$0/reacted" > "$logs/1/stderr.log"; '
    run = make(f'{write} cat "$0/table" >&2; exit 1', launcher="torchrun", slots=2)
    failure = first_failure(run)
    assert (failure["rank"], failure["last_lines"]) == (0, [DECISIVE])
    assert failure["log"].endswith("/attempt_0/0/stderr.log")
    report = run.result()["nodes"][0]["report"]
    assert report["last_log"].endswith("/1/stderr.log") and report["outputs"][0]["lines"] == DECISIVE


RECORDED = """
import os, pathlib, sys, threading, time
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    if os.environ["RANK"] == "0":
        threading.Thread(target=time.sleep, args=(600,)).start()  # so that the interpreter does not exit
        raise ValueError("boom: all of it")
    while not pathlib.Path(os.environ["TORCHELASTIC_ERROR_FILE"]).parents[1].joinpath("0", "error.json").exists():
        time.sleep(0.05)
    sys.stderr.write(pathlib.Path(sys.argv[1]).read_text())
    sys.stderr.flush()
    os.abort()

main()
"""


def test_recorded_error_of_a_rank_that_torchrun_ended_is_the_first_failure(make: Maker, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "job.py").write_text(RECORDED)
    (tmp_path / "waited").write_text(watchdog(1, 7, "ALLREDUCE"))
    torchrun = f'"{sys.executable}" -m torch.distributed.run --nproc-per-node=2 --master-addr=127.0.0.1'
    logs = f'--master-port={free_port()} --log-dir="$1/ranks" --redirects=3'
    run = make(f'exec {torchrun} {logs} "$0/job.py" "$0/waited"', launcher="torchrun", slots=2)
    run.wait_for("failed", seconds=600)
    failure = first_failure(run)
    assert (failure["rank"], failure["error"]) == (0, "ValueError: boom: all of it")
    assert failure["last_lines"][-1] == "ValueError: boom: all of it"
    (ended, aborted) = run.result()["nodes"][0]["report"]["ranks"]
    assert ended["closed"] and ended["own_error"] and aborted["exit_code"] == -6


# - from planted files


def node_report(tmp_path: Path, errors: list[str], **more: Any) -> Any:
    """Return the report of a node whose ranks have logs with these last lines."""
    ranks = []
    for number, error in enumerate(errors):
        (tmp_path / f"{number}.log").write_text(error)
        ranks.append({"rank": number, "exit_code": 1, "error": "", "log": str(tmp_path / f"{number}.log")})
    return {"exit_code": 1, "ranks": ranks, "launcher_log": "/l", "last_log": str(tmp_path / "0.log"), **more}


def test_outputs_of_other_ranks_are_bounded_and_only_those_that_show_an_error(tmp_path: Path) -> None:
    report = node_report(tmp_path, ["ValueError: boom", "step 7\n", *["x" * 10_000 + "\nOSError: no"] * 20])
    outputs = other_outputs(report)
    assert [Path(output["log"]).name for output in outputs] == [f"{number}.log" for number in range(2, 2 + MAX_OTHERS)]
    assert all(len(output["lines"]) == MAX_OTHER and output["lines"].endswith("OSError: no") for output in outputs)
    report["ranks"][9]["error"] = "OSError: no"
    assert other_outputs(report)[0]["log"].endswith("/9.log")
    well: Any = node_report(tmp_path, ["OSError: caught"] * 2, exit_code=0)
    for rank in well["ranks"]:
        rank["exit_code"] = 0
    assert other_outputs(well) == []


@pytest.mark.parametrize("what", PLANTS)
def test_planted_logs_and_error_files_are_harmless(tmp_path: Path, what: str) -> None:
    plan: Any = {"rank_logs": "ranks", "node": {"slots": 1, "first_rank": 0}}
    for name in ("exit.json", "error.json", "stderr.log", "stdout.log"):
        plant(tmp_path / "ranks" / "0" / name, what)
    marks = mark_ranks(plan, str(tmp_path))
    (report,) = rank_reports(plan, str(tmp_path), -15, True, RanksEnd(time.monotonic(), marks))
    json.dumps(report)
    assert validate_report({"ranks": [report]})["ranks"][0]["rank"] == 0
    assert isinstance(last_lines(str(tmp_path / "ranks" / "0" / "stderr.log")), str)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ("x", []),
        ([7, {"log": 1, "lines": "x"}, {"log": "/l"}], []),
        ([{"log": "/l", "lines": "x" * 10**6, "more": 1}], [{"log": "/l", "lines": "x" * 20_000}]),
        ([{"log": "/l", "lines": ""}] * 1000, [{"log": "/l", "lines": ""}] * 8),
    ],
)
def test_outputs_and_times_of_another_node_are_checked(outputs: Any, expected: Any) -> None:
    assert validate_report({"outputs": outputs})["outputs"] == expected
    for seconds, valid in ((12.5, True), (3, True), (-1, False), ("1", False), (True, False), (1e300, False)):
        (rank,) = validate_report({"ranks": [{"before_end": seconds, "own_error": True}]})["ranks"]
        assert ("before_end" in rank, rank["own_error"]) == (valid, True)


def test_timeout_that_a_program_survived_is_not_its_error() -> None:
    text = watchdog(3, 7, "ALLREDUCE")
    assert watchdog_error(text).startswith("[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7")
    assert watchdog_error(text + "step 8 loss 1\nstep 9 loss 1\nstep 10 loss 1\n") == ""
    assert len(watchdog_error(text.replace("ALLREDUCE", "A" * 100_000))) < 2000


def test_abort_that_faulthandler_reports_does_not_hide_the_timeout(tmp_path: Path) -> None:
    plan: Any = {"rank_logs": "launcher", "node": {"slots": 1, "first_rank": 3}}
    (tmp_path / "launcher.log").write_text(watchdog(3, 7, "ALLREDUCE") + "Fatal Python error: Aborted\n\nThread 0x1:\n")
    (report,) = rank_reports(plan, str(tmp_path), -6)
    assert report["error"].startswith("[Rank 3] Watchdog caught collective operation timeout")
    (tmp_path / "launcher.log").write_text("Fatal Python error: Aborted\n")
    assert rank_reports(plan, str(tmp_path), -6)[0]["error"] == "Fatal Python error: Aborted"


def test_error_file_dates_the_error_and_counts_only_if_it_predates_the_end(tmp_path: Path) -> None:
    log, recorded = tmp_path / "stderr.log", tmp_path / "error.json"
    log.write_text("step 7\n")
    stack = 'Traceback (most recent call last):\n  File "/job/train.py", line 15, in main\nValueError: boom\n'
    recorded.write_text(json.dumps({"message": {"message": "ValueError: boom", "extraInfo": {"py_callstack": stack}}}))
    assert own_error(str(log), 0, Mark(7, 30.0, 400.0), False) == ("ValueError: boom", 400.0)
    assert own_error(str(log), 0, Mark(7, 30.0, None), False) == ("", None), "written while the rank was ended"
    assert last_lines(str(log)) == f"step 7\n{stack.rstrip()}"
    log.write_text(stack)
    assert last_lines(str(log)) == stack.rstrip(), "the log has it already"


@pytest.mark.parametrize("message", ["x", 7, {}, {"extraInfo": 1}, {"extraInfo": {"py_callstack": ["x"]}}])
def test_error_file_without_a_traceback_adds_nothing(tmp_path: Path, message: Any) -> None:
    (tmp_path / "error.json").write_text(json.dumps({"message": message}))
    assert recorded_traceback(str(tmp_path / "error.json")) == ""


def test_marks_are_the_sizes_and_ages_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan: Any = {"rank_logs": "ranks", "node": {"slots": 2, "first_rank": 0}}
    logs = tmp_path / "ranks" / "0"
    logs.mkdir(parents=True)
    (logs / "stderr.log").write_text("step 7\n")
    os.utime(logs / "stderr.log", (1000.0, 1000.0))
    monkeypatch.setattr(time, "time", lambda: 1600.0)
    assert mark_ranks(plan, str(tmp_path)) == [Mark(7, 600.0, None), Mark(0, None, None)]


def test_errors_are_read_from_torchruns_table_if_the_error_files_are_missing(tmp_path: Path) -> None:
    shutil.copytree(TORCHRUN / "raise_with_record", tmp_path / "run")
    for path in (tmp_path / "run").rglob("*"):
        if path.name in ("error.json", "stderr.log"):
            path.unlink()
    plan = {"rank_logs": "torchrun", "node": {"slots": 2, "first_rank": 0}}
    first, second = rank_reports(plan, str(tmp_path / "run"), 1)
    assert "Connection closed by peer" in first["error"] and first["closed"]
    assert (second["exit_code"], second["error"], second["first"]) == (1, "ValueError: boom: all of it", True)


def test_hostile_tables_of_torchrun_are_harmless() -> None:
    entry = f"rank : 1 (local_rank: 1)\n  exitcode : 1 (pid: 1)\n  traceback : {DIGITS}\n"
    begin = time.process_time()
    assert torchrun_errors(entry * 2000) == {}
    assert torchrun_errors("traceback : Traceback (most recent call last):\nValueError: x\n") == {}
    assert time.process_time() - begin < 5

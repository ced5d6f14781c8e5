"""Hangs of real runs: each rank's stack, the rank that the others wait for, and the verdict; without torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run.dispatch import main as dispatch
from ansible_collections.muster.training.plugins.module_utils._run.safe_files import read_tail
from ansible_collections.muster.training.plugins.module_utils._run.stack_dump import main_stack, parse_dump
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_result
from ansible_collections.muster.training.plugins.module_utils._supervisor.notices.ranks import catches
from ansible_collections.muster.training.plugins.module_utils._supervisor.programs.stack_hook import (
    PYTHON_STACK_SIGNAL,
    STACK_SIGNAL,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_collector import write_hook
from ansible_collections.muster.training.plugins.module_utils._supervisor.stack_signals import (
    StackFiles,
    request_stacks,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from tests.unit import supervised
from tests.unit.hostile import BAD_FILES, make_bad_file
from tests.unit.supervised import Run, end_by_force, eventually, free_port, make_run

NETWORK = supervised.own_network(171)
# A collective that waits forever, or times out like gloo's once the file `late` is in the run's directory.
DISTRIBUTED = """
import os, time
def all_reduce():
    while not os.path.exists("late"):
        time.sleep(0.05)
    raise RuntimeError("[unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete")
def barrier():
    all_reduce()
"""
SCRIPT = """
import os, signal, sys, time
sys.path.insert(0, "site-packages")
from torch.distributed import fake
def load():
    while True:
        time.sleep(0.05)
def train(kind):
    print("step", flush=True)
    if kind == "load":
        load()
    if kind == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if kind == "exit":
        sys.exit(0)
    fake.all_reduce()
if sys.argv[1] == "worker" and os.fork() == 0:
    load()
if sys.argv[1] == "ended":
    fake.barrier()
train(sys.argv[1])
"""
RunMaker = Callable[..., Run]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunMaker]:
    """Make runs whose ranks run the given code, one on each node."""
    monkeypatch.setattr(supervised, "NETWORK", NETWORK)
    package = tmp_path / "site-packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    for directory in (package.parent, package):
        (directory / "__init__.py").touch()
    (package / "fake.py").write_text(DISTRIBUTED)
    (tmp_path / "job.py").write_text(SCRIPT)
    runs: list[Run] = []

    def maker(*kinds: str, python: tuple[str, ...] = (), hang: float = 0, on_hang: str = "report") -> Run:
        commands = [[sys.executable, *python, str(tmp_path / "job.py"), kind] for kind in kinds]
        run = make_run(tmp_path, commands, {"hang": hang}, lifeline_port=free_port(), master_port=free_port())
        for plan in run.plans:
            plan["on_hang"] = on_hang
        run.set_constant("HANG_CONFIRM_INTERVAL", 0.5)
        run.set_constant("HANG_GAP_FACTOR", 0)
        run.set_constant("PROGRESS_CHECK_INTERVAL", 0.1)
        runs.append(run)
        return run

    yield maker
    for run in runs:
        end_by_force(run)


def stacks(run: Run) -> list[dict[str, Any]]:
    """Return the stacks that stacks.yml reads from all nodes."""
    replies = [dispatch(run.request(rank, operation="stacks")) for rank in range(len(run.plans))]
    assert all("error" not in reply for reply in replies), replies
    return [group for reply in replies for group in reply["groups"]]


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if line.strip() == text)


def lines_printed(run: Run) -> int:
    return sum(read_tail(str(run.node(n) / "launcher.log")).count("step") for n in range(len(run.plans)))


def failure_of(run: Run) -> dict[str, Any]:
    result = validate_result(run.result())
    assert result is not None
    failure = verdict_from_hub(run.plans[0], result)["first_failure"]
    assert failure is not None
    return failure


def test_hang_is_reported_with_rank_and_line_while_the_job_continues(make: RunMaker) -> None:
    run = make("wait", "wait", "load", hang=1)
    run.start()
    eventually(lambda: lines_printed(run) == 3)
    events = eventually(lambda: [text for text in run.events() if text.startswith("no output for")])
    line = line_of("fake.all_reduce()")
    assert events[0].endswith(
        f"2 of 3 ranks wait in all_reduce (job.py:{line}); rank 2 on node2 is in load "
        f"(job.py:{line_of('time.sleep(0.05)')})"
    )
    status = eventually(lambda: run_status.read(run.request(0, wait=0))["run"]["hang"])
    assert status["awaited_ranks"] == [2]
    assert run.state(0) == run.state(2) == "running"


def test_hang_can_stop_the_run_and_the_verdict_names_the_rank(make: RunMaker) -> None:
    run = make("wait", "wait", "load", hang=1, on_hang="stop")
    run.start()
    failure = failure_of(run)
    assert (failure["rank"], failure["node"]) == (2, "node2")
    assert "it was in load" in failure["error"]
    explanation = explain_failure(failure["error"], [])
    assert explanation is not None and explanation["id"] == "hang"


@pytest.mark.parametrize(
    ("kinds", "rank", "text"),
    [
        (("load", "wait", "wait"), 0, "until they timed out: it was in load"),
        (("wait", "wait", "ended"), 2, "until they timed out: it was waiting in barrier"),
        (("wait", "exit", "wait"), 1, "but it had already ended with exit code 0"),
    ],
)
def test_rank_that_was_not_waiting_at_a_timeout_is_the_first_failure(
    make: RunMaker, tmp_path: Path, kinds: tuple[str, ...], rank: int, text: str
) -> None:
    run = make(*kinds)
    run.start()
    expected = len(kinds) - ("ended" in kinds)
    eventually(lambda: lines_printed(run) == expected)
    (tmp_path / "late").touch()
    failure = failure_of(run)
    assert failure["rank"] == rank
    assert text in failure["error"]


def test_stopped_rank_is_named(make: RunMaker) -> None:
    run = make("wait", "stopped")
    run.start()
    eventually(lambda: lines_printed(run) == 2)
    groups = eventually(lambda: [item for item in stacks(run) if item["kind"] == "stopped"])
    assert [item["ranks"] for item in groups] == [[1]]


def test_stacks_of_an_active_run_can_be_read_at_any_time(make: RunMaker) -> None:
    run = make("wait", "worker")
    run.start()
    eventually(lambda: lines_printed(run) == 2)
    result = {tuple(item["ranks"]): item for item in stacks(run)}
    assert result[(0,)]["call"] == result[(1,)]["call"] == "all_reduce"
    assert result[(0,)]["frames"][0].startswith("all_reduce (fake.py:")
    assert [item["cpu"] for item in stacks(run)] != ["", ""]
    assert run.state(0) == "running"


def test_worker_process_of_a_rank_that_others_wait_for_is_shown(make: RunMaker, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT.replace("fake.all_reduce()", "load()"))
    run = make("worker")
    run.start()
    eventually(lambda: lines_printed(run) == 1)
    (group,) = stacks(run)
    assert group["workers"] == [f"load (job.py:{line_of('time.sleep(0.05)')})"]


def test_rank_whose_python_ignores_the_hook_is_neither_killed_nor_guessed_at(make: RunMaker) -> None:
    run = make("load", "load", python=("-I",))
    (run.directory / "job.py").write_text("print('step', flush=True)\nimport time\ntime.sleep(600)\n")
    run.start()
    eventually(lambda: lines_printed(run) == 2)
    assert [(item["kind"], item["ranks"]) for item in stacks(run)] == [("none", [0]), ("none", [1])]
    assert run.state(0) == run.state(1) == "running"


def test_stacks_can_be_turned_off(make: RunMaker) -> None:
    run = make("load")
    run.plans[0]["stacks"] = False
    run.start()
    eventually(lambda: lines_printed(run) == 1)
    assert not (run.node(0) / "hooks").exists()
    assert "launch_stacks: true" in dispatch(run.request(0, operation="stacks"))["error"]


def handles_signal(process: subprocess.Popen[str]) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(caught >> (STACK_SIGNAL - 1) & 1)


def start_python(directory: Path, code: str, *options: str, **environment: str) -> subprocess.Popen[str]:
    variables = {"PATH": os.environ["PATH"], **environment}
    return subprocess.Popen([sys.executable, *options, "-c", code], env=variables, stdout=subprocess.PIPE, text=True)


def test_hook_preserves_the_shadowed_sitecustomize_and_the_module_path(tmp_path: Path) -> None:
    write_hook(str(tmp_path))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("print('of the user')\n")
    code = "import sys; print([path for path in sys.path if 'hooks' in path], sys.modules['sitecustomize'].__file__)"
    process = start_python(tmp_path, code, PYTHONPATH=f"{tmp_path}/hooks:{tmp_path}/other", LOCAL_RANK="0")
    output, _errors = process.communicate()
    assert output == f"of the user\n[] {tmp_path}/other/sitecustomize.py\n"
    assert list((tmp_path / "stacks").iterdir()) == []  # removed at the end


@pytest.mark.parametrize("kind", BAD_FILES)
def test_hook_that_an_earlier_attempt_replaced_is_restored(tmp_path: Path, kind: str) -> None:
    write_hook(str(tmp_path))
    path = tmp_path / "hooks" / "sitecustomize.py"
    source = path.read_text()
    make_bad_file(path, kind)
    write_hook(str(tmp_path))
    assert not path.is_symlink() and path.read_text() == source
    assert kind != "link" or (path.parent / "target").read_text() == "mine"


def test_hook_breaks_no_job_if_it_cannot_work(tmp_path: Path) -> None:
    write_hook(str(tmp_path))
    (tmp_path / "stacks").rmdir()
    process = start_python(tmp_path, "print('runs')", PYTHONPATH=f"{tmp_path}/hooks", LOCAL_RANK="0")
    assert process.communicate()[0] == "runs\n"
    assert process.returncode == 0


def test_rank_ended_by_sigterm_records_its_stack_but_its_children_do_not(tmp_path: Path) -> None:
    write_hook(str(tmp_path))
    code = "import os, time\nprint(os.fork(), flush=True)\ntime.sleep(600)"
    process = start_python(tmp_path, code, PYTHONPATH=f"{tmp_path}/hooks", LOCAL_RANK="3")
    assert process.stdout is not None
    child = max(int(process.stdout.readline()) for _process in range(2))
    file = tmp_path / "stacks" / f"rank-3-{process.pid}.txt"
    os.kill(child, signal.SIGTERM)
    assert handles_signal(process)
    assert file.read_text(encoding="utf-8") == ""
    process.terminate()
    assert process.wait() == -signal.SIGTERM
    assert 'File "<string>", line ' in file.read_text(encoding="utf-8")


BUSY = {
    "main thread": "",
    "other threads": "import threading\nfor _ in range(2): threading.Thread(target=spin, daemon=True).start()\n",
}


@pytest.mark.parametrize("threads", BUSY)
def test_reading_the_stacks_of_a_busy_process_does_not_crash_it(tmp_path: Path, threads: str) -> None:
    """faulthandler's own signal crashes each Python now and then that runs in other threads, and 3.12 in any."""
    write_hook(str(tmp_path))
    spin = "def step(n): return step(n - 1) if n else [0]\ndef spin():\n    while True: step(20)\n"
    last = "time.sleep(600)" if BUSY[threads] else "spin()"
    code = f"import time\n{spin}{BUSY[threads]}print('ready', flush=True)\n{last}"
    process = start_python(tmp_path, code, PYTHONPATH=f"{tmp_path}/hooks", LOCAL_RANK="0")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    path = str(tmp_path / "stacks" / f"rank-0-{process.pid}.txt")
    for _request in range(100):
        assert not request_stacks(StackFiles({process.pid: path}), 60)
    assert process.poll() is None
    process.kill()
    process.wait()
    text = Path(path).read_text(encoding="utf-8")
    assert "Thread 0x" not in text  # only the main thread
    assert {frame.function for frame in main_stack(parse_dump(text))} <= {"step", "spin", "<module>"}


@pytest.mark.parametrize("number", [STACK_SIGNAL, PYTHON_STACK_SIGNAL])
def test_process_that_ends_is_not_killed_by_a_late_request(tmp_path: Path, number: int) -> None:
    write_hook(str(tmp_path))
    for _process in range(5):
        process = start_python(tmp_path, "print('ready', flush=True)", PYTHONPATH=f"{tmp_path}/hooks", LOCAL_RANK="0")
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        while process.poll() is None:
            os.kill(process.pid, number)
            time.sleep(0.0005)  # gives it the opportunity to exit in the meantime
        assert process.returncode == 0


def test_process_running_c_code_gets_the_other_signal(tmp_path: Path) -> None:
    write_hook(str(tmp_path))
    code = "print('ready', flush=True)\nsum(range(10 ** 15))"
    process = start_python(tmp_path, code, PYTHONPATH=f"{tmp_path}/hooks", LOCAL_RANK="0")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    path = str(tmp_path / "stacks" / f"rank-0-{process.pid}.txt")

    def lines() -> list[int]:
        assert not request_stacks(StackFiles({process.pid: path}), 60)
        return [frame.line for frame in main_stack(parse_dump(Path(path).read_text()))]

    eventually(lambda: lines() == [2])  # the end of its output may not have arrived yet
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("", False),
        ("signal.signal(signal.SIGTERM, lambda *_: None)", True),
        ("signal.signal(15, signal.SIG_DFL)", False),
    ],
)
def test_hooks_handler_is_not_attributed_to_the_job(tmp_path: Path, setting: str, expected: bool) -> None:
    write_hook(str(tmp_path))
    code = f"import signal, time\n{setting}\nprint('ready', flush=True)\ntime.sleep(600)"
    process = start_python(tmp_path, code, PYTHONPATH=f"{tmp_path}/hooks", LOCAL_RANK="3")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    assert handles_signal(process)
    assert catches(process.pid, signal.SIGTERM) is expected
    process.kill()
    process.wait()

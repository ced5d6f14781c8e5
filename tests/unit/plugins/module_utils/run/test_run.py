"""The node's part of training_run: logs, processes and systemd units."""

from __future__ import annotations

import contextlib
import fcntl
import grp
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run import dispatch as run_requests
from ansible_collections.muster.training.plugins.module_utils._run import find_runs as run_runs
from ansible_collections.muster.training.plugins.module_utils._run import identity as run_identity
from ansible_collections.muster.training.plugins.module_utils._run import running_supervisors as run_alive
from ansible_collections.muster.training.plugins.module_utils._run import secrets as run_secrets
from ansible_collections.muster.training.plugins.module_utils._run import start as run_start
from ansible_collections.muster.training.plugins.module_utils._run import status as run_status
from ansible_collections.muster.training.plugins.module_utils._run import stop as run_stop
from ansible_collections.muster.training.plugins.module_utils._run import unit as run_unit
from ansible_collections.muster.training.plugins.module_utils._run import watch as run_watch
from ansible_collections.muster.training.plugins.module_utils._run.identity import RunError
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import plan_text, read_plan
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import ABANDONED_TIMEOUT
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import (
    FIRST_LINE,
    REPLY_MARK,
    standard_input,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.run_programs import supervisor_files
from tests.unit.supervised import end_by_force, eventually, make_run

# --- Reading logs -----------------------------------------------------------------------------------------------------


def test_only_whole_lines_are_read_while_a_log_may_grow(tmp_path: Path) -> None:
    log, cursors = tmp_path / "log", dict[str, int]()
    assert run_watch.read_new(str(log), cursors, False) == ""
    log.write_text("one\ntw")
    assert run_watch.read_new(str(log), cursors, False) == "one\n"
    assert run_watch.read_new(str(log), cursors, False) == ""
    log.write_text("one\ntwo\nthr")
    assert run_watch.read_new(str(log), cursors, False) == "two\n"
    assert run_watch.read_new(str(log), cursors, True) == "thr"
    assert run_watch.read_new(str(log), cursors, True) == ""


def test_invalid_utf8_in_a_log_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"a\xffb\n")
    assert run_watch.read_new(str(log), {}, False) == "a\ufffdb\n"


def test_line_longer_than_a_reply_is_split(tmp_path: Path) -> None:
    log, cursors = tmp_path / "log", dict[str, int]()
    log.write_bytes(b"x" * (2 * run_watch.CHUNK + 5))
    assert len(run_watch.read_new(str(log), cursors, False)) == run_watch.CHUNK
    assert len(run_watch.read_new(str(log), cursors, False)) == run_watch.CHUNK
    assert run_watch.read_new(str(log), cursors, False) == ""
    assert run_watch.read_new(str(log), cursors, True) == "xxxxx"


@given(st.lists(st.text(st.sampled_from("ab\n\r\u00e9"), max_size=30), max_size=8), st.integers(4, 40))
def test_log_is_read_without_loss_or_duplication(pieces: list[str], chunk: int) -> None:
    before = run_watch.CHUNK
    run_watch.CHUNK = chunk
    log = Path(f"/tmp/muster-unit-log-{os.getpid()}")
    try:
        output, cursors = "", dict[str, int]()
        with open(log, "w", encoding="utf-8", newline="") as stream:
            for piece in pieces:
                stream.write(piece)
                stream.flush()
                output += run_watch.read_new(str(log), cursors, False)
        while True:
            more = run_watch.read_new(str(log), cursors, True)
            if not more:
                break
            output += more
    finally:
        run_watch.CHUNK = before
        log.unlink(missing_ok=True)
    if "\ufffd" not in output:  # a two-byte character may be split between two chunks of an endless line
        assert output == "".join(pieces)


# --- Watching ---------------------------------------------------------------------------------------------------------


def watch(run: Any, cursors: dict[str, int] | None = None) -> dict[str, Any]:
    request = run.request(0, cursors=cursors or {}, wait=0.0, local_rank=0)
    reply: dict[str, Any] = run_watch.watch(request)
    return reply


@pytest.mark.parametrize(
    "line",
    ["step\n", "\U0001f4a5" * 30 + "\n", "x" * 200000 + "\n", "x" * 100000 + "\n" + "x" * 200000 + "\n"],
    ids=["short", "of four bytes a letter", "long", "short and long"],
)
def test_long_log_of_an_ended_run_is_read_to_its_end(tmp_path: Path, line: str) -> None:
    """The remaining text arrives in the next replies, even after the end of the run."""
    run = make_run(tmp_path, [["/bin/true"]])
    node = run.node(0)
    node.mkdir(parents=True)
    (node / "plan.json").write_text(json.dumps(run.plans[0]))
    (node / "status.json").write_text('{"state": "succeeded", "message": ""}')
    written = line * (3 * run_watch.CHUNK // len(line.encode()) + 1)
    (node / "launcher.log").write_text(written, encoding="utf-8")
    output, cursors = "", dict[str, int]()
    for _turn in range(10):
        reply = watch(run, cursors)
        output += "".join(reply["outputs"].values())
        cursors = reply["cursors"]
        if not reply["active"]:
            break
    assert not reply["active"]
    assert output == written


@pytest.mark.parametrize("line", ["step\n" + 40 * "x" + "\n", "x"], ids=["lines", "one line without an end"])
def test_watcher_that_is_far_behind_skips_to_the_end_but_keeps_all_results(tmp_path: Path, line: str) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    node = run.node(0)
    node.mkdir(parents=True)
    (node / "plan.json").write_text(json.dumps(run.plans[0]))
    (node / "status.json").write_text('{"state": "succeeded", "message": ""}')
    filling = line * (40 * 2**20 // len(line))
    reports = [f'MUSTER_RESULT {{"accuracy": {number}}}\n' for number in range(3)]
    log = node / "launcher.log"
    log.write_text(f"first\n{reports[0]}{reports[1]}{filling}\n{reports[2]}{filling}the end")
    replies, cursors = list[dict[str, Any]](), dict[str, int]()
    while not replies or replies[-1]["active"]:
        replies.append(watch(run, cursors))
        cursors = replies[-1]["cursors"]
    output = "".join(text for reply in replies for text in reply["outputs"].values())
    assert output.startswith("".join(reports)) and output.endswith("xthe end" if line == "x" else "x\nthe end")
    assert "first" not in output and len(replies) <= 3
    left_out = sum(reply["left_out"].get(str(log), 0) for reply in replies)
    assert left_out + len(output) == log.stat().st_size + len("".join(reports))
    if line != "x":
        assert set(output.removeprefix("".join(reports)).splitlines()) <= {"step", 40 * "x", "the end"}, "whole lines"


def test_silence_is_the_age_of_the_newest_log(tmp_path: Path) -> None:
    older, newer = tmp_path / "older", tmp_path / "newer"
    for path, age in ((older, 400), (newer, 300)):
        path.touch()
        os.utime(path, (time.time() - age,) * 2)
    silence = run_status.silence_of([str(older), str(newer), str(tmp_path / "none")])
    assert silence is not None and 300 <= silence < 400
    assert run_status.silence_of([str(tmp_path / "none")]) is None
    os.utime(newer, (time.time() + 9000,) * 2)
    assert run_status.silence_of([str(newer)]) == 0


def test_each_attempt_is_shown_to_its_end_before_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_watch, "CHUNK", 8)
    run = make_run(tmp_path, [["/bin/true"]])
    run.plans[0]["rank_logs"] = "torchrun"
    node = run.node(0)
    for attempt in range(3):
        logs = node / "ranks" / "first" / f"attempt_{attempt}" / "0"
        logs.mkdir(parents=True)
        (logs / "stdout.log").write_text(f"a{attempt}\n" * 7 + "no line end")
        (logs / "stderr.log").write_text(f"e{attempt}\n")
    (node / "plan.json").write_text(json.dumps(run.plans[0]))
    (node / "status.json").write_text('{"state": "succeeded", "message": ""}')
    output, cursors, active = "", dict[str, int](), True
    while active:
        reply = watch(run, cursors)
        output += "".join(reply["outputs"].values())
        cursors, active = reply["cursors"], reply["active"]
    ends = [output.index(f"e{attempt}") for attempt in range(3)]
    assert output.count("no line end") == 3
    for attempt in range(1, 3):
        assert ends[attempt - 1] < output.index(f"a{attempt}"), output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("step 1\n10%\r20%\r 30%", "30%"),
        ("step 1\n", ""),
        ("step 1\n" + "x" * 9000 + "\r 99%\r", "99%"),
        ("", ""),
    ],
)
def test_unfinished_last_line_is_shown(tmp_path: Path, text: str, expected: str) -> None:
    log = tmp_path / "stderr.log"
    log.write_text(text, newline="")
    cursors: dict[str, int] = {}
    run_watch.read_new(str(log), cursors, False)
    assert run_watch.partial_line(str(log), cursors) == expected
    assert run_watch.partial_line(str(tmp_path / "none"), cursors) == ""


def test_run_whose_supervisor_has_exited_is_dead(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    node = run.node(0)
    node.mkdir(parents=True)
    (node / "plan.json").write_text(json.dumps(run.plans[0]))
    (node / "status.json").write_text('{"state": "running", "message": "", "since": 5.0}')
    reply = watch(run)
    assert not reply["active"] and reply["status"]["state"] == "died" and reply["result"] is None
    result = run_status.read(run.request(0, wait=0))["run"]
    assert (result["state"], result["since"], result["ranks"]) == ("died", 5.0, [0])
    assert "the supervisor died" in result["message"]


def test_missing_run_is_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    with pytest.raises(RunError, match=f"run {run.run_id} does not exist on this node"):
        watch(run)
    assert run_status.read(run.request(0, wait=0)) == {"changed": False, "run": None}
    assert run_requests.main(run.request(0, operation="watch", cursors={}, wait=0, local_rank=0)) == {
        "error": f"run {run.run_id} does not exist on this node"
    }


def test_newest_run_is_used_by_default(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, [["/bin/true"]], run_id=run_id) for run_id in ("b", "a", "c")]
    for age, run in enumerate(runs):
        node = run.node(0)
        node.mkdir(parents=True)
        (node / "plan.json").write_text(json.dumps(run.plans[0]))
        os.utime(node / "plan.json", (1000 - age, 1000 - age))
    request = {**runs[0].request(0, wait=0), "run_id": ""}
    assert run_status.read(request)["run"]["run_id"] == "b"
    assert run_status.read({**request, "node": "another"})["run"] is None


def test_plans_of_other_nodes_in_a_shared_home_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, [["/bin/true"]] * 3)
    for rank, text in enumerate((plan_text(run.plans[0]), plan_text(run.plans[1]), "{}")):
        run.node(rank).mkdir(parents=True)
        (run.node(rank) / "plan.json").write_text(text)
    parsed: list[str] = []

    def note(path: str) -> dict[str, Any] | None:
        parsed.append(path)
        return read_plan(path)

    monkeypatch.setattr(run_runs, "read_plan", note)
    assert run_runs.node_directories(run.request(1)) == [(str(run.node(1)), run.plans[1])]
    assert sorted(parsed) == [str(run.node(1)), str(run.node(2))], "node2's plan does not tell its node"
    (run.node(0) / "token").touch()
    (run.node(0) / "supervisor.json").touch()
    run_start.remove_old_secrets(run.request(1), [])
    assert (run.node(0) / "token").exists() and str(run.node(0)) not in parsed
    (run.node(1) / "plan.json").write_text(json.dumps(run.plans[1]))  # another format, as of a job that replaced it
    assert run_runs.node_directories(run.request(1)) == [(str(run.node(1)), run.plans[1])]


# --- Liveness ---------------------------------------------------------------------------------------------------------

SLEEP = "import sys, time; print('up', flush=True); time.sleep(600)"
Starter = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Starter]:
    """Yield a function that starts a process whose command line ends with the given arguments."""
    processes: list[subprocess.Popen[str]] = []

    def starter(*arguments: str, environment: dict[str, str] | None = None, user: str = "") -> int:
        python = "/usr/bin/python3" if user else sys.executable  # other users may not be able to read this directory
        process = subprocess.Popen(
            [python, "-c", SLEEP, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
            user=user or None,
            cwd="/",
        )
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process.pid

    yield starter
    for process in processes:
        process.kill()
        process.communicate()


def find_supervisor(pid: int) -> dict[str, Any] | None:
    return next((item for item in run_alive.find_supervisors() if item["pid"] == pid), None)


@pytest.mark.parametrize("directory", ["/runs/first/node0", "/my runs/é/first/node12"])
@pytest.mark.parametrize("guard", [False, True])
def test_supervisors_and_guards_are_recognized_by_command_line(start: Starter, directory: str, guard: bool) -> None:
    arguments = [f"{directory}/supervisor.py", *(["--guard"] if guard else []), directory, "first", "10.0.0.9"]
    pid = start(*arguments)
    user = {"user": os.geteuid(), "owner": pwd.getpwuid(os.geteuid()).pw_name}
    expected = {"run_id": "first", "address": "10.0.0.9", "directory": directory, "pid": pid, "guard": guard, **user}
    assert find_supervisor(pid) == expected
    assert run_alive.is_alive(directory)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("/runs/first/node0/supervisor.py",),
        ("/runs/first/node0", "first", "10.0.0.9"),
        ("/runs/first/node0/supervisor.py", "runs/first/node0", "first", "10.0.0.9"),
        ("/runs/first/node0/supervisor.py", "/runs/first/node0", "second", "10.0.0.9"),
        ("/runs/first/node0/train.py", "/runs/first/node0", "first", "10.0.0.9"),
        ("/runs/first/node0/supervisor.py", "/runs/first/node0", "first", "10.0.0.9", "more"),
        ("--guard", "/runs/first/node0"),
        ("/x/supervisor.py", "/runs/first/node0", "first", "10.0.0.9"),
        ("/runs/first/ghost/supervisor.py", "/runs/first/ghost", "first", "10.0.0.9"),
        ("/runs/../node0/supervisor.py", "/runs/../node0", "..", "10.0.0.9"),
    ],
)
def test_other_processes_are_not_treated_as_supervisors(start: Starter, arguments: tuple[str, ...]) -> None:
    assert find_supervisor(start(*arguments)) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("directory", ["the user's", "a private one of the user's", "hers", "a private one", "none"])
def test_command_line_of_another_account_is_not_a_supervisor(start: Starter, directory: str) -> None:
    """Any user can choose the arguments in a command line."""
    nobody, daemon = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o755)
        node = Path(temporary, "runs", "ghost", "node0")
        if directory != "none":
            node.mkdir(parents=True)
        owner = nobody if "user's" in directory else daemon
        pid = start(f"{node}/supervisor.py", str(node), "ghost", "10.0.0.9", user="nobody")
        if directory != "none":
            (node / "supervisor.json").write_text(json.dumps({"pid": pid}))
        for path in Path(temporary).rglob("*"):
            os.chown(path, owner.pw_uid, owner.pw_gid)
            path.chmod(0o700 if "private" in directory else 0o755)
        os.seteuid(daemon.pw_uid)  # a user whose run another user claims to have
        try:
            assert find_supervisor(pid) is None and not run_alive.is_alive(str(node))
        finally:
            os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a run of another user")
def test_run_of_another_account_is_detected() -> None:
    nobody, daemon = pwd.getpwnam("nobody"), pwd.getpwnam("daemon")
    with tempfile.TemporaryDirectory() as temporary:
        os.chown(temporary, nobody.pw_uid, nobody.pw_gid)
        run = make_run(Path(temporary), [["/bin/sleep", "600"]])
        source = {"supervisor": supervisor_files(), "token": run.token, "environment": {}}
        try:
            on_this_node({**run.request(0, user="nobody"), **source, "operation": "start", "plan": run.plans[0]})
            run.wait_for("running")
            os.seteuid(daemon.pw_uid)
            try:
                supervisors = [item for item in run_alive.find_supervisors() if item["run_id"] == run.run_id]
                assert {(item["owner"], item["guard"]) for item in supervisors} == {("nobody", False), ("nobody", True)}
            finally:
                os.seteuid(0)
        finally:
            end_by_force(run)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_stop_does_not_affect_processes_of_other_users(tmp_path: Path, start: Starter) -> None:
    """The process claims to be this run's supervisor."""
    run = make_run(tmp_path, [["/bin/true"]])
    run.node(0).mkdir(parents=True)
    plan = run.node(0) / "plan.json"
    plan.write_text(json.dumps(run.plans[0]))
    pid = start("/x/supervisor.py", str(run.node(0)), run.run_id, "10.0.0.9", user="nobody")
    assert run_stop.stop(run.request(0)) == {"changed": False, "stopped": []}
    assert Path(f"/proc/{pid}").exists()


def test_processes_of_a_run_are_identified_by_their_environment(start: Starter) -> None:
    first_pid = start(environment={"MUSTER_RUN_DIRECTORY": "/runs/first/node1"})
    second_pid = start(environment={"MUSTER_RUN_DIRECTORY": "/runs/first/node10"})
    eventually(lambda: first_pid in run_alive.marked_processes("/runs/first/node1"))
    assert second_pid not in run_alive.marked_processes("/runs/first/node1")
    assert os.getpid() not in run_alive.marked_processes("/runs/first/node1")


# --- Starting ---------------------------------------------------------------------------------------------------------


def test_run_id_in_use_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    run.node(0).mkdir(parents=True)
    with pytest.raises(RunError, match=f"run_id {run.run_id} is taken: {run.node(0)} exists on this node"):
        run.start()


def test_run_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = make_run(tmp_path / "file", [["/bin/true"]])
    with pytest.raises(RunError, match="cannot create the run directory .*file"):
        run.start()


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """Yield a directory that every account can access."""
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o755)
        yield Path(temporary)


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")


@ROOT_ONLY
@pytest.mark.parametrize(
    ("where", "mode", "owner", "message"),
    [
        ("race9", 0o777, "nobody", "race9 was not created by root, or other accounts can write to it"),
        ("race9", 0o755, "nobody", "race9 was not created by root, or other accounts can write to it"),
        ("race9", 0o777, "root", "race9 was not created by root, or other accounts can write to it"),
        ("race9", 0o1777, "root", "race9 was not created by root, or other accounts can write to it"),
        ("race9", 0o775, "root", "race9 was not created by root, or other accounts can write to it"),
        ("", 0o755, "nobody", "runs belongs to nobody\\. "),
        (
            "",
            0o777,
            "root",
            "other accounts can write .*/runs\\. .* Choose another launch_node_directory, or .*: chmod",
        ),
        ("", 0o775, "root", "other accounts can write .*/runs\\. "),
        ("..", 0o755, "nobody", "above belongs to nobody\\. "),
        ("..", 0o777, "root", "other accounts can write .*/above\\. "),
    ],
)
def test_run_is_refused_if_another_account_could_replace_its_program(
    shared_directory: Path, where: str, mode: int, owner: str, message: str
) -> None:
    run = make_run(shared_directory / "above" / "runs", [["/bin/true"]], run_id="race9")
    (run.directory / "race9").mkdir(parents=True, mode=0o700)
    changed = (run.directory / where).resolve()
    changed.chmod(mode)
    entry, group = pwd.getpwnam(owner), grp.getgrnam("nogroup")
    os.chown(changed, entry.pw_uid, group.gr_gid)
    with pytest.raises(RunError, match=message):
        run.start()
    assert list((run.directory / "race9").iterdir()) == []


@ROOT_ONLY
@pytest.mark.parametrize("owner", ["nobody", "root"])
def test_link_to_the_run_directory_must_belong_to_root_or_the_user(shared_directory: Path, owner: str) -> None:
    (shared_directory / "disk").mkdir()
    (shared_directory / "scratch").symlink_to("disk")
    os.chown(shared_directory / "scratch", pwd.getpwnam(owner).pw_uid, -1, follow_symlinks=False)
    run = make_run(shared_directory / "scratch" / "runs", [["/bin/true"]])
    if owner == "root":
        run.start()
        run.wait_for("succeeded")
        run.wait_until_gone()
    else:
        with pytest.raises(RunError, match="scratch belongs to nobody\\. "):
            run.start()
        assert list((shared_directory / "disk").iterdir()) == []


@ROOT_ONLY
def test_a_run_starts_in_a_directory_with_the_sticky_bit(shared_directory: Path) -> None:
    run = make_run(shared_directory, [["/bin/true"]])
    shared_directory.chmod(0o1777)
    run.start()
    run.wait_for("succeeded")
    run.wait_until_gone()


@ROOT_ONLY
def test_run_directory_of_another_account_is_ignored(shared_directory: Path) -> None:
    """Its files may be links: `stop` would write through a link, and remove secrets through one."""
    run = make_run(shared_directory, [["/bin/true"]], run_id="theirs")
    run.node(0).mkdir(parents=True)
    (run.node(0) / "plan.json").write_text(json.dumps(run.plans[0]))
    (run.node(0) / "token").write_text("ours")
    assert run_status.read(run.request(0, wait=0))["run"] is not None
    nobody = pwd.getpwnam("nobody").pw_uid
    os.chown(run.node(0).parent, nobody, -1)
    assert run_status.read(run.request(0, wait=0))["run"] is None
    assert run_stop.stop(run.request(0))["stopped"] == []
    long_ago = time.time() - 2 * ABANDONED_TIMEOUT
    os.utime(run.node(0) / "token", (long_ago, long_ago))
    run_start.remove_old_secrets(run.request(0), [])
    assert (run.node(0) / "token").exists()


def test_supervisor_that_cannot_be_started_is_reported() -> None:
    with pytest.raises(RunError, match="cannot start the supervisor with /nowhere/python: .*No such file"):
        run_start.spawn_detached(["/nowhere/python", "x"])


def test_detached_start_does_not_reap_other_children() -> None:
    child_pid = os.fork()
    if child_pid == 0:
        os._exit(7)
    os.waitid(os.P_PID, child_pid, os.WEXITED | os.WNOWAIT)
    run_start.spawn_detached(["/bin/true"])
    assert os.waitstatus_to_exitcode(os.waitpid(child_pid, 0)[1]) == 7


def test_repeated_start_changes_nothing_and_another_plan_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/sleep", "600"]])
    try:
        run.start()
        run.wait_for("running")
        assert (
            run_start.start(run.request(0, plan=run.plans[0], token="", environment={}, supervisor={}))["changed"]
            is False
        )
        changed_plan = {**run.plans[0], "world_size": 7}
        with pytest.raises(RunError, match="already running on this node with a different plan"):
            run_start.start(run.request(0, plan=changed_plan, token="", environment={}, supervisor={}))
    finally:
        run_stop.remove(run.request(0))
    run.wait_until_gone()
    assert not run.node(0).parent.exists()


def test_one_of_two_simultaneous_starts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise, both would observe no running process, and then start."""
    runs = [make_run(tmp_path, [["/bin/sleep", "600"]], run_id=name) for name in ("one", "other")]
    both_scanned = threading.Barrier(2)
    find_supervisors = run_alive.find_supervisors

    def slow_find_supervisors() -> list[dict[str, Any]]:
        result: list[dict[str, Any]] = find_supervisors()
        with contextlib.suppress(threading.BrokenBarrierError):
            both_scanned.wait(3.0)  # times out if the lock blocks the second start
        return result

    monkeypatch.setattr(run_start, "find_supervisors", slow_find_supervisors)
    results: list[str] = []

    def begin(run: Any) -> None:
        try:
            run.start()
            results.append("started")
        except RunError as error:
            results.append(str(error))

    threads = [threading.Thread(target=begin, args=(run,)) for run in runs]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first, second = sorted(results, key=len)
        assert first == "started" and "is still running on this node" in second
    finally:
        monkeypatch.undo()
        for run in runs:
            end_by_force(run)


def test_start_gives_up_waiting_for_another_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_start, "START_LOCK", str(tmp_path / "lock-{uid}"))
    monkeypatch.setattr(run_start, "START_LOCK_TIMEOUT", 0.1)
    run = make_run(tmp_path, [["/bin/true"]])
    with (
        run_start.start_lock(),
        pytest.raises(RunError, match="another launch by .* for 0 s: wait for it to finish, or .*fuser .*/lock-"),
    ):
        run.start()


def test_concurrent_starts_exclude_each_other_and_remove_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_start, "START_LOCK", str(tmp_path / "lock-{uid}"))
    monkeypatch.setattr(run_start, "START_LOCK_POLL_INTERVAL", 0.0)
    inside, overlaps = 0, 0

    def begin() -> None:
        nonlocal inside, overlaps
        for _number in range(50):
            with run_start.start_lock():
                inside += 1
                overlaps += inside > 1
                os.sched_yield()
                inside -= 1

    threads = [threading.Thread(target=begin) for _number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == 0 and not list(tmp_path.iterdir())


def test_lock_left_behind_by_a_killed_start_is_taken_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_start, "START_LOCK", str(tmp_path / "lock"))
    (tmp_path / "lock").touch()
    with run_start.start_lock():
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()


@ROOT_ONLY
def test_lock_file_of_another_account_does_not_block_a_start(
    shared_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = shared_directory / "lock"
    monkeypatch.setattr(run_start, "START_LOCK", str(lock))
    lock.touch()
    os.chown(lock, pwd.getpwnam("nobody").pw_uid, -1)
    with lock.open() as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with run_start.start_lock():
            pass


def test_secrets_are_only_in_files_that_their_owner_can_read(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/sleep", "600"]])
    try:
        run.start(environment={"WANDB_API_KEY": "s3cr3t"})
        run.wait_for("running")
        lasting = [path for path in run.node(0).iterdir() if not path.name.endswith(".tmp")]
        files = {path.name: path.stat().st_mode & 0o777 for path in lasting}
        assert files["environment.json"] == files["token"] == files["plan.json"] == 0o600
        assert run.node(0).stat().st_mode & 0o777 == 0o700
        assert "s3cr3t" not in (run.node(0) / "plan.json").read_text()
        for pid, line in run.processes().items():
            assert "s3cr3t" not in line and run.token not in line, pid
    finally:
        run_stop.remove(run.request(0))


def test_missing_user_is_reported_by_name() -> None:
    with pytest.raises(RunError, match="user 'nobody-here' does not exist on this node"):
        run_runs.runs_directory({"runs_directory": "~/.muster/runs", "user": "nobody-here"})


def test_runs_directory_is_expanded_and_normalized() -> None:
    account = pwd.getpwuid(os.geteuid())
    assert (
        run_runs.runs_directory({"runs_directory": "~/.muster/runs", "user": account.pw_name})
        == f"{account.pw_dir}/.muster/runs"
    )
    assert run_runs.runs_directory({"runs_directory": "/srv/runs", "user": account.pw_name}) == "/srv/runs"
    assert run_runs.runs_directory({"runs_directory": "/srv/runs/../x"}) == "/srv/x"


def fake_supervisor(start: Starter, directory: str, run_id: str, address: str) -> None:
    start(f"{directory}/supervisor.py", directory, run_id, address)


@pytest.mark.parametrize("supervision", ["auto", "process"])
def test_start_next_to_a_live_run_is_refused_unless_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, supervision: str
) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    run.plans[0]["supervision"] = supervision
    # on a machine that hosts several nodes, a different address means a different node
    address = run.plans[0]["node"]["address"] if supervision == "process" else "10.0.0.9"
    supervisor = {"run_id": "other", "address": address, "directory": "/else/other/node0", "pid": 1, "owner": "trainer"}
    monkeypatch.setattr(run_start, "find_supervisors", lambda: [supervisor])  # this machine may have more
    with pytest.raises(
        RunError, match="run other, owned by trainer, is still running on this node, in /else/other/node0"
    ):
        run.start()
    assert not run.node(0).exists()
    monkeypatch.setattr(run_start, "spawn_detached", lambda *_arguments: None)
    monkeypatch.setattr(run_start, "run_as_root", lambda _command: None)
    inputs = {"token": "", "environment": {}, "supervisor": {}}
    assert run_start.start(run.request(0, plan=run.plans[0], share=True, **inputs))["changed"], "who shares it says so"


def test_run_that_has_just_ended_does_not_block_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first node may have stopped its own part, which ends the run on all others."""
    run = make_run(tmp_path, [["/bin/true"]])
    run.plans[0]["supervision"] = "process"
    supervisor = {
        "run_id": "other",
        "address": run.plans[0]["node"]["address"],
        "directory": "/else/other/node0",
        "pid": 1,
    }
    scans = iter([[supervisor], []])
    monkeypatch.setattr(run_start, "find_supervisors", lambda: next(scans))
    monkeypatch.setattr(run_start, "spawn_detached", lambda *_arguments: None)
    (reply,) = run.start(replace=True)
    assert reply["changed"] and reply["stopped"] == []


def test_live_run_in_another_directory_is_not_reported_as_missing(
    tmp_path: Path, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    fake_supervisor(start, f"/else/{run.run_id}/node0", run.run_id, "10.0.0.9")
    user = pwd.getpwuid(os.geteuid()).pw_name
    for operation in (run_stop.stop, run_status.read):
        # including those of another user, in a directory that contains all users' runs
        with monkeypatch.context() as patch:
            patch.setattr(run_runs, "runs_directory", lambda _request: "/else")
            foreign_supervisors = [{**item, "user": os.geteuid() + 1} for item in run_alive.find_supervisors()]
            patch.setattr(
                run_runs, "find_supervisors", lambda foreign_supervisors=foreign_supervisors: foreign_supervisors
            )
            with pytest.raises(RunError, match="which was not searched"):
                operation(run.request(0, wait=0))
        with pytest.raises(
            RunError, match=f"-e launch_user={user} or -e launch_node_directory=/else, as when it was launched"
        ):
            operation(run.request(0, wait=0))


def test_stop_removes_the_secrets_of_a_run_that_died(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    run.node(0).mkdir(parents=True)
    (run.node(0) / "plan.json").write_text(json.dumps(run.plans[0]))
    for name in run_secrets.SECRETS:
        (run.node(0) / name).write_text("s3cr3t")
    assert (
        run_stop.stop(run.request(0, check=True)) == run_stop.stop(run.request(0)) == {"changed": False, "stopped": []}
    )
    assert [path.name for path in run.node(0).iterdir()] == ["plan.json"]


def test_secrets_are_kept_in_memory_where_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are lost with power, whether or not the machine starts or stops a run again."""
    monkeypatch.setattr(run_secrets, "MEMORY_ROOT", str(tmp_path / "memory"))
    directories = [tmp_path / "runs" / name for name in ("first/node0", "second/node0")]
    for directory in directories:
        directory.mkdir(parents=True)
    secrets = {"environment.json": "{}", "token": "s3cr3t"}
    run_start.write_secrets(str(directories[0]), secrets)
    assert not any(path.is_symlink() for path in directories[0].iterdir()), "there is no place in memory"
    user_directory = tmp_path / "memory" / str(os.geteuid())
    user_directory.mkdir(mode=0o700, parents=True)
    run_start.write_secrets(str(directories[1]), secrets)
    (memory_directory,) = user_directory.iterdir()
    assert memory_directory.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.resolve() for path in directories[1].iterdir()} == {
        name: memory_directory / name for name in secrets
    }
    assert {(path.stat().st_mode & 0o777, path.read_text()) for path in memory_directory.iterdir()} == {
        (0o600, "{}"),
        (0o600, "s3cr3t"),
    }
    (end,) = (word for word in unit(tmp_path, str(directories[1])) if "ExecStopPost=/bin/rm" in word)
    assert str(memory_directory) in end, "systemd removes it where nobody else is left to"
    with_link = directories[0] / "token"
    with_link.unlink()
    with_link.symlink_to(tmp_path / "precious/file")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("not a secret of a run")
    for directory in directories:
        run_secrets.remove_secrets(str(directory))
        assert not any(directory.iterdir())
    assert not any(user_directory.iterdir())
    assert (tmp_path / "precious/file").exists()


def test_start_removes_secrets_left_by_earlier_runs_of_this_node(tmp_path: Path) -> None:
    old, fresh, begun, alive, foreign = (make_run(tmp_path, [["/bin/true"]], run_id=name) for name in "ofban")
    foreign.plans[0]["node"]["name"] = "another"
    long_ago = time.time() - 2 * ABANDONED_TIMEOUT
    for run in (old, fresh, begun, alive, foreign):
        run.node(0).mkdir(parents=True)
        (run.node(0) / "plan.json").write_text(json.dumps(run.plans[0]))
        if run in (begun, alive):
            (run.node(0) / "supervisor.json").write_text('{"pid": 1}')
        for name in run_secrets.SECRETS:
            (run.node(0) / name).write_text("s3cr3t")
            if run not in (fresh, begun):
                os.utime(run.node(0) / name, (long_ago, long_ago))
    run_start.remove_old_secrets(old.request(0), [str(alive.node(0))])
    assert [path.name for path in old.node(0).iterdir()] == ["plan.json"]
    assert {path.name for path in begun.node(0).iterdir()} == {"plan.json", "supervisor.json"}
    for run in (fresh, alive, foreign):
        assert {path.name for path in run.node(0).iterdir()} >= {"plan.json", *run_secrets.SECRETS}


def test_start_after_a_power_failure_removes_the_last_runs_secrets(tmp_path: Path) -> None:
    """Supervisor and guard are killed immediately, as by a power failure, and the node starts the next run
    immediately.
    """
    before, after = (make_run(tmp_path, [["/bin/sleep", "600"]], run_id=name) for name in ("before", "after"))
    try:
        before.start(environment={"SECRET": "s3cr3t"})
        before.wait_for("running")
        end_by_force(before)
        assert (before.node(0) / "environment.json").exists()
        after.start(environment={"SECRET": "s3cr3t"})
        after.wait_for("running")
        remaining = [path.parent.parent.name for path in tmp_path.rglob("environment.json")]
        assert remaining == ["after"]
    finally:
        end_by_force(before)
        end_by_force(after)


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/muster-first.service", "muster-first"),
        ("8:pids:/\n1:name=systemd:/system.slice/muster-first.v2.service\n0::/", "muster-first.v2"),
        ("0::/", ""),
        ("0::/system.slice/ssh.service", ""),
        ("0::/system.slice/muster-lab.slice/podman.scope", ""),
        # these are created by a user
        ("0::/user.slice/user-1000.slice/user@1000.service/system.slice/muster-first.service", ""),
    ],
)
def test_unit_of_a_process_is_read_from_its_cgroup(monkeypatch: pytest.MonkeyPatch, cgroup: str, unit: str) -> None:
    monkeypatch.setattr("builtins.open", lambda *_arguments, **_more: io.StringIO(cgroup + "\n"))
    assert run_alive.unit_of(7) == unit


def test_exited_process_has_no_unit() -> None:
    assert run_alive.unit_of(2**22 + 1) == ""


def test_root_does_not_stop_a_unit_named_only_in_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, [["/bin/sleep", "600"]])
    monkeypatch.setattr(run_stop, "run_as_root", lambda command: pytest.fail(f"root was asked to {command}"))
    run.start()
    run.wait_for("running")
    plan = {**run.plans[0], "supervision": "auto", "unit": "ssh"}
    (run.node(0) / "plan.json").write_text(json.dumps(plan))
    assert run_stop.stop(run.request(0))["stopped"] == [run.run_id]
    run.wait_until_gone()


def test_supervisor_crash_is_written_to_its_log(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    run.plans[0]["timeouts"] = None
    run.start()
    log = run.node(0) / "supervisor.log"
    eventually(lambda: log.exists() and "TypeError" in log.read_text())
    assert log.stat().st_mode & 0o777 == 0o600
    run.wait_until_gone()


def test_supervisor_files_are_accessible_only_to_their_owner(tmp_path: Path) -> None:
    run = make_run(tmp_path, [["/bin/true"]])
    run.sources["supervisor.py"] += "\n"  # unchanged sources would be run from compiled modules elsewhere
    before = os.umask(0)
    try:
        run.start()
    finally:
        os.umask(before)
    run.wait_until_gone()
    paths = [path for path in run.node(0).rglob("*") if not path.is_symlink()]
    assert [path for path in paths if path.stat().st_mode & 0o077] == []
    python_files = {str(path.relative_to(run.node(0))) for path in paths if path.suffix in (".py", ".pyc")}
    assert python_files - {path for path in python_files if "__pycache__" in path} == {
        *supervisor_files(),
        "hooks/sitecustomize.py",
        "hooks/rank_profile.py",
    }


def on_this_node(request: dict[str, Any]) -> dict[str, Any]:
    """Run the product's code as on a node, with the system's Python, which every user may start."""
    command = ["/usr/bin/python3", "-I", "-S", "-c", FIRST_LINE]
    completed = subprocess.run(command, input=standard_input("_run.dispatch", request), capture_output=True, check=True)
    reply: dict[str, Any] = json.loads(completed.stdout.decode().partition(REPLY_MARK)[2])
    return reply


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_root_touches_a_users_files_only_as_that_user() -> None:
    nobody = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as temporary:
        os.chown(temporary, nobody.pw_uid, nobody.pw_gid)
        job = ["/bin/sh", "-c", 'echo "$USER $HOME"; sleep 600']
        run = make_run(Path(temporary), [job])
        request = run.request(0, user="nobody")
        source = {"supervisor": supervisor_files(), "token": run.token, "environment": {}}
        try:
            reply = on_this_node({**request, **source, "operation": "start", "plan": run.plans[0]})
            assert reply["supervision"] == "process group", reply
            run.wait_for("running")
            eventually(lambda: len(run.processes()) == 4)  # guard, supervisor, shell, sleep
            owners = {os.stat(f"/proc/{pid}").st_uid for pid in run.processes()}
            owners |= {path.stat().st_uid for path in Path(temporary).rglob("*") if not path.name.endswith(".tmp")}
            assert owners == {nobody.pw_uid}
            log = run.node(0) / "launcher.log"
            eventually(lambda: log.read_text() == f"nobody {nobody.pw_dir}\n")
            with tempfile.NamedTemporaryFile("w+") as roots:
                roots.write("only root may read and write this\n")
                roots.flush()
                (run.node(0) / "logs.tar.gz").symlink_to(roots.name)
                log.unlink()
                log.symlink_to(roots.name)
                assert on_this_node({**request, "operation": "pack", "selection": "logs"})["last"]
                watched = on_this_node({**request, "operation": "watch", "cursors": {}, "wait": 0, "local_rank": 0})
                assert watched["outputs"] == {}
                assert Path(roots.name).read_text() == "only root may read and write this\n"
            assert on_this_node({**request, "operation": "stop"})["stopped"] == [run.run_id]
        finally:
            end_by_force(run)


# --- The unit ---------------------------------------------------------------------------------------------------------


def unit(tmp_path: Path, directory: str, **plan: Any) -> list[str]:
    node_plan = {**make_run(tmp_path, [["/bin/true"]], run_id="first").plans[0], **plan}
    command: list[str] = run_unit.unit_command(node_plan, directory, "trainer", ["/usr/bin/python3", "supervisor.py"])
    return command


def test_unit_command_sets_name_user_and_stop_timeout(tmp_path: Path) -> None:
    command = unit(tmp_path, "/runs/first/node0", timeouts={"grace": 7, "silence": 10})
    assert command[0] == "systemd-run"
    assert command[command.index("--") :] == ["--", "/usr/bin/python3", "supervisor.py"]
    assert {"--unit=muster-first.service", "--uid=trainer", "--service-type=exec", "--collect"} <= set(command)
    assert "--property=TimeoutStopSec=27" in command, "the supervisor needs the grace and a few seconds to end itself"
    assert "--property=KillMode=mixed" in command
    # systemd would open it as root, in a directory where the user could place a link
    assert not any("StandardOutput" in word or "StandardError" in word for word in command)


def test_unit_watchdog_uses_the_guards_timeout(tmp_path: Path) -> None:
    command = unit(tmp_path, "/runs/first/node0", timeouts={"grace": 7, "silence": 10})
    assert {"--property=WatchdogSec=15", "--property=NotifyAccess=main"} <= set(command)


def test_properties_unsupported_by_an_older_systemd_are_omitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 10 and RHEL 8 have 241 and 239."""
    run = make_run(tmp_path, [["/bin/true"]])
    run.plans[0]["supervision"] = "auto"
    commands: list[list[str]] = []

    def old_systemd(command: list[str]) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        supported = not any("TimeoutAbortSec" in word for word in command)
        output = "" if supported else "Unknown assignment: TimeoutAbortSec=5"
        return subprocess.CompletedProcess(command, 0 if supported else 1, "", output)

    monkeypatch.setattr(run_start, "run_as_root", old_systemd)
    for name in ("keep_shared_memory", "make_memory_directory"):
        monkeypatch.setattr(run_start, name, lambda: None)
    monkeypatch.setattr(run_start, "find_supervisors", list)
    monkeypatch.setattr(os.path, "isdir", lambda _path: True)
    monkeypatch.setattr(shutil, "which", lambda _name: "/usr/bin/systemd-run")
    assert run.start()[0]["supervision"] == f"unit muster-{run.run_id}"
    first, second = commands
    assert set(first) - set(second) == {"--property=" + item for item in run_unit.SINCE_243}


@pytest.mark.parametrize("run_id", ["first.socket", "first.target", "first.service", "first.mount"])
def test_run_id_cannot_change_the_unit_type(tmp_path: Path, run_id: str) -> None:
    assert f"--unit=muster-{run_id}.service" in unit(tmp_path, "/runs/x/node0", unit=f"muster-{run_id}")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("limits", [False, True])
def test_systemd_understands_each_property(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: bool) -> None:
    monkeypatch.setattr(run_unit, "may_raise_limits", lambda: limits)
    command = unit(tmp_path, str(tmp_path))
    properties = [word[len("--property=") :] for word in command if word.startswith("--property=")]
    assert any(item.startswith("LimitMEMLOCK") for item in properties) == limits
    file = tmp_path / "muster-first.service"

    def verify_errors(lines: list[str]) -> str:
        file.write_text("\n".join(["[Service]", "Type=exec", "ExecStart=/bin/true", *lines, ""]))
        command = ["systemd-analyze", "verify", str(file)]
        return subprocess.run(command, check=False, capture_output=True, text=True).stderr

    assert "Unknown key" in verify_errors(["KilMode=mixed"]), "a mistake would be seen"
    assert verify_errors(properties) == ""


# --- Root -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sudo", "expected"),
    [
        ('shift; exec "$@"', (3, "no such unit\n")),
        # a host that cannot resolve its own name: sudo prints a warning, but the command itself fails
        (
            'echo "sudo: unable to resolve host node1" >&2; shift; exec "$@"',
            (3, "sudo: unable to resolve host node1\n"),
        ),
        ('echo "sudo: a password is required" >&2; exit 1', None),
        ('echo "Sorry, user muster may not run sudo on node1." >&2; exit 1', None),
        ("", None),
    ],
    ids=["root", "root with a warning", "password", "not allowed", "no sudo"],
)
def test_failed_command_is_distinguished_from_refused_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sudo: str, expected: tuple[int, str] | None
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", str(tmp_path))
    if sudo:
        (tmp_path / "sudo").write_text(f"#!/bin/sh\n{sudo}\n")
        (tmp_path / "sudo").chmod(0o755)
    (tmp_path / "true").symlink_to("/bin/true")
    completed = run_identity.run_as_root(["/bin/sh", "-c", "echo no such unit >&2; exit 3"])
    if expected is None:
        assert completed is None
    else:
        assert (
            completed is not None and completed.returncode == expected[0] and completed.stderr.startswith(expected[1])
        )

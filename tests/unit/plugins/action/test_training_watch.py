"""Watching a run: output, results, and behavior with an unresponsive node."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.action import training_watch
from ansible_collections.muster.training.plugins.action.training_watch import MAX_REPORTED, ActionModule, keep_report
from ansible_collections.muster.training.plugins.module_utils._run.job_results import parse_report
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import NodeRequestError
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import visible_text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step 1", "step 1"),
        ("", ""),
        ("10%\r20%\r30%", "30%"),
        ("10%\r20%\r", "20%"),
        ("done\r\r", "done"),
        ("\r", ""),
        ("  indented", "  indented"),
    ],
)
def test_line_with_carriage_returns_is_shown_like_in_a_terminal(line: str, expected: str) -> None:
    assert visible_text(line) == expected


@pytest.mark.parametrize(
    ("line", "plain"),
    [
        ("\x1b[31mred\x1b[0m loss 0.1", "red loss 0.1"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;cm0gLXJmIC8=\x07pasted", "pasted"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("a\tb\x00c\x9b31m", "a\tb c 31m"),
        ("epoch 1: 12%|█▎ | 3/25", "epoch 1: 12%|█▎ | 3/25"),
    ],
)
def test_control_sequences_are_removed_unless_requested(line: str, plain: str) -> None:
    assert visible_text(line) == plain
    assert visible_text(line, control_sequences=True) == line


@given(st.text())
def test_visible_line_has_no_control_characters(line: str) -> None:
    assert all(character.isprintable() or character == "\t" for character in visible_text(line))


@given(st.text())
def test_visible_line_has_no_carriage_return(line: str) -> None:
    assert "\r" not in visible_text(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('MUSTER_RESULT {"accuracy": 0.97}', {"accuracy": 0.97}),
        ("MUSTER_RESULT {}", {}),
        ("MUSTER_RESULT [1]", None),
        ("MUSTER_RESULT 1", None),
        ("MUSTER_RESULT {", None),
        ("MUSTER_RESULT", None),
        (' MUSTER_RESULT {"a": 1}', None),
        ('x MUSTER_RESULT {"a": 1}', None),
        ("", None),
        ("MUSTER_RESULT " + '{"a":' * 19 + "{}" + "}" * 19, json.loads('{"a":' * 19 + "{}" + "}" * 19)),
        ("MUSTER_RESULT " + '{"a":' * 20 + "{}" + "}" * 20, None),
        ("MUSTER_RESULT " + '{"a":' * 10_000 + "1" + "}" * 10_000, None),
        ("MUSTER_RESULT " + '{"a": [[[' * 100_000, None),
        (f'MUSTER_RESULT {{"a": "{"x" * 65536}"}}', None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_only_well_formed_result_lines_are_reported(line: str, expected: dict[str, Any] | None) -> None:
    assert parse_report(line) == expected


# --- The loop ---------------------------------------------------------------------------------------------------------

SILENT = AnsibleConnectionFailure("timed out")


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Script:
    """A sequence of replies, each after a delay."""

    def __init__(self, clock: Clock, replies: list[Any], seconds: float) -> None:
        self.clock = clock
        self.remaining = list(replies)
        self.seconds = seconds
        self.requests: list[dict[str, Any]] = []

    def poll(self, request: dict[str, Any]) -> dict[str, Any]:
        self.requests.append({**request, "cursors": dict(request["cursors"])})
        self.clock.sleep(self.seconds)
        reply = self.remaining.pop(0) if len(self.remaining) > 1 else self.remaining[0]
        if isinstance(reply, Exception):
            raise reply
        result: dict[str, Any] = reply
        return result


def make_reply(output: str = "", *events: str, active: bool = True, **more: Any) -> dict[str, Any]:
    return {
        "active": active,
        "status": {"state": "running" if active else "succeeded"},
        "outputs": {"/run/stdout.log": output} if output else {},
        "events": [{"text": text} for text in events],
        "unfinished": "",
        "left_out": {},
        "seconds_since_output": None,
        "cursors": {},
        "result": None if active else {"state": "succeeded"},
        **more,
    }


END = make_reply(active=False)
Watch = Callable[..., tuple[dict[str, Any], Script]]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    clock = Clock()
    monkeypatch.setattr(training_watch, "time", clock)

    def watcher(*replies: Any, seconds: float = 1.0, **arguments: Any) -> tuple[dict[str, Any], Script]:
        script = Script(clock, list(replies), seconds)
        limits = {"progress_interval": 30, "reply_timeout": 30, "control_sequences": False}
        defaults = {"run_id": "first", "node": "node0", **limits}
        action = ActionModule.__new__(ActionModule)
        return action.watch({**defaults, **arguments}, script.poll), script

    yield watcher


def printed_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_output_and_events_are_shown_in_order(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    result, _script = watch(
        make_reply("step 1\nstep 2\n", "all 2 nodes have checked in"), make_reply("10%\r100%\n\n  x\n"), END
    )
    assert printed_lines(capsys) == ["step 1", "step 2", "[muster] all 2 nodes have checked in", "100%", "  x"]
    assert (result["contact_lost"], result["result"], result["changed"]) == (False, {"state": "succeeded"}, False)


def test_control_sequences_in_an_event_are_not_shown(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    """File names of a job may contain them, and events quote file names."""
    watch(make_reply("", "node1: \x1b]0;title\x07\x1b[31mfailed\x9b0m"), END)
    (line,) = printed_lines(capsys)
    assert line.startswith("[muster] node1: ") and line.isprintable() and "failed" in line


def test_check_in_is_shown_before_the_output_that_follows_it(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    check_in = {"event": "go", "text": "all 2 nodes have checked in"}
    failure = {"event": "failure", "text": "node1, rank 1 failed"}
    watch(make_reply("Traceback\n", events=[check_in, failure]), END)
    assert printed_lines(capsys) == [
        "[muster] all 2 nodes have checked in",
        "Traceback",
        "[muster] node1, rank 1 failed",
    ]


def test_unfinished_progress_bar_counts_as_last_line(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    last_line = "epoch 1:  40%|####      | 4/10"
    watch(
        make_reply("step 1\n"), make_reply(unfinished=last_line), make_reply(), END, seconds=12.0, progress_interval=20
    )
    assert [line for line in printed_lines(capsys) if "last line" in line] == [
        f"[muster] 0:00:00 last line: {last_line}"
    ]


def test_reported_values_are_returned_and_not_shown(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    first = make_reply('MUSTER_RESULT {"a": 1, "b": 1}\nstep\n')
    result, _script = watch(first, make_reply('MUSTER_RESULT {"b": 2}\n', active=False))
    assert result["job_results"] == {"a": 1, "b": 2}
    assert printed_lines(capsys) == ["step"]


def test_last_output_is_shown_before_final_event(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    watch(make_reply("the end\n", "it is over", active=False))
    assert printed_lines(capsys) == ["the end", "[muster] it is over"]


def test_each_request_continues_at_previous_cursor(watch: Watch) -> None:
    _result, script = watch(make_reply("x\n", cursors={"/l": 2}), make_reply("y\n", cursors={"/l": 4}), END)
    assert [request["cursors"] for request in script.requests] == [{}, {"/l": 2}, {"/l": 4}]
    assert {request["operation"] for request in script.requests} == {"watch"}


def test_progress_line_is_shown_once_per_interval(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [{"state": state} for state in ("running", "ended", "lost", "waiting")]
    # a time before the first poll, according to the node's clock
    running_status = {"state": "running", "nodes": nodes, "started": 4000.0}
    running = [make_reply(status={**running_status, "updated": 7600.0 + 5 * number}) for number in range(8)]
    watch(make_reply("step 7 loss 0.3\n"), *running, END, seconds=5.0, progress_interval=20)
    assert printed_lines(capsys) == [
        "step 7 loss 0.3",
        "[muster] 1:00:10 nodes alive: 2 of 4; last line: step 7 loss 0.3",
        "[muster] 1:00:30 nodes alive: 2 of 4; last line: step 7 loss 0.3",
    ]


def test_report_line_is_not_shown_as_last_line(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    # the status of a node other than the first
    running_status = make_reply(status={"state": "running", "started": 1000.0, "updated": 1060.0})
    watch(make_reply('step 7\n \nMUSTER_RESULT {"a": 1}\n'), running_status, END, seconds=30.0)
    assert printed_lines(capsys)[-1] == "[muster] 0:01:00 reported: a 1; last line: step 7"


def test_progress_line_shows_newest_report_of_job_without_output(
    watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    running_status = {"state": "running", "started": 1000.0, "updated": 1060.0}
    reports = 'MUSTER_RESULT {"step": 9, "loss": 1}\nMUSTER_RESULT {"step": 10, "val_loss": 0.123456, "more": [1]}\n'
    watch(
        make_reply(status=running_status),
        make_reply(reports, status=running_status),
        make_reply("", status=running_status),
        END,
        seconds=30.0,
    )
    assert printed_lines(capsys) == [
        "[muster] 0:01:00 no output yet",
        "[muster] 0:01:00 reported: step 10, val loss 0.1235",
        "[muster] 0:01:00 reported: step 10, val loss 0.1235",
    ]


def test_progress_line_names_ranks_that_have_exited(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    running_status = {"state": "running", "started": 0.0, "updated": 400.0, "exited": "rank 0 on node1 exited\x1b[2J"}
    watch(make_reply("step 7\n"), make_reply(status=running_status), END, seconds=30.0)
    assert printed_lines(capsys)[2:] == ["[muster] 0:06:40 rank 0 on node1 exited [2J; last line: step 7"]


def test_progress_line_names_the_compilers_of_a_silent_job(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    running_status = {"state": "running", "nodes": [{"state": "running"}], "started": 0.0, "updated": 400.0}
    silent = [
        make_reply(
            status=running_status, seconds_since_output=89.0, compilers=["ninja", "cc1plus", "\x1b[2J", "train.py"]
        )
    ]
    watch(make_reply("step 1\n"), *silent, END, seconds=30.0)
    assert printed_lines(capsys)[2:] == [
        "[muster] 0:06:40 nodes alive: 1 of 1; no output for 1 min; it compiles an extension (cc1plus, ninja); "
        "last line: step 1"
    ]


def test_progress_line_shows_how_long_a_job_has_been_silent(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    running_status = {"state": "running", "nodes": [{"state": "running"}], "started": 0.0, "updated": 400.0}
    silent_replies = [
        make_reply(status=running_status, seconds_since_output=silence) for silence in (59.0, 89.0, 3661.0)
    ]
    watch(make_reply("warnings.warn(\n"), *silent_replies, END, seconds=30.0)
    assert printed_lines(capsys)[2:] == [
        "[muster] 0:06:40 nodes alive: 1 of 1; last line: warnings.warn(",
        "[muster] 0:06:40 nodes alive: 1 of 1; no output for 1 min; last line: warnings.warn(",
        "[muster] 0:06:40 nodes alive: 1 of 1; no output for 61 min; last line: warnings.warn(",
    ]


def test_skipped_output_is_announced_with_path_of_full_log(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    reply = make_reply('MUSTER_RESULT {"a": 1}\nstep 9\n', left_out={"/run/stdout.log": 198_400_000})
    result, _script = watch(reply, END)
    assert printed_lines(capsys) == ["[muster] 198 MB of output skipped; full log: node0:/run/stdout.log", "step 9"]
    assert result["job_results"] == {"a": 1}


def test_malformed_report_does_not_end_the_watch(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    line = "MUSTER_RESULT " + '{"a":' * 100_000
    result, _script = watch(make_reply(f"{line}\nstep 1\n"), END)
    assert (result["job_results"], result["result"]) == ({}, {"state": "succeeded"})
    assert printed_lines(capsys) == [line, "step 1"]


def test_watch_resumes_after_node_was_silent_for_a_while(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    result, script = watch(
        make_reply("a\n", cursors={"/l": 2}), SILENT, SILENT, make_reply("b\n"), END, seconds=3.0, reply_timeout=30
    )
    assert (result["contact_lost"], result["result"]) == (False, {"state": "succeeded"})
    assert [request["cursors"] for request in script.requests[1:4]] == [{"/l": 2}] * 3, "nothing is lost or doubled"
    assert printed_lines(capsys) == ["a", "b"]


def test_run_is_lost_when_node_stays_silent(watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    result, _script = watch(make_reply('MUSTER_RESULT {"a": 1}\n'), SILENT, seconds=3.0, reply_timeout=10)
    assert result == {"changed": False, "contact_lost": True, "result": None, "job_results": {"a": 1}, "attempt": 0}
    assert printed_lines(capsys) == ["[muster] node0 has not responded for 11 s: timed out"]


def test_watch_ends_when_parent_ansible_has_exited(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, after a terminal was closed; otherwise, the process would never end."""
    parents = iter([7, 7, 7, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    result, script = watch(make_reply(), make_reply())
    assert result["contact_lost"] and len(script.requests) == 2


def test_timeout_restarts_with_each_reply(watch: Watch) -> None:
    replies = [SILENT, SILENT, make_reply()] * 5
    result, _script = watch(*replies, END, seconds=3.0, reply_timeout=10)
    assert not result["contact_lost"]


def test_unknown_run_fails_at_once(watch: Watch) -> None:
    result, script = watch(NodeRequestError("node0: there is no run first on this node"))
    assert result["failed"] and "there is no run first" in result["msg"]
    assert len(script.requests) == 1


CONNECTION_ERRORS = [
    AnsibleActionFail("node0: unexpected reply from the node (exit code 137):\nKilled"),
    AnsibleError("boom\nKilled"),
    BlockingIOError(11, "Killed"),
]


@pytest.mark.parametrize("error", CONNECTION_ERRORS)
def test_watch_survives_temporary_connection_errors(
    watch: Watch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    result, script = watch(make_reply("a\n"), error, error, make_reply("b\n"), END, seconds=3.0, reply_timeout=10)
    assert (result["contact_lost"], result["result"], result.get("failed")) == (False, {"state": "succeeded"}, None)
    assert printed_lines(capsys) == ["a", "b"]


@pytest.mark.parametrize("error", CONNECTION_ERRORS)
def test_run_is_lost_but_not_failed_after_lasting_connection_errors(
    watch: Watch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    result, _script = watch(make_reply('MUSTER_RESULT {"a": 1}\n'), SILENT, error, seconds=3.0, reply_timeout=10)
    assert result == {"changed": False, "contact_lost": True, "result": None, "job_results": {"a": 1}, "attempt": 0}
    (line,) = printed_lines(capsys)
    assert line.startswith("[muster] node0 has not responded for 11 s: ") and line.endswith("Killed")


def test_run_with_a_dead_supervisor_is_lost(watch: Watch) -> None:
    result, _script = watch(make_reply(active=False, result=None, status={"state": "died"}))
    assert result["contact_lost"] and result["result"] is None


def test_run_is_lost_when_rank_0_could_not_write_its_result(watch: Watch) -> None:
    """The disk of rank 0 is full; the other nodes still respond."""
    over = {"state": "failed", "nodes": [{"state": "ended"}]}
    result, _script = watch(make_reply(active=False, result=None, status=over))
    assert result["contact_lost"] and result["result"] is None


def test_node_other_than_rank_0_has_no_result_and_is_not_lost(watch: Watch) -> None:
    result, _script = watch(make_reply(active=False, result=None, status={"state": "failed"}))
    assert not result["contact_lost"] and result["result"] is None


# --- Node messages ----------------------------------------------------------------------------------------------------


def poll_once(monkeypatch: pytest.MonkeyPatch, reply: dict[str, Any]) -> dict[str, Any]:
    monkeypatch.setattr(training_watch, "call_node", lambda *_arguments: reply)
    return ActionModule.__new__(ActionModule).poll({}, {})


def test_valid_updates_are_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert poll_once(monkeypatch, make_reply("step 1\n", "go")) == make_reply("step 1\n", "go")


@pytest.mark.parametrize(
    "more",
    [
        {"status": {"state": 1}},
        {"status": []},
        {"events": [{"text": 1}]},
        {"events": ["go"]},
        {"seconds_since_output": "long"},
        {"outputs": []},
        {"status": {"state": "running", "started": float("nan")}},
    ],
    ids=str,
)
def test_invalid_updates_count_as_silence(monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    with pytest.raises(AnsibleConnectionFailure, match="the node sent an invalid reply"):
        poll_once(monkeypatch, make_reply(**more))


def test_invalid_result_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert poll_once(monkeypatch, make_reply(active=False, result={"state": "succeeded"}))["result"] is None


def test_newest_reported_values_are_kept() -> None:
    reported: dict[str, Any] = {}
    for step in range(2 * MAX_REPORTED):
        keep_report(reported, {"loss": step, f"loss_{step}": step})
    oldest, newest = MAX_REPORTED + 1, 2 * MAX_REPORTED - 1
    assert list(reported) == [*(f"loss_{step}" for step in range(oldest, newest)), "loss", f"loss_{newest}"]

"""Rendering of a node's replies for ./muster logs --attempt, and headings of attempts in ./muster logs."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.action import attempt_output
from ansible_collections.muster.training.plugins.action.attempt_output import ActionModule
from ansible_collections.muster.training.plugins.action.training_watch import AttemptHeadings, order_pieces

REQUEST = {"node": "gpu1", "attempt": 1, "rank": 3, "control_sequences": False}


def output(text: str, active: bool = False, **more: Any) -> dict[str, Any]:
    fields = {"active": active, "outputs": {"/r/node1/attempt-1/launcher.log": text}, "left_out": {}, "cursors": {}}
    return {"ranks": [2, 3], "newest": 1, **fields, **more}


def show_replies(capsys: pytest.CaptureFixture[str], *replies: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the result and the printed lines for these replies of a node."""
    remaining = list(replies)
    module = ActionModule.__new__(ActionModule)
    result = module.show(dict(REQUEST), lambda _request: remaining.pop(0))
    assert not remaining
    return result, capsys.readouterr().out.splitlines()


def test_output_of_an_attempt_has_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    result, lines = show_replies(capsys, output('a\nMUSTER_RESULT {"b": 1}\n', active=True), output("c\x1b[2J\n"))
    assert lines == ["[muster] attempt 1, rank 3, on gpu1:", "a", "c"]
    assert result == {"changed": False, "has_rank": True, "newest": 1}


def test_other_nodes_show_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    result, lines = show_replies(capsys, {"ranks": [], "newest": 0})
    assert (result["has_rank"], result["newest"], lines) == (False, 0, [])


def test_skipped_output_names_the_whole_log(capsys: pytest.CaptureFixture[str]) -> None:
    _result, lines = show_replies(capsys, output("end\n", left_out={"/r/x.log": 3_000_000}))
    assert lines[1:] == ["[muster] 3 MB of output skipped; full log: gpu1:/r/x.log", "end"]


@pytest.mark.parametrize("more", [{"outputs": 1}, {"newest": "x"}, {"ranks": ["x"]}, {"ranks": 5}, {"active": None}])
def test_invalid_reply_is_refused(monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]) -> None:
    monkeypatch.setattr(attempt_output, "call_node", lambda *_arguments: output("x\n", **more))
    with pytest.raises(AnsibleActionFail, match="gpu1 sent an invalid reply"):
        ActionModule.__new__(ActionModule).ask({}, dict(REQUEST))


# - headings

RESTARTS: list[dict[str, Any]] = [
    {"event": "go", "text": "all nodes have checked in"},
    {"event": "failure", "text": "gpu2 is lost"},
    {"event": "attempt", "text": "attempt 1 starts: gpu2 was lost", "attempt": 1},
    {"event": "go", "text": "all nodes have checked in again"},
    {"event": "attempt", "text": "attempt 2 starts: gpu3 was lost", "attempt": 2},
    {"event": "end", "text": "over"},
]


def logs(*attempts: int) -> dict[str, str]:
    """Return the output of attempts by log."""
    names = {number: f"attempt-{number}/" if number else "" for number in attempts}
    return {f"/runs/r/node0/{name}ranks/x/attempt_0/0/stdout.log": f"output {number}" for number, name in names.items()}


def pieces(events: list[dict[str, Any]], outputs: dict[str, str], **more: Any) -> list[str]:
    reply = {"events": [dict(event) for event in events], "outputs": outputs, "left_out": {}, **more}
    return [piece.text for piece in AttemptHeadings().add(order_pieces(reply, "gpu1"))]


def test_ended_run_is_shown_attempt_by_attempt() -> None:
    assert pieces(RESTARTS, logs(0, 1, 2)) == [
        *("all nodes have checked in", "output 0", "gpu2 is lost"),
        *("attempt 1 starts: gpu2 was lost", "all nodes have checked in again", "output 1"),
        *("attempt 2 starts: gpu3 was lost", "output 2", "over"),
    ]


def test_output_without_the_event_of_its_attempt_has_a_heading() -> None:
    """Only the node that leads the run has the events, and a long log arrives in several replies."""
    assert pieces([], logs(0, 1, 2)) == [
        *("output 0", "output of attempt 1:", "output 1", "output of attempt 2:", "output 2")
    ]
    assert pieces([], logs(0)) == ["output 0"], "a run that never restarted needs none"


def test_long_log_of_an_earlier_attempt_has_a_heading_when_it_continues() -> None:
    headings = AttemptHeadings()
    first = {"events": [dict(event) for event in RESTARTS], "outputs": logs(0), "left_out": {}}
    assert [piece.text for piece in headings.add(order_pieces(first, "gpu1"))].count("output 0") == 1
    second = {"events": [], "outputs": logs(0, 1), "left_out": {}}
    texts = [piece.text for piece in headings.add(order_pieces(second, "gpu1"))]
    assert texts == ["output of attempt 0:", "output 0", "output of attempt 1:", "output 1"]


@pytest.mark.parametrize("attempt", [None, "1", -1, 10**9, True])
def test_event_with_an_invalid_attempt_is_treated_like_any_other_event(attempt: Any) -> None:
    events = [{"event": "attempt", "text": "attempt", "attempt": attempt}]
    assert sorted(pieces(events, logs(0))) == ["attempt", "output 0"]

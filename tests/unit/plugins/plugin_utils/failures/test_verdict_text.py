"""The verdict on a terminal."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._failures.explanation import Explanation
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import verdict_from_hub
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import (
    render_last_lines,
    render_verdict,
)
from tests.unit.plugins.plugin_utils.failures.results import CLOSED, TERMINATED, rank, report, result


def test_gpu_failures_are_reported_in_addition_to_the_cause() -> None:
    failed = report(1, rank(0, 1, "RuntimeError: CUDA error"), gpus="GPU is lost.")
    text = render_verdict(verdict_from_hub({}, result(failed, first="node0")), "", {})
    assert "node0 (node_rank 0), rank 0: RuntimeError: CUDA error" in text
    assert (
        "on node0 the GPUs failed during the run: GPU is lost.; look for 'NVRM: Xid' in the output of sudo dmesg there"
        in text
    )


def test_interrupted_run_is_explained_with_the_command_to_continue() -> None:
    run_result = result(
        report(0, rank(0, 0)), report(TERMINATED, rank(1, None)), state="interrupted", reason="b: taken away"
    )
    output = render_verdict(verdict_from_hub({}, {**run_result, "run_id": "first"}), "/r", {})
    assert output.startswith("run first interrupted")
    assert "\n  reason: b: taken away\n" in output
    assert "exit code 0 does not mean that the job is complete" in output
    assert "to continue, run ansible-playbook report.yml -e run_id=first to see the command" in output


def test_cost_is_reported_only_if_all_prices_are_known() -> None:
    run_result = {**result(report(0, rank(0, 0)), state="succeeded", reason=""), "started": 1000.0, "ended": 1600.0}
    prices = [{"price_per_hour": 2.52}, {"price_per_hour": 2.52}]
    verdict = verdict_from_hub({"nodes": prices, "currency": "EUR"}, run_result)
    assert (verdict["cost"], verdict["currency"]) == (pytest.approx(0.84), "EUR")
    assert "\n  cost: 0.84 EUR\n" in render_verdict(verdict, "/r", {"accuracy": 0.9})
    verdict = verdict_from_hub({"nodes": [prices[0], {"price_per_hour": None}]}, run_result)
    assert (verdict["cost"], verdict["currency"]) == (None, "USD")
    of_a_former_version = {key: value for key, value in verdict.items() if key not in ("cost", "currency")}
    assert "cost" not in render_verdict(verdict, "", {}) + render_verdict(of_a_former_version, "", {})


def test_failure_message_names_node_rank_error_and_log() -> None:
    run_result = result(
        report(1, rank(0, 1, CLOSED)),
        report(
            1,
            rank(2, 1, "ValueError: boom"),
            stuck=[4711],
            mounts={"/data": "Transport endpoint is not connected"},
            container="Cannot connect; remove it there with: docker rm --force muster-first-node1",
            unwritten="No space left on device",
        ),
        first="node0",
    )
    text = render_verdict(verdict_from_hub({}, run_result), "/runs/first/result.json", {})
    assert text == (
        "run first failed after 0:01:15: 2 nodes, world size 4\n"
        "  failed first: node node1 (node_rank 1), rank 2: ValueError: boom\n"
        "  cause:        unknown; the last lines of its log may show it\n"
        "  consequences: 1 other rank waited for it in vain or lost the connection to it\n"
        "  its log:      node1:/run/2.log\n  read it with: ansible-playbook logs.yml -e run_id=first -e rank=2\n"
        "  the run ended because why\n"
        "  on node1 these processes survive even SIGKILL: 4711; the node needs a reboot\n"
        "  on node1 the container may still exist and hold GPUs: Cannot connect; remove it there with: docker rm "
        "--force muster-first-node1\n"
        "  on node1 writing to the run's directory failed at times: No space left on device; free up space in "
        "/home/u/node1, or set launch_node_directory to another directory\n"
        "  on node1 the mount /data died during the run: Transport endpoint is not connected; check that its server is "
        "up, then mount it again (site.yml)\n"
        "  record: /runs/first/result.json"
    )


@pytest.mark.parametrize("evidence", ["", "Duplicate\x1b[2J GPU detected"])
def test_known_failure_is_explained_with_cause_and_remedy(evidence: str) -> None:
    explanation: Explanation = {
        "id": "nccl-duplicate-gpu",
        "cause": "Two on one.",
        "remedy": "one each",
        "evidence": evidence,
        "confidence": "log" if evidence else "error",
    }
    verdict = verdict_from_hub({}, result(report(1, rank(0, 1, "DistBackendError: NCCL error"))))
    lines = render_verdict(verdict, "", {}, explanation).splitlines()
    assert lines[1:-1] == [
        "  failed first: node node0 (node_rank 0), rank 0: DistBackendError: NCCL error",
        *(
            ["  possibly:     Two on one.", "  because its log says: Duplicate GPU detected"]
            if evidence
            else ["  cause:        Two on one."]
        ),
        "  what to do:   one each",
        "  its log:      node0:/run/0.log",
        "  read it with: ansible-playbook logs.yml -e run_id=first -e rank=0",
    ]


def failed_on(node_rank: int, lines: list[str], **more: Any) -> dict[str, Any]:
    """Return the verdict on a run of two nodes in which the first rank of the first or second node has failed."""
    document = {"last_log": f"/run/{2 * node_rank}.log", "last_lines": "\n".join(lines), **more}
    reports = [report(TERMINATED), report(TERMINATED)]
    reports[node_rank] = report(1, {**rank(2 * node_rank, 1, "ValueError: boom"), "local_rank": 0}, **document)
    return verdict_from_hub({}, result(*reports))


def test_last_lines_of_the_failed_rank_are_shown_once() -> None:
    lines = ["Traceback:", "\x1b[31mValueError: boom"]
    expected = "the last lines of rank 2 on node1:\n    Traceback:\n    ValueError: boom"
    assert [render_last_lines(failed_on(1, lines), watched) for watched in ((0, 0), None)] == [expected, expected]
    first = "the last lines of rank 0 on node0:\n    Traceback:"
    assert [render_last_lines(failed_on(0, lines[:1]), watched) for watched in ((0, 0), None)] == ["", first]
    assert render_last_lines(failed_on(1, lines), (1, 0)) == "", "who follows that rank has just seen them"
    assert render_last_lines(failed_on(1, []), None) == ""
    assert render_last_lines(failed_on(1, lines, last_log="/run/3.log"), None) == "", "another rank's"
    assert render_last_lines(verdict_from_hub({}, result(report(0), state="succeeded")), None) == ""


def test_unknown_cause_is_not_mentioned_below_the_traceback_that_shows_it() -> None:
    traceback = ["Traceback (most recent call last):", '  File "train.py", line 3, in <module>', "ValueError: boom"]
    for lines, expected in ((traceback, False), (["ValueError: boom"], True), (traceback[:2], True), ([], True)):
        text = render_verdict(failed_on(1, lines), "", {})
        assert ("cause:        unknown" in text) == expected, lines


def test_overlong_last_lines_of_a_node_are_cut() -> None:
    failure = failed_on(1, [str(n) * 1000 for n in range(100, 300)])["first_failure"]
    assert [line[:3] for line in failure["last_lines"]] == [str(n) for n in range(180, 300)]
    assert {len(line) for line in failure["last_lines"]} == {500}


def test_job_output_cannot_move_the_cursor_or_forge_lines() -> None:
    verdict = verdict_from_hub({}, result(report(1, rank(0, 1, "ValueError: \x1b[2J\r\n  record: /etc/shadow"))))
    text = render_verdict(verdict, "", {"accuracy": "\x1b]0;owned\x07\n  record: /etc/passwd"})
    assert all(line.isprintable() for line in text.splitlines())
    assert not [line for line in text.splitlines() if line.startswith("  record:")]


def test_succeeded_run_shows_the_results_of_the_job() -> None:
    verdict = verdict_from_hub({}, result(report(0, rank(0, 0)), state="succeeded", reason=""))
    document = {"accuracy": 0.97777, "samples_per_second": 7675.6, "steps": 460, "checkpoint": "/x.pt"}
    assert render_verdict(verdict, "/r.json", document) == (
        "run first succeeded after 0:01:15: 1 node, world size 2\n"
        "  accuracy: 0.9778\n"
        "  samples per second: 7676\n"
        "  steps: 460\n"
        "  checkpoint: /x.pt\n"
        "  logs: node0:/home/u/node0\n"
        "  record: /r.json"
    )


def test_a_stopped_run_gives_the_reason() -> None:
    verdict = verdict_from_hub(
        {}, result(report(TERMINATED), state="stopped", reason="stopped on request on node0 (SIGTERM)")
    )
    assert "  reason: stopped on request on node0 (SIGTERM)\n" in render_verdict(verdict, "/r.json", {})


def test_elastic_run_shows_which_nodes_it_lost() -> None:
    verdict = verdict_from_hub({}, result(report(0, rank(0, 0)), None, state="succeeded", reason=""))
    assert "  lost during the run: node1\n" in render_verdict(verdict, "/r.json", {})


def test_overlong_error_is_shortened_to_a_readable_line() -> None:
    command = "RuntimeError: Error building extension 'fused_adam': [1/3] c++ " + "-isystem /include " * 200
    failed = report(1, rank(0, 1, command), last_lines="x")
    text = render_verdict(verdict_from_hub({}, result(failed, first="node0", reason=command)), "", {})
    for line in text.splitlines():
        assert len(line) < 400, line
    assert "rank 0: RuntimeError: Error building extension 'fused_adam': [1/3] c++ -isystem" in text


HOSTILE = "\x1b]52;c;ZXZpbA==\x07 \x1b[2Jx\nfake line"


def test_texts_that_a_job_wrote_cannot_control_the_terminal_or_add_lines() -> None:
    failed = report(1, rank(0, 1, f"ValueError: {HOSTILE}"), gpus=HOSTILE, container=HOSTILE)
    failed |= {"mounts": {f"/m{HOSTILE}": HOSTILE}, "unwritten": HOSTILE, "shortened": HOSTILE}
    run_result = result(failed, first="node0")
    run_result["nodes"][0]["launcher_log"] = HOSTILE
    verdict = verdict_from_hub({}, {**run_result, "reason": HOSTILE})
    verdict["first_failure"]["log"] = f"/r/{HOSTILE}"
    for state in ("failed", "stopped"):
        first_failure = verdict["first_failure"] if state == "failed" else None
        text = render_verdict({**verdict, "first_failure": first_failure}, HOSTILE, {HOSTILE: HOSTILE})
        assert not [line for line in text.split("\n") if line.startswith("fake") or not line.isprintable()], text


def test_newest_reported_values_are_shown_and_the_others_counted() -> None:
    verdict = verdict_from_hub({}, result(report(0, rank(0, 0)), state="succeeded", reason=""))
    lines = render_verdict(verdict, "", {f"loss_{step}": 0.5 for step in range(1000)}).split("\n")
    assert lines[1:3] == ["  950 other reported values are not shown", "  loss 950: 0.5"]
    assert lines[51] == "  loss 999: 0.5" and not any("loss" in line for line in lines[52:])
    (line,) = [line for line in render_verdict(verdict, "", {"text": "x" * 60000}).split("\n") if "text" in line]
    assert len(line) < 310 and line.endswith(" …")

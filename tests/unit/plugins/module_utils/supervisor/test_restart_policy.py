"""The decision whether a run restarts, and on which nodes, without processes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_report
from ansible_collections.muster.training.plugins.module_utils._supervisor.attempts import Attempts, End, is_usable
from ansible_collections.muster.training.plugins.module_utils._supervisor.node_views import initial_views
from ansible_collections.muster.training.plugins.module_utils._supervisor.restart_policy import (
    assign,
    classify_end,
    decide,
    format_seconds,
)

POLICY: Any = {
    "restarts": 3,
    "when": ["node_lost", "hardware"],
    "min_nodes": 2,
    "spares": 0,
    "slots": [1, 1, 1],
    "master_port": 29500,
    "sorted": False,
    "counts_progress": False,
    "fields": {},
    "hostfile_lines": {},
}


def policy_with(**changes: Any) -> Any:
    return {**POLICY, **changes}


def report(code: int | None = 1, error: str = "", **fields: Any) -> Any:
    rank = {"rank": 0, "local_rank": 0, "exit_code": code, "error": error, "log": "/log"}
    return validate_report({"exit_code": 1, "ranks": [rank], **fields})


def views(*reports: Any) -> list[Any]:
    """Return nodes a, b, c ... with these reports; "lost" stands for a lost node."""
    nodes = initial_views(["a", "b", "c", "d"][: len(reports)], "/log")
    for node, given_report in zip(nodes, reports, strict=True):
        lost = given_report == "lost"
        node["state"], node["report"] = ("lost", None) if lost else ("ended", given_report)
    return nodes


@pytest.mark.parametrize(
    ("first", "end_class"),
    [
        (report(-9), "rank_failed"),
        (report(-9, launcher_error="subprocess.CalledProcessError: died with <Signals.SIGKILL: 9>"), "rank_failed"),
        (report(3, "ended with exit code 3, its last output: bye"), "rank_failed"),
        (report(1, "RuntimeError: Connection closed by peer [10.0.0.2]:3333"), "rank_failed"),
        (report(1, "ValueError: boom"), "deterministic"),
        (report(1, "ModuleNotFoundError: No module named 'x'"), "deterministic"),
        (report(1, "torch.OutOfMemoryError: CUDA out of memory"), "deterministic"),
        (report(1, "FileNotFoundError: [Errno 2] No such file or directory"), "deterministic"),
        (report(-9, oom_kills=1), "deterministic"),
        (report(127), "deterministic"),
        (report(1, "RuntimeError: CUDA error: uncorrectable ECC error encountered"), "hardware"),
        (report(1, "RuntimeError: boom", gpus="GPU 3: GPU is lost"), "hardware"),
        (report(-15, shutdown=True), "node_lost"),
        ("lost", "node_lost"),
    ],
)
def test_class_of_an_attempts_end_follows_from_the_node_that_failed_first(first: Any, end_class: str) -> None:
    assert classify_end("b", views(report(0), first)) == end_class


def test_error_about_a_peer_is_not_the_cause_when_a_node_was_lost() -> None:
    nodes = views(report(1, "RuntimeError: Connection reset by peer"), "lost")
    assert classify_end("a", nodes) == "node_lost"
    assert classify_end("a", views(report(1, "ValueError: boom"), "lost")) == "deterministic"


def ended(*classes: str, checkpoints: tuple[str, ...] = ()) -> list[Any]:
    return [
        {"number": number, "end_class": end_class, "checkpoint": checkpoints[number] if checkpoints else ""}
        for number, end_class in enumerate(classes)
    ]


@pytest.mark.parametrize("end_class", ["stopped", "succeeded", "not_started", "deterministic", "rank_failed", "hang"])
def test_only_configured_classes_of_ends_cause_a_restart(end_class: str) -> None:
    assert not decide(POLICY, ended(end_class)).restart
    assert decide(policy_with(when=["hang"]), ended("hang")).restart


def test_run_stopped_by_the_user_never_restarts_even_if_listed() -> None:
    assert not decide(policy_with(when=["stopped", "succeeded", "not_started"]), ended("stopped")).restart


def test_restarts_are_counted() -> None:
    assert decide(POLICY, ended(*["node_lost"] * 3)).restart
    decision = decide(POLICY, ended(*["node_lost"] * 4))
    assert not decision.restart and not decision.final and "all 3 restarts are used up" in decision.why


def test_three_attempts_without_a_newer_checkpoint_end_the_run_for_good() -> None:
    policy = policy_with(counts_progress=True, restarts=9)
    losses = ["node_lost"] * 4
    assert decide(policy, ended(*losses, checkpoints=("1", "1", "1", "2"))).restart
    assert decide(policy, ended(*losses, checkpoints=("1", "2", "2", "2"))).restart, "the second attempt wrote one"
    assert decide(policy, ended(*losses[:3], checkpoints=("2", "2", "2"))).restart, "the first attempt wrote one"
    assert not decide(policy, ended(*losses[:3], checkpoints=("2", "2", "2")), initial="2").restart
    decision = decide(policy, ended(*losses, checkpoints=("2", "2", "2", "2")))
    assert not decision.restart and decision.final
    assert decide(policy_with(restarts=9), ended(*losses)).restart, "nobody looks for checkpoints"


@pytest.mark.parametrize(
    ("previous", "usable", "size", "expected"),
    [
        ([0, 1, 2], [0, 1, 2], 3, [0, 1, 2]),
        ([0, 1, 2], [0, 2], 3, [0, 2]),
        ([0, 1, 2], [0, 2, 3], 3, [0, 3, 2]),
        ([0, 2], [0, 1, 2], 3, [0, 2, 1]),
        ([0, 1, 2], [0, 2, 3, 4], 3, [0, 3, 2]),
        ([0, 1, 2], [0], 3, []),
    ],
)
def test_spare_takes_over_the_rank_of_a_lost_node(
    previous: list[int], usable: list[int], size: int, expected: list[int]
) -> None:
    assert assign(previous, usable, POLICY, size) == expected
    assert assign(previous, usable, {**POLICY, "sorted": True}, size) == sorted(expected)


@given(st.sets(st.integers(1, 7)), st.sets(st.integers(1, 7)), st.integers(1, 8))
def test_assignment_has_each_usable_node_at_most_once(previous: set[int], usable: set[int], size: int) -> None:
    members = assign([0, *sorted(previous)], [0, *sorted(usable)], {**POLICY, "min_nodes": 1}, size)
    assert len(set(members)) == len(members) and set(members) <= {0, *usable} and members[0] == 0
    assert len(members) <= max(size, len(previous) + 1)


@pytest.mark.parametrize("fields", [{"stuck": [77]}, {"shutdown": True}, {"container": "it may still exist"}])
def test_node_with_leftover_processes_is_not_used_again(fields: dict[str, Any]) -> None:
    (node,) = views(report(-9))
    assert is_usable(node)
    node["report"] = report(-9, **fields)
    assert not is_usable(node)


def attempts_of(policy: Any) -> Attempts:
    plan: Any = {
        "restart": policy,
        "nodes": [{"name": name} for name in "abc"],
        "lifeline": {"address": "127.0.0.1", "port": 29499},
    }
    return Attempts(plan)


def test_node_with_a_broken_gpu_is_excluded() -> None:
    attempts = attempts_of(POLICY)
    nodes = views(report(0), report(1, "RuntimeError: CUDA error: uncorrectable ECC error"), report(-15))
    attempts.record_end(End("rank 1 failed", "b", "", True, False), nodes)
    attempt = attempts.next([0, 1, 2], nodes, 0.0)
    assert attempt is not None and attempt["members"] == [0, 2]
    assert "attempt 1 starts: rank 1 failed after 0 s; 2 of 3 nodes" in attempts.describe_next(attempt, ["a", "b", "c"])


def test_run_waits_for_a_silent_node() -> None:
    attempts = attempts_of(POLICY)
    nodes = views(report(-15), "lost", report(-15))
    nodes[1]["return_by"] = 100.0
    attempts.record_end(End("b is lost", "b", "", True, False), nodes)
    assert attempts.next([0, 2], nodes, 99.0) is None and attempts.waiting == "b may return within 15 s"
    attempt = attempts.next([0, 2], nodes, 101.0)
    assert attempt is not None and attempt["members"] == [0, 2] and not attempts.waiting


def test_run_that_ends_for_lack_of_progress_has_a_separate_exit_code() -> None:
    attempts = attempts_of(policy_with(counts_progress=True))
    nodes = views("lost", report(-15), report(-15))
    for number in range(3):
        attempts.current["number"] = number
        attempts.record_end(End("a is lost", "a", "", True, False), nodes)
    assert attempts.next([0, 1, 2], nodes, 0.0) is None
    assert attempts.exit_code == 93 and "3 attempts ended without a newer checkpoint" in attempts.refused


def test_class_reported_to_the_hub_is_used() -> None:
    attempts = attempts_of({**POLICY, "when": ["hang"]})
    nodes = views(report(-15), report(-15), report(-15))
    attempts.record_end(End("no progress for 10 min", "b", "hang", True, False), nodes)
    attempt = attempts.next([0, 1, 2], nodes, 0.0)
    assert attempt is not None and attempt["members"] == [0, 1, 2]


@pytest.mark.parametrize(("seconds", "text"), [(8.4, "8 s"), (99.0, "99 s"), (727.0, "12 min"), (12600.0, "3.5 h")])
def test_durations_are_formatted_briefly(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Concurrent calls to several nodes from one process: results, errors and limits."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail, AnsibleAuthenticationFailure, AnsibleConnectionFailure

from ansible_collections.muster.training.plugins.plugin_utils._node_call.all_nodes import (
    is_failure,
    raise_error,
    run_in_threads,
)
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import NodeRequestError

ERRORS: list[tuple[Exception, type[Exception]]] = [
    (AnsibleConnectionFailure("no route"), AnsibleConnectionFailure),
    (AnsibleAuthenticationFailure("wrong password"), AnsibleConnectionFailure),
    (NodeRequestError("node1: there is no run"), AnsibleActionFail),
    (AnsibleActionFail("node1: no Python"), AnsibleActionFail),
]


def raising(error: Exception) -> Any:
    def call() -> dict[str, Any]:
        raise error

    return call


@pytest.mark.parametrize(("error", "kind"), ERRORS, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_error_of_a_node_is_kept_and_raised_again(error: Exception, kind: type[Exception]) -> None:
    results = run_in_threads({"a": lambda: {"changed": True}, "b": raising(error)}, 2)
    assert results["a"] == {"changed": True} and not is_failure(results["a"])
    assert is_failure(results["b"])
    raise_error(results["a"])
    with pytest.raises(kind) as raised:
        raise_error(results["b"])
    assert raised.type is kind
    assert str(raised.value) == str(error)


def test_unexpected_error_of_a_node_does_not_lose_the_results_of_others() -> None:
    results = run_in_threads({"a": raising(KeyError("size")), "b": lambda: {"started": True}}, 1)
    assert results == {
        "a": {"error": "Unexpected failure: KeyError: 'size'", "unreachable": False},
        "b": {"started": True},
    }


def test_failed_result_is_a_failure() -> None:
    assert is_failure({"failed": True, "msg": "no Python"})
    assert not is_failure({"facts": None, "msg": "unreachable"})


def test_calls_run_concurrently_up_to_the_limit_in_the_tasks_context() -> None:
    task: contextvars.ContextVar[str] = contextvars.ContextVar("task")
    task.set("this task")
    both_run, running, most = threading.Barrier(2, timeout=60), threading.Semaphore(2), []

    def call() -> dict[str, Any]:
        most.append(running.acquire(blocking=False))
        both_run.wait()
        running.release()
        return {"task": task.get()}

    names = [f"node{number}" for number in range(6)]
    assert run_in_threads(dict.fromkeys(names, call), 2) == dict.fromkeys(names, {"task": "this task"})
    assert all(most)

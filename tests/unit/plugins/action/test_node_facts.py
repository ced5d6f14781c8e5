"""Timeouts of nodes that wait for their peers, which Ansible contacts in batches if there are few forks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.action.node_facts import has_import_test, probe_lifetime

JOB: dict[str, Any] = {"import_test": True, "module": "", "no_python": False}


@pytest.mark.parametrize(
    ("nodes", "forks", "seconds"),
    [(2, 16, 30), (4, 16, 31), (4, 5, 31), (6, 5, 46), (4, 1, 76), (8, 5, 47), (64, 5, 226), (64, 64, 46), (1, 0, 30)],
)
def test_node_waits_longer_for_peers_with_more_nodes_per_fork(nodes: int, forks: int, seconds: int) -> None:
    assert probe_lifetime(nodes, forks) == seconds


@pytest.mark.parametrize(("nodes", "forks"), [*itertools.product((2, 5, 6, 16, 64, 200), (1, 4, 5, 16, 50))])
def test_first_node_still_waits_when_last_node_starts(nodes: int, forks: int) -> None:
    """Each call takes 12 s: to log in, and for an nvidia-smi without persistence."""
    last = (nodes - 1) // forks * 12
    assert probe_lifetime(nodes, forks) > last + 12


@pytest.mark.parametrize(
    ("request_", "seconds"),
    [
        ({"script": "train.py", "job": JOB}, 256),
        ({"script": "", "job": {**JOB, "module": "train"}}, 256),
        ({"script": "", "job": JOB}, 76),
        ({"script": "a.out", "job": {**JOB, "no_python": True}}, 76),
        ({"script": "train.py", "job": {**JOB, "import_test": False}}, 76),
        ({"script": "train.py", "job": None}, 76),
    ],
)
def test_peers_are_awaited_for_the_longest_import_time(request_: dict[str, Any], seconds: int) -> None:
    assert probe_lifetime(4, 1, has_import_test(request_)) == seconds

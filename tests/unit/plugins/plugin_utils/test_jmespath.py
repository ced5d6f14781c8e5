# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMESPath queries, and the errors for invalid ones."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._jmespath import QueryError, run_query

STATUS = {"nodes": [{"node": "a", "state": "running", "since": 7.0}, {"node": "b", "state": "failed", "since": None}]}


@pytest.mark.parametrize(
    ("query", "result"),
    [
        ("nodes[?state!='running'].node", ["b"]),
        ("nodes[].{name: node, state: state} | [0]", {"name": "a", "state": "running"}),
        ("max_by(nodes[?since], &since).node", "a"),
        ("nobody", None),
    ],
)
def test_query_returns_expected_value(query: str, result: Any) -> None:
    assert run_query(query, STATUS) == result


@pytest.mark.parametrize(
    ("query", "expected_text"),
    [
        ("nodes[?state=='running'", "is invalid at its end, where something is missing"),
        ("nodes]", "is invalid at character 6, at ']'"),
        ("nodes[0].#", "is invalid at character 10, at '#'"),
        ("nodes[?state=running]", "is invalid at character 13, at '=running]'"),
        ("  ", "is empty. Example: nodes[].node"),
        ("summ(nodes)", "cannot be evaluated: Unknown function: summ()"),
        ("length(nodes, nodes)", "cannot be evaluated: Expected 1 argument"),
        ("sum(nodes[].node)", "cannot be evaluated: In function sum(), invalid type"),
        ("(" * 5000, "nested too deeply"),
    ],
)
def test_invalid_query_gives_one_line_error_with_the_cause(query: str, expected_text: str) -> None:
    with pytest.raises(QueryError) as wrong:
        run_query(query, STATUS)
    assert expected_text in str(wrong.value)
    assert "\n" not in str(wrong.value)


@given(st.text(max_size=30))
def test_any_query_text_gives_a_result_or_a_one_line_error(query: str) -> None:
    try:
        run_query(query, STATUS)
    except QueryError as wrong:
        assert str(wrong).isprintable()


def test_missing_jmespath_error_names_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jmespath", None)
    with pytest.raises(QueryError, match="-m pip install jmespath"):
        run_query("nodes", STATUS)

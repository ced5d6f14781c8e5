# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Code that differs is a finding, with why it was left; what a launch is going to bring is taken to be there."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._findings import Finding
from tests.unit.healthy import Facts, cluster, findings

HERE = {"source": "/me/project", "problem": "", "requirements": "requirements.txt", "required": "new"}


def part(**more: Any) -> Facts:
    plain = {"path": "/home/ubuntu", "same": True, "counts": {}, "names": {}, "script": True, "required": None}
    return {**plain, **more}


OLDER = part(same=False, counts={"older": 1, "missing": 5}, names={"older": ["train.py"], "missing": ["a", "b", "c"]})


def found(parts: dict[str, Facts], spoil: Any = None, code: Any = None, **given: Any) -> list[Finding]:
    read = copy.deepcopy(cluster(3))
    for name, one in parts.items():
        read[name]["code"] = one
    if spoil:
        spoil(read)
    return findings(read, code={**HERE, **(code or {})}, **given)


def test_nothing_is_said_where_all_have_it() -> None:
    assert found({"node1": part(), "node2": part()}) == []
    assert found({}) == []


@pytest.mark.parametrize(
    ("left", "why", "todo"),
    [
        ("as_is", "left so by code: as_is", "remove that, and the launch copies it"),
        ("later", "left unchanged for now", "a launch copies it before the start"),
        ("refused", "left unchanged, because nothing can start", "the next launch that can start copies it"),
        ("", "and still does after copying", "code_ignore_existing"),
    ],
)
def test_what_differs_is_told_once_for_all_nodes(left: str, why: str, todo: str) -> None:
    (finding,) = found({"node1": OLDER, "node2": part(), "node3": OLDER}, code_left=left)
    assert (finding.severity, finding.id, finding.nodes) == ("warning", "code-older", ("node1", "node3"))
    assert finding.found == (
        f"the code in /home/ubuntu differs from /me/project, {why}: train.py is older there; "
        "a, b, c and 2 more are missing there"
    )
    assert todo in finding.todo


def missing(read: dict[str, Facts]) -> None:
    """No node has the code yet."""
    for one in read.values():
        one["working_directory"] |= {"is_directory": False}
        one["script"] |= {"is_file": False, "readable": False}
        one["deepspeed_config"] = {"path": "/home/ubuntu/ds.json", "config": None, "error": "there is no such file"}


@pytest.mark.parametrize("left", ["later", "refused"])
def test_what_a_launch_brings_is_not_missed_before(left: str) -> None:
    every = {f"node{number}": part(same=False) for number in (1, 2, 3)}
    assert [one.id for one in found(every, missing, code_left=left)] == ["code-older"]


def test_what_the_code_here_lacks_too_is_missed() -> None:
    every = {f"node{number}": part(same=False, script=False) for number in (1, 2, 3)}
    assert [one.id for one in found(every, missing, code_left="later")] == ["script-missing", "code-older"]


def test_with_code_as_is_the_script_is_missed() -> None:
    every = {f"node{number}": part(same=False) for number in (1, 2, 3)}
    assert "working-directory-missing" in [one.id for one in found(every, missing, code_left="as_is")]


def test_code_that_cannot_be_read_stops_a_launch_that_wants_it() -> None:
    problem = {"problem": "code_source is /me/project, which is not on this machine"}
    (finding,) = found({}, code=problem, code_left="later")
    assert (finding.severity, finding.id, finding.found) == ("error", "code-unread", problem["problem"])
    assert "-e code=as_is" in finding.todo
    assert found({}, code=problem, code_left="as_is") == []


def test_requirements_that_have_changed_since_are_told() -> None:
    parts = {"node1": part(required="old"), "node2": part(required=""), "node3": part(required="new")}
    told = {finding.nodes: finding for finding in found(parts)}
    assert {nodes: finding.found for nodes, finding in told.items()} == {
        ("node1",): "/me/project/requirements.txt has changed since it was installed there",
        ("node2",): "/me/project/requirements.txt was not installed there",
    }
    for finding in told.values():
        assert (finding.severity, finding.id) == ("warning", "requirements-changed")
        assert finding.todo == "ansible-playbook site.yml --tags python_env"


def test_requirements_are_no_matter_of_another_environment_or_an_image() -> None:
    assert found({"node1": part(required=None)}) == []
    assert "requirements-changed" not in {one.id for one in found({"node1": part(required="old")}, image="img")}
    assert found({"node1": part(required="old")}, code={"required": "", "requirements": ""}) == []

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Differing code is a finding with the reason for not copying it; files that a launch will copy count as present."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding
from ansible_collections.muster.training.plugins.plugin_utils._project.local_code import pack
from tests.unit.healthy import Facts, cluster, findings

HERE = {"source": "/me/project", "problem": "", "requirements": "requirements.txt", "required": "new"}


def part(**more: Any) -> Facts:
    plain = {"path": "/home/ubuntu", "same": True, "counts": {}, "names": {}, "script": True}
    return {**plain, "required": None, "required_by": "", **more}


OLDER = part(same=False, counts={"older": 1, "missing": 5}, names={"older": ["train.py"], "missing": ["a", "b", "c"]})


def code_findings(parts: dict[str, Facts], spoil: Any = None, code: Any = None, **options: Any) -> list[Finding]:
    read = copy.deepcopy(cluster(3))
    for name, item in parts.items():
        read[name]["code"] = item
    if spoil:
        spoil(read)
    return findings(read, code={**HERE, **(code or {})}, **options)


def test_same_code_on_all_nodes_gives_no_finding() -> None:
    assert code_findings({"node1": part(), "node2": part()}) == []
    assert code_findings({}) == []


@pytest.mark.parametrize(
    ("skip_reason", "reason", "todo"),
    [
        ("as_is", "not copied because code is as_is", "remove code: as_is to have the launch copy it"),
        ("later", "not copied yet", "a launch copies it before it starts"),
        ("refused", "not copied because the run cannot start", "the next launch that can start copies it"),
        ("", "even after copying", "code_ignore_existing"),
    ],
)
def test_differing_code_is_one_finding_for_all_nodes(skip_reason: str, reason: str, todo: str) -> None:
    (finding,) = code_findings({"node1": OLDER, "node2": part(), "node3": OLDER}, code_skip_reason=skip_reason)
    assert (finding.severity, finding.id, finding.nodes) == ("warning", "code-older", ("node1", "node3"))
    assert finding.problem == (
        f"the code in /home/ubuntu differs from /me/project, {reason}: train.py is older on the node; "
        "a, b, c and 2 more are missing on the node"
    )
    assert todo in finding.remedy


def missing(read: dict[str, Facts]) -> None:
    """Remove the code from all nodes."""
    for item in read.values():
        item["working_directory"] |= {"is_directory": False}
        item["script"] |= {"is_file": False, "readable": False}
        item["deepspeed_config"] = {"path": "/home/ubuntu/ds.json", "config": None, "error": "there is no such file"}


@pytest.mark.parametrize("skip_reason", ["later", "refused"])
def test_files_that_the_launch_will_copy_are_not_reported_missing(skip_reason: str) -> None:
    every = {f"node{number}": part(same=False) for number in (1, 2, 3)}
    assert [item.id for item in code_findings(every, missing, code_skip_reason=skip_reason)] == ["code-older"]


def test_script_that_is_also_missing_from_the_source_is_reported() -> None:
    every = {f"node{number}": part(same=False, script=False) for number in (1, 2, 3)}
    assert [item.id for item in code_findings(every, missing, code_skip_reason="later")] == [
        "script-missing",
        "code-older",
    ]


def without_script(*, script: str, directory: str = "/home/ubuntu", same: bool = True, **code: Any) -> Finding:
    """Return the finding for a script that neither the nodes nor the controller have."""

    def spoil(read: dict[str, Facts]) -> None:
        for item in read.values():
            item["script"] |= {"path": f"{directory}/{script}", "is_file": False, "readable": False}
            item["working_directory"] |= {"path": directory}

    every = {f"node{number}": part(same=same, script=False) for number in (1, 2, 3)}
    files: Any = {name: [1, 2, 0, ""] for name in ("train.py", "eval.py", "pkg/fit.py", "tain.yml", "mpi/hello.c")}
    listing = pack({**files, "tain/": None})
    result = code_findings(every, spoil, {"listing": listing, **code}, code_skip_reason="later", script=script)
    return next(finding for finding in result if finding.id == "script-missing")


@pytest.mark.parametrize(
    ("inputs", "remedy"),
    [
        ({"script": "tain.py"}, "did you mean train.py?"),
        ({"script": "fit.py"}, "did you mean pkg/fit.py?"),
        (
            {"script": "mpi/hello"},
            "compile mpi/hello.c (with mpicc for MPI), here or in `ansible-playbook shell.yml -e nodes=NODE`, and copy "
            "the program to /me/project: the launch copies it to all nodes",
        ),
        ({"script": "pgk/fit.py"}, "did you mean pkg/fit.py?"),
        ({"script": "fitt.py", "directory": "/home/ubuntu/pkg"}, "did you mean fit.py?"),
        ({"script": "other_name.py"}, "correct launch_script or launch_working_directory"),
        ({"script": "tain.py", "listing": ""}, "correct launch_script or launch_working_directory"),
        ({"script": "tain.py", "same": False}, "did you mean train.py?"),
    ],
)
def test_script_that_the_project_lacks_too_is_compared_with_its_files(inputs: dict[str, Any], remedy: str) -> None:
    finding = without_script(**inputs)
    path = f"{inputs.get('directory', '/home/ubuntu')}/{inputs['script']}".removeprefix("/home/ubuntu/")
    assert finding.problem == f"{path} is missing on the node, and also in /me/project"
    assert finding.remedy == remedy


def test_missing_working_directory_is_reported_with_code_as_is() -> None:
    every = {f"node{number}": part(same=False) for number in (1, 2, 3)}
    assert "working-directory-missing" in [item.id for item in code_findings(every, missing, code_skip_reason="as_is")]


def test_unreadable_code_source_is_an_error_unless_code_is_used_as_is() -> None:
    problem = {"problem": "code_source is /me/project, which does not exist on this machine"}
    (finding,) = code_findings({}, code=problem, code_skip_reason="later")
    assert (finding.severity, finding.id, finding.problem) == ("error", "code-unread", problem["problem"])
    assert "-e code=as_is" in finding.remedy
    assert code_findings({}, code=problem, code_skip_reason="as_is") == []


def test_requirements_changed_or_never_installed_are_reported() -> None:
    parts = {"node1": part(required="old"), "node2": part(required=""), "node3": part(required="new")}
    document = {finding.nodes: finding for finding in code_findings(parts)}
    assert {nodes: finding.problem for nodes, finding in document.items()} == {
        ("node1",): "/me/project/requirements.txt has changed since it was installed",
        ("node2",): "/me/project/requirements.txt was not installed",
    }
    for finding in document.values():
        assert (finding.severity, finding.id) == ("warning", "requirements-changed")
        assert finding.remedy == "ansible-playbook site.yml --tags pytorch,python_env"


def test_requirements_of_another_project_are_not_called_changed() -> None:
    (finding,) = code_findings({"node1": part(required="old", required_by="toy")})
    assert finding.problem == (
        "/me/project/requirements.txt was not installed; the environment on the node is that of toy"
    )


def test_requirements_are_ignored_for_other_environments_and_images() -> None:
    assert code_findings({"node1": part(required=None)}) == []
    assert "requirements-changed" not in {
        item.id for item in code_findings({"node1": part(required="old")}, image="img")
    }
    assert code_findings({"node1": part(required="old")}, interpreter="/opt/conda/bin/python") == []
    assert code_findings({"node1": part(required="old")}, code={"required": "", "requirements": ""}) == []

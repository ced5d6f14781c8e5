"""A project without an environment results in a single finding, regardless of the packages its job then lacks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.healthy import Facts, cluster, findings

NANO = "/opt/muster/envs/nanoGPT/env/bin/python:/opt/muster/env/bin/python:python3"
NO_PROJECT = "/opt/muster/env/bin/python:python3"
TOY = {"interpreter": "/opt/muster/envs/toy/env/bin/python", "torch": "2.7.0", "cuda": "12.8", "project": "toy"}


def fall_back(node: Facts) -> None:
    """Reduce a node to the system Python, without any of the packages that the job imports."""
    node["interpreter"] = "/usr/bin/python3"
    node["software"] |= {"python": "3.10.12", "packages": {}, "cuda": None}
    node["imports"]["failures"] = [
        {"file": "/home/ubuntu/train.py", "line": line, "statement": f"import {name}", "certain": True}
        | {"error": f"ModuleNotFoundError: No module named '{name}'"}
        for line, name in enumerate(("numpy", "torch"), 7)
    ]
    node["code"] = {"path": "/home/ubuntu", "same": True, "counts": {}, "names": {}, "script": True}
    node["code"] |= {"required": "", "required_by": "toy"}


def environment_findings(
    *names: str, interpreter: str = NANO, environments: Any = (), **options: Any
) -> list[tuple[str, ...]]:
    """Return the ID, nodes, problem and remedy of the findings if these of three nodes have no environment."""
    facts = cluster(3)
    for name, node in facts.items():
        node["interpreter"] = interpreter.split(":")[0]
        node["environments"] = list(environments)
        node["software"]["packages"]["deepspeed"] = "0.19.8"
        if name in names:
            fall_back(node)
    code = {"source": "/me/nanoGPT", "problem": "", "requirements": "job.yml", "required": "hash"}
    result = findings(facts, interpreter=interpreter, code=code, **options)
    return [(item.id, ",".join(item.nodes), item.problem, item.remedy) for item in result]


@pytest.mark.parametrize(
    ("names", "options", "problem", "remedy"),
    [
        (["node1", "node2", "node3"], {}, "nanoGPT has no Python environment yet", ""),
        (["node2"], {}, "nanoGPT has no Python environment yet", ""),
        (["node2"], {"launcher": "deepspeed"}, "nanoGPT has no Python environment yet", ""),
        (["node2"], {"launcher": "env"}, "nanoGPT has no Python environment yet", ""),
        (["node2"], {"interpreter": NO_PROJECT}, "there is no Python environment yet", ""),
        (
            ["node1", "node2", "node3"],
            {"environments": [TOY]},
            "nanoGPT has no Python environment yet",
            "; or use the environment of another project: -e python_env_name=toy",
        ),
    ],
)
def test_missing_project_environment_is_one_error_with_the_command_to_create_it(
    names: list[str], options: dict[str, Any], problem: str, remedy: str
) -> None:
    result = environment_findings(*names, **options)
    assert result == [
        ("environment-missing", ",".join(names), problem, f"create it: ansible-playbook site.yml{remedy}")
    ]


def test_job_whose_interpreter_has_its_packages_needs_no_environment() -> None:
    facts = cluster(2)
    for node in facts.values():
        node["interpreter"] = "/usr/bin/python3"
    assert findings(facts, interpreter=NANO) == []
    for node in facts.values():
        node["software"]["packages"] = {}
    assert findings(facts, interpreter=NANO, launcher="env") == []


def test_chosen_interpreter_without_torch_is_named_by_its_path() -> None:
    facts = cluster(2)
    for node in facts.values():
        node["interpreter"] = NANO.split(":")[0]
        node["software"]["packages"] = {}
    (finding,) = findings(facts, interpreter=NANO)
    assert (finding.id, finding.problem) == ("torch-missing", f"{NANO.split(':')[0]} has no torch")

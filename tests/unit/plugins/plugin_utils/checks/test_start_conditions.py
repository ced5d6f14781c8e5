"""Start conditions of a launch: each finding has nodes, a problem, a requirement and a remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import ControllerCode
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding
from ansible_collections.muster.training.plugins.plugin_utils._checks.start_conditions import (
    check_launch,
    check_reachable,
)
from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from tests.unit.supervised import make_job

TABLE = build_rank_table([HostSpec("a", "10.0.0.9", 1), HostSpec("b", "10.0.0.10", 1), HostSpec("c", "10.0.0.11", 1)])
HERE = build_rank_table([HostSpec("a", "127.0.0.1", 1), HostSpec("b", "127.0.0.2", 1)])
STATIC = make_job(run_id="first", launcher="torchrun")
ENV = make_job(run_id="first", launcher="env")


def path(name: str, **more: Any) -> dict[str, Any]:
    return {"path": name, "is_file": True, "is_directory": True, "readable": True, **more}


def healthy(address: str) -> dict[str, Any]:
    """Return the facts of a healthy node, as far as these checks read them."""
    return {
        "runs": [],
        "addresses": {address: "ens5", "127.0.0.1": "lo"},
        "interface": "ens5",
        "ports": {},
        "binds": {"29499": "", "29500": ""},
        "interpreter": "/usr/bin/python3",
        "working_directory": path("/srv/project"),
        "script": path("/srv/project/train.py"),
        "existing_run": "",
    }


def launch_findings(
    changes: dict[str, dict[str, Any]], job: Any = STATIC, table: Any = TABLE, replace: bool = False
) -> list[Finding]:
    """Return the findings for three nodes, some of which have other facts."""
    facts = {node.name: {**healthy(node.address), **changes.get(node.name, {})} for node in table.nodes}
    findings = check_launch(job, table, facts, replace)
    for finding in findings:
        assert finding.severity == ("warning" if finding.id == "runs-hidden" else "error")
        assert finding.nodes and finding.problem and finding.requirement and finding.remedy
    return findings


def the_finding(changes: dict[str, dict[str, Any]], **options: Any) -> Finding:
    (finding,) = launch_findings(changes, **options)
    return finding


def test_healthy_nodes_have_no_findings() -> None:
    assert launch_findings({}) == []
    assert launch_findings({}, job=ENV) == []
    assert launch_findings({}, table=HERE) == []


# --- Missing files ----------------------------------------------------------------------------------------------------


def test_unreachable_nodes_are_reported_with_their_reasons() -> None:
    findings = check_reachable(["a", "b", "c"], {"c": " out of memory\n", "b": ""})
    assert [(finding.id, finding.nodes) for finding in findings] == [("unreachable", ("b",)), ("unreachable", ("c",))]
    assert findings[0].problem == "no usable reply from the node: no reason given"
    assert findings[1].problem == "no usable reply from the node: out of memory"
    assert "-vvv" in findings[1].remedy


# --- Busy -------------------------------------------------------------------------------------------------------------


def alive(run_id: str, address: str = "10.0.0.10") -> dict[str, Any]:
    return {"runs": [{"run_id": run_id, "address": address, "directory": f"/runs/{run_id}/node0", "pid": 7}]}


def test_node_with_another_active_run_is_busy() -> None:
    finding = the_finding({"b": alive("second")})
    assert (finding.id, finding.nodes) == ("busy", ("b",))
    assert finding.problem == "run second is running on the node"
    assert "stop.yml -e run_id=second" in finding.remedy and "-e replace=true" in finding.remedy


def test_node_with_a_slurm_job_is_refused_unless_the_run_belongs_to_that_job() -> None:
    finding = the_finding({"b": {"slurm_jobs": ["7", "12"]}})
    assert (finding.id, finding.nodes) == ("slurm-job", ("b",))
    assert finding.problem == "Slurm is running jobs 7, 12 on the node"
    assert "-e launch_scheduler=slurm" in finding.remedy
    assert the_finding({"b": {**alive("second"), "slurm_jobs": ["7"]}}).id == "busy"


def test_owner_and_directory_of_a_run_are_named_once_for_all_nodes() -> None:
    run = {"run_id": "second", "pid": 7, "owner": "ann"}
    directory = "/home/ann/runs/second/node"
    busy = {
        name: {"runs": [{**run, "address": f"10.0.0.1{number}", "directory": f"{directory}{number}"}]}
        for number, name in enumerate("ab")
    }
    assert {finding.problem for finding in launch_findings(busy)} == {
        "run second of ann, in /home/ann/runs/second, is running on the node"
    }


def test_port_in_use_is_not_reported_on_a_busy_node() -> None:
    used_port = {"binds": {"29500": "Address already in use"}}
    assert the_finding({"a": used_port}).id == "port-in-use"
    assert the_finding({"a": {**alive("second"), **used_port}}).id == "busy"
    assert launch_findings({"a": {**alive("second"), **used_port}}, replace=True) == []


def test_each_run_on_a_node_is_reported_once() -> None:
    runs = [*alive("third")["runs"], *alive("second")["runs"], *alive("second")["runs"]]  # guard and supervisor
    assert [finding.problem for finding in launch_findings({"b": {"runs": runs}})] == [
        "run second is running on the node",
        "run third is running on the node",
    ]


def test_run_on_another_address_of_the_machine_makes_the_node_busy() -> None:
    assert the_finding({"b": alive("second", "192.168.0.1")}).id == "busy"


def test_nodes_on_one_machine_are_distinguished_by_address() -> None:
    assert launch_findings({"a": alive("second", "127.0.0.2")}, table=HERE) == []
    assert the_finding({"a": alive("second", "127.0.0.1")}, table=HERE).nodes == ("a",)


def test_replaced_run_or_the_run_itself_does_not_make_a_node_busy() -> None:
    assert launch_findings({"b": alive("second")}, replace=True) == []
    assert launch_findings({"b": alive("first")}) == []


# --- Addresses and ports ----------------------------------------------------------------------------------------------


def test_address_missing_from_the_node_is_reported() -> None:
    finding = the_finding({"b": {"interface": None}})
    assert (finding.id, finding.nodes) == ("address-not-here", ("b",))
    assert finding.problem == "node_address 10.0.0.10 is not on any of its interfaces, which have 10.0.0.10, 127.0.0.1"
    assert "node_address" in finding.remedy


HOLDER = {"29500": {"pid": 4711, "command": "python3 serve.py"}}
IN_USE = {"29500": "Address already in use", "29499": ""}


@pytest.mark.parametrize(
    ("facts", "by"),
    [
        ({"ports": HOLDER, "binds": IN_USE}, "process 4711 (python3 serve.py)"),
        ({"ports": {"29500": {"pid": None, "command": ""}}, "binds": IN_USE}, "a process of another user"),
        ({"binds": IN_USE}, "Address already in use"),
        # on a different address: torch's store needs all of them
        ({"ports": HOLDER}, "process 4711 (python3 serve.py)"),
    ],
)
def test_rendezvous_port_in_use_is_reported(facts: dict[str, Any], by: str) -> None:
    finding = the_finding({"a": facts})
    assert (finding.id, finding.nodes) == ("port-in-use", ("a",))
    assert finding.problem == f"the rendezvous port 29500 is in use by {by}"
    assert "launch_master_port" in finding.remedy


def test_lifeline_port_in_use_is_reported() -> None:
    held = {"29499": {"pid": 12, "command": "nc -l"}}
    finding = the_finding({"a": {"ports": held, "binds": {"29499": "Address already in use", "29500": ""}}})
    assert finding.problem == "the lifeline's port 29499 is in use by process 12 (nc -l)"
    assert "launch_lifeline_port" in finding.remedy


def test_listener_on_another_address_does_not_block_env_or_lifeline() -> None:
    assert launch_findings({"a": {"ports": HOLDER}}, job=ENV) == []
    assert launch_findings({"a": {"ports": {"29499": {"pid": 12, "command": "nc"}}}}) == []


def test_ports_are_checked_on_the_first_node_only() -> None:
    assert launch_findings({"b": {"ports": HOLDER, "binds": IN_USE}}) == []


def test_both_ports_in_use_are_reported_at_once() -> None:
    bind_errors = {"29499": "Address already in use", "29500": "Address already in use"}
    assert [finding.id for finding in launch_findings({"a": {"binds": bind_errors}})] == ["port-in-use", "port-in-use"]


# --- Paths in the job -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "identity", "expected_text"),
    [
        ({"interpreter": ""}, "interpreter-missing", "python3 does not exist or is not executable"),
        (
            {"working_directory": path("/srv/project", is_directory=False)},
            "working-directory-missing",
            "the directory /srv/project does not exist",
        ),
        (
            {"script": path("/srv/project/train.py", is_file=False)},
            "script-missing",
            "/srv/project/train.py is missing or not readable",
        ),
        ({"script": path("/srv/x.py", readable=False)}, "script-missing", "/srv/x.py is missing or not readable"),
        ({"existing_run": "/runs/first/node0"}, "run-id-taken", "run first already exists, in /runs/first/node0"),
    ],
)
def test_missing_files_and_run_id_in_use_are_reported_once_for_all_nodes(
    change: dict[str, Any], identity: str, expected_text: str
) -> None:
    finding = the_finding({"a": change, "c": change})
    assert (finding.id, finding.nodes) == (identity, ("a", "c"))
    assert expected_text in finding.problem


@pytest.mark.parametrize(
    ("overrides", "at_home"),
    [
        ({"script": "train.py"}, True),
        ({"script": "/srv/train.py"}, False),
        ({"script": "~/train.py"}, False),
        ({"script": "train.py", "working_directory": "/srv/project"}, False),
    ],
)
def test_missing_relative_script_is_reported_with_its_base_directory(overrides: dict[str, Any], at_home: bool) -> None:
    finding = the_finding({"a": {"script": path("/home/u/train.py", is_file=False)}}, job=replace(STATIC, **overrides))
    assert ("launch_working_directory is not set, so a relative path is resolved from" in finding.problem) == at_home
    assert ("set launch_working_directory, or correct launch_script" in finding.remedy) == at_home
    assert "ansible-playbook site.yml --tags code -e code_source=DIRECTORY" in finding.remedy


@pytest.mark.parametrize(
    ("directory", "script", "where", "remedy"),
    [
        (
            "",
            "train.py",
            " (launch_working_directory is not set, so a relative path is resolved from the user's home directory)",
            "-e launch_working_directory=$PWD -e launch_script=train.py",
        ),
        (
            ".",
            "a b.py",
            " (launch_working_directory is ., and a relative directory starts at the user's home directory)",
            "-e launch_working_directory=$PWD -e launch_script=SCRIPT",
        ),
        ("/srv", "train.py", "", "-e launch_working_directory=$PWD -e launch_script=train.py"),
        ("", "/srv/train.py", "", ""),
    ],
)
def test_missing_script_on_this_machine_needs_no_copy(directory: str, script: str, where: str, remedy: str) -> None:
    job = replace(STATIC, script=script, working_directory=directory)
    missing = {"script": path("/home/u/train.py", is_file=False)}
    read = {node.name: {**healthy(node.address), **missing} for node in HERE.nodes}
    (finding,) = check_launch(job, HERE, read, code=ControllerCode(local_nodes=frozenset("ab")))
    assert finding.problem == f"/home/u/train.py is missing or not readable{where}"
    assert "site.yml" not in finding.remedy and remedy in finding.remedy
    (finding,) = check_launch(job, HERE, read, code=ControllerCode(local_nodes=frozenset("b")))
    assert "site.yml --tags code" in finding.remedy, "a is another machine"


def test_relative_directory_starts_at_the_home_directory() -> None:
    job = replace(STATIC, working_directory="code")
    missing = {"working_directory": path("/home/u/code", is_directory=False)}
    finding = the_finding({"a": missing}, job=job)
    assert "a relative directory starts at the user's home directory" in finding.problem
    assert finding.remedy == "copy it to the node, or correct launch_working_directory"
    read = {node.name: {**healthy(node.address), **missing} for node in HERE.nodes}
    (finding,) = check_launch(job, HERE, read, code=ControllerCode(local_nodes=frozenset("ab")))
    assert "-e launch_working_directory=$PWD" in finding.remedy


def test_a_module_needs_no_script() -> None:
    assert launch_findings({"a": {"script": None}, "b": {"script": None}, "c": {"script": None}}) == []


def test_all_problems_of_a_node_are_reported_at_once() -> None:
    wrong = {**alive("second"), "interface": None, "interpreter": "", "existing_run": "/runs/first/node1"}
    wrong.update(script=path("/x.py", is_file=False))
    assert {finding.id for finding in launch_findings({"b": wrong})} == {
        "busy",
        "address-not-here",
        "interpreter-missing",
        "run-id-taken",
        "script-missing",
    }


@given(st.sets(st.sampled_from("abc")))
def test_finding_names_exactly_the_affected_nodes(names: set[str]) -> None:
    findings = launch_findings({name: {"interpreter": ""} for name in names})
    assert [set(finding.nodes) for finding in findings] == ([names] if names else [])


def test_hidden_processes_are_a_warning() -> None:
    finding = the_finding({"b": {"hides_processes": True}})
    assert (finding.id, finding.nodes) == ("runs-hidden", ("b",))

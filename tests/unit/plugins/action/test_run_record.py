"""The record of a run on the controller."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.action import run_record
from ansible_collections.muster.training.plugins.action.run_record import (
    close_record,
    drop_record,
    judge_record,
    open_record,
    read_record,
    require_success,
)
from ansible_collections.muster.training.plugins.module_utils._run.node_loss import RESTARTED, SUPERVISOR_DIED
from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import records_directory

PLAN = {"run_id": "first", "world_size": 2, "nodes": [{"name": "node0"}, {"name": "node1"}]}


def make_result(state: str = "succeeded", code: int = 0, **more: Any) -> dict[str, Any]:
    report = {"exit_code": code, "ranks": [], "launcher_error": "", "launcher_log": "/l", "oom_kills": 0, "stuck": []}
    node_state = {"state": "ended", "since": 1.5, "report": report, "launcher_log": "/l"}
    return {
        "run_id": "first",
        "state": state,
        "reason": "",
        "first_node": None,
        "world_size": 2,
        "nnodes": 2,
        "started": 1.0,
        "ended": 2.0,
        "nodes": [{"name": f"node{n}", "node_rank": n, **node_state} for n in (0, 1)],
        **more,
    }


def close(directory: Path, **options: Any) -> dict[str, Any]:
    arguments = {
        "run_id": "first",
        "plan": PLAN,
        "result": None,
        "runs_by_node": {},
        "job_results": {},
        "fail": True,
        **options,
    }
    try:
        return close_record(directory, arguments)
    except AnsibleActionFail as problem:
        return {**problem.result, "failed": True, "msg": problem.message}


def open_run(directory: Path, run_id: str = "first") -> Path:
    return Path(open_record(directory, run_id, {**PLAN, "run_id": run_id})["record"])


def test_record_holds_plan_and_owner_only_token(tmp_path: Path) -> None:
    record = open_run(tmp_path / "runs")
    assert record == tmp_path / "runs" / "first"
    assert json.loads((record / "plan.json").read_text()) == PLAN
    assert record.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.stat().st_mode & 0o777 for path in record.iterdir()} == {"token": 0o600, "plan.json": 0o600}
    token = (record / "token").read_text()
    assert len(token) == 64 and set(token) <= set("0123456789abcdef")
    assert (open_run(tmp_path, "second") / "token").read_text() != token


def test_record_keeps_the_code_that_the_nodes_have(tmp_path: Path) -> None:
    code = {"source": "/code", "files": {"train.py": "1234"}}
    record = Path(open_record(tmp_path, "first", PLAN, code)["record"])
    assert json.loads((record / "code.json").read_text()) == code
    drop_record(tmp_path, "first")
    assert not record.exists()
    assert not (open_run(tmp_path, "second") / "code.json").exists()


def test_latest_points_to_run_opened_last(tmp_path: Path) -> None:
    for run_id in ("b", "a", "c"):
        open_run(tmp_path, run_id)
        assert read_record(tmp_path, "", ["node0", "node1"])["run_id"] == run_id
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "latest"]


def test_run_id_with_a_record_is_refused(tmp_path: Path) -> None:
    token = (open_run(tmp_path) / "token").read_text()
    with pytest.raises(AnsibleActionFail, match="run_id first is taken: its record is in .*first"):
        open_run(tmp_path)
    assert (tmp_path / "first" / "token").read_text() == token


@pytest.mark.parametrize("before", [False, True])
def test_run_id_latest_is_refused(tmp_path: Path, before: bool) -> None:
    if before:
        open_run(tmp_path)
    with pytest.raises(AnsibleActionFail, match="run_id latest is reserved"):
        open_run(tmp_path, "latest")


def test_error_names_unwritable_records_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnsibleActionFail, match="cannot create the run's record .*launch_runs_directory"):
        open_run(tmp_path / "file")


def test_dropping_a_record_frees_its_name_and_restores_latest(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()  # created by the user
    for number, run_id in enumerate(("b", "a", "c")):
        os.utime(open_run(tmp_path, run_id) / "plan.json", (number, number))
    assert drop_record(tmp_path, "c")["changed"]
    assert read_record(tmp_path, "", ["node0"])["run_id"] == "a"
    assert not drop_record(tmp_path, "c")["changed"]
    drop_record(tmp_path, "b")
    assert read_record(tmp_path, "", ["node0"])["run_id"] == "a", "not the latest"
    assert open_run(tmp_path, "c").is_dir()
    for run_id in ("a", "c"):
        drop_record(tmp_path, run_id)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_dropping_a_record_keeps_foreign_files(tmp_path: Path) -> None:
    record = open_run(tmp_path)
    (record / "notes.txt").write_text("mine")
    drop_record(tmp_path, "first")
    assert [path.name for path in record.iterdir()] == ["notes.txt"]


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_reading_returns_plan_and_nodes_in_inventory(tmp_path: Path) -> None:
    record = open_run(tmp_path)
    read = read_record(tmp_path, "first", ["node7", "node1"])
    assert read == {"changed": False, "run_id": "first", "record": str(record), "plan": PLAN, "names": ["node1"]}
    assert read_record(tmp_path, "", ["node1"])["record"] == str(record), "the link is followed"


@pytest.mark.parametrize("content", ["{}", "[]"])
def test_plan_without_nodes_is_damaged(tmp_path: Path, content: str) -> None:
    record = open_run(tmp_path)
    (record / "plan.json").write_text(content)
    with pytest.raises(AnsibleActionFail, match="plan.json is damaged"):
        read_record(tmp_path, "first", ["node0"])


@pytest.mark.parametrize("content", ["", '{"nodes": [', "7"])
def test_damaged_record_is_named_with_the_command_that_removes_it(tmp_path: Path, content: str) -> None:
    directory = tmp_path / "my runs"
    record = open_run(directory)
    (record / "result.json").write_text(content)
    with pytest.raises(AnsibleActionFail, match=f"rm -r '{record}/result.json'$"):
        judge_run(directory, {})
    (record / "plan.json").write_text(content)
    with pytest.raises(AnsibleActionFail, match=f"plan.json is damaged; remove it: rm -r '{record}'$"):
        judge_run(directory, {})
    for run_id in ("first", ""):  # not the link to the latest record
        with pytest.raises(AnsibleActionFail, match=f"rm -r '{record}'$"):
            read_record(directory, run_id, ["node0"])


def test_unique_prefix_of_run_id_finds_the_run(tmp_path: Path) -> None:
    for run_id in ("train-1", "train-10", "eval-1"):
        open_run(tmp_path, run_id)
    for prefix, expected in (
        ("eval", "eval-1"),
        ("train-1", "train-1"),
        ("train-10", "train-10"),
        ("lat", "lat"),
        ("x", "x"),
    ):
        assert read_record(tmp_path, prefix, ["node0"])["run_id"] == expected
    with pytest.raises(AnsibleActionFail, match="2 runs start with train: train-1, train-10; type more of the name"):
        read_record(tmp_path, "train", ["node0"])


def test_without_a_record_every_host_counts_as_a_node(tmp_path: Path) -> None:
    for run_id in ("", "first"):
        read = read_record(tmp_path, run_id, ["node0"])
        assert (read["plan"], read["names"], read["run_id"]) == (None, ["node0"], run_id)


def test_inventory_without_nodes_of_the_run_is_refused(tmp_path: Path) -> None:
    open_run(tmp_path)
    with pytest.raises(AnsibleActionFail, match="none of the nodes of run first is in this inventory: node0, node1"):
        read_record(tmp_path, "first", ["other"])


@pytest.mark.parametrize(
    ("option", "host", "expected"),
    [
        ("/given", {"launch_runs_directory": "/mine", "inventory_dir": "/inventory"}, "/given"),
        ("", {"launch_runs_directory": "/mine", "inventory_dir": "/inventory"}, "/mine"),
        ("", {"launch_runs_directory": "", "inventory_dir": "/inventory"}, "/inventory/runs"),
        ("", {"inventory_dir": None}, "/playbook/runs"),
        ("records", {"inventory_dir": "/inventory"}, "/inventory/records"),
        ("", {"launch_runs_directory": "../records", "inventory_dir": "/inventory"}, "/inventory/../records"),
    ],
)
def test_records_directory_comes_from_option_variable_or_inventory(
    option: str, host: dict[str, Any], expected: str
) -> None:
    task_vars = {"groups": {"training": ["node0"]}, "hostvars": {"node0": host}, "playbook_dir": "/playbook"}
    assert records_directory(option, "training", task_vars) == Path(expected)
    if not option:
        assert records_directory("", "another", task_vars) == Path("/playbook/runs")


# --- Closing ----------------------------------------------------------------------------------------------------------


def test_successful_run_writes_result_and_removes_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = open_run(tmp_path)
    result = close(tmp_path, result=make_result(), job_results={"accuracy": 0.97})
    assert "failed" not in result
    written = json.loads((record / "result.json").read_text())
    assert written == {**result["verdict"], "job_results": {"accuracy": 0.97}}
    assert (written["run_id"], written["state"], written["world_size"]) == ("first", "succeeded", 2)
    assert "run first succeeded" in capsys.readouterr().out
    assert not (record / "token").exists(), "nobody needs it any more"


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_failed_or_stopped_run_fails_the_task(tmp_path: Path, state: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = open_run(tmp_path)
    result = close(tmp_path, result=make_result(state, 1, reason="because"))
    assert result["failed"] and result["msg"] == f"run first {state}"
    assert "verdict" not in result, "Ansible would print it behind the last lines"
    assert capsys.readouterr().out.count(f"run first {state}") == 1
    assert json.loads((record / "result.json").read_text())["state"] == state


def test_result_of_a_run_with_a_joined_node_is_accepted(tmp_path: Path) -> None:
    """The command that launched the run and watches it has only the nodes of the launch."""
    record = open_run(tmp_path)
    joined = {**PLAN, "nodes": [{"name": "node0"}, {"name": "fresh"}]}
    (record / "plan.json").write_text(json.dumps(joined))
    result = make_result()
    result["nodes"][1]["name"] = "fresh"
    verdict = close(tmp_path, result=result)["verdict"]
    assert verdict["state"] == "succeeded" and [node["name"] for node in verdict["nodes"]] == ["node0", "fresh"]


def test_failure_can_be_raised_after_the_record_is_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_run(tmp_path)
    result = close(tmp_path, result=make_result("failed", 1), fail=False)
    assert result["verdict"]["state"] == "failed" and "run first failed" in capsys.readouterr().out
    with pytest.raises(AnsibleActionFail, match="^run first failed$"):
        require_success(result["verdict"])
    assert require_success({**result["verdict"], "state": "succeeded"}) == {"changed": False}
    assert capsys.readouterr().out == ""


RUNNING = {
    "run_id": "first",
    "state": "running",
    "message": "",
    "report": None,
    "result": None,
    "directory": "/runs/first/node1",
}
FAILED = {**RUNNING, "state": "failed", "message": "node0 is lost: no sign of life"}
DIED = {**RUNNING, "state": "died"}


def test_verdict_comes_from_other_nodes_when_rank_0_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = open_run(tmp_path)
    result = close(tmp_path, runs_by_node={"node0": None, "node1": FAILED})
    assert result["failed"] and "node0 is lost: no sign of life" in capsys.readouterr().out
    assert json.loads((record / "result.json").read_text())["first_failure"]["node"] == "node0"


@pytest.mark.parametrize(
    ("runs_by_node", "expected_text"),
    [
        ({"node0": None, "node1": RUNNING}, "node0 is not responding and 1 other node says the run is still active"),
        ({"node0": None, "node1": {**RUNNING, "state": "ended"}}, "1 other node says the run is still active"),
        ({"node0": None, "node1": None}, "no node is reachable from here"),
        ({}, "no node is reachable from here"),
    ],
)
def test_run_that_may_still_be_active_gets_no_verdict(
    tmp_path: Path, runs_by_node: dict[str, Any], expected_text: str
) -> None:
    record = open_run(tmp_path)
    result = close(tmp_path, runs_by_node=runs_by_node)
    assert result["failed"] and expected_text in result["msg"] and "status.yml -e run_id=first" in result["msg"]
    assert not (record / "result.json").exists()
    assert (record / "token").exists()


def make_failure(error: str, last_lines: str = "") -> dict[str, Any]:
    result = make_result("failed", -15)
    rank = {"rank": 1, "local_rank": 0, "exit_code": 1, "error": error, "log": "/l"}
    document = {"ranks": [rank], "exit_code": 1, "last_log": "/l", "last_lines": last_lines}
    result["nodes"][1] = {**result["nodes"][1], "report": {**result["nodes"][1]["report"], **document}}
    return result


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 56.00 MiB.", "expandable_segments:True"),
        ("ValueError: boom", ""),
    ],
)
def test_known_failure_is_shown_with_cause_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], error: str, remedy: str
) -> None:
    open_run(tmp_path)
    for show in (lambda: close(tmp_path, result=make_failure(error)), lambda: judge_run(tmp_path, {"node0": None})):
        show()
        lines = " ".join(capsys.readouterr().out.split())  # the text is wrapped to the width of a terminal
        assert f"rank 1: {error}" in lines
        assert (" cause: unknown" in lines, " what to do: " in lines) == (not remedy, bool(remedy))
        assert remedy in lines


def test_remedy_names_the_python_of_the_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = {**PLAN, "options": {"launch_python": "/opt/conda/bin/python"}}
    open_record(tmp_path, "first", plan)
    close(tmp_path, plan=plan, result=make_failure("RuntimeError: Ninja is required to load C++ extensions"))
    assert "`/opt/conda/bin/python -m pip install ninja`" in " ".join(capsys.readouterr().out.split())


def test_last_lines_of_failed_rank_are_shown_and_explain_the_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = open_run(tmp_path)
    output = "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:275, invalid usage"
    error_line = "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10"
    close(tmp_path, result=make_failure(output, f"Last error:\n{error_line}\x1b[2J"))
    first = capsys.readouterr().out
    assert first.startswith(f"the last lines of rank 1 on node1:\n    Last error:\n    {error_line}\nrun first failed")
    assert f"its log says: {error_line}" in " ".join(first.split()) and "torch.cuda.set_device" in first
    assert json.loads((record / "result.json").read_text())["first_failure"]["last_lines"][0] == "Last error:"
    judge_run(tmp_path, {"node0": None})
    assert capsys.readouterr().out == first, "who asks later sees the same"


# --- Verdict of a run that was not watched to its end -----------------------------------------------------------------


def judge_run(directory: Path, runs_by_node: dict[str, Any], run_id: str = "first") -> dict[str, Any]:
    return judge_record(directory, {"run_id": run_id, "runs_by_node": runs_by_node})


def test_last_lines_of_the_rank_that_was_followed_are_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = open_run(tmp_path)
    nodes = [{"name": f"node{rank}", "first_rank": rank, "slots": 1} for rank in (0, 1)]
    (record / "plan.json").write_text(json.dumps({**PLAN, "nodes": nodes}))
    close(tmp_path, result=make_failure("ValueError: boom", "Traceback:\nValueError: boom"))
    capsys.readouterr()
    for rank, is_shown in ((1, False), (0, True), (None, True)):
        judge_record(tmp_path, {"run_id": "first", "runs_by_node": {"node0": None}, "displayed_rank": rank})
        assert ("the last lines of rank 1 on node1" in capsys.readouterr().out) == is_shown, rank


def test_values_reported_by_unwatched_job_are_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = open_run(tmp_path)
    final_status = {**RUNNING, "state": "succeeded"}
    judge_run(
        tmp_path,
        {
            "node0": {**final_status, "result": make_result(), "job_results": {"accuracy": 0.97}},
            "node1": {**final_status, "job_results": {}},
        },
    )
    assert json.loads((record / "result.json").read_text())["job_results"] == {"accuracy": 0.97}
    assert "  accuracy: 0.97" in capsys.readouterr().out


def test_record_is_valid_json_whatever_the_job_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = open_run(tmp_path)
    close(
        tmp_path, result=make_result(), job_results={"loss": math.nan, "best": [math.inf, {"a": -math.inf}]}, fail=False
    )
    output = json.loads((record / "result.json").read_text(), parse_constant=pytest.fail)["job_results"]
    assert output == {"loss": None, "best": [None, {"a": None}]}
    assert "  loss: nan" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more",
    [{"state": "well"}, {"run_id": "second"}, {"nodes": []}, {"ended": math.nan}, {"nodes": [{"name": "a\nb"}]}],
    ids=str,
)
def test_result_of_another_run_is_ignored(tmp_path: Path, more: dict[str, Any]) -> None:
    open_run(tmp_path)
    verdict = judge_run(tmp_path, {"node0": {**FAILED, "result": {**make_result(), **more}}, "node1": FAILED})[
        "verdict"
    ]
    assert verdict["state"] == "failed" and verdict["started"] is None


def test_lost_node_that_replies_gives_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_run(tmp_path)
    result = make_result("failed", -15, reason="node1 is lost: silent", first_node="node1")
    result["nodes"][1].update(state="lost", report=None, lost_reason="node1 is lost: silent")
    close(tmp_path, result=result, runs_by_node={"node1": {**DIED, "message": SUPERVISOR_DIED}})
    output = capsys.readouterr().out
    assert f"failed first: node node1 (node_rank 1): node1 is lost: {SUPERVISOR_DIED}" in output
    assert "The machine stayed up" in output and "provider" not in output


@pytest.mark.parametrize("message", [SUPERVISOR_DIED, RESTARTED])
def test_first_node_that_replies_explains_its_loss(tmp_path: Path, message: str) -> None:
    open_run(tmp_path)
    died, failed = {**DIED, "message": message}, {**FAILED, "message": "node0 is lost: its supervisor is silent"}
    failure = judge_run(tmp_path, {"node0": died, "node1": failed})["verdict"]["first_failure"]
    assert failure["error"] == f"node0 is lost: {message}"


@pytest.mark.parametrize("error", ["node1 was rebooted or shut down", f"node1 is lost: {RESTARTED}"])
def test_shutdown_is_reported_as_shutdown(error: str) -> None:
    explanation = explain_failure(error, [])
    assert explanation is not None and explanation["id"] == "node-shut-down"


def test_values_reported_after_watch_lost_the_run_are_added(tmp_path: Path) -> None:
    record = open_run(tmp_path)
    read = {**RUNNING, "state": "succeeded", "result": make_result(), "job_results": {"accuracy": 0.97, "loss": 0.1}}
    close(tmp_path, runs_by_node={"node0": read, "node1": RUNNING}, job_results={"loss": 0.1})
    assert json.loads((record / "result.json").read_text())["job_results"] == {"accuracy": 0.97, "loss": 0.1}


@pytest.mark.parametrize("run_id", ["first", ""])
def test_verdict_is_written_when_requested_after_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], run_id: str
) -> None:
    record = open_run(tmp_path)
    final_status = {**RUNNING, "state": "failed"}
    result = judge_run(
        tmp_path, {"node0": {**final_status, "result": make_result("failed", 1)}, "node1": final_status}, run_id
    )
    assert (result["changed"], result.get("failed")) == (True, None), "a question has been answered"
    written = json.loads((record / "result.json").read_text())
    assert written == {**result["verdict"], "job_results": {}}
    assert written["first_failure"]["node"] == "node0"
    assert "run first failed" in capsys.readouterr().out
    assert not (record / "token").exists()


def test_existing_verdict_is_shown_and_not_rewritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = open_run(tmp_path)
    close(tmp_path, result=make_result(), job_results={"accuracy": 0.97})
    before = (record / "result.json").read_bytes()
    capsys.readouterr()
    result = judge_run(tmp_path, {"node0": None})
    assert not result["changed"] and result["verdict"]["state"] == "succeeded"
    assert "accuracy: 0.97" in capsys.readouterr().out
    assert (record / "result.json").read_bytes() == before


def test_verdict_is_corrected_once_rank_0_replies(tmp_path: Path) -> None:
    open_run(tmp_path)
    close(tmp_path, runs_by_node={"node0": None, "node1": FAILED}, job_results={"accuracy": 0.97})
    again = judge_run(tmp_path, {"node0": None, "node1": FAILED})
    assert not again["changed"] and again["verdict"]["state"] == "failed"
    final_status = {**RUNNING, "state": "succeeded"}
    result = judge_run(tmp_path, {"node0": {**final_status, "result": make_result()}, "node1": final_status})
    assert result["changed"] and result["verdict"]["state"] == "succeeded"
    assert json.loads((tmp_path / "first" / "result.json").read_text())["job_results"] == {"accuracy": 0.97}


def test_dead_supervisor_of_rank_0_is_first_failure(tmp_path: Path) -> None:
    open_run(tmp_path)
    result = judge_run(tmp_path, {"node0": DIED, "node1": FAILED})
    assert result["verdict"]["first_failure"] == {
        "node": "node0",
        "node_rank": 0,
        "rank": None,
        "error": "node0 is lost: no sign of life",
        "log": "/runs/first/node1/launcher.log",
        "last_lines": [],
    }


def test_unreachable_rank_0_node_is_first_failure_until_it_replies(tmp_path: Path) -> None:
    open_run(tmp_path)
    result = judge_run(tmp_path, {"node0": None, "node1": FAILED})
    assert result["verdict"]["first_failure"]["node"] == "node0"
    assert sorted(path.name for path in (tmp_path / "first").iterdir()) == ["plan.json", "result.json"]
    final_status = {**RUNNING, "state": "succeeded"}
    assert (
        judge_run(tmp_path, {"node0": {**final_status, "result": make_result()}, "node1": final_status})["verdict"][
            "state"
        ]
        == "succeeded"
    )


@pytest.mark.parametrize(
    "runs_by_node",
    [
        {"node0": RUNNING, "node1": RUNNING},
        {"node0": {**RUNNING, "state": "ended"}, "node1": RUNNING},
        {"node0": DIED, "node1": RUNNING},
        {"node0": None, "node1": RUNNING},
        # the run may have succeeded; only the nodes have the result
        {"node0": None, "node1": None},
        {},
    ],
)
def test_no_verdict_on_run_that_is_or_may_be_active(tmp_path: Path, runs_by_node: dict[str, Any]) -> None:
    record = open_run(tmp_path)
    assert judge_run(tmp_path, runs_by_node) == {"changed": False, "record": "", "verdict": None}
    assert sorted(path.name for path in record.iterdir()) == ["plan.json", "token"]


def test_cost_of_active_run_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_run(tmp_path)
    plan = {**PLAN, "run_id": "first", "nodes": [{"name": f"node{n}", "price_per_hour": 1.8} for n in (0, 1)]}
    (tmp_path / "first" / "plan.json").write_text(json.dumps(plan))
    runs_by_node = {"node0": {**RUNNING, "started": time.time() - 3600}, "node1": RUNNING}
    assert judge_run(tmp_path, runs_by_node)["verdict"] is None
    assert capsys.readouterr().out == "run first costs 3.60 USD an hour, 3.60 USD so far\n"


def test_no_verdict_on_run_without_local_record(tmp_path: Path) -> None:
    assert judge_run(tmp_path / "none", {"node0": DIED})["verdict"] is None


def test_result_of_unrecorded_run_gives_no_verdict(tmp_path: Path) -> None:
    open_run(tmp_path)
    second = {**RUNNING, "run_id": "second", "state": "succeeded", "result": make_result()}
    assert judge_run(tmp_path, {"node0": second}, "")["verdict"] is None


def test_verdict_is_shown_when_record_is_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    open_run(tmp_path)

    def deny_write(*_anything: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(run_record, "write_json", deny_write)
    final_status = {**RUNNING, "state": "succeeded", "result": make_result()}
    result = judge_run(tmp_path, {"node0": final_status, "node1": final_status})
    assert not result["changed"] and result["verdict"]["state"] == "succeeded"
    assert "run first succeeded" in capsys.readouterr().out


def test_verdict_is_shown_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = open_run(tmp_path)

    def fail_with_full_disk(*_anything: Any, **_more: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", fail_with_full_disk)
    result = close(tmp_path, result=make_result())
    assert "failed" not in result and result["record"] == ""
    assert close(tmp_path, result=make_result("failed", 1))["failed"]
    output = capsys.readouterr()
    assert "run first succeeded" in output.out
    assert "cannot write the verdict to" in output.err and "No space left on device" in output.err
    assert sorted(path.name for path in record.iterdir()) == ["plan.json", "token"], "half of it lies there"


def test_late_result_of_rank_0_decides_the_verdict(tmp_path: Path) -> None:
    open_run(tmp_path)
    final_status = {**RUNNING, "state": "succeeded", "result": make_result()}
    result = close(tmp_path, runs_by_node={"node0": final_status, "node1": None})
    assert "failed" not in result and result["verdict"]["started"] == 1.0

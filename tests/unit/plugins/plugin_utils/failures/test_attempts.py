"""The verdict on the attempts of a run with automatic restarts."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._run.attempt_losses import last_step, loss_of
from ansible_collections.muster.training.plugins.module_utils._run.stored_documents import validate_result
from ansible_collections.muster.training.plugins.plugin_utils._failures.attempts import continue_command
from ansible_collections.muster.training.plugins.plugin_utils._failures.first_failure import first_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import (
    verdict_from_hub,
    verdict_without_hub,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import render_verdict
from ansible_collections.muster.training.plugins.plugin_utils._plan.launch_options import launch_options
from ansible_collections.muster.training.plugins.plugin_utils._report.attempts import describe_attempts
from tests.unit.supervised import make_job

PLAN: dict[str, Any] = {
    "run_id": "first",
    "world_size": 3,
    "program": "train.py",
    "arguments": ["--resume", "it's"],
    "launcher": "torchrun",
    "working_directory": "/work",
    "currency": "USD",
    "nodes": [{"name": name, "price_per_hour": 3.6} for name in ("gpu1", "gpu2", "gpu3")],
    "restart": {"restarts": 3},
}


def record(number: int, started: float, ended: float, **fields: Any) -> dict[str, Any]:
    usual = {"nodes": ["gpu1", "gpu2"], "end_class": "node_lost", "node": "gpu2", "reason": "gpu2 is lost: off"}
    return {"number": number, "started": started, "ended": ended, "checkpoint": "", **usual, **fields}


def result(*records: Any, states: tuple[str, ...] = ("ended", "lost", "ended"), **fields: Any) -> Any:
    nodes = [
        {
            "name": name,
            "node_rank": rank,
            "state": state,
            "since": 5.0,
            "report": None,
            "lost_reason": "",
            "launcher_log": "",
        }
        for rank, (name, state) in enumerate(zip(("gpu1", "gpu2", "gpu3"), states, strict=True))
    ]
    usual = {"run_id": "first", "state": "succeeded", "reason": "", "first_node": None, "world_size": 2, "nnodes": 2}
    times = {"started": 1000.0, "ended": 2010.0}
    return {**usual, **times, "nodes": nodes, "attempts": list(records), "not_restarted": "", **fields}


def test_verdict_reports_how_each_attempt_ended_and_the_restart_cost() -> None:
    last = record(1, 1510.0, 2000.0, end_class="succeeded", node="", reason="", nodes=["gpu1", "gpu3"])
    verdict = verdict_from_hub(PLAN, result(record(0, 1000.0, 1500.0), last))
    output = render_verdict(verdict, "", {})
    assert "  attempts: 2, 98 % of its time in the job\n" in output
    line = "attempt 0 ended after 0:08:20: gpu2 is lost: off; work lost: unknown; the next began 10 s later (0.03 USD)"
    assert f"    {line}\n" in output
    assert verdict["effective_seconds"] == 990.0 and verdict["kept_seconds"] is None


def test_verdict_reports_the_lost_work_and_its_cost() -> None:
    saved = {"checkpoint": "/c/step-40", "step": 40, "unit": "step", "saved": 1440.0, "last_step": 46}
    unusable = {"unusable": {"gpu2": "2 of 8 GPUs respond"}}
    last = record(1, 1510.0, 2000.0, end_class="succeeded", node="", reason="", nodes=["gpu1", "gpu3"])
    verdict = verdict_from_hub(PLAN, result(record(0, 1000.0, 1500.0, **saved, **unusable), last))
    output = render_verdict(verdict, "", {})
    assert "  attempts: 2, 98 % of its time in the job, 92 % in work that was kept\n" in output
    assert "work lost: 6 steps; the next began 10 s later (0.21 USD)\n" in output, "60 s and 10 s of 3 nodes"
    assert "      gpu2 could not take part: 2 of 8 GPUs respond\n" in output
    first = verdict["attempts"][0]
    assert (first["lost_steps"], first["lost_seconds"], verdict["kept_seconds"]) == (6, 60.0, 930.0)


@pytest.mark.parametrize(
    ("fields", "knows_checkpoints", "expected"),
    [
        ({"end_class": "succeeded"}, False, (0, "step", 0.0)),
        ({}, False, (None, "step", None)),  # the script may have found its own checkpoint
        ({"last_step": 12}, True, (12, "step", 100.0)),  # no checkpoint at all
        ({"checkpoint": "c", "step": 10, "saved": 1090.0}, True, (None, "step", 10.0)),
        ({"checkpoint": "c", "step": 2, "unit": "epoch", "saved": 990.0, "last_step": 3}, True, (1, "epoch", 100.0)),
        ({"checkpoint": "c", "step": 20, "saved": 1200.0, "last_step": 19}, True, (0, "step", 0.0)),
    ],
)
def test_work_lost_by_an_attempt_is_computed(
    fields: dict[str, Any], knows_checkpoints: bool, expected: tuple[Any, ...]
) -> None:
    assert tuple(loss_of(record(0, 1000.0, 1100.0, **fields), knows_checkpoints)) == expected


@pytest.mark.parametrize(
    ("text", "unit", "step"),
    [
        ("epoch 1 step 40 loss 0.1\nepoch 1 step 41", "step", 41),
        ("{'loss': 0.3, 'epoch': 2, 'global_step': 500}", "epoch", 2),
        ("{'loss': 0.3, 'epoch': 2, 'global_step': 500}", "step", 500),
        ("Iteration=7/100", "step", 7),
        ("footstep 3", "step", None),
        ("epoch 1.5", "epoch", None),
        ("", "step", None),
    ],
)
def test_last_step_is_read_from_the_output(text: str, unit: str, step: int | None) -> None:
    assert last_step(text, unit) == step


def test_verdict_explains_the_lack_of_a_further_attempt() -> None:
    ended = result(record(0, 1.0, 2.0), state="failed", reason="boom", not_restarted="all restarts are used up")
    output = render_verdict(verdict_from_hub(PLAN, ended), "", {})
    assert "  not restarted: all restarts are used up\n" in output and "attempts:" not in output


def test_verdict_of_a_run_without_restarts_has_no_line_about_attempts() -> None:
    output = render_verdict(verdict_from_hub(PLAN, result()), "", {})
    assert "attempt" not in output and "restarted" not in output


def test_node_that_left_before_the_last_attempt_did_not_end_the_run() -> None:
    last = record(1, 1004.0, 1010.0, nodes=["gpu1", "gpu3"], node="gpu3")
    ended = result(record(0, 1000.0, 1003.0), last, states=("ended", "lost", "lost"), state="failed", reason="off")
    failure = first_failure(ended)
    assert failure is not None and failure["node"] == "gpu3"


def test_loss_of_the_first_node_shows_the_command_that_continues_the_run() -> None:
    run = {"state": "failed", "message": "gpu1 is lost: silent", "report": None, "directory": "/runs/first/node1"}
    verdict = verdict_without_hub(PLAN, {"gpu1": None, "gpu2": run, "gpu3": run}, 2000.0)
    (line,) = [line for line in render_verdict(verdict, "", {}).splitlines() if "continue with" in line]
    *arguments, options = shlex.split(line.partition("continue with: ")[2])
    assert arguments == ["ansible-playbook", "launch.yml", "-e"]
    variables = json.loads(options)
    assert (variables["nodes"], variables["launch_script"], variables["launch_restarts"]) == (
        "gpu2,gpu3",
        "train.py",
        3,
    )
    assert variables["launch_args"] == ["--resume", "it's"]


def test_command_repeats_the_settings_of_the_launch_except_secrets() -> None:
    settings = {"image": "nvcr.io/x:1", "gpus": (0, 1), "time_limit": 43200.0, "restart_min_nodes": 3, "spares": 1}
    job = make_job(restarts=2, variables=("HF_TOKEN",), interpreter="/venv/bin/python", **settings)
    plan = {**PLAN, "options": launch_options(job), "variables": ["HF_TOKEN"]}
    run = {"state": "failed", "message": "gpu1 is lost: silent", "report": None, "directory": "/runs/first/node1"}
    verdict = verdict_without_hub(plan, {"gpu1": None, "gpu2": run, "gpu3": run}, 2000.0)
    variables = json.loads(shlex.split(verdict["continue_with"])[-1])
    expected = {"launch_image": "nvcr.io/x:1", "launch_gpus": [0, 1], "launch_time_limit": 43200.0}
    assert expected.items() <= variables.items() and variables["launch_python"] == "/venv/bin/python"
    assert (variables["nnodes"], variables["launch_spares"], variables["launch_restart_min_nodes"]) == (2, 0, 2), (
        "a node less"
    )
    assert "launch_environment, whose values are not recorded: HF_TOKEN" in render_verdict(verdict, "", {})


def test_options_that_were_not_set_are_not_repeated() -> None:
    assert launch_options(make_job()) == {}


def test_command_is_omitted_if_ansible_would_read_a_template() -> None:
    assert continue_command({**PLAN, "arguments": ["{{ lookup('pipe', 'id') }}"]}, {"gpu1"}) == ""
    assert continue_command({**PLAN, "restart": {"restarts": 1}}, {"gpu1", "gpu2", "gpu3"}) == ""
    assert "launch_module" in continue_command({**PLAN, "program": "project.train"}, {"gpu1"})


def test_report_lists_the_attempts() -> None:
    records = [record(0, 1e9, 1e9 + 500), record(1, 1e9 + 510, 1e9 + 1000, end_class="succeeded", node="")]
    lines = ["0: node_lost on gpu2 after 0:08:20, work lost: unknown", "1: succeeded after 0:08:10"]
    assert describe_attempts({"attempts": records}) == lines
    hostile = [{"number": "x", "started": "y", "node": ["z"], "end_class": {}}, 3, None]
    assert describe_attempts({"attempts": hostile}) == ["0:  after 0:00:00, work lost: unknown"]


def test_result_with_malformed_attempts_is_ignored() -> None:
    good = result(record(0, 1.0, 2.0))
    assert validate_result(good) is not None
    for changes in ({"started": "x"}, {"nodes": "gpu1"}, {"reason": None}, {"number": -1}):
        assert validate_result(result({**record(0, 1.0, 2.0), **changes})) is None

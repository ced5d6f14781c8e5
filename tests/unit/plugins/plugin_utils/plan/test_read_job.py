"""The arguments of launch_plan are parsed into a job, or into a list of all errors."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._plan.job_spec import DEFAULTS
from ansible_collections.muster.training.plugins.plugin_utils._plan.read_job import generate_run_id, read_job


def arguments(**settings: Any) -> dict[str, Any]:
    return {**DEFAULTS, "script": "train.py", **settings}


def problems(**settings: Any) -> list[str]:
    with pytest.raises(ValueError) as caught:
        read_job(arguments(**settings))
    return str(caught.value).split("\n")


def test_job_with_only_a_script_has_defaults() -> None:
    job = read_job(arguments())
    assert (job.launcher, job.rdzv_backend, job.script, job.interpreter) == (
        "torchrun",
        "static",
        "train.py",
        "python3",
    )
    assert (job.min_nnodes, job.max_restarts, job.elastic) == (None, 0, False)
    assert (job.master_port, job.lifeline_port) == (29500, 29499)
    assert (job.start_timeout, job.silence_timeout, job.stop_grace) == (120, 10, 5)


@pytest.mark.parametrize(
    ("settings", "backend", "least", "restarts"),
    [
        ({"nnodes": "4"}, "static", None, 0),
        ({"nnodes": "2:4"}, "c10d", 2, 3),
        ({"nnodes": "4:4"}, "c10d", 4, 3),
        ({"nnodes": "2:4", "max_restarts": 0}, "c10d", 2, 0),
        ({"nnodes": "2:4", "rdzv_backend": "static"}, "static", 2, 3),  # a combination that the launcher rejects
        ({"nnodes": "2:4", "launcher": "env"}, "c10d", 2, 0),
        ({"rdzv_backend": "c10d"}, "c10d", None, 0),
        ({"max_restarts": 5}, "static", None, 5),
    ],
)
def test_nnodes_range_sets_backend_minimum_and_restarts(
    settings: dict[str, Any], backend: str, least: int | None, restarts: int
) -> None:
    job = read_job(arguments(**settings))
    assert (job.rdzv_backend, job.min_nnodes, job.max_restarts) == (backend, least, restarts)


def test_executable_gets_a_dot_slash_prefix_but_an_empty_script_stays_empty() -> None:
    job = read_job(arguments(script="", no_python=True), target_needed=False)
    assert job.script == ""
    assert read_job(arguments(script="train.sh", no_python=True)).script == "./train.sh"


def test_job_keeps_only_the_names_of_environment_variables() -> None:
    job = read_job(arguments(environment={"WANDB_API_KEY": "s3cr3t"}))
    assert job.variables == ("WANDB_API_KEY",)
    assert "s3cr3t" not in repr(job)


@pytest.mark.parametrize(
    ("settings", "expected_text"),
    [
        ({"script": ""}, "set launch_script"),
        ({"module": "m"}, "set launch_script"),
        ({"nnodes": "four"}, "nnodes is 'four'"),
        ({"run_id": "a/b"}, "run_id 'a/b' is not a valid name"),
        *(({"run_id": name}, "is not a valid name") for name in ("../up", "-x", "a b", "a;b", "a\n", "x" * 64)),
        ({"master_port": 80}, "launch_master_port is 80; use a port from 1024 to 65535"),
        ({"lifeline_port": 70000}, "launch_lifeline_port is 70000"),
        ({"master_port": 29499}, "launch_master_port and launch_lifeline_port are both 29499"),
        ({"start_timeout": 1}, "launch_start_timeout is 1 s, but must be 5 or more"),
        ({"silence_timeout": 4}, "launch_silence_timeout is 4 s, but must be 5 or more"),
        ({"stop_grace": -1}, "launch_stop_grace is -1 s, but must be 0 or more"),
        ({"stop_grace": 1501}, "launch_stop_grace is 1501 s, but must be 1500 or less"),
        ({"max_restarts": -1}, "launch_max_restarts is -1, but must be 0 or more"),
        ({"restarts": 101}, "launch_restarts is 101; use a number from 0 to 100"),
        ({"spares": -1}, "launch_spares is -1, but must be 0 or more"),
        ({"spares": 1}, "launch_spares needs launch_restarts"),
        ({"stall_limit": "1h", "stacks": False}, "launch_stall_limit has no effect, since launch_stacks is false"),
        ({"on_hang": "stop", "hang_timeout": 0}, "launch_on_hang: stop has no effect, since launch_hang_timeout is 0"),
        ({"restart_wait": "1h"}, "launch_restart_wait needs launch_restarts"),
        (
            {"restart_wait": "1h", "restarts": 1, "scheduler": "slurm"},
            "launch_restart_wait cannot be used with launch_scheduler: slurm",
        ),
        ({"nnodes": "2:4", "restarts": 1}, "launch_restarts needs a fixed number of nodes"),
        ({"nnodes": 4, "restarts": 1, "restart_min_nodes": 5}, "use a number from 1 to the run's 4 nodes"),
        ({"nproc_per_node": 0}, "nproc_per_node is 0, but must be 1 or more"),
        ({"environment": {"RANK": "0"}}, "RANK is set by the launcher"),
        ({"metrics": ["loss ("]}, "launch_metrics has 'loss (', which is not a regular expression: missing )"),
        ({"metrics": ["loss (.*)"]}, "launch_metrics has 'loss (.*)'; give each number a name, such as"),
        ({"metrics": ["(?P<step>.)"]}, "give each number a name"),
        ({"metrics": ["(?P<a>.)" + "x" * 500]}, "launch_metrics has a pattern longer than 500 characters"),
        ({"metrics": ["(?P<a>.)"] * 21}, "launch_metrics has 21 patterns; use at most 20"),
    ],
)
def test_invalid_argument_is_reported(settings: dict[str, Any], expected_text: str) -> None:
    (problem,) = problems(**settings)
    assert expected_text in problem


def test_all_invalid_arguments_are_reported_at_once() -> None:
    assert len(problems(script="", nnodes="0", run_id="-", master_port=1, stop_grace=-1, environment={"1": "x"})) == 6


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("lr-3e-4", "lr-3e-4"),
        ("BERT base, lr=1e-3", "BERT_base_lr_1e-3"),
        ("../x", "x"),
        ("é", "run"),
        ("y" * 90, "y" * 40),
    ],
)
def test_fresh_run_id_begins_with_the_name(name: str, stem: str) -> None:
    run_id = generate_run_id("train.py", "", name)
    assert SAFE_RUN_ID.match(run_id)
    assert re.fullmatch(re.escape(stem) + r"-\d{8}-\d{6}-[0-9a-f]{4}", run_id)


@pytest.mark.parametrize(
    ("script", "module", "stem"),
    [
        ("train.py", "", "train"),
        ("/srv/my project/train ddp.v2.py", "", "train_ddp_v2"),
        ("", "package.module", "module"),
        ("../..", "", "run"),
        ("é.py", "", "run"),
        ("x" * 100 + ".py", "", "x" * 30),
    ],
)
def test_fresh_run_id_contains_program_name_and_time(script: str, module: str, stem: str) -> None:
    run_id = generate_run_id(script, module)
    assert SAFE_RUN_ID.match(run_id)
    assert re.fullmatch(re.escape(stem) + r"-\d{8}-\d{6}-[0-9a-f]{4}", run_id)

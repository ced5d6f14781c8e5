# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records of runs with scripted GPUs yield exactly the figures and findings that the script implies."""

from __future__ import annotations

import json
import shlex
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._cluster.rank_table import HostSpec, build_rank_table
from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import build_node_plan
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import read_record
from ansible_collections.muster.training.plugins.plugin_utils._report.cost import cost_of
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Report
from ansible_collections.muster.training.plugins.plugin_utils._report.page import cost_facts, throughput
from ansible_collections.muster.training.plugins.plugin_utils._report.report import adapt_report, compose_report
from ansible_collections.muster.training.plugins.plugin_utils._report.summary import node_rows
from tests.unit.plugins.plugin_utils.report.records import START, Sample, plan_of, write_record
from tests.unit.supervised import make_job

Script = Callable[[int, int, float], Sample | None]


def report_of(tmp_path: Path, **more: Any) -> Report:
    directory = write_record(tmp_path, **more)
    return compose_report(read_record(directory, directory.name), now=START)


def finding_ids(report: Report) -> list[str]:
    return [item["id"] for item in report["findings"]]


def steady(_node: int, _gpu: int, _second: float) -> Sample:
    return (90.0, 36000.0, 70.0, 350.0)


def test_gpu_figures_are_computed_from_the_gpus_samples(tmp_path: Path) -> None:
    def sample(_node: int, _gpu: int, second: float) -> Sample:
        step = second / 15
        return (step, 1024.0 * (step + 1), 40 + step / 2, 100.5 + step)

    (gpu,) = report_of(tmp_path, sample=sample)["gpus"]  # 41 samples: 0 to 40
    assert gpu["utilization_percent"] == {"mean": 20.0, "p5": 2.0, "peak": 40.0, "samples": 41}
    assert gpu["memory_used_mib"] == {"mean": 21504.0, "p5": 3072.0, "peak": 41984.0, "samples": 41}
    assert gpu["temperature_celsius"] == {"mean": 50.0, "p5": 41.0, "peak": 60.0, "samples": 41}
    assert gpu["power_watts"] == {"mean": 120.5, "p5": 102.5, "peak": 140.5, "samples": 41}
    assert (gpu["idle_share"], gpu["power_limit_watts"], gpu["interval_seconds"]) == (5 / 41, 400.0, 15.0)


def test_fewer_than_8_samples_yield_no_figure(tmp_path: Path) -> None:
    (gpu,) = report_of(tmp_path, seconds=90)["gpus"]
    assert gpu["samples"] == 7
    assert {gpu[name] for name in ("utilization_percent", "power_watts", "idle_share", "power_working_watts")} == {None}


def test_healthy_run_has_no_findings(tmp_path: Path) -> None:
    report = report_of(tmp_path, nodes=2, gpus=2, sample=steady)
    assert report["findings"] == []
    assert report["verdict"] == "first succeeded after 0:10:00: 2 nodes, world size 4"


def idle_every_third(_node: int, _gpu: int, second: float) -> Sample:
    return (0.0 if second % 45 == 30 else 90.0, 36000.0, 70.0, 350.0)


def one_unused(_node: int, gpu: int, _second: float) -> Sample:
    return (0.0, 500.0, 30.0, 50.0) if gpu else (90.0, 36000.0, 70.0, 350.0)


def waiting(_node: int, _gpu: int, _second: float) -> Sample:
    return (100.0, 36000.0, 60.0, 120.0)


def one_slow(node: int, gpu: int, _second: float) -> Sample:
    return (90.0, 36000.0, 70.0, 210.0 if (node, gpu) == (1, 0) else 350.0)


def roomy(_node: int, _gpu: int, _second: float) -> Sample:
    return (90.0, 20480.0, 70.0, 350.0)


def full(_node: int, gpu: int, _second: float) -> Sample:
    return (90.0, 40550.0 if gpu else 36000.0, 70.0, 350.0)


def throttling(_node: int, _gpu: int, second: float) -> Sample:
    return (90.0, 36000.0, 86.0, 250.0) if second > 300 else (90.0, 36000.0, 75.0, 350.0)


def very_hot(_node: int, _gpu: int, _second: float) -> Sample:
    return (90.0, 36000.0, 91.0, 350.0)


def late(_node: int, _gpu: int, second: float) -> Sample:
    return (90.0 if second >= 300 else 0.0, 36000.0, 70.0, 350.0)


def early(_node: int, _gpu: int, second: float) -> Sample:
    return (90.0 if second <= 450 else 0.0, 36000.0, 70.0, 350.0)


def with_a_hole(_node: int, gpu: int, second: float) -> Sample | None:
    return None if gpu and 150 < second < 330 else steady(0, 0, 0)


def vanishing(node: int, _gpu: int, second: float) -> Sample | None:
    return None if node and second > 300 else steady(0, 0, 0)


@pytest.mark.parametrize(
    ("sample", "ids", "expected_text"),
    [
        (idle_every_third, ["gpu-idle"], "all 4 GPUs: idle for up to 32% of the samples"),
        (one_unused, ["gpu-unused"], "gpu0 GPU 1, gpu1 GPU 1: never busy, in at least 41 samples"),
        (waiting, ["gpu-waiting"], "utilization of 100 % at 30% of the power limit"),
        (one_slow, ["gpu-slow"], "gpu1 GPU 0: draws 210 W while the job is working, but the others draw 350 W (60%)"),
        (roomy, ["memory-room"], "at most 50% of a GPU's memory was used (gpu0 GPU 0)"),
        (full, ["memory-full"], "gpu0 GPU 1, gpu1 GPU 1: up to 99.0% of the memory was used"),
        (throttling, ["gpu-hot"] * 4, "reaches 86 °C, and then draws 250 W instead of 350 W"),
        (very_hot, ["gpu-hot"] * 4, "gpu0 GPU 0: reaches 91 °C"),
        (late, ["start-up"], "the first 5 min, 50% of the run, no GPU was busy"),
        (early, ["tail"], "no GPU was busy in the last 2 min of the run"),
        (with_a_hole, ["samples-missing"] * 2, "gpu0 GPU 1: 11 of 41 samples are missing"),
        (vanishing, ["samples-end"] * 2, "gpu1 GPU 0: its samples end 5 min before those of the others"),
    ],
)
def test_each_rule_reports_only_the_scripted_problem(
    tmp_path: Path, sample: Script, ids: list[str], expected_text: str
) -> None:
    report = report_of(tmp_path, nodes=2, gpus=2, sample=sample)
    assert finding_ids(report) == ids
    assert expected_text in report["findings"][0]["problem"]
    assert all(item["remedy"] and item["numbers"] for item in report["findings"])


def test_restarts_shrinking_and_checkpoint_time_are_reported(tmp_path: Path) -> None:
    document = {"checkpoint_seconds": 90}
    directory = write_record(tmp_path, sample=steady, result={"job_results": document})
    again = directory / "logs" / "node0" / "ranks" / "x" / "attempt_2" / "0"
    again.mkdir(parents=True)
    (again / "stdout.log").write_text("")
    with (directory / "logs" / "node0" / "events.jsonl").open("a") as stream:
        stream.write(
            json.dumps({"time": START + 99, "event": "shrink", "text": "gpu1 is lost; the run continues"}) + "\n"
        )
    report = compose_report(read_record(directory, "first"), now=START)
    assert finding_ids(report) == ["restarts", "shrunk", "checkpoints"]
    assert report["restarts"] == 2
    assert report["findings"][2]["problem"] == "checkpoints took 90 s, 15% of the run"


def test_run_time_is_broken_down_by_stage(tmp_path: Path) -> None:
    def sample(_node: int, _gpu: int, second: float) -> Sample:
        return (90.0 if 60 <= second <= 540 else 0.0, 36000.0, 70.0, 350.0)

    stages = report_of(tmp_path, sample=sample)["stages"]
    assert [stage["seconds"] for stage in stages] == [10, 50, 480, 60]
    assert [stage["name"] for stage in stages][0] == "nodes check in"
    assert report_of(tmp_path, run_id="second", result={"started": None})["stages"] == []


def test_cost_is_reported_for_run_start_up_and_idle_gpus(tmp_path: Path) -> None:
    def sample(_node: int, _gpu: int, second: float) -> Sample:
        return (90.0 if second >= 360 else 0.0, 36000.0, 70.0, 350.0)

    cost = report_of(tmp_path, nodes=2, seconds=3585, sample=sample, plan={"currency": "EUR"})["cost"]
    hours = 3585 / 3600
    assert (cost["currency"], cost["per_hour"], cost["missing"]) == ("EUR", 20.0, "")
    assert cost["run"] == pytest.approx(20 * hours)
    assert cost["start_up"] == pytest.approx(20 * 0.1)
    assert cost["idle_gpus"] == pytest.approx(20 * hours * 24 / 240)
    assert cost["per_1000_samples"] == pytest.approx(1000 * 20 * hours / (100 * 3585))


def test_sample_count_comes_from_the_job_and_is_never_estimated(tmp_path: Path) -> None:
    """A run that spends most of its time starting up processes fewer than its throughput times its duration."""
    counted = report_of(tmp_path, result={"job_results": {"samples_per_second": 100.0, "samples": 5000}})
    assert counted["samples"] == 5000
    assert counted["cost"]["per_1000_samples"] == pytest.approx(1000 * counted["cost"]["run"] / 5000)  # type: ignore[operator]
    assert ("1000 samples", "0.333 USD") in cost_facts(counted)
    rate = report_of(tmp_path, run_id="second", result={"job_results": {"samples_per_second": 100.0}})
    assert rate["samples"] is None
    assert "samples" not in dict(throughput(rate))
    assert ("1000 samples, at this throughput", "0.0278 USD") in cost_facts(rate)


def test_missing_price_names_the_node_and_the_variable_to_set() -> None:
    plan = plan_of("first", 3, 1)
    del plan["nodes"][1]["price_per_hour"]
    cost = cost_of(node_rows(plan, {}), [], 60.0, None, None, None, "USD")
    assert cost["run"] is None
    assert cost["missing"].startswith("the price of gpu1 is unknown: set node_price_per_hour")


@pytest.mark.parametrize("fetched", [True, False])
def test_failure_cause_and_remedy_come_from_the_catalogue(tmp_path: Path, fetched: bool) -> None:
    """They are determined from the fetched log, or else from the log lines in the verdict."""
    output = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1 GiB free"
    failure = {"node": "gpu0", "node_rank": 0, "rank": 0, "error": "ended with exit code 1"}
    failure |= {"log": "/x/node0/ranks/0/stderr.log", "last_lines": [] if fetched else ["Traceback", output]}
    directory = write_record(tmp_path, result={"state": "failed", "first_failure": failure})
    if fetched:
        log = directory / "logs" / "node0" / "ranks" / "0" / "stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"Traceback\n{output}\n" + "and more of it\n" * 30)
    reported = compose_report(read_record(directory, "first"), now=START)["failure"]
    assert reported is not None and reported["cause"] is not None
    assert reported["cause"]["id"] == "cuda-out-of-memory"
    assert (
        reported["cause"]["evidence"].startswith("torch.OutOfMemoryError") and "smaller" in reported["cause"]["remedy"]
    )


def test_settings_and_repeat_command_come_from_plan_without_secrets(tmp_path: Path) -> None:
    report = report_of(tmp_path, plan={"code": {"commit": "abc123", "dirty": True}})
    assert report["settings"]["--lr"] == "1e-3"
    assert report["settings"]["--batch_size"] == "32"
    assert report["settings"]["commit"] == "abc123 with changes"
    assert report["environment"] == ["HF_TOKEN", "NCCL_SOCKET_IFNAME"]
    assert '"launch_args": ["--lr", "1e-3", "--batch_size=32"]' in report["repeat"]
    assert "secret-value" not in json.dumps(report)


def planned(**job: Any) -> dict[str, Any]:
    """Return the plan of rank 0's node, as stored in a run's record."""
    table = build_rank_table([HostSpec("a", "10.0.0.9", 2), HostSpec("b", "10.0.0.10", 2)])
    facts = {
        "interpreter": "/opt/venv/bin/python",
        "interface": "ens5",
        "runs_directory": "/home/me/.muster/runs",
        "working_directory": {"path": "/srv/project"},
    }
    plan: Any = build_node_plan(make_job(**job), table, table.nodes[0], facts)
    return {name: value for name, value in plan.items() if name not in ("run_id", "nodes")}


@pytest.mark.parametrize("launcher", ["torchrun", "env", "deepspeed", "mpirun", "accelerate"])
@pytest.mark.parametrize("kind", ["script", "module", "program"])
def test_job_is_recovered_from_the_planned_command_of_each_launcher(tmp_path: Path, launcher: str, kind: str) -> None:
    program: dict[str, dict[str, Any]] = {
        "script": {"script": "src/train.py"},
        "module": {"script": "", "module": "project.train"},
        "program": {"script": "./entry.sh", "no_python": True},
    }
    many = [word for number in range(60) for word in (f"--option_{number}", "value")]
    args = ("--lr", "0.1", "--deepspeed", "zero2.json", *many, "--", "-m")
    report = report_of(tmp_path, nodes=2, gpus=2, plan=planned(launcher=launcher, args=args, **program[kind]))
    settings = report["settings"]
    assert (settings["--lr"], settings["--deepspeed"]) == ("0.1", "zero2.json")
    name = {"script": "src/train.py", "module": "project.train", "program": "./entry.sh"}[kind]
    assert settings["module" if kind == "module" else "script"] == name
    command, _playbook, _option, again = shlex.split(report["repeat"])
    assert command == "ansible-playbook"
    assert json.loads(again) == {
        "nnodes": 2,
        "nproc_per_node": 2,
        "launch_launcher": launcher,
        "launch_working_directory": "/srv/project",
        "launch_module" if kind == "module" else "launch_script": name,
        "launch_args": list(args),
        **({"launch_no_python": True} if kind == "program" else {}),
    }


def test_run_with_a_snapshot_is_repeated_exactly_by_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_record(tmp_path)
    assert compose_report(read_record(directory, "first"), now=START)["repeat_exactly"] == ""
    (directory / "snapshot.json").write_text("{}")
    report = compose_report(read_record(directory, "first"), now=START)
    assert report["repeat_exactly"] == "ansible-playbook launch.yml -e like=first"
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    typed = adapt_report(report, adapt_commands)
    assert typed["repeat_exactly"] == "./muster launch --like first"


def test_repeat_command_names_the_job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the code and the environment of the project would be used."""
    directory = write_record(tmp_path, nodes=2, plan=planned(script="train.py", args=("--lr", "0.1")))
    job_origin = {"job_file": "/home/me/other/job.yml", "source": "/home/me/other"}
    (directory / "origin.json").write_text(json.dumps(job_origin))
    report = compose_report(read_record(directory, directory.name), now=START)
    assert report["repeat"].startswith("ansible-playbook launch.yml -e @/home/me/other/job.yml -e '{")
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    typed = adapt_report(report, adapt_commands)["repeat"]
    assert typed.startswith("./muster launch /home/me/other/job.yml -n 2 ")
    assert typed.endswith("train.py --lr 0.1")


def test_python_as_a_program_is_not_treated_as_the_interpreter(tmp_path: Path) -> None:
    job = {"launcher": "env", "script": "python", "no_python": True, "args": ("-u", "train.py")}
    report = report_of(tmp_path, nodes=2, gpus=2, plan=planned(**job))
    again = json.loads(shlex.split(report["repeat"])[-1])
    assert (again["launch_script"], again["launch_args"]) == ("python", ["-u", "train.py"])
    assert again["launch_no_python"] is True


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (
            {"launcher": "torchrun", "rdzv_backend": "c10d", "min_nnodes": 1, "max_restarts": 3},
            {"nnodes": "1:2", "launch_rdzv_backend": "c10d", "launch_max_restarts": 3},
        ),
        ({"launcher": "deepspeed", "deepspeed_launcher": "pdsh"}, {"launch_deepspeed_launcher": "pdsh"}),
    ],
)
def test_repeat_command_keeps_launcher_specific_settings(
    tmp_path: Path, job: dict[str, Any], expected: dict[str, Any]
) -> None:
    report = report_of(tmp_path, nodes=2, gpus=2, plan=planned(**job))
    assert expected.items() <= json.loads(shlex.split(report["repeat"])[-1]).items()


@pytest.mark.parametrize(
    "broken",
    [
        lambda record: (record / "result.json").write_text('{"state": "succ'),
        lambda record: (record / "result.json").unlink(),
        lambda record: (record / "plan.json").write_text("[" * 100_000),
        lambda record: (record / "plan.json").write_text('{"nodes": [7, {"name": ["x"]}, {"name": "\\ud800"}]}'),
        lambda record: (record / "result.json").write_text(
            '{"started": 1e999, "ended": -1, "nodes": {}, "job_results": [1]}'
        ),
        lambda record: (record / "result.json").write_text('{"started": ' + "9" * 5000 + "}"),
        lambda record: (record / "logs" / "node0" / "events.jsonl").write_bytes(b"\xff\n[]\n{}\n7\n"),
        lambda record: (record / "logs" / "node0" / "gpus.csv").write_bytes(b"\0" * 100_000 + b"\n2026/11/25 1"),
        lambda record: (record / "logs" / "node0" / "metrics.csv").write_text("step,loss\n1," + "x" * 200_000 + "\n"),
    ],
)
def test_broken_record_still_yields_a_report(tmp_path: Path, broken: Callable[[Path], Any]) -> None:
    directory = write_record(tmp_path)
    broken(directory)
    report = compose_report(read_record(directory, "first"), now=START)
    json.dumps(report, allow_nan=False).encode("ascii")
    report["verdict"].encode("utf-8")


@pytest.mark.parametrize(
    ("result", "plan"),
    [
        ({"job_results": {"samples": 1e-320, "samples_per_second": 5e-324}}, {}),
        ({"job_results": {"samples": -3, "samples_per_second": -1, "checkpoint_seconds": 1e99}}, {}),
        ({"job_results": {"samples": 1e100, "samples_per_second": 1e100, "batch_size": 1e100}}, {}),
        ({"started": 0, "ended": 1e-320, "job_results": {"checkpoint_seconds": 1e99}}, {}),
        ({"started": -5e9, "ended": 5e9}, {}),
        ({"started": START, "ended": 1e300}, {}),
        ({}, {"world_size": 10**400}),
        ({}, {"world_size": -3}),
    ],
)
def test_absurd_numbers_are_reported_as_numbers_or_omitted(
    tmp_path: Path, result: dict[str, Any], plan: dict[str, Any]
) -> None:
    report = report_of(tmp_path, result=result, plan=plan)
    output = json.loads(json.dumps(report, allow_nan=False))
    assert all(
        cost is None or cost >= 0 for name, cost in output["cost"].items() if name not in ("currency", "missing")
    )
    assert output["seconds"] is None or 0 <= output["seconds"] < 1e11
    assert output["samples"] is None or output["samples"] >= 1
    assert output["world_size"] >= 0


def test_samples_are_not_held_in_memory_as_text(tmp_path: Path) -> None:
    """A day of 64 GPUs, 370,000 samples, would take 100 MB as objects; this test uses a fiftieth of it."""
    directory = write_record(tmp_path, nodes=2, gpus=8, seconds=7200)
    tracemalloc.start()
    try:
        record = read_record(directory, "first")
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    samples = sum(len(gpu.time) for node in record.nodes for gpu in node.gpus)
    assert samples == 16 * 481
    assert peak < 120 * samples

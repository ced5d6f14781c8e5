# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convert a record to the report.json document."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import read_facts
from ansible_collections.muster.training.plugins.plugin_utils._failures.run_advice import for_run
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict_text import brief_error
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of_model
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import digest_of_files
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean_line,
    clean_text,
    parse_json,
    to_int,
    to_list,
    to_mapping,
    to_number,
    to_timestamp,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Record
from ansible_collections.muster.training.plugins.plugin_utils._report.attempts import describe_attempts
from ansible_collections.muster.training.plugins.plugin_utils._report.cost import cost_of
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import (
    Curve,
    is_wandb,
    points_to_draw,
    reported_numbers,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import (
    VERSION,
    CurveNumbers,
    CurvePoint,
    Failure,
    FailureCause,
    Metric,
    NodeRow,
    Report,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.findings import Facts, find_all
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import GpuSamples
from ansible_collections.muster.training.plugins.plugin_utils._report.log_excerpt import MAX_LINES, choose_lines
from ansible_collections.muster.training.plugins.plugin_utils._report.profile import profile_section
from ansible_collections.muster.training.plugins.plugin_utils._report.stacks import stack_groups
from ansible_collections.muster.training.plugins.plugin_utils._report.summary import (
    gpu_numbers,
    node_rows,
    run_stages,
    working_window,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

STATES = ("succeeded", "failed", "stopped", "interrupted")
MAX_LOG_LINE = 1000
MAX_SEARCHED = 10_000  # number of characters of a line that are searched for a cause
MAX_METRICS = 100
HEALTH_EVENTS = ("health", "broken", "slow")  # kinds of a run's events
MAX_HEALTH_EVENTS = 20
MAX_ARGUMENTS = 500  # number of the command's arguments that are shown
# Names of curves and metrics that give the whole job's samples per second
THROUGHPUT = re.compile(r"(?:.*[/_])?(?:train_)?samples[_/]?(?:per_|/)?s(?:ec|econd)?\Z", re.IGNORECASE)
RANK_RULES = "rank.json"
LAUNCH = "ansible-playbook launch.yml"
CODE, SCRIPT_CONTENT = "code", "content of the script"  # names of the settings that contain hashes of the code
OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]{0,60}\Z")


class JobProgram(NamedTuple):
    """The program that each process in a job runs. kind: script, module (of Python), or program (not Python)."""

    kind: str
    name: str
    arguments: list[str]


def all_gpus(record: Record) -> list[GpuSamples]:
    """Return the GPUs of all nodes, in node order."""
    return [gpu for node in record.nodes for gpu in node.gpus]


def compose_report(record: Record, now: float) -> Report:
    """Return the report of a run. now: seconds since 1970."""
    plan, result = to_mapping(record.plan), to_mapping(record.result)
    gpus = all_gpus(record)
    window = working_window(gpus)
    started, ended = to_timestamp(result.get("started")), to_timestamp(result.get("ended"))
    seconds = ended - started if started is not None and ended is not None and ended >= started else None
    rows = node_rows(plan, result)
    numbers = [gpu_numbers(gpu, window) for gpu in gpus]
    job_report = to_mapping(result.get("job_results"))
    numbers_reported = reported_numbers(job_report)
    curves = [curve_numbers(curve) for curve in record.curves]
    rate = samples_per_second(numbers_reported, curves)
    # not rate times seconds, because no samples are processed while a run starts
    samples = numbers_reported.get("samples", 0.0)
    stage_list = run_stages(started, ended, record.events, window)
    shrunk = [
        clean_text(event.get("text"), 300) for event in map(to_mapping, record.events) if event.get("event") == "shrink"
    ]
    unhealthy = [
        clean_text(event.get("text"), 300)
        for event in map(to_mapping, record.events)
        if event.get("event") in HEALTH_EVENTS
    ][:MAX_HEALTH_EVENTS]
    facts = Facts(
        gpus=numbers,
        nodes=rows,
        window=window,
        started=started,
        ended=ended,
        stages=stage_list,
        reported=numbers_reported,
        restarts=record.attempts,
        shrunk=shrunk,
        unhealthy=unhealthy,
        sampled_nodes=frozenset(node.name for node in record.nodes if node.sampled) if record.fetched else None,
    )
    start_up = window.start - started if window is not None and started is not None else None
    state = clean_text(result.get("state"), 40)
    code = to_mapping(plan.get("code"))
    command = command_arguments(plan.get("command"))
    program = find_program(plan, command)
    report: Report = {
        "version": VERSION,
        "run_id": record.run_id,
        "created": now,
        "state": state if state in STATES else "not over",
        "verdict": "",
        "reason": clean_text(result.get("reason")),
        "started": started,
        "ended": ended,
        "seconds": seconds,
        "world_size": to_int(plan.get("world_size")),
        "nnodes": len([row for row in rows if row["slots"]]) or len(rows),
        "launcher": clean_text(plan.get("launcher"), 40),
        "command": command,
        "working_directory": clean_text(plan.get("working_directory"), 500),
        "commit": clean_text(code.get("commit"), 60),
        "dirty": code.get("dirty") is True,
        "repeat": add_job_file(repeat_command(program, command, plan, rows), record.job_file),
        "repeat_exactly": f"{LAUNCH} -e like={record.run_id}" if record.has_snapshot else "",
        "origin": record.origin,
        "program": []
        if program is None
        else [clean_text(plan.get("program"), 500) or program.name, *program.arguments],
        "environment": environment_names(plan),
        "variables": user_variables(plan),
        "settings": {},
        "metrics": job_metrics(job_report),
        "printed_once": select_single_values(record, job_report),
        "last_lines": [],
        "samples_per_second": rate,
        "samples": samples if samples >= 1 else None,
        "curves": curves,
        "links": record.links,
        "gpus": numbers,
        "processes": [process for node in record.nodes for process in node.processes],
        "nodes": rows,
        "stages": stage_list,
        "findings": find_all(facts),
        "failure": describe_failure(result, record.failure_log, plan),
        "cost": cost_of(rows, numbers, seconds, start_up, samples, rate, clean_text(plan.get("currency"), 10) or "USD"),
        "restarts": record.attempts,
        "attempts": describe_attempts(result, to_mapping(plan.get("restart")).get("counts_progress") is True),
        "stacks": stack_groups(plan, result),
        "profile": profile_section(record.profile),
        "event_files": record.event_files,
        "notes": record_notes(record, gpus, rows),
    }
    report["notes"] += curve_notes(report, record.fetched)
    if lacks_metrics(report):
        report["last_lines"] = clean_lines(record.last_lines)
    report["verdict"] = format_verdict(report)
    report["settings"] = {**run_settings(report, numbers_reported, program), **code_settings(record.code, plan)}
    return report


def adapt_repeat(repeat: str, adapt: Callable[[str], str]) -> str:
    """Return the command for repeating a run, in the form that this user types.

    If its arguments contain quotes, they stay unchanged.
    """
    if repeat.count("'") == 2:
        return adapt(repeat)
    return adapt(LAUNCH) + repeat.removeprefix(LAUNCH) if repeat else ""


def adapt_report(report: Report, adapt: Callable[[str], str]) -> Report:
    """Return the report with the commands in its own messages in the form that this user types; a job's texts are
    unchanged.
    """
    failure = report["failure"]
    if failure is not None and failure["cause"] is not None:
        cause: FailureCause = {**failure["cause"], "remedy": adapt(failure["cause"]["remedy"])}
        failure = {**failure, "cause": cause}
    return {
        **report,
        "failure": failure,
        "repeat": adapt_repeat(report["repeat"], adapt),
        "repeat_exactly": adapt(report["repeat_exactly"]),
        "notes": [adapt(note) for note in report["notes"]],
        "findings": [{**finding, "remedy": adapt(finding["remedy"])} for finding in report["findings"]],
    }


def format_verdict(report: Report) -> str:
    """Return how the run ended, on one line."""
    failed = report["failure"]
    failure_text = (
        f"; failed first: {failure_location(failed)}: {brief_error(failed['error'])}" if failed is not None else ""
    )
    return format_end(report) + failure_text


def format_end(report: Report) -> str:
    """Return how the run ended, without what failed."""
    duration = f" after {format_duration(report['seconds'])}" if report["seconds"] is not None else ""
    size = f"{report['nnodes']} node{'' if report['nnodes'] == 1 else 's'}, world size {report['world_size']}"
    reason = f"; {report['reason']}" if report["state"] in ("stopped", "interrupted") and report["reason"] else ""
    state = report["state"] if report["state"] in STATES else "is not over, or its verdict is missing here"
    return f"{report['run_id']} {state}{duration}: {size}{reason}"


def failure_location(failed: Failure) -> str:
    """Return the node and rank that failed first."""
    return failed["node"] + (f", rank {failed['rank']}" if failed["rank"] is not None else "")


def describe_failure(result: Mapping[str, Any], log: str, plan: Mapping[str, Any]) -> Failure | None:
    """Return the first failure, with the end of its log, explained using the facts in the plan."""
    first_failure = result.get("first_failure")
    if not isinstance(first_failure, Mapping):
        return None
    rank = to_number(first_failure.get("rank"))
    reported_lines = [
        line[:MAX_SEARCHED] for line in to_list(first_failure.get("last_lines"), MAX_LINES) if isinstance(line, str)
    ]
    last_lines = log.splitlines() or reported_lines
    lines = clean_lines(choose_lines(last_lines))
    error = first_failure.get("error")
    text = error if isinstance(error, str) else ""
    cause = for_run(explain_failure(text, last_lines, read_facts(plan, rank)), plan, text)
    return {
        "node": clean_text(first_failure.get("node"), 100),
        "node_rank": to_int(first_failure.get("node_rank")),
        "rank": None if rank is None else int(rank),
        "error": clean_text(error, 1000),
        "log": clean_text(first_failure.get("log"), 500),
        "lines": lines,
        "cause": None if cause is None else {**cause, "evidence": clean_text(cause["evidence"], MAX_LOG_LINE)},
    }


def clean_lines(lines: Iterable[str]) -> list[str]:
    """Return the lines of a log, cleaned for display."""
    return [clean_line(line[:MAX_SEARCHED].expandtabs(), MAX_LOG_LINE) for line in lines]


def environment_names(plan: Mapping[str, Any]) -> list[str]:
    """Return the names of the job's environment variables, never a value."""
    environment, variables = to_mapping(plan.get("environment")), to_list(plan.get("variables"), 1000)
    return sorted({clean_text(name, 200) for name in [*environment, *variables]} - {""})


def user_variables(plan: Mapping[str, Any]) -> list[str]:
    """Return the names of the environment variables that the user set for the job."""
    return sorted({clean_text(name, 200) for name in to_list(plan.get("variables"), 1000)} - {""})


def job_metrics(job_report: Mapping[str, Any]) -> list[Metric]:
    """Return the values that the job reported, as numbers and short texts."""
    entries: list[Metric] = []
    for name, value in list(job_report.items())[-MAX_METRICS:]:
        metric_value: float | str | None = to_number(value)
        if metric_value is None:
            metric_value = clean_text(value, 300) or ("true" if value is True else "false" if value is False else None)
        if metric_value is not None and clean_text(str(name), 120):
            entries.append({"name": clean_text(str(name), 120), "value": metric_value})
    return entries


def select_single_values(record: Record, job_report: Mapping[str, Any]) -> list[Metric]:
    """Return the measures for which rank 0 printed a single value, except for those that the job reported."""
    values = {name: value for name, value in record.single_values.items() if name not in job_report}
    return job_metrics(values)


def lacks_metrics(report: Report) -> bool:
    """Return whether a run that did not fail has no measures at all, in which case its page says which it would
    show.
    """
    return report["state"] != "failed" and not (report["metrics"] or report["printed_once"] or report["curves"])


def curve_notes(report: Report, fetched: bool) -> list[str]:
    """Return why there are no curves, unless another part of the page already says so."""
    if report["curves"]:
        return []
    if report["printed_once"]:
        printed = [f"{metric['name']} ({metric['value']:.5g})" for metric in report["printed_once"]]
        return [
            f"there are no curves: only one value of {format_list(printed, 4)} was printed, and a curve needs two or "
            "more"
        ]
    if not fetched or lacks_metrics(report):
        return []
    return [
        (
            "there are no curves: they are read from what rank 0 prints, such as 'step 20: loss 0.31' "
            "(launch_metrics adds formats), from repeated MUSTER_RESULT {...} lines, and from TensorBoard event "
            "files, trainer_state.json and metrics.csv in the directory where the job starts, in "
            "MUSTER_RUN_DIRECTORY and in launch_outputs"
        )
    ]


def samples_per_second(reported: Mapping[str, float], curves: list[CurveNumbers]) -> float | None:
    """Return the samples per second of the whole job: as reported, otherwise the mean over the second half of a
    curve.
    """
    for name, value in reported.items():
        if THROUGHPUT.match(name) and value > 0:
            return value
    for curve in curves:
        if THROUGHPUT.match(curve["name"].partition(" (")[0]) and curve["points"]:
            second_half = [point["mean"] for point in curve["points"]][len(curve["points"]) // 2 :]
            mean = math.fsum(second_half) / len(second_half)
            return mean if mean > 0 else None
    return None


def curve_numbers(curve: Curve) -> CurveNumbers:
    """Return a summary of a curve in numbers, with the points to draw by step and, if known, by time."""
    times = {}
    for step, time in zip(curve.step, curve.time, strict=False):
        if not math.isnan(time):
            times[step] = time
    steps = sorted(times)
    points: list[CurvePoint] = []
    index = 0
    for part in points_to_draw(curve):
        while index + 1 < len(steps) and steps[index + 1] <= part.position:
            index += 1
        points.append(
            {
                "step": part.position,
                "min": part.least,
                "mean": part.mean,
                "max": part.most,
                "time": times[steps[index]] if steps else None,
            }
        )
    return {
        "name": curve.name,
        "source": curve.source,
        "values": len(curve.value),
        "first": curve.value[0],
        "last": curve.value[-1],
        "min": min(curve.value),
        "max": max(curve.value),
        "last_step": curve.step[-1],
        "unit": curve.unit,
        "points": points,
    }


def run_settings(report: Report, reported: Mapping[str, float], program: JobProgram | None) -> dict[str, str]:
    """Return the settings of a run that can differ between runs, by name."""
    rows = report["nodes"]
    values = {
        "nodes": str(report["nnodes"]),
        "processes": str(report["world_size"]),
        "launcher": report["launcher"],
        "GPU": join_distinct(row["gpu"] for row in rows),
        "driver": join_distinct(row["driver"] for row in rows),
        "Python": join_distinct(row["python"] for row in rows),
        "torch": join_distinct(row["torch"] for row in rows),
        "CUDA": join_distinct(row["cuda"] for row in rows),
        "commit": report["commit"] + (" with changes" if report["dirty"] else ""),
        "working directory": report["working_directory"],
        "environment": " ".join(report["environment"]),
    }
    if "batch_size" in reported:
        values["batch size per rank"] = f"{reported['batch_size']:g}"
    values |= program_arguments(program) if program is not None else {}
    return {name: value for name, value in values.items() if value}


def code_settings(files: Mapping[str, str] | None, plan: Mapping[str, Any]) -> dict[str, str]:
    """Return hashes of the code that ran, by name: of all files and of the script, if known."""
    script = clean_text(clean_text(plan.get("program_sha256"), 100)[:12])
    settings = {SCRIPT_CONTENT: script} if script else {}
    if files is not None:
        settings[CODE] = f"{digest_of_files(files)}, {len(files)} file{'' if len(files) == 1 else 's'}"
    return settings


def join_distinct(values: Any) -> str:
    """Return the distinct values."""
    return ", ".join(dict.fromkeys(value for value in values if value))


def command_arguments(value: Any) -> list[str]:
    """Return the arguments of a command, cleaned for display."""
    return [clean_text(argument, 500) for argument in to_list(value, MAX_ARGUMENTS) if isinstance(argument, str)]


def find_program(plan: Mapping[str, Any], command: list[str]) -> JobProgram | None:
    """Return the job's own program, from the command of rank 0's node, or None if it cannot be determined.

    Launchers that only start muster's rank program leave the job's program in a file (_plan/launchers/base.py).
    torchrun has it after its own options, the last of which is `--`.
    """
    rules = to_mapping(parse_json(str(to_mapping(plan.get("files")).get(RANK_RULES, ""))))
    if not rules and plan.get("launcher") == "torchrun":
        if "--" not in command[1:-1]:  # the command is not from a plan that we wrote
            index = next((index for index, word in enumerate(command) if word.endswith(".py")), None)
            return None if index is None else JobProgram("script", command[index], command[index + 1 :])
        index = command.index("--", 1)
        kind = {"-m": "module", "--no-python": "program"}.get(command[index - 1], "script")
        return JobProgram(kind, command[index + 1], command[index + 2 :])
    command_line = (
        [*command_arguments(rules.get("command")), *command_arguments(rules.get("arguments"))] if rules else command
    )
    if command_line[1:2] != ["-u"] or command_line[0] == clean_text(plan.get("program"), 500):  # not `python -u`
        return JobProgram("program", command_line[0], command_line[1:]) if command_line else None
    if command_line[2:3] == ["-m"]:
        return JobProgram("module", command_line[3], command_line[4:]) if len(command_line) > 3 else None
    return JobProgram("script", command_line[2], command_line[3:]) if len(command_line) > 2 else None


def program_arguments(program: JobProgram) -> dict[str, str]:
    """Return the script or module, and the job's own arguments, by name."""
    by_name = {"module" if program.kind == "module" else "script": program.name}
    argv = program.arguments
    index = 0
    while index < len(argv):
        name, equals, value = argv[index].partition("=")
        if OPTION.match(name):
            if not equals and index + 1 < len(argv) and not OPTION.match(argv[index + 1]):
                value = argv[index + 1]
                index += 1
            by_name[name] = value or "set"
        else:
            by_name[f"argument {index + 1}"] = argv[index]
        index += 1
    return by_name


def repeat_command(program: JobProgram | None, command: list[str], plan: Mapping[str, Any], rows: list[NodeRow]) -> str:
    """Return the command for launching the same job again, or an empty string if it cannot be determined from the
    plan.
    """
    rows = [row for row in rows if row["slots"]] or rows  # omit spares
    slots = {row["slots"] for row in rows}
    if program is None or len(slots) != 1:
        return ""
    launcher, least = clean_text(plan.get("launcher"), 40), to_int(plan.get("min_nnodes"))
    job = {
        "nnodes": f"{least}:{len(rows)}" if plan.get("elastic") is True and least else len(rows),
        "nproc_per_node": slots.pop(),
        "launch_launcher": launcher,
        "launch_working_directory": clean_text(plan.get("working_directory"), 500),
        "launch_module" if program.kind == "module" else "launch_script": program.name,
        "launch_args": program.arguments,
    }
    if program.kind == "program":
        job["launch_no_python"] = True
    restart = to_mapping(plan.get("restart"))
    job.update(
        {f"launch_{name}": to_int(restart[name]) for name in ("restarts", "spares") if to_int(restart.get(name))}
    )
    if to_int(plan.get("max_restarts")):
        job["launch_max_restarts"] = to_int(plan.get("max_restarts"))
    if launcher == "torchrun" and "--rdzv-backend=c10d" in command:
        job["launch_rdzv_backend"] = "c10d"
    starter = next((word for word in command if word.startswith("--launcher=")), "")
    if launcher == "deepspeed" and starter:
        job["launch_deepspeed_launcher"] = starter.partition("=")[2]
    options = json.dumps(job, ensure_ascii=False)
    # Ansible would interpret braces as a template, and a shortened text ("…") differs from the original
    if any(pattern in options for pattern in ("{{", "{%", "…")):
        return ""
    return f"{LAUNCH} -e {shlex.quote(options)}"


def add_job_file(repeat: str, job_file: str) -> str:
    """Return the command with the run's job file, since its code and environment are not the project's."""
    if not repeat or not job_file:
        return repeat
    if any(pattern in job_file for pattern in ("{{", "{%", "…")):
        return ""
    return f"{LAUNCH} -e {shlex.quote(f'@{job_file}')}{repeat.removeprefix(LAUNCH)}"


def record_notes(record: Record, gpus: list[GpuSamples], rows: list[NodeRow]) -> list[str]:
    """Return notes about data that is missing or could not be read."""
    messages = list(record.notes)
    if not record.fetched:
        messages.append(
            "nothing was fetched from this run's nodes, so there are no GPU samples and no curves: fetch them with "
            f"ansible-playbook logs.yml -e run_id={record.run_id} -e fetch=true and rerun the report"
        )
    elif not gpus and any(row["gpus"] for row in rows):
        tool = vendor_of_model(next((row["gpu"] for row in rows if row["gpus"]), "")).tool
        messages.append(f"no GPU samples: {tool} did not respond")
    for link in record.links:
        if not is_wandb(link):
            messages.append(f"the job printed the URL of a run elsewhere: {clean_text(link, 300)}")
    return [clean_text(note, 500) for note in messages]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Turns a record into the document report.json. Pure. Private to this collection, controller only."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._failures.catalogue import explain_failure
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import (
    clean,
    listed,
    mapping,
    moment,
    number,
    parsed,
    whole,
)
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Record
from ansible_collections.muster.training.plugins.plugin_utils._report.cost import cost_of
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import (
    Curve,
    drawn,
    is_wandb,
    numbers_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import (
    VERSION,
    CurveNumbers,
    CurvePoint,
    Failure,
    Metric,
    NodeRow,
    Report,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.findings import Facts, findings_of
from ansible_collections.muster.training.plugins.plugin_utils._report.gpu_samples import Gpu
from ansible_collections.muster.training.plugins.plugin_utils._report.summary import (
    gpu_numbers,
    node_rows,
    stages,
    working_window,
)

STATES = ("succeeded", "failed", "stopped")
LOG_LINES = 20
LONGEST_LOG_LINE = 500
LONGEST_SEEN = 10_000  # characters of a line searched for a cause
MOST_METRICS = 100
MOST_WORDS = 500  # of the command
# Names of curves and metrics with the samples per second of the whole job
THROUGHPUT = re.compile(r"(?:.*[/_])?(?:train_)?samples[_/]?(?:per_|/)?s(?:ec|econd)?\Z", re.IGNORECASE)
RANK_RULES = "rank.json"
OPTION = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]{0,60}\Z")


class Program(NamedTuple):
    """The program that each process of a job runs. kind: script, module (of Python), or program (not Python)."""

    kind: str
    name: str
    arguments: list[str]


def gpus_of(record: Record) -> list[Gpu]:
    """The GPUs of all nodes, in their order."""
    return [gpu for node in record.nodes for gpu in node.gpus]


def compose(record: Record, now: float) -> Report:
    """The report of a run. now: seconds since 1970."""
    plan, result = mapping(record.plan), mapping(record.result)
    gpus = gpus_of(record)
    window = working_window(gpus)
    started, ended = moment(result.get("started")), moment(result.get("ended"))
    seconds = ended - started if started is not None and ended is not None and ended >= started else None
    rows = node_rows(plan, result)
    numbers = [gpu_numbers(gpu, window) for gpu in gpus]
    said = mapping(result.get("said"))
    told = numbers_of(said)
    curves = [of_curve(curve) for curve in record.curves]
    rate = throughput(told, curves)
    samples = told.get("samples", 0.0)  # not rate times seconds, as the start of a run processes none
    parts = stages(started, ended, record.events, window)
    shrunk = [clean(event.get("text"), 300) for event in map(mapping, record.events) if event.get("event") == "shrink"]
    facts = Facts(
        gpus=numbers,
        nodes=rows,
        window=window,
        started=started,
        ended=ended,
        stages=parts,
        said=told,
        restarts=record.attempts,
        shrunk=shrunk,
        sampled_nodes=frozenset(node.name for node in record.nodes if node.sampled) if record.fetched else None,
    )
    start_up = window.start - started if window is not None and started is not None else None
    state = clean(result.get("state"), 40)
    code = mapping(plan.get("code"))
    command = words(plan.get("command"))
    program = program_of(plan, command)
    report: Report = {
        "version": VERSION,
        "run_id": record.run_id,
        "made": now,
        "state": state if state in STATES else "not over",
        "verdict": "",
        "reason": clean(result.get("reason")),
        "started": started,
        "ended": ended,
        "seconds": seconds,
        "world_size": whole(plan.get("world_size")),
        "nnodes": len(rows),
        "launcher": clean(plan.get("launcher"), 40),
        "command": command,
        "working_directory": clean(plan.get("working_directory"), 500),
        "commit": clean(code.get("commit"), 60),
        "dirty": code.get("dirty") is True,
        "repeat": repeat(program, command, plan, rows),
        "environment": names_of_environment(plan),
        "settings": {},
        "metrics": metrics(said),
        "samples_per_second": rate,
        "samples": samples if samples >= 1 else None,
        "curves": curves,
        "links": record.links,
        "gpus": numbers,
        "processes": [process for node in record.nodes for process in node.processes],
        "nodes": rows,
        "stages": parts,
        "findings": findings_of(facts),
        "failure": failure(result, record.failure_log),
        "cost": cost_of(rows, numbers, seconds, start_up, samples, rate, clean(plan.get("currency"), 10) or "USD"),
        "restarts": record.attempts,
        "event_files": record.event_files,
        "notes": notes(record, gpus),
    }
    report["verdict"] = verdict(report)
    report["settings"] = settings(report, told, program)
    return report


def verdict(report: Report) -> str:
    """How the run went, in one line."""
    took = f" after {duration(report['seconds'])}" if report["seconds"] is not None else ""
    size = f"{report['nnodes']} node{'' if report['nnodes'] == 1 else 's'}, world size {report['world_size']}"
    failed = report["failure"]
    why = f"; failed first: {where_failed(failed)}: {failed['error']}" if failed is not None else ""
    reason = f"; {report['reason']}" if report["state"] == "stopped" and report["reason"] else ""
    state = report["state"] if report["state"] in STATES else "is not over, or its verdict is missing here"
    return f"{report['run_id']} {state}{took}: {size}{why}{reason}"


def where_failed(failed: Failure) -> str:
    """The node and the rank that failed first."""
    return failed["node"] + (f", rank {failed['rank']}" if failed["rank"] is not None else "")


def failure(result: Mapping[str, Any], log: str) -> Failure | None:
    """The first failure, with the end of its log."""
    told = result.get("first_failure")
    if not isinstance(told, Mapping):
        return None
    rank = number(told.get("rank"))
    kept = [line[:LONGEST_SEEN] for line in listed(told.get("last_lines"), LOG_LINES) if isinstance(line, str)]
    last_lines = log.splitlines() or kept
    lines = [clean(line, LONGEST_LOG_LINE) for line in last_lines[-LOG_LINES:]]
    error = told.get("error")
    found = explain_failure(error if isinstance(error, str) else "", last_lines)
    return {
        "node": clean(told.get("node"), 100),
        "node_rank": whole(told.get("node_rank")),
        "rank": None if rank is None else int(rank),
        "error": clean(error, 1000),
        "log": clean(told.get("log"), 500),
        "lines": lines,
        "cause": None if found is None else {**found, "seen": clean(found["seen"], LONGEST_LOG_LINE)},
    }


def names_of_environment(plan: Mapping[str, Any]) -> list[str]:
    """The names of the job's environment variables, never a value."""
    own, variables = mapping(plan.get("environment")), listed(plan.get("variables"), 1000)
    return sorted({clean(name, 200) for name in [*own, *variables]} - {""})


def metrics(said: Mapping[str, Any]) -> list[Metric]:
    """What the job reported, as numbers and short texts."""
    found: list[Metric] = []
    for name, value in list(said.items())[:MOST_METRICS]:
        known: float | str | None = number(value)
        if known is None:
            known = clean(value, 300) or ("true" if value is True else "false" if value is False else None)
        if known is not None and clean(str(name), 120):
            found.append({"name": clean(str(name), 120), "value": known})
    return found


def throughput(told: Mapping[str, float], curves: list[CurveNumbers]) -> float | None:
    """Samples per second of the whole job: as reported, otherwise the mean over the second half of a curve."""
    for name, value in told.items():
        if THROUGHPUT.match(name) and value > 0:
            return value
    for curve in curves:
        if THROUGHPUT.match(curve["name"].partition(" (")[0]) and curve["points"]:
            late = [point["mean"] for point in curve["points"]][len(curve["points"]) // 2 :]
            mean = math.fsum(late) / len(late)
            return mean if mean > 0 else None
    return None


def of_curve(curve: Curve) -> CurveNumbers:
    """A curve in numbers, with points to draw it by step and, if known, by time."""
    times = {}
    for step, time in zip(curve.step, curve.time, strict=False):
        if not math.isnan(time):
            times[step] = time
    steps = sorted(times)
    points: list[CurvePoint] = []
    place = 0
    for part in drawn(curve):
        while place + 1 < len(steps) and steps[place + 1] <= part.at:
            place += 1
        points.append(
            {
                "step": part.at,
                "least": part.least,
                "mean": part.mean,
                "most": part.most,
                "time": times[steps[place]] if steps else None,
            }
        )
    return {
        "name": curve.name,
        "source": curve.source,
        "values": len(curve.value),
        "first": curve.value[0],
        "last": curve.value[-1],
        "least": min(curve.value),
        "most": max(curve.value),
        "last_step": curve.step[-1],
        "points": points,
    }


def settings(report: Report, told: Mapping[str, float], program: Program | None) -> dict[str, str]:
    """The settings of a run by name that can differ between runs."""
    rows = report["nodes"]
    found = {
        "nodes": str(report["nnodes"]),
        "processes": str(report["world_size"]),
        "launcher": report["launcher"],
        "GPU": joined_values(row["gpu"] for row in rows),
        "driver": joined_values(row["driver"] for row in rows),
        "Python": joined_values(row["python"] for row in rows),
        "torch": joined_values(row["torch"] for row in rows),
        "CUDA": joined_values(row["cuda"] for row in rows),
        "commit": report["commit"] + (" with changes" if report["dirty"] else ""),
        "working directory": report["working_directory"],
        "environment": " ".join(report["environment"]),
    }
    if "batch_size" in told:
        found["batch size per rank"] = f"{told['batch_size']:g}"
    found |= arguments(program) if program is not None else {}
    return {name: value for name, value in found.items() if value}


def joined_values(values: Any) -> str:
    """The distinct values."""
    return ", ".join(dict.fromkeys(value for value in values if value))


def words(value: Any) -> list[str]:
    """The words of a command, as text."""
    return [clean(word, 500) for word in listed(value, MOST_WORDS) if isinstance(word, str)]


def program_of(plan: Mapping[str, Any], command: list[str]) -> Program | None:
    """The job's own program, from the command of rank 0's node; None if it cannot be determined.

    Launchers that only start our rank program leave it in a file (_plan/launchers/base.py). torchrun has it
    after its own options, the last of which is `--`.
    """
    rules = mapping(parsed(str(mapping(plan.get("files")).get(RANK_RULES, ""))))
    if not rules and plan.get("launcher") == "torchrun":
        if "--" not in command[1:-1]:  # not a plan that we wrote
            place = next((place for place, word in enumerate(command) if word.endswith(".py")), None)
            return None if place is None else Program("script", command[place], command[place + 1 :])
        place = command.index("--", 1)
        kind = {"-m": "module", "--no-python": "program"}.get(command[place - 1], "script")
        return Program(kind, command[place + 1], command[place + 2 :])
    own = [*words(rules.get("command")), *words(rules.get("arguments"))] if rules else command
    if own[1:2] != ["-u"] or own[0] == clean(plan.get("program"), 500):  # no interpreter of ours
        return Program("program", own[0], own[1:]) if own else None
    if own[2:3] == ["-m"]:
        return Program("module", own[3], own[4:]) if len(own) > 3 else None
    return Program("script", own[2], own[3:]) if len(own) > 2 else None


def arguments(program: Program) -> dict[str, str]:
    """The script or module, and the job's own arguments, by name."""
    found = {"module" if program.kind == "module" else "script": program.name}
    given = program.arguments
    place = 0
    while place < len(given):
        name, joined, value = given[place].partition("=")
        if OPTION.match(name):
            if not joined and place + 1 < len(given) and not OPTION.match(given[place + 1]):
                value = given[place + 1]
                place += 1
            found[name] = value or "set"
        else:
            found[f"argument {place + 1}"] = given[place]
        place += 1
    return found


def repeat(program: Program | None, command: list[str], plan: Mapping[str, Any], rows: list[NodeRow]) -> str:
    """The command that launches the same job again, "" if the plan does not determine it."""
    slots = {row["slots"] for row in rows}
    if program is None or len(slots) != 1:
        return ""
    launcher, least = clean(plan.get("launcher"), 40), whole(plan.get("min_nnodes"))
    job = {
        "nnodes": f"{least}:{len(rows)}" if plan.get("elastic") is True and least else len(rows),
        "nproc_per_node": slots.pop(),
        "launch_launcher": launcher,
        "launch_working_directory": clean(plan.get("working_directory"), 500),
        "launch_module" if program.kind == "module" else "launch_script": program.name,
        "launch_args": program.arguments,
    }
    if program.kind == "program":
        job["launch_no_python"] = True
    if whole(plan.get("max_restarts")):
        job["launch_max_restarts"] = whole(plan.get("max_restarts"))
    if launcher == "torchrun" and "--rdzv-backend=c10d" in command:
        job["launch_rdzv_backend"] = "c10d"
    starter = next((word for word in command if word.startswith("--launcher=")), "")
    if launcher == "deepspeed" and starter:
        job["launch_deepspeed_launcher"] = starter.partition("=")[2]
    typed = json.dumps(job, ensure_ascii=False)
    # Ansible would read braces as a template, and a shortened text ("…") differs from the original
    if any(mark in typed for mark in ("{{", "{%", "…")):
        return ""
    return f"ansible-playbook launch.yml -e {shlex.quote(typed)}"


def notes(record: Record, gpus: list[Gpu]) -> list[str]:
    """Notes about data that is missing or could not be read."""
    found = list(record.notes)
    if not record.fetched:
        found.append(
            "nothing was fetched from this run's nodes, so there are no GPU samples and no curves: fetch it with "
            f"ansible-playbook logs.yml -e run_id={record.run_id} -e fetch=true and rerun the report"
        )
    elif not gpus:
        found.append("there are no GPU samples: the nodes have no GPUs, or nvidia-smi did not answer")
    if not record.curves:
        found.append(
            "there are no curves: TensorBoard's event files, trainer_state.json and metrics.csv are taken from the run "
            "directory (MUSTER_RUN_DIRECTORY), and repeated lines MUSTER_RESULT {...} are, too"
        )
    for link in record.links:
        if not is_wandb(link):
            found.append(f"the job printed the URL of a run elsewhere: {clean(link, 300)}")
    return [clean(note, 500) for note in found]

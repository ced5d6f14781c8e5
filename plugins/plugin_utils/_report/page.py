# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The page of a report: one HTML file without scripts and without resources from other hosts.

Jinja2's autoescape escapes all texts of nodes and jobs; only the pictures drawn by this collection are not escaped.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.table import (
    HEADER as BENCHMARK_HEADER,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.table import build_rows
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of_model
from ansible_collections.muster.training.plugins.plugin_utils._report.best_value import find_best
from ansible_collections.muster.training.plugins.plugin_utils._report.curves import is_wandb
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import (
    CurveNumbers,
    Figure,
    GpuNumbers,
    ProcessNumbers,
    Report,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.plots import Plot, format_step
from ansible_collections.muster.training.plugins.plugin_utils._report.profile import OPERATION_HEADER, RANK_HEADER
from ansible_collections.muster.training.plugins.plugin_utils._report.report import failure_location, format_end
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

TEMPLATES = Path(__file__).with_name("templates")
GPU_HEADER = [
    "GPU",
    "utilization, mean",
    "5th percentile",
    "idle",
    "memory, peak",
    "power, mean",
    "temperature, peak",
    "samples",
]
PROCESS_HEADER = ["GPU", "process", "utilization", "memory, peak", "memory busy", "time"]
NODE_HEADER = ["node", "rank", "address", "processes", "GPUs", "driver", "torch", "ended as", "an hour", "notes"]
CURVE_HEADER = ["curve", "last", "at step", "best", "at step", "values"]
MAX_SMI_NODES = 8  # nodes whose nvidia-smi output is shown on the page
MAX_SMI_LENGTH = 8000  # characters


@dataclass
class RenderedPlot:
    """A plot of the page; svg is empty if it could not be drawn."""

    title: str
    caption: str
    svg: Markup | str
    header: list[str]
    rows: list[list[str]]


def render_plot(plot: Plot, svg: str) -> RenderedPlot:
    """Return a plot with its picture, which need not be escaped since it was drawn by this collection."""
    return RenderedPlot(plot.title, plot.caption, Markup(svg), plot.header, plot.rows)


def environment() -> Environment:
    """Return the Jinja2 environment of the page, which escapes everything."""
    return Environment(
        autoescape=True,
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_run(  # noqa: PLR0913
    report: Report,
    curve_plots: Sequence[RenderedPlot],
    gpu_plots: Sequence[RenderedPlot],
    record: str,
    nvidia_smi: Sequence[tuple[str, str]] = (),
    note: str = "",
    ssh_target: str = "USER@MACHINE",
    benchmark: Benchmark | None = None,
    benchmark_plots: Sequence[RenderedPlot] = (),
    logs_command: str = "",
) -> str:
    """Return the page of one run.

    Args:
        report: The run's report.
        curve_plots: Plots of the job's curves.
        gpu_plots: Plots of GPU samples.
        record: The run's directory.
        nvidia_smi: Nodes and their output of nvidia-smi.
        note: Message about missing pictures.
        ssh_target: This account and machine as USER@HOST, for readers on another machine.
        benchmark: The figures, if the run was a benchmark.
        benchmark_plots: Their plots.
        logs_command: The command that shows the output of the rank that failed first.
    """
    node_header, nodes = drop_empty_columns(NODE_HEADER, node_table(report))
    profile = report.get("profile")
    return (
        environment()
        .get_template("run.html.j2")
        .render(
            title=f"Run {report['run_id']}",
            report=report,
            end=format_end(report),
            logs_command=logs_command,
            run_facts=run_facts(report),
            links=[(link, is_wandb(link)) for link in report["links"]],
            no_findings=no_findings_message(report),
            benchmark=benchmark,
            benchmark_header=BENCHMARK_HEADER,
            benchmark_rows=build_rows(benchmark) if benchmark is not None else [],
            benchmark_plots=benchmark_plots,
            notes=[*report["notes"], *([note] if note else [])],
            metrics=[
                [metric["name"], format_value(metric["value"])]
                for metric in report["metrics"]
                if not isinstance(metric["value"], str)
            ],
            texts=[
                (metric["name"], metric["value"]) for metric in report["metrics"] if isinstance(metric["value"], str)
            ],
            printed_once=[[metric["name"], format_value(metric["value"])] for metric in report["printed_once"]],
            curve_header=CURVE_HEADER,
            curves=[curve_row(curve) for curve in report["curves"]],
            curve_plots=curve_plots,
            gpu_plots=gpu_plots,
            tensorboard=f"tensorboard --logdir {shlex.quote(record + '/logs')} --port 6006"
            if report["event_files"]
            else "",
            tunnel=f"ssh -N -L 6006:localhost:6006 {shlex.quote(ssh_target)}",
            throughput=throughput(report),
            gpus=[gpu_row(gpu) for gpu in report["gpus"]],
            gpu_header=GPU_HEADER,
            gpu_tool=vendor_of_model(report["gpus"][0]["model"] if report["gpus"] else "").tool,
            processes=[process_row(process) for process in report["processes"]],
            process_header=PROCESS_HEADER,
            nodes=nodes,
            node_header=node_header,
            stages=[
                [stage["name"], format_duration(stage["seconds"]), f"{stage['seconds'] / report['seconds']:.0%}"]
                for stage in report["stages"]
                if report["seconds"]
            ],
            nvidia_smi=[(name, text[:MAX_SMI_LENGTH]) for name, text in nvidia_smi[:MAX_SMI_NODES]],
            failed_where=failure_location(report["failure"]) if report["failure"] is not None else "",
            stacks=report.get("stacks", []),
            profile=profile,
            profile_header=RANK_HEADER,
            operation_header=OPERATION_HEADER,
            profiled=format_time(profile["time"]) if profile is not None else "",
            cost=cost_facts(report),
            cost_missing=missing_price(report),
            command=shlex.join(report["command"]),
            made=format_time(report["created"]),
            record=record,
        )
    )


def format_time(seconds: float | None) -> str:
    """Format a time in this machine's time zone, with its offset from UTC."""
    if seconds is None or abs(seconds) > 1e11:
        return "not known"
    return time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(seconds))


def format_value(value: float | str) -> str:
    """Format a number as an integer or with five significant digits; return a text unchanged."""
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e15 else f"{value:.5g}"


def summarize_values(values: Sequence[str]) -> str:
    """Return the distinct values; if there are several, each with its count."""
    counts: dict[str, int] = {}
    for value in values:
        if value:
            counts[value] = counts.get(value, 0) + 1
    if len(counts) < 2:
        return next(iter(counts), "")
    return ", ".join(f"{value} ({count} nodes)" for value, count in counts.items())


def run_facts(report: Report) -> list[tuple[str, str]]:
    """Return facts about the run and its nodes as (name, value) pairs."""
    rows = report["nodes"]
    gpus = sum(row["gpus"] or 0 for row in rows)
    settings = report["settings"]
    pairs = [
        ("program", shlex.join(report["program"])),
        ("started", format_time(report["started"])),
        ("ended", format_time(report["ended"])),
        ("time", format_duration(report["seconds"]) if report["seconds"] is not None else "not known"),
        ("nodes", f"{report['nnodes']}, {report['world_size']} processes"),
        ("launcher", report["launcher"]),
        ("attempts", "; ".join(report.get("attempts", []))),
        ("GPUs", f"{gpus} x " + summarize_values([row["gpu"] for row in rows]) if gpus else ""),
        ("driver", summarize_values([row["driver"] for row in rows])),
        ("torch", summarize_values([row["torch"] for row in rows])),
        ("CUDA", summarize_values([row["cuda"] for row in rows])),
        ("Python", summarize_values([row["python"] for row in rows])),
        ("commit", settings.get("commit", "")),
        ("working directory", report["working_directory"]),
        ("batch size per rank", settings.get("batch size per rank", "")),
        ("variables set for the job", ", ".join(report["variables"])),
    ]
    return [(name, value) for name, value in pairs if value]


def no_findings_message(report: Report) -> str:
    """Return the message for a report without findings; empty if the run failed or has no GPU samples."""
    if report["gpus"] and report["state"] != "failed":
        return "None: no rule found anything in the GPU samples or run times."
    return ""


def curve_row(curve: CurveNumbers) -> list[str]:
    """Return a row for the table of curves."""
    best = find_best(curve)
    best_cells = ["", ""] if best is None else [f"{best.value:.5g}", format_position(curve, best.step)]
    last_step = format_position(curve, curve["last_step"])
    return [curve["name"], f"{curve['last']:.5g}", last_step, *best_cells, str(curve["values"])]


def format_position(curve: CurveNumbers, step: float) -> str:
    """Format a position for the table of curves, with its unit unless that is a step."""
    return format_step(step) if curve["unit"] == "step" else f"{curve['unit']} {format_step(step)}"


def drop_empty_columns(header: list[str], rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Return a table without the columns that are empty in all rows."""
    kept = [index for index in range(len(header)) if index == 0 or any(row[index] for row in rows)]
    return [header[index] for index in kept], [[row[index] for index in kept] for row in rows]


def missing_price(report: Report) -> str:
    """Return the parts of the cost that are unknown, or an empty string if there are none or no machine has a price."""
    has_prices = any(row["price_per_hour"] is not None for row in report["nodes"])
    return report["cost"]["missing"] if has_prices else ""


def throughput(report: Report) -> list[tuple[str, str]]:
    """Return the samples per second, for the whole job and for each process."""
    rate = report["samples_per_second"]
    if rate is None:
        return []
    pairs = [("samples a second", format_value(rate))]
    if report["world_size"]:
        pairs.append(("of each process", format_value(rate / report["world_size"])))
    if report["samples"]:
        pairs.append(
            ("samples", f"{report['samples']:,.0f}" if report["samples"] < 1e15 else f"{report['samples']:.3g}")
        )
    return pairs


def format_figure(figure: Figure | None, statistic: str, unit: str, scale: float = 1.0) -> str:
    """Format one number from a figure, such as "83 %"; empty if there are too few samples."""
    return "" if figure is None else f"{float(figure[statistic]) / scale:.{1 if scale != 1.0 else 0}f} {unit}"  # type: ignore[literal-required]


def gpu_row(gpu: GpuNumbers) -> list[str]:
    """Return a row for the table of GPUs."""
    total = f" of {gpu['memory_total_mib'] / 1024:.0f}" if gpu["memory_total_mib"] else ""
    memory = gpu["memory_used_mib"]
    return [
        f"{gpu['node']} GPU {gpu['index']}",
        format_figure(gpu["utilization_percent"], "mean", "%"),
        format_figure(gpu["utilization_percent"], "p5", "%"),
        "" if gpu["idle_share"] is None else f"{100 * gpu['idle_share']:.0f} %",
        "" if memory is None else f"{memory['peak'] / 1024:.1f}{total} GiB",
        format_figure(gpu["power_watts"], "mean", "W"),
        format_figure(gpu["temperature_celsius"], "peak", "°C"),
        str(gpu["samples"]),
    ]


def process_row(process: ProcessNumbers) -> list[str]:
    """Return a row for the table of processes."""
    utilization, memory_utilization = process["utilization_percent"], process["memory_utilization_percent"]
    peak, seconds = process["memory_peak_mib"], process["seconds"]
    return [
        f"{process['node']} GPU {process['gpu']}",
        str(process["pid"]),
        "" if utilization is None else f"{utilization:.0f} %",
        "" if peak is None else f"{peak / 1024:.1f} GiB",
        "" if memory_utilization is None else f"{memory_utilization:.0f} %",
        "" if seconds is None else format_duration(seconds),
    ]


def node_table(report: Report) -> list[list[str]]:
    """Return the table of nodes."""
    table = []
    for row in report["nodes"]:
        code = "" if row["exit_code"] in (None, 0) else f", exit code {row['exit_code']}"
        notes = list(row["problems"])
        if row["oom_kills"]:
            notes.append(f"the kernel killed {row['oom_kills']} processes for lack of memory")
        price = row["price_per_hour"]
        table.append(
            [
                row["name"],
                str(row["node_rank"]),
                row["address"],
                str(row["slots"]),
                f"{row['gpus']} x {row['gpu']}" if row["gpus"] else "",
                row["driver"],
                row["torch"],
                row["state"] + code,
                "" if price is None else format_money(price, report["cost"]["currency"]),
                "; ".join(notes),
            ]
        )
    return table


def format_money(amount: float, currency: str) -> str:
    """Format an amount with as many digits as necessary, such as "7.56 USD" and "0.0112 USD"."""
    return f"{amount:.2f} {currency}" if amount >= 1 or amount == 0 else f"{amount:.3g} {currency}"


def cost_facts(report: Report) -> list[tuple[str, str]]:
    """Return the known costs of the run."""
    cost = report["cost"]
    pairs = [
        ("the run", cost["run"]),
        ("an hour", cost["per_hour"]),
        ("of which until a GPU was busy", cost["start_up"]),
        ("of which for idle GPUs", cost["idle_gpus"]),
        ("1000 samples" if report["samples"] else "1000 samples, at this throughput", cost["per_1000_samples"]),
    ]
    return [(name, format_money(amount, cost["currency"])) for name, amount in pairs if amount is not None]

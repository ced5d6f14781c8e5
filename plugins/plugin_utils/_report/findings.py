# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules that find problems and possible improvements in a run. Each finding includes its numbers and a remedy.

A rule is a function from Facts to findings.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import vendor_of_model
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import (
    GpuNumbers,
    NodeRow,
    ReportFinding,
    RunStage,
    gpu_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.summary import MIN_SAMPLES, Window
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

IDLE_SHARE = 0.2  # fraction of the time between the run's first busy sample and its last
WAITING_PERCENT = 95.0  # utilization at which a GPU looks busy ...
WAITING_POWER = 0.5  # ... and the fraction of its power limit below which it is not really busy
SLOW_POWER = 0.85  # fraction of the median of the other GPUs
MEMORY_ROOM, MEMORY_FULL = 0.6, 0.97  # peak memory use, as fractions of the GPU's memory
# temperature at which NVIDIA boards begin to lower their clock speeds; 90 and above is close to their slowdown
# temperature
HOT_CELSIUS = 83.0
VERY_HOT_CELSIUS = 90.0
HOT_POWER = 0.9  # fraction of the power it drew while it was cooler
TAIL = 120.0  # seconds
# fraction of the run, and seconds: both must be exceeded, so that short runs are ignored
START_UP_SHARE, START_UP = 0.2, 60.0
CHECKPOINT_SHARE = 0.1
MISSING_SHARE = 0.1  # fraction of the samples
MAX_NAMES = 8  # number of nodes or GPUs named in a sentence


@dataclass
class Facts:
    """The input to the rules. window: the time in which GPUs were busy."""

    gpus: list[GpuNumbers]
    nodes: list[NodeRow] = field(default_factory=list)
    window: Window | None = None
    started: float | None = None
    ended: float | None = None
    stages: list[RunStage] = field(default_factory=list)
    reported: dict[str, float] = field(default_factory=dict)
    restarts: int = 0
    # texts of events that report that an elastic run continued with fewer nodes
    shrunk: list[str] = field(default_factory=list)
    unhealthy: list[str] = field(default_factory=list)  # texts of events about node health
    sampled_nodes: frozenset[str] | None = None  # nodes that have a gpus.csv; None if nothing was fetched

    @property
    def seconds(self) -> float | None:
        """The duration of the run."""
        both_known = self.started is not None and self.ended is not None and self.ended > self.started
        return self.ended - self.started if both_known and self.ended is not None and self.started is not None else None


def make_finding(rule: str, severity: str, about: list[str], text: str, remedy: str, **numbers: float) -> ReportFinding:
    """Return a finding."""
    return {"id": rule, "severity": severity, "about": about, "problem": text, "remedy": remedy, "numbers": numbers}


def subject(names: list[str], total: int) -> str:
    """Return the subject of a sentence: "all N GPUs", or the GPUs' names."""
    if len(names) == total > 1:
        return f"all {total} GPUs"
    return format_list(names, MAX_NAMES)


def unused_gpus(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs that were idle during the whole run."""
    measured = [gpu for gpu in facts.gpus if gpu["idle_share"] is not None]
    unused = [gpu for gpu in measured if gpu["idle_share"] == 1.0]
    if unused:
        names = [gpu_name(gpu) for gpu in unused]
        samples = min(gpu["samples"] for gpu in unused)
        yield make_finding(
            "gpu-unused",
            "problem",
            names,
            f"{subject(names, len(facts.gpus))}: never busy, in at least {samples} samples",
            "check that the job starts one process per GPU (nproc_per_node), selects its GPU by LOCAL_RANK, and moves "
            "the model to it",
            gpus=len(unused),
            samples=samples,
        )


def idle_gpus(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs that are idle for more than a fifth of the working time, usually because they are waiting for data."""
    idle = [gpu for gpu in facts.gpus if (gpu["idle_share_working"] or 0) > IDLE_SHARE and gpu["idle_share"] != 1.0]
    if idle:
        names = [gpu_name(gpu) for gpu in idle]
        worst = max(idle, key=lambda gpu: gpu["idle_share_working"] or 0)
        share = worst["idle_share_working"] or 0
        yield make_finding(
            "gpu-idle",
            "hint",
            names,
            (
                f"{subject(names, len(facts.gpus))}: idle for up to {share:.0%} of the samples while the job was "
                f"working ({gpu_name(worst)})"
            ),
            (
                "increase num_workers, set pin_memory=True and persistent_workers=True in the data loader, and copy "
                "the data to local disks (stage_data.yml); logging or saving at each step makes GPUs wait, too"
            ),
            gpus=len(idle),
            share=share,
        )


def waiting_gpus(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs that look busy but draw little power: NCCL kernels spin while they wait for other ranks."""
    waiting = [
        gpu
        for gpu in facts.gpus
        if (gpu["utilization_working_percent"] or 0) >= WAITING_PERCENT
        and gpu["power_working_watts"] is not None
        and gpu["power_limit_watts"]
        and gpu["power_working_watts"] < WAITING_POWER * gpu["power_limit_watts"]
    ]
    if waiting:
        names = [gpu_name(gpu) for gpu in waiting]
        worst = min(waiting, key=lambda gpu: (gpu["power_working_watts"] or 0) / (gpu["power_limit_watts"] or 1))
        share = (worst["power_working_watts"] or 0) / (worst["power_limit_watts"] or 1)
        yield make_finding(
            "gpu-waiting",
            "hint",
            names,
            (
                f"{subject(names, len(facts.gpus))}: utilization of {worst['utilization_working_percent']:.0f} % at "
                f"{share:.0%} of the power limit ({gpu_name(worst)}): busy waiting, not computing"
            ),
            "the GPUs wait for communication or for a slow peer, or their kernels are very small: use a larger batch "
            "or gradient accumulation, and look for a slow node or network (nccl.*.log of a run with -e debug=true "
            "shows what NCCL uses)",
            gpus=len(waiting),
            share=share,
        )


def slow_gpu(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs that draw much less power than others of the same model: they are throttled, or have less to do."""
    for model in sorted({gpu["model"] for gpu in facts.gpus}):
        same_model = [
            (gpu, gpu["power_working_watts"])
            for gpu in facts.gpus
            if gpu["model"] == model and gpu["power_working_watts"] is not None and gpu["idle_share"] != 1.0
        ]
        for gpu, watts in same_model:
            other_watts = [power for other_gpu, power in same_model if other_gpu is not gpu and power is not None]
            median = statistics.median(other_watts) if other_watts else 0.0
            if watts is not None and median > 0 and watts < SLOW_POWER * median:
                yield make_finding(
                    "gpu-slow",
                    "problem",
                    [gpu_name(gpu)],
                    (
                        f"{gpu_name(gpu)}: draws {watts:.0f} W while the job is working, but the others draw "
                        f"{median:.0f} W ({watts / median:.0%})"
                    ),
                    "it is throttled or has less to do, and the others wait for it at each step: check "
                    f"{vendor_of_model(gpu['model']).pace} on {gpu['node']} while a job runs, and its PCIe link and "
                    "power cap",
                    watts=watts,
                    others_watts=median,
                    share=watts / median,
                )


def memory_room(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs with so much unused memory that a larger batch would fit; the fullest GPU is decisive."""
    measured = [gpu for gpu in facts.gpus if gpu["memory_used_mib"] and gpu["memory_total_mib"]]
    used = [(gpu, peak_share(gpu)) for gpu in measured if gpu["idle_share"] != 1.0]
    if used and max(share for _gpu, share in used) < MEMORY_ROOM:
        fullest, share = max(used, key=lambda pair: pair[1])
        yield make_finding(
            "memory-room",
            "hint",
            [gpu_name(fullest)],
            f"at most {share:.0%} of a GPU's memory was used ({gpu_name(fullest)})",
            (
                "a larger batch size per rank would fit and is usually faster: raise it until about 90 % of the "
                "memory is used, and raise the learning rate with it"
            ),
            share=share,
        )


def memory_full(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs that nearly ran out of memory."""
    full = [
        gpu
        for gpu in facts.gpus
        if gpu["memory_used_mib"] and gpu["memory_total_mib"] and peak_share(gpu) > MEMORY_FULL
    ]
    if full:
        names = [gpu_name(gpu) for gpu in full]
        fullest = max(full, key=peak_share)
        yield make_finding(
            "memory-full",
            "hint",
            names,
            f"{subject(names, len(facts.gpus))}: up to {peak_share(fullest):.1%} of the memory was used "
            f"({gpu_name(fullest)}): a single longer sample can exhaust it",
            "use a slightly smaller batch, or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in "
            "launch_environment, which wastes less memory",
            share=peak_share(fullest),
        )


def peak_share(gpu: GpuNumbers) -> float:
    """Return the largest share of its memory that any GPU used."""
    used, total = gpu["memory_used_mib"], gpu["memory_total_mib"]
    return used["peak"] / total if used is not None and total else 0.0


def heat(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs that draw less power while they are hottest, and those close to their temperature limit."""
    for gpu in facts.gpus:
        degrees = gpu["temperature_celsius"]
        hot, cool = gpu["power_hot_watts"], gpu["power_cool_watts"]
        if degrees is None or degrees["peak"] < HOT_CELSIUS:
            continue
        throttled = hot is not None and cool is not None and hot < HOT_POWER * cool
        if throttled or degrees["peak"] >= VERY_HOT_CELSIUS:
            power_drop = f", and then draws {hot:.0f} W instead of {cool:.0f} W" if throttled else ""
            numbers = {"celsius": degrees["peak"]}
            if throttled and hot is not None and cool is not None:
                numbers |= {"hot_watts": hot, "cool_watts": cool}
            yield make_finding(
                "gpu-hot",
                "problem" if throttled else "hint",
                [gpu_name(gpu)],
                f"{gpu_name(gpu)}: reaches {degrees['peak']:.0f} °C{power_drop}",
                "check its cooling, or ask the provider for another machine; "
                f"{vendor_of_model(gpu['model']).throttling} on {gpu['node']} shows whether its clocks are throttled",
                **numbers,
            )


def tail(facts: Facts) -> Iterator[ReportFinding]:
    """Find idle time after the last GPU activity, while the machines are still billed."""
    if facts.window is not None and facts.ended is not None and facts.ended - facts.window.end > TAIL:
        seconds = facts.ended - facts.window.end
        yield make_finding(
            "tail",
            "hint",
            [],
            f"no GPU was busy in the last {format_minutes(seconds)} of the run",
            (
                "check what the job does at the end: if all machines are waiting while one rank evaluates or uploads "
                "something, do this after the run; it is also possible that the job is hanging on exit "
                "(destroy_process_group)"
            ),
            seconds=seconds,
        )


def start_up(facts: Facts) -> Iterator[ReportFinding]:
    """Find a startup that takes up a large part of the run."""
    seconds = facts.seconds
    if facts.window is None or facts.started is None or seconds is None:
        return
    delay = facts.window.start - facts.started
    if delay > START_UP and delay > START_UP_SHARE * seconds:
        yield make_finding(
            "start-up",
            "hint",
            [],
            f"for the first {format_minutes(delay)}, {delay / seconds:.0%} of the run, no GPU was busy",
            "copy models and data to local disks beforehand (hugging_face, stage_data.yml), keep tokenized data, and "
            "compile kernels once: you pay for the machines in the meantime",
            seconds=delay,
            share=delay / seconds,
        )


def checkpoint_share(facts: Facts) -> Iterator[ReportFinding]:
    """Detect whether saving checkpoints takes up a large part of the run, if the job reports checkpoint_seconds."""
    spent, seconds = facts.reported.get("checkpoint_seconds"), facts.seconds
    if spent is not None and seconds is not None and spent > CHECKPOINT_SHARE * seconds:
        yield make_finding(
            "checkpoints",
            "hint",
            [],
            f"checkpoints took {format_minutes(spent)}, {spent / seconds:.0%} of the run",
            (
                "save less often, save to a local disk and have the checkpoints role copy them, or save in the "
                "background (torch.distributed.checkpoint.async_save)"
            ),
            seconds=spent,
            share=spent / seconds,
        )


def restarts(facts: Facts) -> Iterator[ReportFinding]:
    """Find restarts of the ranks, and nodes that were lost while an elastic run continued."""
    if facts.restarts:
        times = "once" if facts.restarts == 1 else f"{facts.restarts} times"
        yield make_finding(
            "restarts",
            "problem",
            [],
            f"the ranks were restarted {times}",
            "the logs of each attempt are in logs/node*/ranks; the end of each log shows why the attempt ended",
            restarts=facts.restarts,
        )
    if facts.shrunk:
        yield make_finding(
            "shrunk", "problem", [], facts.shrunk[0], "check the node that left", nodes=len(facts.shrunk)
        )


def unhealthy_nodes(facts: Facts) -> Iterator[ReportFinding]:
    """Find problems with nodes during the run, and nodes that were slower than others."""
    for text in dict.fromkeys(facts.unhealthy):
        yield make_finding("unhealthy", "problem", [], text, "run ansible-playbook preflight.yml on the node")


def missing_samples(facts: Facts) -> Iterator[ReportFinding]:
    """Find GPUs with missing samples: nvidia-smi did not respond, or the GPU was unavailable."""
    for gpu in facts.gpus:
        expected, vendor = gpu["samples"] + gpu["missing_samples"], vendor_of_model(gpu["model"])
        if gpu["samples"] >= MIN_SAMPLES and gpu["missing_samples"] > MISSING_SHARE * expected:
            yield make_finding(
                "samples-missing",
                "problem",
                [gpu_name(gpu)],
                f"{gpu_name(gpu)}: {gpu['missing_samples']} of {expected} samples are missing",
                f"{vendor.tool} did not respond on {gpu['node']} at times: look for '{vendor.kernel_messages}' in the "
                "output of sudo dmesg there",
                missing=gpu["missing_samples"],
                samples=expected,
            )
    last_samples = [gpu["last_sample"] for gpu in facts.gpus if gpu["last_sample"] is not None]
    for gpu in facts.gpus:
        last, interval, vendor = gpu["last_sample"], gpu["interval_seconds"], vendor_of_model(gpu["model"])
        if last is not None and interval and max(last_samples) - last > max(60.0, 4 * interval) and facts.gpus:
            yield make_finding(
                "samples-end",
                "problem",
                [gpu_name(gpu)],
                (
                    f"{gpu_name(gpu)}: its samples end {format_minutes(max(last_samples) - last)} before those of the "
                    "others"
                ),
                (
                    f"the node left the run, or {vendor.tool} no longer showed the GPU: check the end of the logs of "
                    f"{gpu['node']}, and look for '{vendor.kernel_messages}' in the output of sudo dmesg there"
                ),
                seconds=max(last_samples) - last,
            )
    if facts.sampled_nodes is not None:
        unsampled = [row["name"] for row in facts.nodes if row["gpus"] and row["name"] not in facts.sampled_nodes]
        if unsampled:
            yield make_finding(
                "samples-none",
                "hint",
                unsampled,
                f"{format_list(unsampled, MAX_NAMES)}: no GPU samples were fetched",
                "fetch them with ansible-playbook logs.yml -e fetch=true and rerun the report",
                nodes=len(unsampled),
            )


def format_minutes(seconds: float) -> str:
    """Format a duration in a single unit: 45 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


RULES: tuple[Callable[[Facts], Iterator[ReportFinding]], ...] = (
    unused_gpus,
    slow_gpu,
    unhealthy_nodes,
    missing_samples,
    restarts,
    heat,
    idle_gpus,
    waiting_gpus,
    memory_full,
    memory_room,
    tail,
    start_up,
    checkpoint_share,
)
MAX_FINDINGS = 40


def find_all(facts: Facts) -> list[ReportFinding]:
    """Return the findings of all rules, problems first, at most MAX_FINDINGS."""
    findings = [finding for rule in RULES for finding in rule(facts)]
    return sorted(findings, key=lambda finding: finding["severity"] != "problem")[:MAX_FINDINGS]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Predict from a rehearsal whether the whole job will work."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import (
    ALL_NODES,
    RESUMED,
    TWO_NODES,
    ForecastFinding,
    Rehearsal,
    RehearsalJob,
    RehearsalLaunch,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.page import format_money
from ansible_collections.muster.training.plugins.plugin_utils._text.duration import format_duration

HOUR = 3600.0
MIN_LOSS_DROP = 0.05  # fraction of the first loss: a curve that fell by less does not show whether it was continued
# fraction of the drop in loss: if the second start begins higher by more than this, it did not continue the curve
MAX_LOSS_JUMP = 0.5
# give a hint if the step time on all nodes exceeds the step time on two nodes by more than this factor
SLOW_STEP_RATIO = 1.25
# required free space as a multiple of the checkpoints: logs and an unfinished checkpoint also need space
FREE_SPACE_FACTOR = 1.1
PRINT_RESULT = "print MUSTER_RESULT "


def find_launch(launches: Sequence[RehearsalLaunch], kind: str) -> RehearsalLaunch | None:
    """Return the launch of this kind, or None if it has not succeeded yet."""
    return next((launch for launch in launches if launch["kind"] == kind), None)


def judge(rehearsal: Rehearsal, checkpoint_bytes: int | None, free_bytes: int | None) -> Rehearsal:
    """Return the rehearsal with its findings and forecast. Both sizes are in bytes, on the node that runs rank 0."""
    job, full_launch = rehearsal["job"], find_launch(rehearsal["starts"], ALL_NODES)
    loss_findings = check_loss(rehearsal["starts"])
    resumed, resume_findings = check_resume(job, rehearsal["starts"]) if not loss_findings else (None, [])
    findings = [
        *loss_findings,
        *resume_findings,
        *check_step_time(job, rehearsal["starts"]),
        *check_disk_space(job, full_launch, checkpoint_bytes, free_bytes),
    ]
    if not was_measured(rehearsal["starts"]) and not any(finding["severity"] == "problem" for finding in findings):
        findings = [NOTHING_MEASURED]  # the hints would repeat it once for each missing number
    seconds = estimate_seconds(job, full_launch)
    per_hour = full_launch["per_hour"] if full_launch is not None else None
    return {
        **rehearsal,
        "checkpoint_bytes": checkpoint_bytes,
        "free_bytes": free_bytes,
        "resumed": resumed,
        "total_seconds": seconds,
        "total_cost": per_hour * seconds / HOUR if per_hour is not None and seconds is not None else None,
        "findings": findings,
        "go": not any(finding["severity"] == "problem" for finding in findings),
    }


def was_measured(launches: Sequence[RehearsalLaunch]) -> bool:
    """Return whether a launch reported anything that can be judged: a loss, a step time or a checkpoint."""
    return any(launch["loss"] or launch["step_seconds"] is not None or launch["checkpoint"] for launch in launches)


def check_loss(launches: Sequence[RehearsalLaunch]) -> list[ForecastFinding]:
    """Report a loss that is not finite, because the job learns nothing from that step on."""
    for launch in launches:
        if launch["broken"] is not None:
            return [
                make_problem(
                    f"the loss is not a number at step {launch['broken']:g} of {launch['run_id']}",
                    "lower the learning rate, clip gradients, or use bf16 instead of fp16; if a different loss "
                    "matters, name it with rehearse_loss",
                )
            ]
    return []


def check_resume(job: RehearsalJob, launches: Sequence[RehearsalLaunch]) -> tuple[bool | None, list[ForecastFinding]]:
    """Return whether the resumed launch continued the loss curve, or None if that is unknown, and the findings."""
    first, second = find_launch(launches, ALL_NODES), find_launch(launches, RESUMED)
    if not job["resume_args"]:
        return None, [make_hint("resuming was not tested", "set rehearse_resume_args, such as --resume {checkpoint}")]
    if first is None or second is None:
        return None, []
    if len(first["loss"]) < 2 or not second["loss"]:
        remedy = f'{PRINT_RESULT}{{"step": ..., "loss": ...}} at some steps, or name the curve with rehearse_loss'
        return None, [make_hint("whether the second start resumed is unknown: the job reported no loss", remedy)]
    first_loss, final_loss, resumed_loss = first["loss"][0], final_level(first["loss"]), second["loss"][0]
    drop = first_loss - final_loss
    has_learned = drop > MIN_LOSS_DROP * abs(first_loss)
    has_jumped = has_learned and resumed_loss - final_loss > MAX_LOSS_JUMP * drop
    details = (
        f"loss {resumed_loss:.4g} at step {second['steps'][0]:g}, while the first start went from {first_loss:.4g} "
        f"to {final_loss:.4g} at step {first['steps'][-1]:g}"
    )
    remedy = "load the model, optimizer and step from the checkpoint before the first step"
    if second["steps"][0] <= first["steps"][0]:
        failure = "did not load the checkpoint" if has_jumped or not has_learned else "restarts its step count"
        return False, [make_problem(f"the second start {failure}: {details}", remedy)]
    if has_jumped:
        return False, [make_problem(f"the second start did not continue the curve: {details}", remedy)]
    if not has_learned:
        return None, [
            make_hint(
                f"the loss fell too little to tell whether the second start continued the curve: {details}",
                "raise rehearse_steps",
            )
        ]
    return True, []


def final_level(values: Sequence[float]) -> float:
    """Return the level that a curve has reached, which is the median of its last quarter."""
    return statistics.median(values[-max(1, len(values) // 4) :])


def check_step_time(job: RehearsalJob, launches: Sequence[RehearsalLaunch]) -> list[ForecastFinding]:
    """Report an unknown or slow step time."""
    two_node_launch, full_launch = find_launch(launches, TWO_NODES), find_launch(launches, ALL_NODES)
    if full_launch is None:
        return []
    if full_launch["step_seconds"] is None:
        remedy = f'{PRINT_RESULT}{{"samples_per_second": ..., "global_batch_size": ...}} or {{"seconds_per_step": ...}}'
        return [make_hint("the time per step is unknown, so the total time is too", remedy)]
    findings = []
    if not job["total_steps"]:
        findings.append(
            make_hint("the total time is unknown", "set the number of steps: -e rehearse_total_steps=10000")
        )
    if (
        two_node_launch is not None
        and two_node_launch["step_seconds"]
        and full_launch["step_seconds"] > SLOW_STEP_RATIO * two_node_launch["step_seconds"]
    ):
        findings.append(
            make_hint(
                f"a step takes {full_launch['step_seconds']:.3g} s on {full_launch['nnodes']} nodes, "
                f"but {two_node_launch['step_seconds']:.3g} s on 2",
                (
                    "if the batch per rank is the same, the network is the bottleneck: run benchmark.yml to measure "
                    "whether it is slow"
                ),
            )
        )
    return findings


def check_disk_space(
    job: RehearsalJob, full_launch: RehearsalLaunch | None, size: int | None, free: int | None
) -> list[ForecastFinding]:
    """Report a missing checkpoint, or too little disk space for the checkpoints that will be kept."""
    if full_launch is None:
        return []
    if not full_launch["checkpoint"]:
        remedy = f'{PRINT_RESULT}{{"checkpoint": "/absolute/path"}} where rank 0 has saved one'
        return [make_hint("the job reported no checkpoint, so its size and the space for it are unknown", remedy)]
    if size is None or free is None:
        return [
            make_problem(
                f"the checkpoint {full_launch['checkpoint']} does not exist on {full_launch['node']}, although the job "
                "reported it",
                "correct what the job reports, or make it save at the end of its steps",
            )
        ]
    needed = FREE_SPACE_FACTOR * size * job["checkpoints_kept"]
    if needed <= free + size:  # this checkpoint's size is already taken up on disk
        return []
    return [
        make_problem(
            f"{full_launch['node']} has {format_gigabytes(free + size)} for checkpoints, but "
            f"{job['checkpoints_kept']} of them take {format_gigabytes(needed)}",
            "keep fewer, save them elsewhere, or free up space",
        )
    ]


def estimate_seconds(job: RehearsalJob, full_launch: RehearsalLaunch | None) -> float | None:
    """Estimate the whole job's duration in seconds, from startup, steps and checkpoints, or None if unknown."""
    if full_launch is None or full_launch["step_seconds"] is None or not job["total_steps"]:
        return None
    startup = max(0.0, (full_launch["run_seconds"] or 0.0) - job["steps"] * full_launch["step_seconds"])
    checkpoints = job["total_steps"] // job["checkpoint_steps"] if job["checkpoint_steps"] else 0
    return (
        startup
        + job["total_steps"] * full_launch["step_seconds"]
        + checkpoints * (full_launch["checkpoint_seconds"] or 0.0)
    )


def format_gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def make_problem(text: str, remedy: str) -> ForecastFinding:
    return {"severity": "problem", "problem": text, "remedy": remedy}


def make_hint(text: str, remedy: str) -> ForecastFinding:
    return {"severity": "hint", "problem": text, "remedy": remedy}


NOTHING_MEASURED = make_problem(
    "the job ran, but nothing in its output could be judged: no loss, no time per step, no checkpoint",
    f'{PRINT_RESULT}{{"step": 20, "loss": 0.3, "seconds_per_step": 0.5, "checkpoint": "/absolute/path"}} with the '
    "job's own values at some steps, on rank 0",
)


def render(rehearsal: Rehearsal, name: str) -> str:
    """Render the results for the terminal: figures, findings, and whether to run the whole job."""
    lines = []
    for launch in rehearsal["starts"]:
        title = f"{launch['kind']}, {launch['nnodes']} node{'' if launch['nnodes'] == 1 else 's'}: "
        parts = [
            "a step takes "
            + ("an unknown time" if launch["step_seconds"] is None else f"{launch['step_seconds']:.3g} s"),
            "" if launch["memory_mib"] is None else f"peak memory {launch['memory_mib'] / 1024:.2f} GiB",
            "" if launch["run_seconds"] is None else f"{format_duration(launch['run_seconds'])} in all",
        ]
        lines.append(title + ", ".join(part for part in parts if part))
    full_launch = find_launch(rehearsal["starts"], ALL_NODES)
    if full_launch is not None and rehearsal["checkpoint_bytes"] is not None and rehearsal["free_bytes"] is not None:
        duration_text = (
            "" if full_launch["checkpoint_seconds"] is None else f" in {full_launch['checkpoint_seconds']:.3g} s"
        )
        lines.append(
            f"a checkpoint: {format_gigabytes(rehearsal['checkpoint_bytes'])}{duration_text}, "
            f"{format_gigabytes(rehearsal['free_bytes'])} is free"
        )
    if rehearsal["resumed"]:
        lines.append("the second start continued the curve of the first")
    if rehearsal["total_seconds"] is not None and math.isfinite(rehearsal["total_seconds"]) and full_launch is not None:
        cost = (
            ""
            if rehearsal["total_cost"] is None
            else f", {format_money(rehearsal['total_cost'], full_launch['currency'])}"
        )
        lines.append(
            f"the whole job, {rehearsal['job']['total_steps']} steps: about "
            f"{format_duration(rehearsal['total_seconds'])}{cost}"
        )
    for finding in sorted(rehearsal["findings"], key=lambda finding: finding["severity"] != "problem"):
        lines += [f"{finding['severity']}: {finding['problem']}", f"  what to do: {finding['remedy']}"]
    return "\n".join([*lines, f"rehearsal {name}: {'go' if rehearsal['go'] else 'not yet'}"])

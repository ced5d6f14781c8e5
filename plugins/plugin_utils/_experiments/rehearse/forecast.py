# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Judge from a rehearsal whether the whole job will work. Pure. Private to this collection, controller only."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.rehearse.documents import (
    ALL,
    RESUMED,
    TWO,
    Finding,
    Job,
    Rehearsal,
    Start,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.verdict import duration
from ansible_collections.muster.training.plugins.plugin_utils._report.page import money

HOUR = 3600.0
LEARNED = 0.05  # share of the first loss: a curve that fell by less does not show whether it was continued
JUMPED = 0.5  # share of the loss's fall: if the second start begins higher by more, it has not continued the curve
SLOWER = 1.25  # time of a step on all nodes divided by that on two, above which a hint is given
ROOM = 1.1  # free space needed, as a multiple of the checkpoints: logs and an unfinished checkpoint need room, too
REPORT = "print MUSTER_RESULT "


def named(starts: Sequence[Start], what: str) -> Start | None:
    """The launch of this kind, None if it has not succeeded yet."""
    return next((start for start in starts if start["what"] == what), None)


def judge(known: Rehearsal, checkpoint_bytes: int | None, free_bytes: int | None) -> Rehearsal:
    """The rehearsal with its findings and verdict filled in. Both sizes in bytes, on the node of rank 0."""
    job, whole = known["job"], named(known["starts"], ALL)
    broken = of_loss(known["starts"])
    resumed, of_resuming = resuming(job, known["starts"]) if not broken else (None, [])
    findings = [
        *broken,
        *of_resuming,
        *of_steps(job, known["starts"]),
        *of_room(job, whole, checkpoint_bytes, free_bytes),
    ]
    seconds = total_seconds(job, whole)
    per_hour = whole["per_hour"] if whole is not None else None
    return {
        **known,
        "checkpoint_bytes": checkpoint_bytes,
        "free_bytes": free_bytes,
        "resumed": resumed,
        "total_seconds": seconds,
        "total_cost": per_hour * seconds / HOUR if per_hour is not None and seconds is not None else None,
        "findings": findings,
        "go": not any(one["severity"] == "problem" for one in findings),
    }


def of_loss(starts: Sequence[Start]) -> list[Finding]:
    """A problem if a loss is not finite: from there on a job learns nothing."""
    for start in starts:
        if start["broken"] is not None:
            return [
                problem(
                    f"the loss is not a number at step {start['broken']:g} of {start['run_id']}",
                    "lower the learning rate, clip gradients, or take bf16 in place of fp16; if another loss counts, "
                    "name it with rehearse_loss",
                )
            ]
    return []


def resuming(job: Job, starts: Sequence[Start]) -> tuple[bool | None, list[Finding]]:
    """Whether the second start continued the first one's curve, None if unknown; and the findings."""
    first, second = named(starts, ALL), named(starts, RESUMED)
    if not job["resume_args"]:
        return None, [hint("resuming was not tested", "give rehearse_resume_args, such as --resume {checkpoint}")]
    if first is None or second is None:
        return None, []
    if len(first["loss"]) < 2 or not second["loss"]:
        remedy = f'{REPORT}{{"step": ..., "loss": ...}} at some steps, or name the curve with rehearse_loss'
        return None, [hint("whether the second start resumed is unknown: the job reported no loss", remedy)]
    began, fell_to, again = first["loss"][0], late(first["loss"]), second["loss"][0]
    fell = began - fell_to
    learned = fell > LEARNED * abs(began)
    jumped = learned and again - fell_to > JUMPED * fell
    told = f"loss {again:.4g} at step {second['steps'][0]:g}, where the first went from {began:.4g} to {fell_to:.4g} "
    told += f"at step {first['steps'][-1]:g}"
    remedy = "load model, optimizer and step from the checkpoint before the first step"
    if second["steps"][0] <= first["steps"][0]:
        what = "did not load the checkpoint" if jumped or not learned else "counts its steps from the beginning again"
        return False, [problem(f"the second start {what}: {told}", remedy)]
    if jumped:
        return False, [problem(f"the second start did not continue the curve: {told}", remedy)]
    if not learned:
        return None, [
            hint(f"the loss fell too little to tell whether it was continued: {told}", "raise rehearse_steps")
        ]
    return True, []


def late(values: Sequence[float]) -> float:
    """The level a curve has reached: the median of its last quarter."""
    return statistics.median(values[-max(1, len(values) // 4) :])


def of_steps(job: Job, starts: Sequence[Start]) -> list[Finding]:
    """Findings about the time of a step."""
    two, whole = named(starts, TWO), named(starts, ALL)
    if whole is None:
        return []
    if whole["step_seconds"] is None:
        remedy = f'{REPORT}{{"samples_per_second": ..., "global_batch_size": ...}} or {{"seconds_per_step": ...}}'
        return [hint("the time per step is unknown, so the total time is too", remedy)]
    found = []
    if not job["total_steps"]:
        found.append(hint("the total time is unknown", "set the number of steps: -e rehearse_total_steps=10000"))
    if two is not None and two["step_seconds"] and whole["step_seconds"] > SLOWER * two["step_seconds"]:
        found.append(
            hint(
                f"a step takes {whole['step_seconds']:.3g} s on {whole['nnodes']} nodes, "
                f"and {two['step_seconds']:.3g} s on 2",
                "if the batch per rank is the same, the network is the bottleneck: benchmark.yml measures whether it "
                "is slow",
            )
        )
    return found


def of_room(job: Job, whole: Start | None, size: int | None, free: int | None) -> list[Finding]:
    """Findings about the checkpoint, and about the disk space for those to keep."""
    if whole is None:
        return []
    if not whole["checkpoint"]:
        remedy = f'{REPORT}{{"checkpoint": "/absolute/path"}} where rank 0 has saved one'
        return [hint("the job reported no checkpoint, so its size and the space for it are unknown", remedy)]
    if size is None or free is None:
        return [
            problem(
                f"the checkpoint {whole['checkpoint']} does not exist on {whole['node']}, although the job reported it",
                "correct what the job reports, or make it save at the end of its steps",
            )
        ]
    needed = ROOM * size * job["kept"]
    if needed <= free + size:  # this checkpoint already takes up its size
        return []
    return [
        problem(
            f"{whole['node']} has {gigabytes(free + size)} for checkpoints, and {job['kept']} of them take "
            f"{gigabytes(needed)}",
            "keep fewer, save them elsewhere, or free up space",
        )
    ]


def total_seconds(job: Job, whole: Start | None) -> float | None:
    """Estimated seconds of the whole job: its start, its steps, its checkpoints; None if unknown."""
    if whole is None or whole["step_seconds"] is None or not job["total_steps"]:
        return None
    start = max(0.0, (whole["run_seconds"] or 0.0) - job["steps"] * whole["step_seconds"])
    saved = job["total_steps"] // job["checkpoint_steps"] if job["checkpoint_steps"] else 0
    return start + job["total_steps"] * whole["step_seconds"] + saved * (whole["checkpoint_seconds"] or 0.0)


def gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def problem(found: str, remedy: str) -> Finding:
    return {"severity": "problem", "found": found, "remedy": remedy}


def hint(found: str, remedy: str) -> Finding:
    return {"severity": "hint", "found": found, "remedy": remedy}


def render(known: Rehearsal, name: str) -> str:
    """The results for a terminal: figures, findings, and whether to go."""
    lines = []
    for start in known["starts"]:
        said = f"{start['what']}, {start['nnodes']} node{'' if start['nnodes'] == 1 else 's'}: "
        parts = [
            "a step takes " + ("no known time" if start["step_seconds"] is None else f"{start['step_seconds']:.3g} s"),
            "" if start["memory_mib"] is None else f"memory peak {start['memory_mib'] / 1024:.2f} GiB",
            "" if start["run_seconds"] is None else f"{duration(start['run_seconds'])} in all",
        ]
        lines.append(said + ", ".join(part for part in parts if part))
    whole = named(known["starts"], ALL)
    if whole is not None and known["checkpoint_bytes"] is not None and known["free_bytes"] is not None:
        took = "" if whole["checkpoint_seconds"] is None else f" in {whole['checkpoint_seconds']:.3g} s"
        lines.append(
            f"a checkpoint: {gigabytes(known['checkpoint_bytes'])}{took}, {gigabytes(known['free_bytes'])} are free"
        )
    if known["resumed"]:
        lines.append("the second start continued the curve of the first")
    if known["total_seconds"] is not None and math.isfinite(known["total_seconds"]) and whole is not None:
        cost = "" if known["total_cost"] is None else f", {money(known['total_cost'], whole['currency'])}"
        lines.append(f"the whole, {known['job']['total_steps']} steps: about {duration(known['total_seconds'])}{cost}")
    for one in sorted(known["findings"], key=lambda one: one["severity"] != "problem"):
        lines += [f"{one['severity']}: {one['found']}", f"  what to do: {one['remedy']}"]
    return "\n".join([*lines, f"rehearsal {name}: {'go' if known['go'] else 'not yet'}"])

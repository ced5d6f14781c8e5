# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure the speed of collective operations."""

from __future__ import annotations

import contextlib
import statistics
from typing import Any

with contextlib.suppress(ImportError):  # without torch, it can only be imported
    import torch
    import torch.distributed as dist

from ansible_collections.muster.training.plugins.module_utils._benchmark_job.ranks import (
    MAX_OPERATION_SECONDS,
    MAX_REPEATS,
    MIN_REPEATS,
    WARM_UP_REPEATS,
    JsonDict,
    PhaseClock,
    Ranks,
    measure_seconds,
)

SIZES = [8] + [1024 * 4**power for power in range(11)]  # total buffer size in bytes: 8 B, 1 KiB ... 1 GiB
PATTERN = 7  # values differ within a buffer, to detect swapped parts


def make_pattern(count: int, device: torch.device) -> torch.Tensor:
    """Return a tensor of repeating values."""
    return (torch.arange(count, device=device) % PATTERN).to(torch.float32)


def make_buffers(
    operation: str, count: int, index: int, rank_count: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return an operation's input, output and expected output; every rank adds its own number to the pattern."""
    base, own_value = make_pattern(count, device), index + 1.0
    part = count // rank_count
    own_part = slice(index * part, (index + 1) * part)
    total = rank_count * (rank_count + 1) / 2.0
    if operation == "all_reduce":
        return base + own_value, None, base * rank_count + total
    if operation == "broadcast":
        return base + own_value, None, base + 1.0
    if operation == "reduce_scatter":
        return base + own_value, torch.empty(part, device=device), base[own_part] * rank_count + total
    rank_values = torch.arange(1, rank_count + 1, device=device, dtype=torch.float32).repeat_interleave(part)
    if operation == "all_gather":
        return base[:part] + own_value, torch.empty(count, device=device), base[:part].repeat(rank_count) + rank_values
    return base + own_value, torch.empty(count, device=device), base[own_part].repeat(rank_count) + rank_values


def run_operation(
    operation: str, input_tensor: torch.Tensor, output_tensor: torch.Tensor | None, group: Any, root: int
) -> torch.Tensor:
    """Run one collective operation and return its result tensor."""
    if operation == "all_reduce":
        dist.all_reduce(input_tensor, group=group)
    elif operation == "broadcast":
        dist.broadcast(input_tensor, root, group=group)
    elif operation == "all_gather":
        dist.all_gather_into_tensor(output_tensor, input_tensor, group=group)
    elif operation == "reduce_scatter":
        dist.reduce_scatter_tensor(output_tensor, input_tensor, group=group)
    else:
        dist.all_to_all_single(output_tensor, input_tensor, group=group)
    return input_tensor if output_tensor is None else output_tensor


def measure_collective(ranks: Ranks, operation: str, size: int, group: Any, members: list[int]) -> JsonDict | None:
    """Measure one operation at one size: its times, and whether the result is correct.

    Return None if the backend lacks the operation.
    """
    index, rank_count = members.index(ranks.rank), len(members)
    count = max(1, -(-size // (4 * rank_count))) * rank_count
    input_tensor, output_tensor, expected = make_buffers(operation, count, index, rank_count, ranks.device)
    try:
        result = run_operation(operation, input_tensor, output_tensor, group, members[0])
        ranks.synchronize()
    except (AttributeError, NotImplementedError, RuntimeError) as error:
        if "not support" in str(error) or "not implement" in str(error) or isinstance(error, AttributeError):
            return None
        raise
    is_correct = bool(torch.equal(result, expected))
    input_tensor.zero_()  # sums would grow without limit
    for _warm in range(WARM_UP_REPEATS):
        run_operation(operation, input_tensor, output_tensor, group, members[0])
    dist.barrier(group=group)
    first_duration = measure_seconds(
        ranks, lambda: run_operation(operation, input_tensor, output_tensor, group, members[0])
    )
    repeats = int(
        ranks.reduce_max([min(max(1.0 / max(first_duration, 1e-6), MIN_REPEATS), MAX_REPEATS)], ranks.control_group)[0]
    )
    times = []
    for _repeat in range(repeats):
        dist.barrier(group=group)
        times.append(
            measure_seconds(ranks, lambda: run_operation(operation, input_tensor, output_tensor, group, members[0]))
        )
    return {"bytes": 4 * count, "times": times, "correct": is_correct}


def measure_collectives(ranks: Ranks, work: JsonDict, seconds: float, scope: str) -> tuple[list[JsonDict], list[str]]:
    """Measure operations at increasing sizes, either within each node, all nodes at once, or across all ranks."""
    members = ranks.members[ranks.node] if scope == "node" else list(range(ranks.size))
    group = ranks.groups[ranks.node] if scope == "node" else dist.group.WORLD
    sizes = [size for size in SIZES if size <= max_buffer_bytes(ranks, work)]
    if scope == "node" and min(map(len, ranks.members.values())) < 2:
        return [], [] if ranks.size == len(ranks.nodes) else ["collectives within a node: one process per node"]
    if ranks.size < 2:
        return [], ["collectives: there is only one process"]
    clock, rows, left_out, stopped = PhaseClock(ranks, seconds), [], [], set()
    spent: dict[str, float] = {}
    for size in sizes:
        for operation in work["collectives"]:
            if operation in stopped:
                continue
            longest = spent.get(operation, 0.0)
            if longest > MAX_OPERATION_SECONDS or not clock.has_time(
                4.0 * longest * (MIN_REPEATS + WARM_UP_REPEATS + 2)
            ):
                stopped.add(operation)
                left_out.append(f"{operation} over {scope} from {size} bytes up: no time left")
                continue
            measurement = measure_collective(ranks, operation, size, group, members)
            if measurement is None:
                stopped.add(operation)
                left_out.append(f"{operation} over {scope}: not available with {ranks.backend}")
                continue
            measurements = ranks.gather(measurement)
            for node in ranks.nodes if scope == "node" else [-1]:
                participants = ranks.members[node] if scope == "node" else members
                rows.append(
                    summarize_collective(
                        scope, node, operation, [measurements[rank] for rank in participants], participants
                    )
                )
            spent[operation] = max([row["median_us"] / 1e6 for row in rows if row["op"] == operation] or [0.0])
    return rows, left_out


def summarize_collective(
    scope: str, node: int, operation: str, measurements: list[JsonDict], members: list[int]
) -> JsonDict:
    """Return an operation's row; each repetition takes as long as its slowest rank."""
    times = sorted(max(duration) for duration in zip(*(measurement["times"] for measurement in measurements)))
    return {
        "scope": scope,
        "node": node,
        "op": operation,
        "bytes": measurements[0]["bytes"],
        "ranks": len(members),
        "median_us": 1e6 * statistics.median(times),
        "p95_us": 1e6 * times[min(len(times) - 1, int(0.95 * len(times)))],
        "repeats": len(times),
        "wrong_ranks": [rank for rank, measurement in zip(members, measurements) if not measurement["correct"]],
    }


def max_buffer_bytes(ranks: Ranks, work: JsonDict) -> int:
    """Return the size in bytes of the largest buffer that fits on the rank with the least memory."""
    limit = work.get("max_buffer_bytes") or (1 << 30 if ranks.cuda else 64 << 20)
    free = torch.cuda.mem_get_info()[0] // 8 if ranks.cuda else limit
    tensor = torch.tensor([min(limit, free)], dtype=torch.int64)
    dist.all_reduce(tensor, dist.ReduceOp.MIN, group=ranks.control_group)
    return int(tensor[0])

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Measure the speed of matrix products and of memory copies."""

from __future__ import annotations

import contextlib
import functools
import statistics
import time

with contextlib.suppress(ImportError):  # without torch, it can only be imported
    import torch

from ansible_collections.muster.training.plugins.module_utils._benchmark_job.ranks import (
    MIN_REPEATS,
    JsonDict,
    PhaseClock,
    Ranks,
    measure_seconds,
)


def training_dtype(ranks: Ranks) -> torch.dtype:
    """Return the dtype for training on this device: float32 before Volta, where half precision is no faster."""
    if not ranks.cuda:
        return torch.float32
    major = torch.cuda.get_device_capability(ranks.device)[0]
    return torch.bfloat16 if major >= 8 else torch.float16 if major == 7 else torch.float32


def run_matmul(ranks: Ranks, seconds: float, size: int) -> JsonDict:
    """Multiply matrices for a few seconds; return the rate over time in TFLOP/s, and whether the product is correct."""
    dtype = training_dtype(ranks)
    if not size:
        memory = torch.cuda.get_device_properties(ranks.device).total_memory if ranks.cuda else 0
        size = 8192 if memory > 12 << 30 else 4096 if memory else 1024
    generator = torch.Generator().manual_seed(1)
    factor_a = torch.randn(size, size, generator=generator).to(ranks.device, dtype)
    factor_b = torch.randn(size, size, generator=generator).to(ranks.device, dtype)
    product = torch.empty(size, size, device=ranks.device, dtype=dtype)
    flush = torch.empty((256 << 20) if ranks.cuda else 0, dtype=torch.int8, device=ranks.device)
    torch.mm(factor_a, factor_b, out=product)
    first = product.clone()
    times: list[float] = []
    end = time.monotonic() + seconds
    for _warm in range(2 if not ranks.cuda else 20):
        torch.mm(factor_a, factor_b, out=product)
    while len(times) < MIN_REPEATS or time.monotonic() < end:
        flush.zero_()  # evicts the matrices from the cache
        times.append(measure_seconds(ranks, lambda: torch.mm(factor_a, factor_b, out=product)))
    rates = [2.0 * size**3 / duration / 1e12 for duration in times]
    quarter = max(1, len(rates) // 4)
    return {
        "rank": ranks.rank,
        "n": size,
        "dtype": str(dtype).partition(".")[2],
        "median": statistics.median(rates),
        "best": max(rates),
        "first_quarter": statistics.median(rates[:quarter]),
        "last_quarter": statistics.median(rates[-quarter:]),
        "repeats": len(rates),
        "correct": is_product_correct(factor_a, factor_b, product) and bool(torch.equal(first, product)),
    }


def is_product_correct(factor_a: torch.Tensor, factor_b: torch.Tensor, product: torch.Tensor) -> bool:
    """Return whether a matrix product is correct, from its row sums in double precision."""
    vector = torch.ones(factor_b.shape[1], 1, dtype=torch.float64, device=product.device)
    expected = factor_a.to(torch.float64) @ (factor_b.to(torch.float64) @ vector)
    actual = product.to(torch.float64)
    # rounding: each value is off by up to eps / 2, so a row by about eps / 2 of its norm
    tolerance = 16.0 * torch.finfo(product.dtype).eps * actual.norm(dim=1, keepdim=True)
    return bool(((expected - actual @ vector).abs() <= tolerance).all())


def measure_matmul(ranks: Ranks, work: JsonDict, clock_seconds: float) -> list[JsonDict]:
    """Measure all ranks at once, as in training, or measure some of them one by one while the others wait."""
    alone = work.get("matmul_alone")
    duration = min(clock_seconds, work.get("matmul_seconds", 5.0))
    if alone is None:
        ranks.barrier()
        return [row for row in ranks.gather(run_matmul(ranks, duration, work.get("matmul_size", 0))) if row]
    rows = []
    clock = PhaseClock(ranks, clock_seconds)
    for selected_rank in alone:
        if not clock.has_time(duration):
            break
        ranks.barrier()
        own_row = run_matmul(ranks, duration, work.get("matmul_size", 0)) if selected_rank == ranks.rank else None
        rows += [row for row in ranks.gather(own_row) if row]
    return rows


def measure_copies(ranks: Ranks, seconds: float) -> list[JsonDict]:
    """Measure copies between memories, on all ranks at once."""
    size = (256 << 20) if ranks.cuda else (64 << 20)
    host = torch.arange(size // 4, dtype=torch.int32)
    if ranks.cuda:
        host = host.pin_memory()
        on_device = host.to(ranks.device)
        transfers = [
            ("device", on_device, torch.empty_like(on_device)),
            ("to device", host, torch.empty_like(on_device)),
        ]
        transfers.append(("from device", on_device, torch.empty_like(host).pin_memory()))
    else:
        transfers = [("memory", host, torch.empty_like(host))]
    rows: list[JsonDict] = []
    for kind, source, target in transfers:
        ranks.barrier()
        times: list[float] = []
        end = time.monotonic() + min(1.0, seconds / len(transfers))
        target.copy_(source)
        copy = functools.partial(target.copy_, source)
        while len(times) < MIN_REPEATS or (time.monotonic() < end and len(times) < 200):
            times.append(measure_seconds(ranks, copy))
        is_correct = bool(torch.equal(target.cpu(), host.cpu()))
        rate = size / statistics.median(times) / 1e9
        rows.append({"rank": ranks.rank, "kind": kind, "bytes": size, "gbytes": rate, "correct": is_correct})
    return [row for rank_rows in ranks.gather(rows) for row in rank_rows]

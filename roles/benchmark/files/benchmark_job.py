# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure GPUs (or CPU cores) and the network between nodes, as an ordinary job under torchrun that needs torch.

work.json beside this file, or the file given as an argument, says what to measure, and the seconds per phase. After
each phase, rank 0 writes the results to measured/benchmark.json in the run directory, so that a stopped run still has
results. Nothing is judged here. Each timed result is also checked, and wrong ones are reported with their rank.

Python 3.8 and newer.
"""

from __future__ import annotations

import functools
import json
import os
import statistics
import sys
import time
import warnings
from typing import Any, Callable, Dict

import torch
import torch.distributed as dist

SIZES = [8] + [1024 * 4**power for power in range(11)]  # bytes of the whole buffer: 8 B, 1 KiB ... 1 GiB
WARM_UP, LEAST, MOST = 2, 3, 20  # repetitions of an operation
LONGEST = 2.0  # seconds; after an operation that takes longer, larger sizes are skipped
PAIR_BYTES = {"nccl": 64 << 20, "gloo": 4 << 20}  # well above the burst size of a token bucket
PAIR_REPEATS, PAIR_PINGS = 5, 20
Row = Dict[str, Any]  # Python 3.8 does not support dict[...] outside annotations
PATTERN = 7  # values differ within a buffer, to detect swapped parts


class Ranks:
    """The ranks of the job: this rank, its node and device, and a gloo group through which ranks agree."""

    def __init__(self) -> None:
        self.cuda = torch.cuda.is_available()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", self.local_rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        self.backend = "nccl" if self.cuda and dist.is_nccl_available() else "gloo"
        dist.init_process_group(self.backend)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.control = dist.new_group(backend="gloo")
        told = self.everybody((int(os.environ.get("GROUP_RANK", os.environ.get("NODE_RANK", "0"))), self.local_rank))
        self.nodes = sorted({node for node, _local in told})
        self.node = told[self.rank][0]
        self.members = {node: [rank for rank, one in enumerate(told) if one[0] == node] for node in self.nodes}
        self.groups = {node: dist.new_group(ranks) for node, ranks in self.members.items()}
        self.leaders = [ranks[0] for ranks in self.members.values()]
        self.leading = dist.new_group(self.leaders, backend="gloo")

    def everybody(self, value: Any) -> list[Any]:
        """Each rank's value, by rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self.control)
        return found

    def agreed(self, value: float, group: Any = None, root: int = 0) -> float:
        """Rank 0's value, on all ranks."""
        told = torch.tensor([float(value)], dtype=torch.float64)
        dist.broadcast(told, root, group=group or self.control)
        return float(told[0])

    def slowest(self, times: list[float], group: Any = None) -> list[float]:
        """The longest time of any rank, for each repetition."""
        told = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=group or self.control)
        return told.tolist()

    def wait(self) -> None:
        dist.barrier(group=self.control)

    def finish(self) -> None:
        """Wait until the device has done all its work."""
        if self.cuda:
            torch.cuda.synchronize()


class Clock:
    """The seconds of one phase, counted by rank 0, so that all ranks decide alike."""

    def __init__(self, ranks: Ranks, seconds: float, group: Any = None) -> None:
        self.ranks, self.group, self.end = ranks, group, time.monotonic() + seconds

    def has(self, seconds: float) -> bool:
        """Whether there is time left for this many seconds."""
        return self.ranks.agreed(time.monotonic() + seconds < self.end, self.group) > 0


def timed(ranks: Ranks, action: Callable[[], Any]) -> float:
    """Seconds of one call, including the work it starts on the device."""
    ranks.finish()
    start = time.perf_counter()
    action()
    ranks.finish()
    return time.perf_counter() - start


def hardware(ranks: Ranks) -> Row:
    """This rank's hardware."""
    found = {"rank": ranks.rank, "node": ranks.node, "local_rank": ranks.local_rank, "cores": os.cpu_count()}
    if ranks.cuda:
        card = torch.cuda.get_device_properties(ranks.device)
        found.update(device=card.name, memory_mib=card.total_memory >> 20, capability=[card.major, card.minor])
    else:
        found.update(device="cpu", memory_mib=None, capability=None)
    found["interface"] = os.environ.get("GLOO_SOCKET_IFNAME", "")
    found["interface_mbps"] = number_in(f"/sys/class/net/{found['interface']}/speed")
    rates = []
    try:
        for name in sorted(os.listdir("/sys/class/infiniband")):
            rates.append(number_in(f"/sys/class/infiniband/{name}/ports/1/rate"))
    except OSError:
        pass
    found["infiniband_gbps"] = [rate for rate in rates if rate]
    return found


def number_in(path: str) -> float | None:
    """The number at the start of a kernel file, None if there is no meaningful one."""
    try:
        with open(path, encoding="ascii") as stream:
            value = float(stream.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return value if value > 0 else None


# --- Matrices -------------------------------------------------------------------------------------------------------


def precision(ranks: Ranks) -> torch.dtype:
    """The type for training on this device: float32 before Volta, where half precision is no faster."""
    if not ranks.cuda:
        return torch.float32
    major = torch.cuda.get_device_capability(ranks.device)[0]
    return torch.bfloat16 if major >= 8 else torch.float16 if major == 7 else torch.float32


def matmul(ranks: Ranks, seconds: float, size: int) -> Row:
    """Multiply matrices for some seconds; return the rate over time, and whether the product is correct."""
    kind = precision(ranks)
    if not size:
        memory = torch.cuda.get_device_properties(ranks.device).total_memory if ranks.cuda else 0
        size = 8192 if memory > 12 << 30 else 4096 if memory else 1024
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(size, size, generator=generator).to(ranks.device, kind)
    right = torch.randn(size, size, generator=generator).to(ranks.device, kind)
    product = torch.empty(size, size, device=ranks.device, dtype=kind)
    flush = torch.empty((256 << 20) if ranks.cuda else 0, dtype=torch.int8, device=ranks.device)
    torch.mm(left, right, out=product)
    first = product.clone()
    times: list[float] = []
    end = time.monotonic() + seconds
    for _warm in range(2 if not ranks.cuda else 20):
        torch.mm(left, right, out=product)
    while len(times) < LEAST or time.monotonic() < end:
        flush.zero_()  # evicts the matrices from the cache
        times.append(timed(ranks, lambda: torch.mm(left, right, out=product)))
    rates = [2.0 * size**3 / spent / 1e12 for spent in times]
    quarter = max(1, len(rates) // 4)
    return {
        "rank": ranks.rank,
        "n": size,
        "dtype": str(kind).partition(".")[2],
        "median": statistics.median(rates),
        "best": max(rates),
        "first_quarter": statistics.median(rates[:quarter]),
        "last_quarter": statistics.median(rates[-quarter:]),
        "repeats": len(rates),
        "right": product_is_right(left, right, product) and bool(torch.equal(first, product)),
    }


def product_is_right(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor) -> bool:
    """Whether a matrix product is correct, from its row sums in double precision."""
    ones = torch.ones(right.shape[1], 1, dtype=torch.float64, device=product.device)
    meant = left.to(torch.float64) @ (right.to(torch.float64) @ ones)
    found = product.to(torch.float64)
    # rounding: each value by up to eps / 2, so a row by about eps / 2 of its norm
    allowed = 16.0 * torch.finfo(product.dtype).eps * found.norm(dim=1, keepdim=True)
    return bool(((meant - found @ ones).abs() <= allowed).all())


def measure_matmul(ranks: Ranks, work: Row, clock_seconds: float) -> list[Row]:
    """Measure all ranks at once, as in training; or some, one after another, while the others wait."""
    alone = work.get("matmul_alone")
    each = min(clock_seconds, work.get("matmul_seconds", 5.0))
    if alone is None:
        ranks.wait()
        return [row for row in ranks.everybody(matmul(ranks, each, work.get("matmul_size", 0))) if row]
    found = []
    clock = Clock(ranks, clock_seconds)
    for chosen in alone:
        if not clock.has(each):
            break
        ranks.wait()
        mine = matmul(ranks, each, work.get("matmul_size", 0)) if chosen == ranks.rank else None
        found += [row for row in ranks.everybody(mine) if row]
    return found


# --- Copies ---------------------------------------------------------------------------------------------------------


def measure_copies(ranks: Ranks, seconds: float) -> list[Row]:
    """Measure copies from memory to memory, all ranks at once."""
    size = (256 << 20) if ranks.cuda else (64 << 20)
    host = torch.arange(size // 4, dtype=torch.int32)
    if ranks.cuda:
        host = host.pin_memory()
        there = host.to(ranks.device)
        ways = [("device", there, torch.empty_like(there)), ("to device", host, torch.empty_like(there))]
        ways.append(("from device", there, torch.empty_like(host).pin_memory()))
    else:
        ways = [("memory", host, torch.empty_like(host))]
    rows: list[Row] = []
    for kind, source, target in ways:
        ranks.wait()
        times: list[float] = []
        end = time.monotonic() + min(1.0, seconds / len(ways))
        target.copy_(source)
        copy = functools.partial(target.copy_, source)
        while len(times) < LEAST or (time.monotonic() < end and len(times) < 200):
            times.append(timed(ranks, copy))
        right = bool(torch.equal(target.cpu(), host.cpu()))
        rate = size / statistics.median(times) / 1e9
        rows.append({"rank": ranks.rank, "kind": kind, "bytes": size, "gbytes": rate, "right": right})
    return [row for told in ranks.everybody(rows) for row in told]


# --- Collectives ----------------------------------------------------------------------------------------------------


def pattern(count: int, device: torch.device) -> torch.Tensor:
    return (torch.arange(count, device=device) % PATTERN).to(torch.float32)


def buffers(
    operation: str, count: int, place: int, size: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """An operation's input, output and expected output: every rank adds its own number to the pattern."""
    whole, mine = pattern(count, device), place + 1.0
    part = count // size
    own = slice(place * part, (place + 1) * part)
    everybody = size * (size + 1) / 2.0
    if operation == "all_reduce":
        return whole + mine, None, whole * size + everybody
    if operation == "broadcast":
        return whole + mine, None, whole + 1.0
    if operation == "reduce_scatter":
        return whole + mine, torch.empty(part, device=device), whole[own] * size + everybody
    numbers = torch.arange(1, size + 1, device=device, dtype=torch.float32).repeat_interleave(part)
    if operation == "all_gather":
        return whole[:part] + mine, torch.empty(count, device=device), whole[:part].repeat(size) + numbers
    return whole + mine, torch.empty(count, device=device), whole[own].repeat(size) + numbers


def operate(operation: str, given: torch.Tensor, taken: torch.Tensor | None, group: Any, root: int) -> torch.Tensor:
    """Run one collective operation; return the tensor with its result."""
    if operation == "all_reduce":
        dist.all_reduce(given, group=group)
    elif operation == "broadcast":
        dist.broadcast(given, root, group=group)
    elif operation == "all_gather":
        dist.all_gather_into_tensor(taken, given, group=group)
    elif operation == "reduce_scatter":
        dist.reduce_scatter_tensor(taken, given, group=group)
    else:
        dist.all_to_all_single(taken, given, group=group)
    return given if taken is None else taken


def collective(ranks: Ranks, operation: str, size: int, group: Any, members: list[int]) -> Row | None:
    """Measure one operation and size: its times, and ranks with wrong results. None if the backend lacks it."""
    place, many = members.index(ranks.rank), len(members)
    count = max(1, -(-size // (4 * many))) * many
    given, taken, meant = buffers(operation, count, place, many, ranks.device)
    try:
        found = operate(operation, given, taken, group, members[0])
        ranks.finish()
    except (AttributeError, NotImplementedError, RuntimeError) as problem:
        if "not support" in str(problem) or "not implement" in str(problem) or isinstance(problem, AttributeError):
            return None
        raise
    right = bool(torch.equal(found, meant))
    given.zero_()  # sums would grow without bound
    for _warm in range(WARM_UP):
        operate(operation, given, taken, group, members[0])
    dist.barrier(group=group)
    once = timed(ranks, lambda: operate(operation, given, taken, group, members[0]))
    repeats = int(ranks.slowest([min(max(1.0 / max(once, 1e-6), LEAST), MOST)], ranks.control)[0])
    times = []
    for _repeat in range(repeats):
        dist.barrier(group=group)
        times.append(timed(ranks, lambda: operate(operation, given, taken, group, members[0])))
    return {"bytes": 4 * count, "times": times, "right": right}


def measure_collectives(ranks: Ranks, work: Row, seconds: float, scope: str) -> tuple[list[Row], list[str]]:
    """Measure operations of growing sizes, over the ranks of each node at once, or over all ranks."""
    members = ranks.members[ranks.node] if scope == "node" else list(range(ranks.size))
    group = ranks.groups[ranks.node] if scope == "node" else dist.group.WORLD
    sizes = [size for size in SIZES if size <= largest(ranks, work)]
    if scope == "node" and min(map(len, ranks.members.values())) < 2:
        return [], [] if ranks.size == len(ranks.nodes) else ["collectives of a node: one has a single process"]
    if ranks.size < 2:
        return [], ["collectives: there is a single process"]
    clock, rows, left_out, gone = Clock(ranks, seconds), [], [], set()
    spent: dict[str, float] = {}
    for size in sizes:
        for operation in work["collectives"]:
            if operation in gone:
                continue
            longest = spent.get(operation, 0.0)
            if longest > LONGEST or not clock.has(4.0 * longest * (LEAST + WARM_UP + 2)):
                gone.add(operation)
                left_out.append(f"{operation} over {scope} from {size} bytes on: no time left")
                continue
            found = collective(ranks, operation, size, group, members)
            if found is None:
                gone.add(operation)
                left_out.append(f"{operation} over {scope}: not available with {ranks.backend}")
                continue
            told = ranks.everybody(found)
            for node in ranks.nodes if scope == "node" else [-1]:
                of = ranks.members[node] if scope == "node" else members
                rows.append(row_of(scope, node, operation, [told[one] for one in of], of))
            spent[operation] = max([row["median_us"] / 1e6 for row in rows if row["op"] == operation] or [0.0])
    return rows, left_out


def row_of(scope: str, node: int, operation: str, told: list[Row], members: list[int]) -> Row:
    """The row of an operation: in each repetition, it takes as long as the slowest rank."""
    times = sorted(max(spent) for spent in zip(*(one["times"] for one in told)))
    return {
        "scope": scope,
        "node": node,
        "op": operation,
        "bytes": told[0]["bytes"],
        "ranks": len(members),
        "median_us": 1e6 * statistics.median(times),
        "p95_us": 1e6 * times[min(len(times) - 1, int(0.95 * len(times)))],
        "repeats": len(times),
        "wrong": [rank for rank, one in zip(members, told) if not one["right"]],
    }


def largest(ranks: Ranks, work: Row) -> int:
    """Bytes of the largest buffer that fits on the rank with the least memory."""
    wanted = work.get("largest") or (1 << 30 if ranks.cuda else 64 << 20)
    free = torch.cuda.mem_get_info()[0] // 8 if ranks.cuda else wanted
    told = torch.tensor([min(wanted, free)], dtype=torch.int64)
    dist.all_reduce(told, dist.ReduceOp.MIN, group=ranks.control)
    return int(told[0])


# --- Pairs of nodes -------------------------------------------------------------------------------------------------


def exchange(given: torch.Tensor, taken: torch.Tensor, peer: int) -> None:
    """Send and receive at once. Receive first: otherwise gloo does one after the other."""
    receive, send = dist.P2POp(dist.irecv, taken, peer), dist.P2POp(dist.isend, given, peer)
    for request in dist.batch_isend_irecv([receive, send]):
        request.wait()


def pass_on(tensor: torch.Tensor, way: Callable[..., Any], peer: int) -> None:
    for request in dist.batch_isend_irecv([dist.P2POp(way, tensor, peer)]):
        request.wait()


def measure_pair(ranks: Ranks, peer: int, size: int) -> Row:
    """Measure the seconds of an exchange with another node, and of a short message there and back."""
    count = size // 4
    given = pattern(count, ranks.device) + ranks.rank
    taken = torch.empty(count, device=ranks.device)
    exchange(given, taken, peer)
    right = bool(torch.equal(taken, pattern(count, ranks.device) + peer))
    first = timed(ranks, lambda: exchange(given, taken, peer))
    ours, theirs = torch.tensor([first], device=ranks.device), torch.zeros(1, device=ranks.device)
    exchange(ours, theirs, peer)  # both must repeat it equally often
    repeats = int(max(2.0, min(PAIR_REPEATS, LONGEST / max(first, float(theirs[0]), 1e-6))))
    times = [timed(ranks, lambda: exchange(given, taken, peer)) for _repeat in range(repeats)]
    token, pings = torch.zeros(2, device=ranks.device), []
    ways = (dist.isend, dist.irecv) if ranks.rank < peer else (dist.irecv, dist.isend)

    def there_and_back() -> None:
        for way in ways:
            pass_on(token, way, peer)

    there_and_back()
    for _ping in range(PAIR_PINGS):
        pings.append(timed(ranks, there_and_back))
    return {"times": times, "us": 1e6 * statistics.median(pings) / 2.0, "right": right}


def measure_pairs(ranks: Ranks, work: Row, seconds: float) -> tuple[list[Row], list[str]]:
    """Measure rounds of disjoint pairs of nodes, one rank per node; the other ranks wait."""
    rows: list[Row] = []
    left_out: list[str] = []
    if ranks.rank in ranks.leaders:
        size = work.get("pair_bytes") or PAIR_BYTES[ranks.backend]
        rounds = work["rounds"]
        clock, longest, mine = Clock(ranks, seconds, ranks.leading), 0.0, {}
        for place, pairs in enumerate(rounds):
            if not clock.has(longest):
                left_out.append(f"{len(rounds) - place} of {len(rounds)} rounds of pairs of nodes: no time left")
                break
            started = time.monotonic()
            for one, other in pairs:
                if ranks.node in (one, other):
                    peer = ranks.leaders[ranks.nodes.index(other if ranks.node == one else one)]
                    mine[f"{one} {other}"] = measure_pair(ranks, peer, size)
            longest = ranks.slowest([time.monotonic() - started], ranks.leading)[0]
        told: list[Any] = [None] * len(ranks.leaders)
        dist.all_gather_object(told, mine, group=ranks.leading)
        for pairs in rounds:
            for one, other in pairs:
                ends = [said[f"{one} {other}"] for said in told if f"{one} {other}" in said]
                if len(ends) == 2:
                    rows.append(pair_row(one, other, size, ends))
    ranks.wait()
    return rows, left_out


def pair_row(one: int, other: int, size: int, ends: list[Row]) -> Row:
    spent = statistics.median(max(both) for both in zip(*(end["times"] for end in ends)))
    return {
        "a": one,
        "b": other,
        "bytes": size,
        "gbps": 8.0 * size / spent / 1e9,
        "us": max(end["us"] for end in ends),
        # wrong data may come from the sender or the path: report both ends
        "right": all(end["right"] for end in ends),
    }


# --- All of it ------------------------------------------------------------------------------------------------------


def write(path: str, document: Row) -> None:
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    os.replace(temporary, path)


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "work.json")
    with open(path, encoding="utf-8") as stream:
        work = json.load(stream)
    warnings.simplefilter("ignore", FutureWarning)  # newer torch renames some collectives, older lacks the new names
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    ranks = Ranks()
    document: Row = {
        "version": 1,
        "backend": ranks.backend,
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if ranks.backend == "nccl" else "",
        "ranks": ranks.everybody(hardware(ranks)),
        "matmul": [],
        "copies": [],
        "collectives": [],
        "pairs": [],
        "left_out": [],
        "seconds": {},
        "complete": False,
    }
    directory = os.path.join(os.environ.get("MUSTER_RUN_DIRECTORY", "."), "measured")
    os.makedirs(directory, exist_ok=True)
    spare = 0.0  # unused time goes to the next phase: pairs come last, and need the most if a node is slow
    for phase, share in work["seconds"].items():
        started, seconds = time.monotonic(), share + spare
        if ranks.rank == 0:
            print(f"[benchmark] {phase}: at most {seconds:.0f} s", flush=True)
        left_out: list[str] = []
        if phase == "matmul":
            rows = measure_matmul(ranks, work, seconds)
        elif phase == "copies":
            rows = measure_copies(ranks, seconds)
        elif phase == "pairs":
            rows, left_out = measure_pairs(ranks, work, seconds)
        else:
            rows, left_out = measure_collectives(ranks, work, seconds, phase)
        document["collectives" if phase in ("node", "all") else phase] += rows
        document["left_out"] += left_out
        document["seconds"][phase] = time.monotonic() - started
        spare = max(0.0, seconds - document["seconds"][phase])
        if ranks.rank == 0:
            write(os.path.join(directory, "benchmark.json"), document)
    document["complete"] = True
    if ranks.rank == 0:
        write(os.path.join(directory, "benchmark.json"), document)
    ranks.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure GPUs (or CPU cores) and the network between nodes, as an ordinary job under torchrun that needs torch.

work.json beside this file, or the file in the first argument, configures what to measure, and the seconds per phase.
After each phase, rank 0 writes the results to measured/benchmark.json in the run directory, so that a stopped run still
has results. They are not judged here. Each timed result is also verified, and wrong ones are reported with their rank.
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
WARM_UP_REPEATS, MIN_REPEATS, MAX_REPEATS = 2, 3, 20  # repetitions of an operation
MAX_OPERATION_SECONDS = 2.0  # seconds; after an operation that takes longer, larger sizes are skipped
PAIR_BYTES = {"nccl": 64 << 20, "gloo": 4 << 20}  # well above the burst that a token bucket lets through
PAIR_REPEATS, PAIR_PINGS = 5, 20
JsonDict = Dict[str, Any]  # Python 3.8 does not support dict[...] outside annotations
PATTERN = 7  # values differ within a buffer, to detect swapped parts


class Ranks:
    """The ranks of the job: this rank, its node and device, and a gloo group for coordination."""

    def __init__(self) -> None:
        self.cuda = torch.cuda.is_available()
        self.local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.device = torch.device("cuda", self.local_rank) if self.cuda else torch.device("cpu")
        if self.cuda:
            torch.cuda.set_device(self.device)
        self.backend = "nccl" if self.cuda and dist.is_nccl_available() else "gloo"
        dist.init_process_group(self.backend)
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.control_group = dist.new_group(backend="gloo")
        locations = self.gather((int(os.environ.get("GROUP_RANK", os.environ.get("NODE_RANK", "0"))), self.local_rank))
        self.nodes = sorted({node for node, _local in locations})
        self.node = locations[self.rank][0]
        self.members = {
            node: [rank for rank, location in enumerate(locations) if location[0] == node] for node in self.nodes
        }
        self.groups = {node: dist.new_group(ranks) for node, ranks in self.members.items()}
        self.leaders = [ranks[0] for ranks in self.members.values()]
        self.leader_group = dist.new_group(self.leaders, backend="gloo")

    def gather(self, value: Any) -> list[Any]:
        """Return each rank's value, by rank."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.control_group)
        return values

    def broadcast_value(self, value: float, group: Any = None, root: int = 0) -> float:
        """Return the root rank's value on all ranks."""
        tensor = torch.tensor([float(value)], dtype=torch.float64)
        dist.broadcast(tensor, root, group=group or self.control_group)
        return float(tensor[0])

    def reduce_max(self, times: list[float], group: Any = None) -> list[float]:
        """Return the longest time of any rank, for each repetition."""
        tensor = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=group or self.control_group)
        return tensor.tolist()

    def barrier(self) -> None:
        """Wait for all ranks."""
        dist.barrier(group=self.control_group)

    def synchronize(self) -> None:
        """Wait until the device has finished all its work."""
        if self.cuda:
            torch.cuda.synchronize()


class PhaseClock:
    """The time limit of one phase, measured by rank 0, so that all ranks decide alike."""

    def __init__(self, ranks: Ranks, seconds: float, group: Any = None) -> None:
        self.ranks, self.group, self.end = ranks, group, time.monotonic() + seconds

    def has_time(self, seconds: float) -> bool:
        """Return whether this many seconds remain."""
        return self.ranks.broadcast_value(time.monotonic() + seconds < self.end, self.group) > 0


def measure_seconds(ranks: Ranks, action: Callable[[], Any]) -> float:
    """Return the seconds of one call, including the work it starts on the device."""
    ranks.synchronize()
    start = time.perf_counter()
    action()
    ranks.synchronize()
    return time.perf_counter() - start


def describe_hardware(ranks: Ranks) -> JsonDict:
    """Return this rank's hardware."""
    record = {"rank": ranks.rank, "node": ranks.node, "local_rank": ranks.local_rank, "cores": os.cpu_count()}
    if ranks.cuda:
        properties = torch.cuda.get_device_properties(ranks.device)
        record.update(
            device=properties.name,
            memory_mib=properties.total_memory >> 20,
            capability=[properties.major, properties.minor],
        )
    else:
        record.update(device="cpu", memory_mib=None, capability=None)
    record["interface"] = os.environ.get("GLOO_SOCKET_IFNAME", "")
    record["interface_mbps"] = read_line_rate(record["interface"])
    rates = []
    try:
        for name in sorted(os.listdir("/sys/class/infiniband")):
            rates.append(read_number(f"/sys/class/infiniband/{name}/ports/1/rate"))
    except OSError:
        pass
    record["infiniband_gbps"] = [rate for rate in rates if rate]
    return record


def read_line_rate(interface: str, directory: str = "/sys/class/net") -> float | None:
    """Return an interface's speed in Mb/s, or None if unknown or made up: veth, for example, always says 10,000."""
    return read_number(f"{directory}/{interface}/speed") if has_hardware(interface, directory) else None


def has_hardware(interface: str, directory: str, depth: int = 4) -> bool:
    """Return whether an interface is a device, or is built on one, as bonds, bridges and VLANs are."""
    if not interface:
        return False
    if os.path.exists(f"{directory}/{interface}/device"):
        return True
    try:
        entries = os.listdir(f"{directory}/{interface}")
    except OSError:
        return False
    lower_interfaces = [name[len("lower_") :] for name in entries if name.startswith("lower_")]
    return depth > 0 and any(has_hardware(lower, directory, depth - 1) for lower in lower_interfaces)


def read_number(path: str) -> float | None:
    """Return the number at the start of a kernel file, or None if there is no positive one."""
    try:
        with open(path, encoding="ascii") as stream:
            value = float(stream.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return value if value > 0 else None


# --- Matrices -------------------------------------------------------------------------------------------------------


def training_dtype(ranks: Ranks) -> torch.dtype:
    """Return the type for training on this device: float32 before Volta, where half precision is no faster."""
    if not ranks.cuda:
        return torch.float32
    major = torch.cuda.get_device_capability(ranks.device)[0]
    return torch.bfloat16 if major >= 8 else torch.float16 if major == 7 else torch.float32


def run_matmul(ranks: Ranks, seconds: float, size: int) -> JsonDict:
    """Multiply matrices for some seconds; return the rate over time in TFLOP/s, and whether the product is correct."""
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
        "right": is_product_correct(factor_a, factor_b, product) and bool(torch.equal(first, product)),
    }


def is_product_correct(factor_a: torch.Tensor, factor_b: torch.Tensor, product: torch.Tensor) -> bool:
    """Return whether a matrix product is correct, from its row sums in double precision."""
    vector = torch.ones(factor_b.shape[1], 1, dtype=torch.float64, device=product.device)
    expected = factor_a.to(torch.float64) @ (factor_b.to(torch.float64) @ vector)
    actual = product.to(torch.float64)
    # rounding: each value by up to eps / 2, so a row by about eps / 2 of its norm
    tolerance = 16.0 * torch.finfo(product.dtype).eps * actual.norm(dim=1, keepdim=True)
    return bool(((expected - actual @ vector).abs() <= tolerance).all())


def measure_matmul(ranks: Ranks, work: JsonDict, clock_seconds: float) -> list[JsonDict]:
    """Measure all ranks at once, as in training, or some of them one after another while the others wait."""
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


# --- Copies ---------------------------------------------------------------------------------------------------------


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
        rows.append({"rank": ranks.rank, "kind": kind, "bytes": size, "gbytes": rate, "right": is_correct})
    return [row for rank_rows in ranks.gather(rows) for row in rank_rows]


# --- Collectives ----------------------------------------------------------------------------------------------------


def make_pattern(count: int, device: torch.device) -> torch.Tensor:
    """Return a tensor of repeating values."""
    return (torch.arange(count, device=device) % PATTERN).to(torch.float32)


def make_buffers(
    operation: str, count: int, index: int, rank_count: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Return an operation's input, output and expected output: every rank adds its own number to the pattern."""
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
    """Run one collective operation; return the tensor with its result."""
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
    """Measure one operation and size: its times, and whether the result is correct.

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
    input_tensor.zero_()  # sums would grow without bound
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
    return {"bytes": 4 * count, "times": times, "right": is_correct}


def measure_collectives(ranks: Ranks, work: JsonDict, seconds: float, scope: str) -> tuple[list[JsonDict], list[str]]:
    """Measure operations of growing sizes, within all nodes at the same time, or over all ranks."""
    members = ranks.members[ranks.node] if scope == "node" else list(range(ranks.size))
    group = ranks.groups[ranks.node] if scope == "node" else dist.group.WORLD
    sizes = [size for size in SIZES if size <= max_buffer_bytes(ranks, work)]
    if scope == "node" and min(map(len, ranks.members.values())) < 2:
        return [], [] if ranks.size == len(ranks.nodes) else ["collectives within a node: a node has only one process"]
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
                left_out.append(f"{operation} over {scope} from {size} bytes on: no time left")
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
    """Return the row of an operation: a repetition takes as long as its slowest rank."""
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
        "wrong": [rank for rank, measurement in zip(members, measurements) if not measurement["right"]],
    }


def max_buffer_bytes(ranks: Ranks, work: JsonDict) -> int:
    """Return the bytes of the largest buffer that fits on the rank with the least memory."""
    limit = work.get("largest") or (1 << 30 if ranks.cuda else 64 << 20)
    free = torch.cuda.mem_get_info()[0] // 8 if ranks.cuda else limit
    tensor = torch.tensor([min(limit, free)], dtype=torch.int64)
    dist.all_reduce(tensor, dist.ReduceOp.MIN, group=ranks.control_group)
    return int(tensor[0])


# --- Pairs of nodes -------------------------------------------------------------------------------------------------


def exchange(input_tensor: torch.Tensor, output_tensor: torch.Tensor, peer: int) -> None:
    """Send and receive at the same time. Receive first: otherwise gloo does one after the other."""
    receive, send = dist.P2POp(dist.irecv, output_tensor, peer), dist.P2POp(dist.isend, input_tensor, peer)
    for request in dist.batch_isend_irecv([receive, send]):
        request.wait()


def run_p2p(tensor: torch.Tensor, operation: Callable[..., Any], peer: int) -> None:
    """Run one point-to-point operation to its end."""
    for request in dist.batch_isend_irecv([dist.P2POp(operation, tensor, peer)]):
        request.wait()


def measure_pair(ranks: Ranks, peer: int, size: int) -> JsonDict:
    """Measure an exchange with another node, in seconds, and the latency of a short message, in µs."""
    count = size // 4
    input_tensor = make_pattern(count, ranks.device) + ranks.rank
    output_tensor = torch.empty(count, device=ranks.device)
    exchange(input_tensor, output_tensor, peer)
    is_correct = bool(torch.equal(output_tensor, make_pattern(count, ranks.device) + peer))
    first = measure_seconds(ranks, lambda: exchange(input_tensor, output_tensor, peer))
    own_duration, peer_duration = torch.tensor([first], device=ranks.device), torch.zeros(1, device=ranks.device)
    exchange(own_duration, peer_duration, peer)  # both need the same number of repetitions
    repeats = int(max(2.0, min(PAIR_REPEATS, MAX_OPERATION_SECONDS / max(first, float(peer_duration[0]), 1e-6))))
    times = [measure_seconds(ranks, lambda: exchange(input_tensor, output_tensor, peer)) for _repeat in range(repeats)]
    token, pings = torch.zeros(2, device=ranks.device), []
    directions = (dist.isend, dist.irecv) if ranks.rank < peer else (dist.irecv, dist.isend)

    def round_trip() -> None:
        for direction in directions:
            run_p2p(token, direction, peer)

    round_trip()
    for _ping in range(PAIR_PINGS):
        pings.append(measure_seconds(ranks, round_trip))
    return {"times": times, "us": 1e6 * statistics.median(pings) / 2.0, "right": is_correct}


def measure_pairs(ranks: Ranks, work: JsonDict, seconds: float) -> tuple[list[JsonDict], list[str]]:
    """Measure rounds of disjoint pairs of nodes, one rank per node; the other ranks wait."""
    rows: list[JsonDict] = []
    left_out: list[str] = []
    if ranks.rank in ranks.leaders:
        size = work.get("pair_bytes") or PAIR_BYTES[ranks.backend]
        rounds = work["rounds"]
        clock, longest, own_results = PhaseClock(ranks, seconds, ranks.leader_group), 0.0, {}
        for index, pairs in enumerate(rounds):
            if not clock.has_time(longest):
                left_out.append(f"{len(rounds) - index} of {len(rounds)} rounds of pairs of nodes: no time left")
                break
            started = time.monotonic()
            for node_a, node_b in pairs:
                if ranks.node in (node_a, node_b):
                    peer = ranks.leaders[ranks.nodes.index(node_b if ranks.node == node_a else node_a)]
                    own_results[f"{node_a} {node_b}"] = measure_pair(ranks, peer, size)
            longest = ranks.reduce_max([time.monotonic() - started], ranks.leader_group)[0]
        results: list[Any] = [None] * len(ranks.leaders)
        dist.all_gather_object(results, own_results, group=ranks.leader_group)
        for pairs in rounds:
            for node_a, node_b in pairs:
                ends = [result[f"{node_a} {node_b}"] for result in results if f"{node_a} {node_b}" in result]
                if len(ends) == 2:
                    rows.append(summarize_pair(node_a, node_b, size, ends))
    ranks.barrier()
    return rows, left_out


def summarize_pair(node_a: int, node_b: int, size: int, ends: list[JsonDict]) -> JsonDict:
    """Return the row of a pair of nodes."""
    duration = statistics.median(max(durations) for durations in zip(*(end["times"] for end in ends)))
    return {
        "a": node_a,
        "b": node_b,
        "bytes": size,
        "gbps": 8.0 * size / duration / 1e9,
        "us": max(end["us"] for end in ends),
        # wrong data may come from the sender or the path: report both ends
        "right": all(end["right"] for end in ends),
    }


# --- The job --------------------------------------------------------------------------------------------------------


def write(path: str, document: JsonDict) -> None:
    """Write a JSON document atomically."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as stream:
        json.dump(document, stream)
    os.replace(temporary, path)


def main() -> None:
    """Run all phases."""
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "work.json")
    with open(path, encoding="utf-8") as stream:
        work = json.load(stream)
    warnings.simplefilter("ignore", FutureWarning)  # newer torch renames some collectives, older lacks the new names
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    ranks = Ranks()
    document: JsonDict = {
        "version": 1,
        "backend": ranks.backend,
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if ranks.backend == "nccl" else "",
        "ranks": ranks.gather(describe_hardware(ranks)),
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
    unused_seconds = 0.0  # unused time goes to the next phase: pairs come last, and need the most if a node is slow
    for phase, phase_seconds in work["seconds"].items():
        started, seconds = time.monotonic(), phase_seconds + unused_seconds
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
        unused_seconds = max(0.0, seconds - document["seconds"][phase])
        if ranks.rank == 0:
            write(os.path.join(directory, "benchmark.json"), document)
    document["complete"] = True
    if ranks.rank == 0:
        write(os.path.join(directory, "benchmark.json"), document)
    ranks.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

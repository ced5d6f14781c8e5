# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find slow GPUs, nodes and links.

Parts that look slow while others are busy are only suspects: find_suspects() selects what to measure again, alone, and
judge() reports a suspect only if it was measured again.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import (
    VERSION,
    Benchmark,
    ExpectedRate,
    GpuRate,
    PairRate,
    Suspects,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.expected import expected_gpu_rate
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import BenchmarkMeasurements
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import MAX_REMEASURED
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import ReportFinding
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

SLOW_GPU = 0.93  # fraction of the median for its model: equal GPUs usually differ by 5 %
# cores are often shared: with several identical hosts, one reached 0.68 when measured on its own and 0.93 when measured
# along with the others
SLOW_CPU = 0.7
SLOW_NODE = 0.8  # fraction of the median of all nodes' rates with their best peers
SLOW_LINK = 0.7  # fraction of the rate that the slower end achieves with its best peer
FAR_BELOW = 0.75  # fraction of the expected rate of a GPU or of the network
THROTTLED = 0.9  # fraction of the rate in its own first quarter
REFERENCE_GPUS = 2  # number of GPUs of the same model measured alone for comparison with a suspect
PEERS_TO_REMEASURE = 3  # number of peers used to measure a node again
PLATEAU = 1 << 20  # smallest size in bytes whose rate is meaningful


def gpu_label(gpu: GpuRate) -> str:
    """Return a GPU's node and number for a message, or the rank's node and number if it has no GPU."""
    return f"{gpu['node']} {'rank' if gpu['model'] == 'cpu' else 'GPU'} {gpu['local_rank']}"


def group_by_model(gpus: Iterable[GpuRate]) -> dict[tuple[str, str], list[GpuRate]]:
    """Group GPUs by model and number type."""
    groups: dict[tuple[str, str], list[GpuRate]] = {}
    for gpu in gpus:
        groups.setdefault((gpu["model"], gpu["dtype"]), []).append(gpu)
    return groups


def slow_threshold(model: str) -> float:
    """Return the fraction of the median of its kind below which a GPU or processor counts as slow."""
    return SLOW_CPU if model == "cpu" else SLOW_GPU


def slow_gpus(gpus: Iterable[GpuRate]) -> list[GpuRate]:
    """Return the GPUs that are too far below the median of their model."""
    slow = []
    for (model, _dtype), group in group_by_model(gpus).items():
        median = statistics.median(gpu["tflops"] for gpu in group)
        slow += [gpu for gpu in group if gpu["tflops"] < slow_threshold(model) * median]
    return slow


def best_rates(pairs: Iterable[PairRate]) -> dict[str, float]:
    """Return each node's rate with the peer with which it is fastest."""
    best: dict[str, float] = {}
    for pair in pairs:
        for node in (pair["a"], pair["b"]):
            best[node] = max(best.get(node, 0.0), pair["gbps"])
    return best


def slow_nodes(best: Mapping[str, float]) -> list[str]:
    """Return the nodes whose best rate is below SLOW_NODE of the median of all nodes' best rates.

    The median of all pairs would be wrong with few nodes: if one of three is slow, so are two of the three pairs.
    Two nodes cannot be distinguished: they have only one pair.
    """
    if len(best) < 3:
        return []
    reference = statistics.median(best.values())
    return [node for node, rate in best.items() if rate < SLOW_NODE * reference]


def slow_links(pairs: Iterable[PairRate], best: Mapping[str, float], slow: Sequence[str]) -> list[PairRate]:
    """Return slow links between nodes that are not slow: below SLOW_LINK of the slower end's best rate."""
    return [
        pair
        for pair in pairs
        if pair["a"] not in slow
        and pair["b"] not in slow
        and pair["gbps"] < SLOW_LINK * min(best[pair["a"]], best[pair["b"]])
    ]


def pairs_to_remeasure(node: str, pairs: Sequence[PairRate], best: Mapping[str, float]) -> list[PairRate]:
    """Return the pairs in which to remeasure a node: with the peers that are fastest with other nodes."""
    node_pairs = [pair for pair in pairs if node in (pair["a"], pair["b"])]
    return sorted(
        node_pairs, key=lambda pair: -min(best[pair["a"]], best[pair["b"]]) - max(best[pair["a"]], best[pair["b"]])
    )[:PEERS_TO_REMEASURE]


def find_suspects(measurements: BenchmarkMeasurements) -> Suspects:
    """Select what to remeasure alone, worst first, with at most MAX_REMEASURED ranks and pairs."""
    slow = sorted(slow_gpus(measurements.gpus), key=lambda gpu: gpu["tflops"])
    ranks = [gpu["rank"] for gpu in slow]
    for group in group_by_model(measurements.gpus).values():
        if any(gpu in slow for gpu in group):
            ranks = [*reference_ranks(group), *ranks]
    best = best_rates(measurements.pairs)
    nodes = sorted(slow_nodes(best), key=lambda node: best[node])
    links = sorted(slow_links(measurements.pairs, best, nodes), key=lambda pair: pair["gbps"])
    node_pairs = [pairs_to_remeasure(node, measurements.pairs, best) for node in nodes]
    # one pair for each node first, since there may be no time for more
    candidates = [
        peer_pairs[turn] for turn in range(PEERS_TO_REMEASURE) for peer_pairs in node_pairs if turn < len(peer_pairs)
    ] + links
    rank_by_name = {name: rank for rank, name in enumerate(measurements.nodes)}
    pairs: list[list[int]] = []
    for pair in candidates:
        ends = sorted((rank_by_name[pair["a"]], rank_by_name[pair["b"]]))
        if ends not in pairs:
            pairs.append(ends)
    return {"ranks": list(dict.fromkeys(ranks))[:MAX_REMEASURED], "pairs": pairs[:MAX_REMEASURED]}


def reference_ranks(group: Sequence[GpuRate]) -> list[int]:
    """Return the ranks of some typical GPUs of one model."""
    median = statistics.median(gpu["tflops"] for gpu in group)
    by_distance = sorted(group, key=lambda gpu: abs(gpu["tflops"] - median))
    return [gpu["rank"] for gpu in by_distance if gpu["tflops"] >= slow_threshold(gpu["model"]) * median][
        :REFERENCE_GPUS
    ]


def add_remeasurements(
    measurements: BenchmarkMeasurements, remeasured: BenchmarkMeasurements | None
) -> BenchmarkMeasurements:
    """Add the measurements that were made in isolation."""
    alone = {gpu["rank"]: gpu for gpu in (remeasured.gpus if remeasured is not None else [])}
    pairs_by_nodes = {
        frozenset((pair["a"], pair["b"])): pair for pair in (remeasured.pairs if remeasured is not None else [])
    }
    for gpu in measurements.gpus:
        if gpu["rank"] in alone:
            gpu["alone_tflops"] = alone[gpu["rank"]]["tflops"]
            gpu["correct"] = gpu["correct"] and alone[gpu["rank"]]["correct"]
    for pair in measurements.pairs:
        repeat = pairs_by_nodes.get(frozenset((pair["a"], pair["b"])))
        if repeat is not None:
            pair["alone_gbps"] = repeat["gbps"]
            pair["correct"] = pair["correct"] and repeat["correct"]
    return measurements


def count_unconfirmed(measurements: BenchmarkMeasurements) -> int:
    """Count the suspected GPUs, nodes and links that were not remeasured."""
    best = best_rates(measurements.pairs)
    nodes = slow_nodes(best)
    remeasured_nodes = {name for pair in measurements.pairs if pair["alone_gbps"] for name in (pair["a"], pair["b"])}
    links = slow_links(measurements.pairs, best, nodes)
    return (
        sum(gpu["alone_tflops"] is None for gpu in slow_gpus(measurements.gpus))
        + sum(node not in remeasured_nodes for node in nodes)
        + sum(pair["alone_gbps"] is None for pair in links)
    )


def judge(measurements: BenchmarkMeasurements, remeasured: BenchmarkMeasurements | None, run_id: str) -> Benchmark:
    """Judge the benchmark, and return it with all measurements and findings."""
    measurements = add_remeasurements(measurements, remeasured)
    unconfirmed = 0 if remeasured is None else count_unconfirmed(measurements)
    findings = [
        *find_wrong_results(measurements),
        *check_gpus(measurements.gpus),
        *check_network(measurements),
    ]
    expected = {}
    for model, dtype in group_by_model(measurements.gpus):
        value = expected_gpu_rate(model, dtype)
        if value is not None:
            expected[f"{model}, {dtype}"] = value
    benchmark: Benchmark = {
        "version": VERSION,
        "run_id": run_id,
        "backend": measurements.backend,
        "torch": measurements.torch,
        "nccl": measurements.nccl,
        "complete": measurements.complete,
        "nodes": measurements.nodes,
        "gpus": measurements.gpus,
        "copies": measurements.copies,
        "collectives": measurements.collectives,
        "pairs": measurements.pairs,
        "expected_tflops": expected,
        "expected_network": measurements.network,
        "findings": findings,
        "left_out": [
            *measurements.left_out,
            *([f"no time left for a second measurement of {unconfirmed}, which seemed slow"] if unconfirmed else []),
        ],
        "compared_with": "",
        "verdict": "",
    }
    benchmark["verdict"] = summarize(benchmark)
    return benchmark


def add_findings(benchmark: Benchmark, findings: list[ReportFinding]) -> Benchmark:
    """Return the benchmark with additional findings."""
    extended: Benchmark = {**benchmark, "findings": [*findings, *benchmark["findings"]]}
    return {**extended, "verdict": summarize(extended)}


def summarize(benchmark: Benchmark) -> str:
    """Summarize the benchmark's result on one line."""
    problems = [finding["problem"] for finding in benchmark["findings"] if finding["severity"] == "problem"]
    if problems:
        return "; ".join(problems)
    if not benchmark["gpus"]:
        return "nothing was measured: the log of rank 0 shows the reason"
    return "nothing is slow among these nodes" + ("" if benchmark["complete"] else ", as far as the benchmark got")


def make_finding(
    kind: str, severity: str, affected: list[str], text: str, remedy: str, **numbers: float
) -> ReportFinding:
    """Return a finding, which stores its numbers."""
    return {
        "id": kind,
        "severity": severity,
        "about": affected,
        "problem": text,
        "remedy": remedy,
        "numbers": dict(numbers),
    }


def find_wrong_results(measurements: BenchmarkMeasurements) -> list[ReportFinding]:
    """Report wrong results of computations or transfers, which are worse than slow results."""
    findings = []
    for gpu in measurements.gpus:
        if not gpu["correct"]:
            text = f"{gpu_label(gpu)} computes a wrong matrix product"
            remedy = (
                "remove its machine from the cluster; check for memory errors: nvidia-smi -q -d ECC,PAGE_RETIREMENT"
            )
            findings.append(make_finding("benchmark-wrong-product", "problem", [gpu_label(gpu)], text, remedy))
    for copy in measurements.copies:
        if not copy["correct"]:
            rank_name = f"{copy['node']} rank {copy['local_rank']}"
            text = f"{rank_name}: a copy ({copy['kind']}) does not match its source"
            findings.append(
                make_finding(
                    "benchmark-wrong-copy", "problem", [rank_name], text, "remove the machine: its memory is faulty"
                )
            )
    sizes_by_operation: dict[tuple[str, str], list[int]] = {}
    for collective in measurements.collectives:
        for node in collective["wrong_ranks"]:
            sizes_by_operation.setdefault((node, collective["op"]), []).append(collective["bytes"])
    remedy = (
        "use the same NCCL version on all nodes (ansible-playbook preflight.yml compares them); then try "
        "NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1 in launch_environment, one at a time, to see which path is "
        "wrong"
    )
    for (node, operation), sizes in sizes_by_operation.items():
        text = f"{operation} gives wrong results on {node}, with {min(sizes)} bytes and {len(sizes) - 1} other sizes"
        findings.append(make_finding("benchmark-wrong-sum", "problem", [node], text, remedy))
    for pair in measurements.pairs:
        if not pair["correct"]:
            text = f"data sent between {pair['a']} and {pair['b']} arrives corrupted"
            findings.append(make_finding("benchmark-wrong-exchange", "problem", [pair["a"], pair["b"]], text, remedy))
    return findings


def check_gpus(gpus: Sequence[GpuRate]) -> list[ReportFinding]:
    """Report GPUs that are slower than others of the same model, and models that are slower than expected."""
    findings = []
    groups = group_by_model(gpus)
    for (model, dtype), group in groups.items():
        median = statistics.median(gpu["tflops"] for gpu in group)
        limit = slow_threshold(model)
        normal_rates = [gpu["alone_tflops"] for gpu in group if gpu["alone_tflops"] and gpu["tflops"] >= limit * median]
        reference = statistics.median(normal_rates) if normal_rates else median
        for gpu in group:
            if gpu["tflops"] >= limit * median:
                continue
            alone_rate = gpu["alone_tflops"]
            if alone_rate is not None and alone_rate < limit * reference:
                findings.append(slow_gpu_finding(gpu, alone_rate, reference))
            elif alone_rate is not None and model != "cpu":
                text = (
                    f"{gpu_label(gpu)} reaches {gpu['tflops']:.3g} of {median:.3g} TFLOP/s while all are "
                    f"computing, but {alone_rate:.3g} alone"
                )
                remedy = "check the cooling and power of its machine with nvidia-smi -q -d PERFORMANCE,POWER under load"
                findings.append(
                    make_finding("benchmark-gpu-crowded", "hint", [gpu_label(gpu)], text, remedy, tflops=gpu["tflops"])
                )
        findings += check_model(model, dtype, group, median)
    if len({gpu["model"] for gpu in gpus}) > 1:
        names = sorted({gpu["model"] for gpu in gpus})
        text = f"the nodes have different GPUs: {format_list(names)}; each is compared with others of its kind"
        findings.append(
            make_finding("benchmark-gpus-differ", "hint", names, text, "in one run, the slowest sets the pace for all")
        )
    return findings


def slow_gpu_finding(gpu: GpuRate, alone_rate: float, reference: float) -> ReportFinding:
    """Return the finding for a GPU that was also slow when measured alone."""
    text = (
        f"{gpu_label(gpu)} is slow: {alone_rate:.3g} TFLOP/s, compared with {reference:.3g} for others of its kind, "
        "even with everything else idle"
    )
    remedy = (
        (
            "run nvidia-smi -q -d CLOCK,PERFORMANCE,POWER on its node to see throttled clocks and limits; if the "
            "machine is rented, it is best to return it"
        )
        if gpu["model"] != "cpu"
        else "check what else is running on this node (top), and whether the provider shares its cores"
    )
    return make_finding(
        "benchmark-gpu-slow", "problem", [gpu_label(gpu)], text, remedy, tflops=alone_rate, usual=reference
    )


def check_model(model: str, dtype: str, group: Sequence[GpuRate], median: float) -> list[ReportFinding]:
    """Report problems that affect every GPU of one model."""
    findings = []
    expected = expected_gpu_rate(model, dtype)
    if expected is not None and median < FAR_BELOW * expected["value"]:
        text = (
            f"{model} reaches {median:.3g} TFLOP/s in {dtype}, but {expected['value']:.3g} is expected "
            f"({expected['source']})"
        )
        remedy = (
            "check the clocks and power limits (nvidia-smi -q -d CLOCK,POWER), and whether each GPU is only part "
            "of a card (MIG)"
        )
        severity = "problem" if expected["sure"] else "hint"
        findings.append(
            make_finding(
                "benchmark-gpus-below", severity, [model], text, remedy, tflops=median, expected=expected["value"]
            )
        )
    for gpu in group:
        if model != "cpu" and gpu["last_quarter"] < THROTTLED * gpu["first_quarter"]:
            text = (
                f"{gpu_label(gpu)} slows down as it warms up: {gpu['first_quarter']:.3g} TFLOP/s at first, "
                f"{gpu['last_quarter']:.3g} at the end"
            )
            remedy = "check its cooling and power limit: nvidia-smi -q -d TEMPERATURE,POWER"
            findings.append(make_finding("benchmark-gpu-throttles", "hint", [gpu_label(gpu)], text, remedy))
    return findings


def check_network(measurements: BenchmarkMeasurements) -> list[ReportFinding]:
    """Report slow nodes and links, and a slow network."""
    findings: list[ReportFinding] = []
    pairs = measurements.pairs
    best = best_rates(pairs)
    if not best:
        return findings
    reference = statistics.median(best.values())
    suspected = slow_nodes(best)
    slow = []
    for node in suspected:
        alone_rates = [pair["alone_gbps"] for pair in pairs if node in (pair["a"], pair["b"]) and pair["alone_gbps"]]
        if alone_rates and max(alone_rates) < SLOW_NODE * reference:
            slow.append(node)
            text = (
                f"{node} is slow: {max(alone_rates):.3g} of {reference:.3g} Gb/s to every peer, even with everything "
                "else idle" + describe_slowdown(measurements, node)
            )
            remedy = f"check its network card, cable or host (ethtool, ip -s link on {node}), or use another machine"
            numbers = {"gbps": max(alone_rates), "usual": reference}
            findings.append(make_finding("benchmark-node-slow", "problem", [node], text, remedy, **numbers))
    for pair in slow_links(pairs, best, suspected):
        alone_gbps = pair["alone_gbps"]
        usual = min(best[pair["a"]], best[pair["b"]])
        if alone_gbps is not None and alone_gbps < SLOW_LINK * usual:
            nodes = [pair["a"], pair["b"]]
            text = (
                f"the link between {pair['a']} and {pair['b']} is slow: {alone_gbps:.3g} of the {usual:.3g} Gb/s "
                "that both reach with other nodes, even with everything else idle"
            )
            remedy = (
                "check the switches and routes between them (run mtr and ip route get on both), or leave one of "
                "them out"
            )
            findings.append(
                make_finding("benchmark-link-slow", "problem", nodes, text, remedy, gbps=alone_gbps, usual=usual)
            )
    findings += check_network_rate(measurements.network, best, reference)
    return findings


def describe_slowdown(measurements: BenchmarkMeasurements, node: str) -> str:
    """Describe how a slow node slows down all other nodes."""
    all_reduces = [
        collective
        for collective in measurements.collectives
        if collective["scope"] == "all" and collective["op"] == "all_reduce" and collective["bytes"] >= PLATEAU
    ]
    if not all_reduces:
        return ""
    largest = max(all_reduces, key=lambda collective: collective["bytes"])
    rate = 8 * largest["busbw_gbytes"]
    return f"; all_reduce over all nodes reaches only {rate:.3g} Gb/s, because it runs at the pace of {node}"


def check_network_rate(
    expected: ExpectedRate | None, best: Mapping[str, float], reference: float
) -> list[ReportFinding]:
    """Report a network that is slow everywhere, which cannot be detected by comparing its nodes."""
    if expected is None or reference >= FAR_BELOW * expected["value"]:
        return []
    names = list(best)
    note = "; a single pair cannot show which of the two is slow" if len(names) == 2 else ""
    text = (
        f"{reference:.3g} Gb/s was measured between {'the two nodes' if len(names) == 2 else 'nodes'}, but "
        f"{expected['value']:.3g} is expected ({expected['source']}){note}"
    )
    remedy = (
        "set NCCL_DEBUG=INFO in launch_environment to check whether NCCL is using the intended interface ('Using "
        "network Socket' means TCP); otherwise try NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD"
    )
    severity = "problem" if expected["sure"] else "hint"
    return [
        make_finding(
            "benchmark-network-below", severity, names, text, remedy, gbps=reference, expected=expected["value"]
        )
    ]

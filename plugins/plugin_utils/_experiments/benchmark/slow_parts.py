# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find slow GPUs, nodes and links. Pure. Private to this collection, controller only.

Whatever looks slow while others are busy is only a suspect: suspects() says what to measure again, alone, and judge()
reports a suspect only if it was measured again.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import (
    VERSION,
    Benchmark,
    Expected,
    Gpu,
    Pair,
    Suspects,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.expected import of_gpu
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.read import Measured
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.schedule import MOST_ALONE
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Finding

SLOW_GPU = 0.93  # of its model's median: equal GPUs usually differ by 5 %
SLOW_CPU = 0.7  # cores are often shared: one of several equal hosts reached 0.68 alone, and 0.93 among the others
SLOW_NODE = 0.8  # of the median of all nodes' rates with their best peers
SLOW_LINK = 0.7  # of the slower end's rate with its best peer
FAR_BELOW = 0.75  # of the expected rate of a GPU or the network
THROTTLED = 0.9  # of the rate in its own first quarter
REFERENCES = 2  # GPUs of the same model measured alone for comparison with a suspect
WITNESSES = 3  # peers for measuring a node again
PLATEAU = 1 << 20  # smallest size in bytes whose rate is meaningful


def where(gpu: Gpu) -> str:
    """A GPU, or the processor if there is none, in words for a person."""
    return f"{gpu['node']} {'rank' if gpu['model'] == 'cpu' else 'GPU'} {gpu['local_rank']}"


def by_model(gpus: Iterable[Gpu]) -> dict[tuple[str, str], list[Gpu]]:
    """The GPUs by model and number type."""
    found: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in gpus:
        found.setdefault((gpu["model"], gpu["dtype"]), []).append(gpu)
    return found


def least(model: str) -> float:
    """The share of its kind's median below which a GPU, or a processor, is slow."""
    return SLOW_CPU if model == "cpu" else SLOW_GPU


def slow_gpus(gpus: Iterable[Gpu]) -> list[Gpu]:
    """The GPUs that are too far below their model's median."""
    found = []
    for (model, _dtype), group in by_model(gpus).items():
        median = statistics.median(gpu["tflops"] for gpu in group)
        found += [gpu for gpu in group if gpu["tflops"] < least(model) * median]
    return found


def best_of(pairs: Iterable[Pair]) -> dict[str, float]:
    """Each node's rate with its best peer."""
    best: dict[str, float] = {}
    for pair in pairs:
        for node in (pair["a"], pair["b"]):
            best[node] = max(best.get(node, 0.0), pair["gbps"])
    return best


def slow_nodes(best: Mapping[str, float]) -> list[str]:
    """The nodes whose best rate is below SLOW_NODE of the median of all nodes' best rates.

    The median of all pairs would be wrong with few nodes: if one of three is slow, so are two of the three pairs.
    Two nodes cannot be told apart: they have only one pair.
    """
    if len(best) < 3:
        return []
    reference = statistics.median(best.values())
    return [node for node, rate in best.items() if rate < SLOW_NODE * reference]


def slow_links(pairs: Iterable[Pair], best: Mapping[str, float], slow: Sequence[str]) -> list[Pair]:
    """Slow pairs of nodes that are not slow themselves: below SLOW_LINK of the slower end's rate with its best peer."""
    return [
        pair
        for pair in pairs
        if pair["a"] not in slow
        and pair["b"] not in slow
        and pair["gbps"] < SLOW_LINK * min(best[pair["a"]], best[pair["b"]])
    ]


def witnesses(node: str, pairs: Sequence[Pair], best: Mapping[str, float]) -> list[Pair]:
    """The pairs for measuring a node again: with the peers that are fastest elsewhere."""
    own = [pair for pair in pairs if node in (pair["a"], pair["b"])]
    return sorted(own, key=lambda pair: -min(best[pair["a"]], best[pair["b"]]) - max(best[pair["a"]], best[pair["b"]]))[
        :WITNESSES
    ]


def suspects(measured: Measured) -> Suspects:
    """What to measure again alone, worst first, at most MOST_ALONE of each; all empty if nothing."""
    slow = sorted(slow_gpus(measured.gpus), key=lambda gpu: gpu["tflops"])
    ranks = [gpu["rank"] for gpu in slow]
    for group in by_model(measured.gpus).values():
        if any(gpu in slow for gpu in group):
            ranks = [*references(group), *ranks]
    best = best_of(measured.pairs)
    nodes = sorted(slow_nodes(best), key=lambda node: best[node])
    links = sorted(slow_links(measured.pairs, best, nodes), key=lambda pair: pair["gbps"])
    seen = [witnesses(node, measured.pairs, best) for node in nodes]
    # first one per node, since there may be no time for more
    wanted = [own[turn] for turn in range(WITNESSES) for own in seen if turn < len(own)] + links
    place = {name: rank for rank, name in enumerate(measured.nodes)}
    pairs: list[list[int]] = []
    for pair in wanted:
        ends = sorted((place[pair["a"]], place[pair["b"]]))
        if ends not in pairs:
            pairs.append(ends)
    return {"ranks": list(dict.fromkeys(ranks))[:MOST_ALONE], "pairs": pairs[:MOST_ALONE]}


def references(group: Sequence[Gpu]) -> list[int]:
    """The ranks of some typical GPUs of a model."""
    median = statistics.median(gpu["tflops"] for gpu in group)
    usual = sorted(group, key=lambda gpu: abs(gpu["tflops"] - median))
    return [gpu["rank"] for gpu in usual if gpu["tflops"] >= least(gpu["model"]) * median][:REFERENCES]


def with_second_look(measured: Measured, again: Measured | None) -> Measured:
    """The measurements, with those made alone added."""
    alone = {gpu["rank"]: gpu for gpu in (again.gpus if again is not None else [])}
    lines = {frozenset((pair["a"], pair["b"])): pair for pair in (again.pairs if again is not None else [])}
    for gpu in measured.gpus:
        if gpu["rank"] in alone:
            gpu["alone_tflops"] = alone[gpu["rank"]]["tflops"]
            gpu["right"] = gpu["right"] and alone[gpu["rank"]]["right"]
    for pair in measured.pairs:
        second = lines.get(frozenset((pair["a"], pair["b"])))
        if second is not None:
            pair["alone_gbps"] = second["gbps"]
            pair["right"] = pair["right"] and second["right"]
    return measured


def not_seen_again(measured: Measured) -> int:
    """How many suspected GPUs, nodes and links were not measured again."""
    best = best_of(measured.pairs)
    nodes = slow_nodes(best)
    seen = {name for pair in measured.pairs if pair["alone_gbps"] for name in (pair["a"], pair["b"])}
    links = slow_links(measured.pairs, best, nodes)
    return (
        sum(gpu["alone_tflops"] is None for gpu in slow_gpus(measured.gpus))
        + sum(node not in seen for node in nodes)
        + sum(pair["alone_gbps"] is None for pair in links)
    )


def judge(measured: Measured, again: Measured | None, run_id: str) -> Benchmark:
    """The benchmark: all measurements and findings."""
    measured = with_second_look(measured, again)
    left = 0 if again is None else not_seen_again(measured)
    findings = [
        *wrong_results(measured),
        *of_gpus(measured.gpus),
        *of_network(measured),
    ]
    expected = {}
    for model, dtype in by_model(measured.gpus):
        value = of_gpu(model, dtype)
        if value is not None:
            expected[f"{model}, {dtype}"] = value
    found: Benchmark = {
        "version": VERSION,
        "run_id": run_id,
        "backend": measured.backend,
        "torch": measured.torch,
        "nccl": measured.nccl,
        "complete": measured.complete,
        "nodes": measured.nodes,
        "gpus": measured.gpus,
        "copies": measured.copies,
        "collectives": measured.collectives,
        "pairs": measured.pairs,
        "expected_tflops": expected,
        "expected_network": measured.network,
        "findings": findings,
        "left_out": [
            *measured.left_out,
            *([f"a second look at {left} that seemed slow: no time left"] if left else []),
        ],
        "compared_with": "",
        "verdict": "",
    }
    found["verdict"] = verdict(found)
    return found


def verdict(found: Benchmark) -> str:
    """The benchmark's result in one line."""
    problems = [one["found"] for one in found["findings"] if one["severity"] == "problem"]
    if problems:
        return "; ".join(problems)
    if not found["gpus"]:
        return "nothing was measured: the log of rank 0 says why"
    return "nothing is slow among these nodes" + ("" if found["complete"] else ", as far as the benchmark came")


def finding(kind: str, severity: str, about: list[str], text: str, remedy: str, **numbers: float) -> Finding:
    return {
        "id": kind,
        "severity": severity,
        "about": about,
        "found": text,
        "remedy": remedy,
        "numbers": dict(numbers),
    }


def named(names: Sequence[str]) -> str:
    """Some names, and how many more."""
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def wrong_results(measured: Measured) -> list[Finding]:
    """Findings for wrong results of computations or transfers, which are worse than slow ones."""
    found = []
    for gpu in measured.gpus:
        if not gpu["right"]:
            text = f"{where(gpu)} computes a wrong matrix product"
            remedy = "remove it from the cluster; check for memory errors: nvidia-smi -q -d ECC,PAGE_RETIREMENT"
            found.append(finding("benchmark-wrong-product", "problem", [where(gpu)], text, remedy))
    for copy in measured.copies:
        if not copy["right"]:
            about = f"{copy['node']} rank {copy['local_rank']}"
            text = f"{about}: a copy ({copy['kind']}) does not match its source"
            found.append(
                finding("benchmark-wrong-copy", "problem", [about], text, "remove the machine: its memory is broken")
            )
    wrong: dict[tuple[str, str], list[int]] = {}
    for one in measured.collectives:
        for node in one["wrong"]:
            wrong.setdefault((node, one["op"]), []).append(one["bytes"])
    remedy = (
        "the same NCCL on all nodes (ansible-playbook preflight.yml compares them); then try NCCL_P2P_DISABLE=1 and "
        "NCCL_IB_DISABLE=1 in launch_environment, one at a time, to see which path is wrong"
    )
    for (node, operation), sizes in wrong.items():
        text = f"{operation} gives wrong results on {node}, with {min(sizes)} bytes and {len(sizes) - 1} other sizes"
        found.append(finding("benchmark-wrong-sum", "problem", [node], text, remedy))
    for pair in measured.pairs:
        if not pair["right"]:
            text = f"data sent between {pair['a']} and {pair['b']} arrive corrupted"
            found.append(finding("benchmark-wrong-exchange", "problem", [pair["a"], pair["b"]], text, remedy))
    return found


def of_gpus(gpus: Sequence[Gpu]) -> list[Finding]:
    """Findings for GPUs slower than others of their model, or a model slower than expected."""
    found = []
    groups = by_model(gpus)
    for (model, dtype), group in groups.items():
        median = statistics.median(gpu["tflops"] for gpu in group)
        limit = least(model)
        usual = [gpu["alone_tflops"] for gpu in group if gpu["alone_tflops"] and gpu["tflops"] >= limit * median]
        reference = statistics.median(usual) if usual else median
        for gpu in group:
            if gpu["tflops"] >= limit * median:
                continue
            alone = gpu["alone_tflops"]
            if alone is not None and alone < limit * reference:
                found.append(slow_gpu(gpu, alone, reference))
            elif alone is not None and model != "cpu":
                text = (
                    f"{where(gpu)} does {gpu['tflops']:.3g} of {median:.3g} TFLOP/s while all compute, "
                    f"but {alone:.3g} alone"
                )
                remedy = "check the cooling and power of its machine: nvidia-smi -q -d PERFORMANCE,POWER under load"
                found.append(finding("benchmark-gpu-crowded", "hint", [where(gpu)], text, remedy, tflops=gpu["tflops"]))
        found += of_model(model, dtype, group, median)
    if len({gpu["model"] for gpu in gpus}) > 1:
        names = sorted({gpu["model"] for gpu in gpus})
        text = f"the nodes have different GPUs: {named(names)}; each is compared with its own kind"
        found.append(
            finding("benchmark-gpus-differ", "hint", names, text, "in one run, the slowest sets the pace for all")
        )
    return found


def slow_gpu(gpu: Gpu, alone: float, reference: float) -> Finding:
    text = (
        f"{where(gpu)} is slow: {alone:.3g} TFLOP/s, compared with {reference:.3g} for others of its kind, "
        "even with everything else idle"
    )
    remedy = (
        "nvidia-smi -q -d CLOCK,PERFORMANCE,POWER on its node shows throttled clocks and limits; if rented, it is "
        "best to return the machine"
        if gpu["model"] != "cpu"
        else "check what else runs on this node (top), and whether the provider shares its cores"
    )
    return finding("benchmark-gpu-slow", "problem", [where(gpu)], text, remedy, tflops=alone, usual=reference)


def of_model(model: str, dtype: str, group: Sequence[Gpu], median: float) -> list[Finding]:
    """Findings about all GPUs of one model."""
    found = []
    expected = of_gpu(model, dtype)
    if expected is not None and median < FAR_BELOW * expected["value"]:
        text = (
            f"{model} does {median:.3g} TFLOP/s in {dtype}, but {expected['value']:.3g} is expected "
            f"({expected['source']})"
        )
        remedy = (
            "look at clocks and power limits (nvidia-smi -q -d CLOCK,POWER), and whether it is part of a card (MIG)"
        )
        severity = "problem" if expected["sure"] else "hint"
        found.append(
            finding("benchmark-gpus-below", severity, [model], text, remedy, tflops=median, expected=expected["value"])
        )
    for gpu in group:
        if model != "cpu" and gpu["last_quarter"] < THROTTLED * gpu["first_quarter"]:
            text = (
                f"{where(gpu)} slows down as it warms up: {gpu['first_quarter']:.3g} TFLOP/s at first, "
                f"{gpu['last_quarter']:.3g} at the end"
            )
            remedy = "check its cooling and power limit: nvidia-smi -q -d TEMPERATURE,POWER"
            found.append(finding("benchmark-gpu-throttles", "hint", [where(gpu)], text, remedy))
    return found


def of_network(measured: Measured) -> list[Finding]:
    """Findings for slow nodes and links, or a slow network."""
    found: list[Finding] = []
    pairs = measured.pairs
    best = best_of(pairs)
    if not best:
        return found
    reference = statistics.median(best.values())
    suspected = slow_nodes(best)
    slow = []
    for node in suspected:
        alone = [pair["alone_gbps"] for pair in pairs if node in (pair["a"], pair["b"]) and pair["alone_gbps"]]
        if alone and max(alone) < SLOW_NODE * reference:
            slow.append(node)
            text = (
                f"{node} is slow: {max(alone):.3g} of {reference:.3g} Gb/s to every peer, even with everything else "
                "idle" + pace(measured, node)
            )
            remedy = f"check its network card, cable or host (ethtool, ip -s link on {node}), or use another machine"
            numbers = {"gbps": max(alone), "usual": reference}
            found.append(finding("benchmark-node-slow", "problem", [node], text, remedy, **numbers))
    for pair in slow_links(pairs, best, suspected):
        alone_gbps = pair["alone_gbps"]
        usual = min(best[pair["a"]], best[pair["b"]])
        if alone_gbps is not None and alone_gbps < SLOW_LINK * usual:
            about = [pair["a"], pair["b"]]
            text = (
                f"the link between {pair['a']} and {pair['b']} is slow: {alone_gbps:.3g} of {usual:.3g} Gb/s that "
                "both reach with others, even with everything else idle"
            )
            remedy = (
                "check the switches and routes between them: mtr and ip route get on both; or leave one of them out"
            )
            found.append(finding("benchmark-link-slow", "problem", about, text, remedy, gbps=alone_gbps, usual=usual))
    found += below_expected(measured.network, best, reference)
    return found


def pace(measured: Measured, node: str) -> str:
    """How a slow node slows down all others, in words."""
    wide = [
        one
        for one in measured.collectives
        if one["scope"] == "all" and one["op"] == "all_reduce" and one["bytes"] >= PLATEAU
    ]
    if not wide:
        return ""
    last = max(wide, key=lambda one: one["bytes"])
    return (
        f"; all_reduce over all nodes does {8 * last['busbw_gbytes']:.3g} Gb/s, because it runs at the pace of {node}"
    )


def below_expected(expected: Expected | None, best: Mapping[str, float], reference: float) -> list[Finding]:
    """A finding for a network that is slow everywhere, which comparing its nodes cannot reveal."""
    if expected is None or reference >= FAR_BELOW * expected["value"]:
        return []
    names = list(best)
    two = "; a single pair cannot show which of the two is slow" if len(names) == 2 else ""
    text = (
        f"between {'the two nodes' if len(names) == 2 else 'nodes'} {reference:.3g} Gb/s arrive, "
        f"but {expected['value']:.3g} is expected ({expected['source']}){two}"
    )
    remedy = (
        "check with NCCL_DEBUG=INFO in launch_environment whether NCCL uses the intended interface ('Using network "
        "Socket' is TCP); otherwise try NCCL_SOCKET_NTHREADS and NCCL_NSOCKS_PERTHREAD"
    )
    severity = "problem" if expected["sure"] else "hint"
    return [
        finding("benchmark-network-below", severity, names, text, remedy, gbps=reference, expected=expected["value"])
    ]

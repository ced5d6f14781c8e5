# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compare a benchmark with an earlier one. Pure. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.documents import Benchmark
from ansible_collections.muster.training.plugins.plugin_utils._experiments.benchmark.slow_parts import (
    PLATEAU,
    finding,
    named,
    verdict,
)
from ansible_collections.muster.training.plugins.plugin_utils._report.documents import Finding

WORSE = 0.9  # share of the earlier value


def figures(one: Benchmark) -> dict[str, tuple[float, str, list[str]]]:
    """Comparable figures, by name: value, unit, and the ranks or nodes concerned. More is better."""
    found: dict[str, tuple[float, str, list[str]]] = {}
    for gpu in one["gpus"]:
        name = f"{gpu['node']} rank {gpu['local_rank']}"
        found[f"matmul on {name}"] = (gpu["alone_tflops"] or gpu["tflops"], "TFLOP/s", [name])
    for copy in one["copies"]:
        name = f"{copy['node']} rank {copy['local_rank']}"
        found[f"copy ({copy['kind']}) on {name}"] = (copy["gbytes"], "GB/s", [name])
    for pair in one["pairs"]:
        ends = sorted((pair["a"], pair["b"]))
        found[f"between {ends[0]} and {ends[1]}"] = (pair["alone_gbps"] or pair["gbps"], "Gb/s", ends)
    for operation in one["collectives"]:
        if operation["bytes"] >= PLATEAU:
            over = operation["node"] or "all nodes"
            name = f"{operation['op']} of {operation['bytes'] >> 20} MiB over {over}"
            found[name] = (operation["busbw_gbytes"], "GB/s", [operation["node"]] if operation["node"] else [])
    return found


def differences(now: Benchmark, before: Benchmark) -> Mapping[str, float]:
    """Each figure in both benchmarks, as a share of the earlier value."""
    old = figures(before)
    return {name: value / old[name][0] for name, (value, _unit, _about) in figures(now).items() if name in old}


def compare(now: Benchmark, before: Benchmark) -> Benchmark:
    """The benchmark, with a finding for each worse figure, worst first, and for nodes not in the baseline."""
    old, new = figures(before), figures(now)
    shares = differences(now, before)
    found: list[Finding] = []
    for name, share in sorted(shares.items(), key=lambda one: one[1]):
        if share < WORSE:
            value, unit, about = new[name]
            text = f"{name}: {value:.3g} {unit}, but {old[name][0]:.3g} in {before['run_id']}"
            remedy = "check what changed since: the machine, its driver, its neighbours; rerun the benchmark"
            found.append(finding("benchmark-worse", "problem", about, text, remedy, now=value, before=old[name][0]))
    strangers = [node for node in now["nodes"] if node not in before["nodes"]]
    if strangers:
        text = f"{named(strangers)} {'is' if len(strangers) == 1 else 'are'} not in {before['run_id']}"
        found.append(finding("benchmark-new-nodes", "hint", strangers, text, "nothing is compared for them"))
    if not shares:
        text = f"nothing can be compared with {before['run_id']}: they have no figure in common"
        found.append(
            finding("benchmark-no-baseline", "hint", [], text, "name a benchmark of the same nodes: -e baseline=RUN")
        )
    changed: Benchmark = {**now, "findings": [*now["findings"], *found], "compared_with": before["run_id"]}
    changed["verdict"] = verdict(changed)
    return changed

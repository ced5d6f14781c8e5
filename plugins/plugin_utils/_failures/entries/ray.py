# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of Ray."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Ray"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="ray-out-of-memory",
        title="Ray killed a worker because the node ran out of memory",
        example="ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        texts=(
            r"Task was killed due to the node running low on memory",
            r"Workers \(tasks / actors\) killed due to memory pressure \(OOM\)",
        ),
        cause=(
            "More than 95% of the node's memory was in use, and Ray killed its most recent worker before the kernel "
            "would have done so. The message lists the processes that use the most memory."
        ),
        remedy=(
            "use fewer workers or actors per node, a smaller rollout batch, or machines with more memory, or "
            "disable CPU offload. Setting RAY_memory_usage_threshold=0.98 in the environment of `ray start` only "
            "delays the problem; in a container, the container's limit applies"
        ),
        source="real-stanford/flingbot#11",
    ),
    CatalogueEntry(
        id="ray-gpus-missing",
        title="Ray has fewer GPUs than the job requests",
        example="ValueError: Total available GPUs 8.0 is less than total desired GPUs 16",
        texts=(r"Total available GPUs [\d.]{1,9} is less than total desired GPUs",),
        cause="The Ray cluster has fewer GPUs than the configuration requests: nodes have not joined it, another job "
        "holds their GPUs, or ray start was given fewer (CUDA_VISIBLE_DEVICES, --num-gpus).",
        remedy=(
            "run `ray status` to list the nodes and GPUs. Start Ray on each node before the job (ray start "
            "--address=HEAD:6379), wait until all nodes have joined, and set trainer.nnodes and "
            "trainer.n_gpus_per_node accordingly"
        ),
        source="verl-project/verl#2515",
    ),
)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The error catalogue: error messages of failing jobs, with their causes and remedies.

docs/what_went_wrong.md is generated from it: make pages.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries import (
    arguments,
    caches,
    checkpoints,
    compilers,
    containers,
    datasets,
    ddp,
    deepspeed,
    disk,
    driver,
    exit_codes,
    fsdp,
    gpu_memory,
    hangs,
    host_memory,
    hub,
    huggingface,
    launch_values,
    launchers,
    mounts,
    names,
    nccl,
    network,
    packages,
    parallelism,
    precision,
    ray,
    rdma,
    rocm,
    s3,
    sharding,
    shared_memory,
    slurm,
    wandb,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

# Entries by topic. If several match a line, the first one is used, and entries marked general are considered after all
# others.
TOPICS: dict[str, tuple[CatalogueEntry, ...]] = {
    gpu_memory.TOPIC: gpu_memory.ENTRIES,
    shared_memory.TOPIC: shared_memory.ENTRIES,
    host_memory.TOPIC: host_memory.ENTRIES,
    driver.TOPIC: driver.ENTRIES,
    rocm.TOPIC: rocm.ENTRIES,
    packages.TOPIC: packages.ENTRIES,
    compilers.TOPIC: compilers.ENTRIES,
    containers.TOPIC: containers.ENTRIES,
    hangs.TOPIC: hangs.ENTRIES,
    names.TOPIC: names.ENTRIES,
    network.TOPIC: network.ENTRIES,
    rdma.TOPIC: rdma.ENTRIES,
    nccl.TOPIC: nccl.ENTRIES,
    ddp.TOPIC: ddp.ENTRIES,
    fsdp.TOPIC: fsdp.ENTRIES,
    parallelism.TOPIC: parallelism.ENTRIES,
    deepspeed.TOPIC: deepspeed.ENTRIES,
    sharding.TOPIC: sharding.ENTRIES,
    precision.TOPIC: precision.ENTRIES,
    datasets.TOPIC: datasets.ENTRIES,
    huggingface.TOPIC: huggingface.ENTRIES,
    disk.TOPIC: disk.ENTRIES,
    mounts.TOPIC: mounts.ENTRIES,
    caches.TOPIC: caches.ENTRIES,
    checkpoints.TOPIC: checkpoints.ENTRIES,
    s3.TOPIC: s3.ENTRIES,
    hub.TOPIC: hub.ENTRIES,
    wandb.TOPIC: wandb.ENTRIES,
    launchers.TOPIC: launchers.ENTRIES,
    launch_values.TOPIC: launch_values.ENTRIES,
    arguments.TOPIC: arguments.ENTRIES,
    ray.TOPIC: ray.ENTRIES,
    slurm.TOPIC: slurm.ENTRIES,
    exit_codes.TOPIC: exit_codes.ENTRIES,
}
CATALOGUE = tuple(entry for entries in TOPICS.values() for entry in entries)

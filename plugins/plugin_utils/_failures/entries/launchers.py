# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of launchers, and of scripts that expect another one."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Launchers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="mpi-slots",
        title="Open MPI counts fewer slots than processes",
        example="There are not enough slots available in the system to satisfy the 2 slots that were requested",
        texts=(r"There are not enough slots available in the system",),
        cause="More processes were requested than the hostfile has slots.",
        remedy="leave nproc_per_node out, or set node_slots in the inventory; do not add -np or --hostfile yourself",
        source="h5py/h5py#2627",
    ),
    CatalogueEntry(
        id="rank-variables-missing",
        title="The script expects a launcher that starts its ranks",
        example="KeyError: 'LOCAL_RANK'",
        texts=(
            r"KeyError: '(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
            r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
        ),
        cause="launch_launcher: env starts one process per node, without RANK and LOCAL_RANK. Lightning starts the "
        "others itself; most scripts do not.",
        remedy="leave launch_launcher out: torchrun starts one process per GPU and sets these variables",
        source="a run on one H200",
    ),
    CatalogueEntry(
        id="debugger-without-terminal",
        title="A breakpoint was reached",
        example="bdb.BdbQuit",
        texts=(r"\bbdb\.BdbQuit\b",),
        cause="breakpoint() or pdb.set_trace() reads commands from a terminal, and the ranks of a run have none.",
        remedy="remove it and print what you want to see. To debug by hand: ansible-playbook shell.yml -e nodes=NODE "
        "shows how to log in to a node with the job's environment; run the script there with one process (WORLD_SIZE=1 "
        "RANK=0 python -m pdb train.py), or call torch.distributed.breakpoint() there",
        source="torch 2.13.0 on a CPU",
    ),
    CatalogueEntry(
        id="rank-failed",
        title="The launcher reports a failed rank",
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        texts=(
            r"ChildFailedError\b",
            r"elastic\.multiprocessing\.api:failed \(exitcode",
            r"multiprocessing/api\.py:\d{1,5}\] failed \(exitcode",
        ),
        cause="A rank on this node failed. Its own output says why.",
        remedy="read the log of the rank named under 'Root Cause': ansible-playbook logs.yml -e rank=N",
        source="Facico/Chinese-Vicuna#113",
        kind="consequence",
    ),
)

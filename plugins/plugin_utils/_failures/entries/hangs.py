# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ranks that wait for others until they give up."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Ranks that wait for each other"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="rank-ended-early",
        title="A rank ended while others waited for it",
        example="exited with 0 while rank 0 waited for it: ...",
        texts=(r"exited with 0 (?:\(so did \d{1,7} more\) )?while rank \d{1,7} waited for it",),
        cause="This rank came to the end of the script while others still called a collective, so they waited "
        "in vain: only some ranks run that code, such as an evaluation inside `if rank == 0`, or this "
        "rank had fewer batches than the others.",
        remedy="make the same calls on every rank: no collective inside `if rank == 0`, not even a forward pass "
        "of a sharded model; drop_last=True or model.join() where ranks have different numbers of batches",
        source="https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html",
    ),
    CatalogueEntry(
        id="rank-never-arrived",
        title="A rank did not arrive where all others waited",
        example="did not arrive where 3 other ranks waited for it; ...",
        texts=(r"did not arrive where \d{1,7} other ranks waited for it",),
        cause="This rank was running, without an error of its own, when the others gave up waiting for it in a "
        "collective: it hangs, is slower, still loads or saves, or is at another point of the script.",
        remedy="look at its last lines for where it was; -e debug=true makes torch log what each rank was doing."
        " If its work between two collectives may take longer, for example to save a checkpoint, use "
        "init_process_group(timeout=timedelta(hours=1))",
        source="pytorch/gloo#511",
    ),
    CatalogueEntry(
        id="ranks-out-of-step",
        title="Ranks wait in different collectives",
        example="ranks wait in different collectives: rank 0 in _ALLGATHER_BASE 619725, rank 1 in "
        "_REDUCE_SCATTER_BASE 619727; ...",
        texts=(r"ranks wait in different collectives: ",),
        cause="The ranks are out of step: each waits in another collective, so none completes. Some take a "
        "branch that others do not, skip a step, or save or evaluate at another time.",
        remedy="make the same calls in the same order on every rank; to save a sharded model, all ranks must "
        "call the function that gathers it. -e debug=true makes torch name the first call that differs",
        source="hiyouga/LlamaFactory#6269",
    ),
    CatalogueEntry(
        id="gloo-timed-out",
        title="A collective took too long (gloo)",
        example="gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        texts=(
            r"Timed out waiting \d{1,10}ms for (?:send|recv) operation",
            r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] [^\n]{0,60}Timed out",
        ),
        cause="This rank waited for another one that did not arrive in time. The other one is usually alive: it"
        " is slower, hangs, still loads or saves, or is at another point of the script.",
        remedy="find the rank that does not wait: -e debug=true makes torch log what each rank was doing. If "
        "work between two collectives may take longer, use init_process_group(timeout=timedelta(hours=1))",
        source="pytorch/gloo#511",
        kind="consequence",
    ),
)

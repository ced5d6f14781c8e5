# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ranks that wait for other ranks until they give up."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import CHECK_CALLS

TOPIC = "Ranks that wait for each other"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="rank-ended-early",
        title="A rank ended while others waited for it",
        example="exited with 0 while rank 0 waited for it: ...",
        texts=(r"exited with 0 (?:\(so did \d{1,7} more\) )?while rank \d{1,7} waited for it",),
        cause=(
            "This rank reached the end of the script while others were still calling a collective, so they "
            "waited in vain. Either only some ranks run that code, such as an evaluation inside `if rank == 0`, "
            "or this rank had fewer batches than the others."
        ),
        remedy=(
            "make the same calls on every rank: do not call a collective inside `if rank == 0`, not even a forward "
            "pass of a sharded model, and use drop_last=True or model.join() where ranks have different numbers of "
            "batches"
        ),
        source="https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html",
    ),
    CatalogueEntry(
        id="rank-left-early",
        title="A rank ended, without an error, before the others",
        example="had no error of its own when rank 1 lost the connection to it: RuntimeError: ...",
        texts=(
            r"(?:exited with 0|had no error of its own) when (?:rank \d{1,7}|all \d{1,7} other ranks) lost the "
            r"connection to it",
        ),
        cause=(
            "This rank reached the end of the script while others were still training, or was killed. Usually "
            "the ranks disagree about the number of steps: only this rank's node has the checkpoint from which "
            "it resumed, its share of the data is smaller, or it left the loop on its own (early stopping, "
            "sys.exit)."
        ),
        remedy=(
            "compare the checkpoint, the epoch and the number of batches that the ranks print at startup "
            "(ansible-playbook logs.yml -e rank=0, and the same for other ranks). All nodes must see a checkpoint, "
            "so save it on a shared drive, or copy it to each node (ansible-playbook stage_data.yml). Run `sudo dmesg "
            "-T` on this rank's node to see whether the kernel killed it"
        ),
        source="https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html",
        weak=True,
    ),
    CatalogueEntry(
        id="rank-never-arrived",
        title="A rank did not reach the point where all others waited",
        example="did not arrive where 3 other ranks waited for it; ...",
        texts=(r"did not arrive where (?:\d{1,7} other ranks|rank \d{1,7}) waited for it",),
        cause=(
            "This rank was running, without an error of its own, when the others gave up waiting for it in a "
            "collective: it hangs, is slower, is still loading or saving, or is at a different point of the "
            "script."
        ),
        remedy=(
            "look at the rank's last lines to see where it was; launch with -e debug=true to make torch log what "
            "each rank was doing. All ranks must call each collective and barrier, so none of these calls may be "
            "inside `if rank == 0`. If the work between two collectives may take longer, for example to save a "
            "checkpoint, use init_process_group(timeout=timedelta(hours=1))"
        ),
        source="pytorch/gloo#511",
    ),
    CatalogueEntry(
        id="ranks-out-of-step",
        title="Ranks wait in different collectives",
        example="ranks wait in different collectives: rank 0 in _ALLGATHER_BASE 619725, rank 1 in "
        "_REDUCE_SCATTER_BASE 619727; ...",
        texts=(r"ranks wait in different collectives: ",),
        cause=(
            "The ranks are out of step: each is waiting in a different collective, so none of the collectives "
            "completes. Some ranks take a branch that others do not, skip a step, or save or evaluate at a "
            "different time."
        ),
        remedy=(
            "make the same calls in the same order on every rank; to save a sharded model, call the function that "
            "gathers it on all ranks. With ZeRO 3 and a mixture of experts, where each rank calls different experts, "
            f"use deepspeed.utils.set_z3_leaf_modules(model, [BLOCK]); {CHECK_CALLS}"
        ),
        source="hiyouga/LlamaFactory#6269",
    ),
    CatalogueEntry(
        id="accelerate-shapes-differ",
        title="Ranks gather tensors of different shapes (accelerate)",
        example="DistributedOperationException: Cannot apply desired operation due to shape mismatches. All shapes "
        "across devices must be valid.",
        texts=(r"Cannot apply desired operation due to shape mismatches",),
        cause=(
            "gather, reduce and broadcast need tensors of the same shape on all ranks, but the ranks' batches were "
            "padded to different lengths, or the last batch is smaller on one rank. The message lists the shapes."
        ),
        remedy=(
            "pad first with tensor = accelerator.pad_across_processes(tensor, dim=1, pad_index=PAD_TOKEN), or pad "
            'all batches to one length (padding="max_length"); for metrics, use accelerator.gather_for_metrics'
        ),
        source="charent/ChatLM-mini-Chinese#36",
    ),
    CatalogueEntry(
        id="data-loader-seed",
        title="Ranks do not begin a pass over their data at the same time",
        example="RuntimeError: Timed out receiving the shared seed from the distribtued store on Rank 2. "
        "(world_size=4, timeout=1800)",
        texts=(r"Timed out receiving the shared seed from the distri\w{1,10} store",),
        cause=(
            "This rank began a new pass over its DataLoader, which agrees on a seed with rank 0, but rank 0 had "
            "not begun its own pass. Either the ranks have different numbers of batches, so this rank finished "
            "its epoch earlier, or rank 0 is still busy (loading, saving, evaluating)."
        ),
        remedy=(
            "give all ranks the same number of batches with drop_last=True, or with datapipe.fullsync() at the end "
            "of a DataPipe; create and iterate over the loader on all ranks, not inside `if rank == 0`. For work "
            "that takes longer, use init_process_group(timeout=timedelta(hours=1))"
        ),
        source="pytorch/pytorch#85775",
    ),
    CatalogueEntry(
        id="ranks-at-different-lines",
        title="Ranks wait at different lines of the script",
        example="ranks wait at different lines: rank 0 in train (trainer.py:1536): dist.barrier(), rank 1 in "
        "training_step (trainer.py:2002): loss.backward(); ...",
        texts=(r"ranks wait at different lines: ",),
        cause=(
            "The ranks are at different points of the script, so each waits for the others in vain. Either one rank "
            "left its loop earlier (because of fewer batches, or a decision to stop that only it made), or only some "
            "ranks run that code."
        ),
        remedy=(
            "compare the two lines: move the call that only some ranks reach out of its branch, or make all "
            "ranks make the same decision. Give all ranks the same number of batches (drop_last=True, "
            "model.join())"
        ),
        source="huggingface/transformers#17478",
        weak=True,
    ),
    CatalogueEntry(
        id="rank-behind",
        title="A rank has completed fewer collectives than the others",
        example="ranks are not at the same step: rank 0 in ALLREDUCE 1582, rank 3 in ALLREDUCE 1580, behind: rank 3; "
        "...",
        texts=(r"ranks are not at the same step: ",),
        cause=(
            "All ranks are waiting in the same kind of collective, but not in the same one. Either a rank that "
            "is behind is slower or has hung, or the ranks have called different numbers of collectives: one "
            "rank skipped a step (fewer batches, an empty sample, a `continue`), or ran one more, so the ranks "
            "wait for each other forever."
        ),
        remedy=(
            "run ansible-playbook logs.yml -e rank=N to see what the rank listed as behind did last, or "
            "ansible-playbook stacks.yml while it hangs. Give all ranks the same number of batches "
            f"(drop_last=True, model.join()), and skip a bad batch on all ranks or on none; {CHECK_CALLS}"
        ),
        source="hiyouga/LlamaFactory#7396",
    ),
    CatalogueEntry(
        id="ranks-pass-different-sizes",
        title="Ranks pass tensors of different sizes to one collective",
        example="ranks pass different sizes to ALLREDUCE 315: rank 0 passes 1024 elements, rank 3 passes 2048 "
        "elements; ...",
        texts=(r"ranks pass different sizes to \w{1,60}",),
        cause=(
            "The ranks are waiting in the same kind of collective, but pass tensors of different sizes. Either "
            "they are at different points of the script, because one ran out of batches and went on to the "
            "evaluation or the next epoch (likely if one of them passes a single element), or their models, "
            "batches or last batches differ."
        ),
        remedy=(
            "make the sizes equal on all ranks with drop_last=True or padding to one length, or use "
            "all_gather_object for objects; use the same code, configuration and packages on all nodes "
            f"(ansible-playbook preflight.yml compares them); {CHECK_CALLS}"
        ),
        source="pytorch/pytorch#140563",
    ),
    CatalogueEntry(
        id="rank-still-saved",
        title="A rank is saving while others wait for it",
        example="was still working when rank 2 gave up waiting for it, its last output: Saving FSDP model; ...",
        texts=(
            r"still work(?:ed|ing) when [^\n;]{1,40} gave up waiting for it, its last output: "
            r"[^\n;]{0,160}\b[Ss]av(?:e|ing)\b",
            r"timed out while rank \d{1,7} still worked, whose last output was: [^\n;]{0,160}\b[Ss]av(?:e|ing)\b",
        ),
        cause="Either only this rank calls the save function, inside `if rank == 0` or `if "
        "accelerator.is_main_process`, although saving a sharded model (FSDP, ZeRO) needs all ranks. Or saving takes "
        "longer than the timeout of the other ranks.",
        remedy=(
            "call save_state, save_checkpoint or state_dict() of a sharded model on all ranks, outside any branch "
            "for the main process; a longer timeout does not help in that case. Only if the file is still growing, "
            "use init_process_group(timeout=timedelta(hours=3)), or ddp_timeout=10800 for the Trainer"
        ),
        source="huggingface/accelerate#2000",
        weak=True,
    ),
    CatalogueEntry(
        id="rank-still-worked",
        title="A rank is still preparing, loading or saving while others wait for it",
        example="was still working when rank 1 gave up waiting for it, its last output: train: Scanning "
        "/data/labels... 41%; "
        "...",
        texts=(
            r"still work(?:ed|ing) when [^\n;]{1,40} gave up waiting for it, its last output: ",
            r"timed out while rank \d{1,7} still worked, whose last output was: ",
        ),
        cause=(
            "The last output of the rank that did not time out shows what it was doing: work that takes longer than "
            "the other ranks' collective timeout, such as reading, tokenizing or downloading data, evaluating, or "
            "saving a checkpoint."
        ),
        remedy=(
            "finish that work before the ranks wait for each other, by preparing the data once before the job; or "
            "allow more time with init_process_group(timeout=timedelta(hours=3)), or ddp_timeout=10800 for the "
            "Trainer"
        ),
        source="hiyouga/LlamaFactory#2424",
        weak=True,
    ),
    CatalogueEntry(
        id="rank-had-finished",
        title="A rank is waiting in a collective that another rank does not call",
        example="had finished when rank 0 gave up waiting for it, its last output: INFO run finished; ...",
        texts=(
            r"had finished when [^\n;]{1,40} gave up waiting for it, its last output: ",
            r"timed out while rank \d{1,7} had finished, whose last output was: ",
        ),
        cause=(
            "Only some ranks call this collective; according to its last output, the other rank had finished its "
            "work. Usually the call is inside `if rank == 0`, for example to save, log or evaluate at the end, or a "
            "rank had fewer batches."
        ),
        remedy=(
            "make the same calls on every rank: do not call a collective inside `if rank == 0`, not even a metric "
            "that is reduced (sync_dist=True), a sharded state_dict or a barrier, and use drop_last=True where ranks "
            "have different numbers of batches. A longer timeout does not help"
        ),
        source="meta-pytorch/torchrec#189",
        weak=True,
    ),
    CatalogueEntry(
        id="gloo-timed-out",
        title="A collective took too long (gloo)",
        example="gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
        texts=(
            r"Timed out waiting \d{1,10}ms for (?:send|recv) operation",
            r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] [^\n]{0,60}Timed out",
        ),
        cause=(
            "This rank waited for another rank that did not arrive in time. The other rank is usually alive: it is "
            "slower, hangs, is still loading or saving, had fewer batches, or is at a different point of the script."
        ),
        remedy=(
            "find the rank that is not waiting; launch with -e "
            '\'{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}\' to make torch name the ranks that did '
            "not arrive. If ranks have different numbers of batches (an IterableDataset), use drop_last=True, or run "
            "the loop inside `with model.join()`. If work between two collectives may take longer, use "
            "init_process_group(timeout=timedelta(hours=1))"
        ),
        source="pytorch/gloo#511",
        kind="consequence",
    ),
    CatalogueEntry(
        id="monitored-barrier",
        title="Some ranks did not reach a barrier",
        example="RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 2000000 ms",
        texts=(
            r"Ranks? \d{1,7}[\d, ]{0,300} failed to pass monitoredBarrier in \d",
            r"reached monitoredBarrier, but received errors",
        ),
        cause=(
            "The ranks listed in rank 0's message did not reach the barrier in time: they failed, are still "
            "loading or downloading, or are on a node that other nodes cannot reach."
        ),
        remedy=(
            "read the logs of these ranks (ansible-playbook logs.yml -e rank=N). If all ranks of a node are listed, "
            "run ansible-playbook preflight.yml to test its connections. For work that takes longer, use "
            "init_process_group(timeout=timedelta(hours=1))"
        ),
        source="NVIDIA/nccl#849",
        kind="consequence",
    ),
    CatalogueEntry(
        id="horovod-stalled",
        title="Horovod is waiting for some ranks",
        example="WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
        "ranks and are waiting for remainder of ranks for more than 60 seconds.",
        texts=(r"tensors were submitted to be reduced, gathered or broadcasted by subset of ranks",),
        cause=(
            "Some ranks are exchanging a tensor that other ranks are not: the other ranks have ended, have fewer "
            "batches, or take a different branch. Look at the ranks that the message lists as `missing ranks` or "
            "not `ready`."
        ),
        remedy=(
            "read the logs of the missing ranks (ansible-playbook logs.yml -e rank=N); make the same calls on every "
            "rank, with the same number of batches (drop_last, hvd.join())"
        ),
        source="horovod/horovod#534",
        kind="consequence",
        recoverable=True,
    ),
    CatalogueEntry(
        id="horovod-shut-down",
        title="Another rank ended (Horovod)",
        example="Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to "
        "allreduce, allgather or broadcast a tensor after one of the ranks finished execution.",
        texts=(r"Horovod has been shut down\. This (?:was|has been) caused by an exception",),
        cause="Another rank failed or finished, and Horovod shut down on all ranks.",
        remedy=(
            "look in the logs of the other ranks for the first exception (ansible-playbook logs.yml -e fetch=true). "
            "If there is none, the ranks have different numbers of batches, so use hvd.join(), or the same "
            "steps_per_epoch on all ranks"
        ),
        source="NVIDIA/DeepLearningExamples#972",
        kind="consequence",
    ),
)

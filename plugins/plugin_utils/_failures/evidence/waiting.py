# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about ranks that waited in vain: what the awaited rank was doing, or how their operations differ."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.activity import (
    ACTIVITIES,
    LIMIT,
    Activity,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "What a rank was doing while others waited for it"
AT_WORK = ("rank-still-worked", "rank-still-saved")
# The errors from `waiting.py`, up to the rank's last output.
OUTPUT = (
    r"(?:still worked, whose last output was: |gave up waiting for it, its last output: )"
    r"(?P<output>(?=[^\n;]{{0,200}}(?:{pattern}))[^\n;]{{1,200}})"
)
# The errors from `hang.py`: "it was in load (data.py:41): `x = y`".
STACK = r"\b(?:it was|they were) (?:running |in |at )?(?P<place>(?=[^\n;]{{0,120}}?(?:{pattern}))[^\n;]{{1,200}})"
SAME_CALLS = (
    "make the same calls in the same order on every rank: no rank may skip a sample, a layer or a step that "
    "others run (drop bad samples before the data is distributed; use a dummy input for a batch without images "
    "or tokens)"
)


def make_output_rule(activity: Activity) -> EvidenceRule:
    """Return the rule for a rank whose last output indicates an activity."""
    return EvidenceRule(
        id=f"waited-while-{activity.name.replace(' ', '-')}",
        entries=AT_WORK,
        shows=(OUTPUT.format(pattern=activity.output),),
        cause=f"This rank was still {activity.name} when the others gave up waiting for it (its last output: "
        f"{{output}}). {activity.reason}",
        remedy=activity.remedy,
    )


def make_stack_rule(activity: Activity) -> EvidenceRule:
    """Return the rule for a rank whose stack indicates an activity."""
    return EvidenceRule(
        id=f"hang-while-{activity.name.replace(' ', '-')}",
        entries=("hang",),
        shows=(STACK.format(pattern=activity.function),),
        cause=f"This rank was still {activity.name} ({{place}}) when the others gave up waiting for it. "
        f"{activity.reason}",
        remedy=activity.remedy,
    )


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="networks-of-ranks-differ",
        entries=("nccl-time-out", "nccl-first-collective", "nccl-start-waits"),
        shows=(r"; NCCL uses different networks: (?P<list>[^\n;]{1,160})",),
        cause=(
            "The nodes use different NCCL networks ({list}), which cannot connect to each other: only some of the "
            "nodes load a plug-in (libnccl-net.so, from HPC-X, EFA or a cloud provider) or have an adapter that NCCL "
            "can use."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"NCCL_NET_PLUGIN": "none"}}}}\' to use NCCL\'s own network '
            "on all nodes, or install the same plug-in, with the same LD_LIBRARY_PATH, on all of them. Run `grep "
            "'Using network'` on the logs to see the network of each node. Sockets work everywhere; to use them, "
            'launch with -e \'{{"launch_environment": {{"NCCL_NET": "Socket"}}}}\''
        ),
        certain=True,
    ),
    EvidenceRule(
        id="nccl-versions-of-ranks",
        entries=("nccl-time-out", "nccl-first-collective", "nccl-start-waits"),
        shows=(r"; NCCL's versions differ: (?P<list>[^\n;]{1,160})",),
        cause="The ranks use different versions of NCCL ({list}), which may not be able to talk to each other.",
        remedy=(
            "install the same torch version on all nodes (ansible-playbook site.yml --tags python_env,pytorch), or "
            "use the same image; remove the system's libnccl from LD_LIBRARY_PATH and LD_PRELOAD"
        ),
    ),
    EvidenceRule(
        id="addresses-of-ranks-differ",
        entries=("ranks-missing", "rendezvous-unreached", "store-time-out"),
        shows=(r"; the (?:first node's|rendezvous') address differs: (?P<list>[^\n;]{1,160})",),
        cause=(
            "The nodes were given different addresses for the first node ({list}): unless both addresses belong to "
            "it, the nodes look for each other in different places."
        ),
        remedy=(
            "give all nodes the same --master_addr (MASTER_ADDR, --rdzv_endpoint): {first_address}, an address of "
            "the node with node rank 0 that the other nodes can reach. muster does this by default (leave "
            "launch_launcher out)"
        ),
    ),
    EvidenceRule(
        id="peer-access-hangs",
        entries=("nccl-time-out", "nccl-first-collective"),
        # All ranks are connected through their GPUs only, and none is late.
        shows=(r"\bvia P2P/(?P<way>\w{1,12})", r"; all (?P<count>\d{1,7}) ranks wait in \w{1,40} (?:\d|10)$"),
        unless=r"\bvia (?:NET|SHM)/|\[(?:send|receive)\] via",
        cause=(
            "All {count} ranks are on one node and are waiting in their first collective: data that one GPU sends "
            "directly to another (P2P/{way}) does not arrive, usually because the IOMMU or PCIe ACS redirects it."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"NCCL_P2P_DISABLE": "1"}}}}\' to transfer data through host '
            "memory instead. To keep P2P, disable ACS and the IOMMU (VT-d, AMD-Vi) in the BIOS, or boot with "
            "iommu=pt; `sudo lspci -vvv | grep ACSCtl` must not show SrcValid+"
        ),
    ),
    EvidenceRule(
        id="all-ranks-wait",
        entries=("nccl-time-out", "nccl-first-collective"),
        shows=(r"; all (?P<count>\d{1,7}) ranks wait in (?P<operation>\w{1,40}) (?P<number>\d|10)$",),
        cause=(
            "All {count} ranks are waiting in the same collective at the beginning ({operation} {number}), so "
            "none of them is late: most likely no data is getting through the network between the nodes, or "
            "between the GPUs of a node."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"}}}}\' to see '
            "whether the job works without InfiniBand or RoCE, and what NCCL uses (on one node, set "
            "NCCL_P2P_DISABLE=1); run ansible-playbook preflight.yml to test the network"
        ),
    ),
    EvidenceRule(
        id="broadcast-of-waiting-root",
        entries=("nccl-time-out", "nccl-first-collective"),
        # Rank 0 itself gave up waiting in a broadcast at the beginning, in which it usually sends its own weights.
        shows=(
            r"\[Rank 0\] Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=(?P<number>\d|10), "
            r"OpType=BROADCAST\b",
        ),
        cause=(
            "Rank 0, which sends this first broadcast (number {number}), is waiting in it like the others, so it "
            "is not late: most likely no data is getting through the network between the nodes, or between the "
            "GPUs of a node. Otherwise another rank did not arrive."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"NCCL_IB_DISABLE": "1", "NCCL_DEBUG": "INFO"}}}}\' to see '
            "whether the job works without InfiniBand or RoCE, and what NCCL uses (on one node, set "
            "NCCL_P2P_DISABLE=1); run ansible-playbook preflight.yml to test the network. If the network works, run "
            "ansible-playbook logs.yml -e fetch=true and look for the rank that did not wait"
        ),
    ),
    EvidenceRule(
        id="collective-not-started",
        entries=("rank-behind",),
        shows=(r"\brank (?P<rank>\d{1,7}) after (?P<number>\d{1,12})[^\n;]{0,200}, behind: rank",),
        cause=(
            "Rank {rank} never started the collective in which the others are waiting: its last one was "
            "{number}. It skipped work that the others did (fewer batches, an empty or dropped sample, a "
            "branch), or is hanging before that collective."
        ),
        remedy=(
            f"{SAME_CALLS}; if the ranks have different numbers of batches, use DataLoader(drop_last=True) or "
            "model.join(). Run ansible-playbook logs.yml -e rank={rank} to see what the rank did last, and "
            "ansible-playbook stacks.yml to see where it hangs"
        ),
    ),
    EvidenceRule(
        id="sharded-sizes-differ",
        entries=("ranks-pass-different-sizes",),
        shows=(r"ranks pass different sizes to (?P<operation>_ALLGATHER_BASE|_REDUCE_SCATTER_BASE)",),
        cause=(
            "The ranks run different layers of a sharded model (FSDP, ZeRO): the tensor sizes are those of the "
            "layers' weights, so one rank skipped a layer that another runs, such as an encoder without input in "
            "this batch, or took another branch."
        ),
        remedy=(
            f"{SAME_CALLS}; using batches of a single kind at a time also helps. To make torch name the first call "
            'that differs, launch with -e \'{{"launch_environment": {{"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}}}\''
        ),
    ),
    EvidenceRule(
        id="single-number-differs",
        entries=("ranks-pass-different-sizes",),
        shows=(r"ranks pass different sizes to (?P<operation>ALLREDUCE[^:\n]{0,20}): [^\n]{0,80}passes 1 elements",),
        cause=(
            "The ranks are at different points of the script: one is waiting in a barrier or reducing a single "
            "number (a metric, a token count), while another is still reducing gradients. The former ran out of "
            "batches, or evaluates, logs or stops at a different step."
        ),
        remedy="give all ranks the same number of batches: DataLoader(drop_last=True), DistributedSampler, or "
        "model.join(); evaluate, log and stop at the same steps on all ranks",
    ),
    EvidenceRule(
        id="gathered-sizes-differ",
        entries=("ranks-pass-different-sizes",),
        shows=(r"ranks pass different sizes to (?P<operation>ALLGATHER|BROADCAST|GATHER|SCATTER)\b",),
        cause=(
            "The ranks pass tensors of different sizes to {operation}, which requires equal sizes: usually the last "
            "batch or a padded batch is shorter on one rank, or objects or buffers differ between the ranks."
        ),
        remedy=(
            "use DataLoader(drop_last=True), pad to one length (accelerator.pad_across_processes), or use "
            "all_gather_object and broadcast_object_list for objects; for buffers, use "
            "DistributedDataParallel(..., broadcast_buffers=False)"
        ),
    ),
    *map(make_output_rule, ACTIVITIES),
    EvidenceRule(
        id="trained-while-others-ended",
        entries=("rank-never-arrived",),
        shows=(
            r"waited for it, its last output: (?P<output>[^\n;]{1,200}); [^\n]{0,160}OpType=ALLREDUCE, NumelIn=1\)",
        ),
        cause=(
            "This rank was still in its training steps ({output}) while the others waited for it in a barrier or "
            "an all_reduce of a single number: most likely the ranks have different numbers of batches, so the "
            "others reached the end of the epoch earlier, or this rank is hanging in a step."
        ),
        remedy=(
            "give all ranks the same number of batches: use DataLoader(drop_last=True), DistributedSampler, a fixed "
            "number of steps for streaming data, or model.join(). If the rank hangs, run ansible-playbook stacks.yml "
            "to see where"
        ),
    ),
    EvidenceRule(
        id="trained-while-others-waited",
        entries=("rank-never-arrived",),
        shows=(
            r"waited for it, its last output: (?P<output>[^\n;]{1,200}); [^\n]{0,160}OpType=(?P<operation>\w{1,40})",
        ),
        cause=(
            "This rank did not continue after a training step ({output}), and the others waited for it in "
            "{operation}: it is hanging or slow in that step, usually while loading the next batch, or it skipped "
            "work that the others did."
        ),
        remedy=(
            "run ansible-playbook stacks.yml while the rank hangs to see where it is; try num_workers=0 or "
            f"DataLoader(timeout=120), and {SAME_CALLS}"
        ),
    ),
    EvidenceRule(
        id="hang-stopped",
        entries=("hang",),
        shows=(r"\b(?:it was|they were) stopped \(process state T",),
        cause="The process of this rank is stopped (by SIGSTOP, Ctrl-Z or a debugger), so the others wait for it.",
        remedy=(
            "run `kill -CONT PID` on that node to resume it; detach the debugger, and find out who stopped the process"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="hang-on-drive",
        entries=("hang",),
        shows=(r"in uninterruptible sleep \(process state D",),
        cause=(
            "This rank is waiting for a disk or network file system that is not responding, and the others are "
            "waiting for this rank."
        ),
        remedy=(
            "run `ls` on that node's mounts to see which one hangs; check its server, and mount it again with "
            "ansible-playbook site.yml --tags data"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="hang-ended-early",
        entries=("hang",),
        shows=(r"had already ended with exit code 0",),
        cause=(
            "This rank reached the end of the script while the others were still calling a collective: it had "
            "fewer batches, or the others run code that this rank does not, such as an evaluation inside `if "
            "rank == 0`."
        ),
        remedy="give all ranks the same number of batches: DataLoader(drop_last=True), DistributedSampler, or "
        "model.join(); make the same calls on every rank, and end with a barrier",
        certain=True,
    ),
    EvidenceRule(
        id="hang-other-collective",
        entries=("hang",),
        shows=(r"\b(?:it was|they were) waiting in (?P<place>[^\n;]{1,160})",),
        cause=(
            "This rank is waiting in {place}, and the others are waiting in a different collective: the ranks are "
            "out of step."
        ),
        remedy=f"{SAME_CALLS}; do not put a collective, barrier, save or evaluation inside `if rank == 0`",
    ),
    EvidenceRule(
        id="hang-on-gpu",
        entries=("hang",),
        shows=(r"\b(?:it was|they were) waiting for the GPU in (?P<place>[^\n;]{1,160})",),
        cause=(
            "This rank's GPU is not finishing its work ({place}): it is waiting in an earlier collective that "
            "the others have passed or never started, or the GPU or its network is hanging."
        ),
        remedy=(
            "run ansible-playbook stacks.yml to see each rank's operation; look for 'NVRM: Xid' in the output of sudo "
            "dmesg on that node, and make the same calls on every rank"
        ),
    ),
    EvidenceRule(
        id="hang-at-input",
        entries=("hang",),
        shows=(
            r"\b(?:it was|they were) [^\n;]{0,120}(?P<place>DataLoader\w{0,40}|_wait_for_tensor|"
            r"_try_get_data|queue\.get|worker process)",
        ),
        cause=(
            "This rank was waiting for its DataLoader ({place}) while the others waited for this rank: a worker is "
            "hanging or slow."
        ),
        remedy=(
            "try num_workers=0, or DataLoader(timeout=120), which names a worker that hangs; look for locks that "
            f"were held at fork (or set multiprocessing_context='spawn'). If the worker is only slow, {LIMIT}"
        ),
    ),
    *map(make_stack_rule, ACTIVITIES),
)

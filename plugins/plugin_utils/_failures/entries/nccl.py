# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures inside NCCL."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    OPEN_NETWORK,
    SAME_SOFTWARE,
)

TOPIC = "NCCL"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="nccl-internal-address",
        title="NCCL uses an address that exists only inside the machine",
        example="NCCL WARN socketStartConnect: Connect to fe80::966d:ae03:a2:8cf0%ib1<17943> failed : Software "
        "caused connection abort",
        texts=(
            r"[Cc]onnect to (?:fe80:|169\.254\.|127\.|172\.(?:1[7-9]|2\d|3[01])\.0\.1<)[^\n]{0,60} (?:failed|retur"
            r"ned \d)",
        ),
        cause="The address belongs to the loopback, to a container network or is a link-local IPv6 address: "
        "it leads nowhere from another node.",
        remedy="remove NCCL_SOCKET_IFNAME from launch_environment and the script: muster sets it on each node "
        "to the interface of node_address. If node_address itself is wrong, correct it in the "
        "inventory; ansible-playbook preflight.yml tests the connections",
        source="NVIDIA/nccl#975",
    ),
    CatalogueEntry(
        id="nccl-internal-error",
        title="NCCL reports an internal error",
        example="DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333, internal error - please report "
        "this issue to the NCCL developers",
        texts=(
            r"internal error - please report this issue to the NCCL developers",
            r"ncclInternalError\b",
        ),
        cause="Mostly the nodes have different NCCL versions or NCCL_* settings, or a connection failed, "
        "which releases like 2.18 report in this way; sometimes this release of NCCL has a bug.",
        remedy=f"{SAME_SOFTWARE}python_env,pytorch makes NCCL the same on all nodes. "
        """-e '{"launch_environment": {"NCCL_DEBUG": "WARN"}}' logs what failed. If it is the same """
        "everywhere, try a newer release of torch, which brings a newer NCCL, or a newer image",
        source="NVIDIA/nccl#1092",
        weak=True,
    ),
    CatalogueEntry(
        id="nccl-duplicate-gpu",
        title="Two ranks use one GPU",
        example="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device ...",
        texts=(r"Duplicate GPU detected",),
        cause="The script puts several ranks on the same GPU: all on cuda:0, or a hard-coded GPU. Or more processes "
        "than GPUs were started.",
        remedy="in the script call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group and "
        "do not set CUDA_VISIBLE_DEVICES; leave nproc_per_node out",
        source="verl-project/verl#161",
    ),
    CatalogueEntry(
        id="nccl-sizes-differ",
        title="Ranks exchange different things",
        example="NCCL WARN NET/Socket : message truncated : receiving 1048576 bytes instead of 65536",
        texts=(
            r"[Mm]essage truncated : receiv(?:ing|ed) \d{1,12} bytes instead of",
            r"NCCL WARN Mismatched collective detected",
            r"connecting to address [^\n]{0,60} is neither AF_INET",
        ),
        cause="The ranks call NCCL with different sizes or in a different order, or their NCCL versions or settings "
        "differ.",
        remedy=f"{SAME_SOFTWARE}python_env,pytorch makes them the same; use the same NCCL_* on all nodes. "
        """For the script: -e '{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}' names the call""",
        source="NVIDIA/nccl#626",
    ),
    CatalogueEntry(
        id="nccl-no-interface",
        title="NCCL finds no network interface",
        example="Bootstrap : no socket interface found",
        texts=(
            r"no socket interface found",
            r"Call to bind failed : Cannot assign requested address",
            r"no NCCL_SOCKET_IFNAME interface found",
        ),
        cause="NCCL_SOCKET_IFNAME names an interface that this node does not have, or one without an address.",
        remedy="remove NCCL_SOCKET_IFNAME from launch_environment and the script: muster sets it on each node to "
        "the interface of node_address",
        source="rwth-i6/returnn#1470",
    ),
    CatalogueEntry(
        id="nccl-connection-failed",
        title="NCCL cannot connect two nodes",
        example="NCCL WARN Connect to 10.0.0.2<21724> failed : Connection refused",
        texts=(
            r"NCCL WARN [^\n]{0,60}[Cc]onnect to [^\n]{1,120} (?:failed|returned \d)",
            r"NCCL WARN Call to connect failed",
        ),
        cause="A port between two nodes is closed (NCCL uses any free one), the address belongs to a network inside "
        "the machine, or the other rank ended earlier.",
        remedy=OPEN_NETWORK,
        source="pytorch/pytorch#38702",
    ),
    CatalogueEntry(
        id="nccl-peer-gone",
        title="Another rank exited (NCCL)",
        example="ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
        "prematurely",
        texts=(
            r"ncclRemoteError\b",
            r"NCCL WARN [^\n]{0,60}Connection closed by remote peer",
            r"NCCL communicator was aborted",
        ),
        cause="The rank at the other end exited or was killed, or the network between two nodes failed.",
        remedy="look in the logs of the other ranks: ansible-playbook logs.yml -e fetch=true. If none shows an error: "
        f"{OPEN_NETWORK}",
        source="NVIDIA/nccl#1612",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-time-out",
        title="A collective took too long",
        example="Watchdog caught collective operation timeout: WorkNCCL(SeqNum=..., OpType=ALLREDUCE, ...)",
        texts=(r"Watchdog caught collective operation timeout", r"Some NCCL operations have failed or timed out"),
        cause="This rank waited for one that never arrived: it failed, hangs, is still loading or saving, or is at "
        "another point of the script.",
        remedy="find the rank that is not waiting: -e debug=true makes torch log what each rank was doing. If work "
        "between two collectives may take longer, use init_process_group(timeout=timedelta(hours=1))",
        source="hiyouga/LlamaFactory#7396",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-cuda-error",
        title="A CUDA call failed inside NCCL",
        example="ncclUnhandledCudaError: Call to CUDA function failed",
        texts=(r"ncclUnhandledCudaError\b", r"unhandled cuda error"),
        cause="A CUDA call failed inside NCCL: a GPU that is out of memory or broken, two ranks on one GPU, "
        "or an incompatible driver.",
        remedy="""-e '{"launch_environment": {"NCCL_DEBUG": "WARN"}}' names the call that failed; """
        "ansible-playbook preflight.yml checks GPUs and drivers",
        source="NVIDIA/nccl#1410",
        weak=True,
    ),
    CatalogueEntry(
        id="nccl-system-error",
        title="A system call of NCCL failed",
        example="ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error",
        texts=(r"ncclSystemError\b", r"unhandled system error"),
        cause="Mostly a connection failed: a port between two nodes is closed (NCCL uses any free one), or the "
        "network interface is the wrong one, as in a container without the host's network; else memory or /dev/shm.",
        remedy="""-e '{"launch_environment": {"NCCL_DEBUG": "WARN"}}' logs the call that failed; """
        "ansible-playbook preflight.yml checks the connections and /dev/shm",
        source="NVIDIA/nccl#875",
        weak=True,
    ),
)

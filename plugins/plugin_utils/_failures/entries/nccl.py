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
        id="nccl-nvls",
        title="NVLink SHARP (NVLS) does not work on the machine",
        example="Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the "
        "operation cannot be performed in the present state'",
        texts=(
            r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory",
            r"transport/nvls\.cc:\d{1,5} NCCL WARN Cuda failure",
        ),
        cause=(
            "NCCL uses the NVSwitches' multicast memory, but the machine does not provide it. Either "
            "nvidia-fabricmanager is not running, was restarted without resetting the GPUs, or failed; or, "
            "between machines, nvidia-imex is not set up."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_NVLS_ENABLE": "0"}}\' to disable NVLS, at a somewhat '
            "lower speed. On the node, run systemctl status nvidia-fabricmanager and `nvidia-smi -q -i 0 | grep "
            "-A 3 Fabric`, which must show Completed and Success; if not, install the version of the service "
            "that matches the driver, start it and reboot"
        ),
        source="pytorch/pytorch#177472",
        recoverable=True,
        refines=("nccl-cuda-error", "nccl-system-error", "nccl-internal-error"),
    ),
    CatalogueEntry(
        id="nccl-no-peer-access",
        title="The GPUs on a node cannot access each other's memory",
        example="Cuda failure 217 'peer access is not supported between these two devices'",
        texts=(r"peer access is not supported between these two devices",),
        cause=(
            "NCCL tries to copy directly between two GPUs (P2P), which GeForce cards, some machines (ACS, IOMMU) and "
            "containers with separate IPC namespaces do not allow."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_P2P_DISABLE": "1"}}\' to make NCCL go through host '
            "memory; in a container, use --ipc=host (launch_container_options)"
        ),
        source="ray-project/ray_lightning#24",
    ),
    CatalogueEntry(
        id="nccl-internal-address",
        title="NCCL uses an address that exists only inside the machine",
        example="NCCL WARN socketStartConnect: Connect to fe80::966d:ae03:a2:8cf0%ib1<17943> failed : Software "
        "caused connection abort",
        texts=(
            r"[Cc]onnect to (?:fe80:|169\.254\.|172\.(?:1[7-9]|2\d|3[01])\.0\.1<)[^\n]{0,60} (?:failed|returned \d)",
        ),
        cause=(
            "The address belongs to a container network or is valid only on one link (link-local), so it cannot "
            "be reached from another node."
        ),
        remedy=(
            "remove NCCL_SOCKET_IFNAME from launch_environment and the script; muster sets it on each node to the "
            "interface of node_address. If node_address itself is wrong, correct it in the inventory; run "
            "ansible-playbook preflight.yml to test the connections"
        ),
        source="NVIDIA/nccl#975",
    ),
    CatalogueEntry(
        id="nccl-container-interfaces",
        title="NCCL uses the interfaces of container networks",
        example="NCCL INFO NET/Socket : Using [0]bond0:10.0.1.161<0> [1]br-05ab815fa14e:172.19.0.1<0>",
        texts=(r"NET/Socket : Using [^\n]{0,200}\[\d{1,2}\](?:br-[0-9a-f]{6,12}|veth[0-9a-f]{3,9}|docker\d|virbr\d):",),
        cause="NCCL uses all interfaces of the node, including Docker bridges (br-..., veth...), whose addresses other "
        "nodes cannot reach.",
        remedy=(
            "remove NCCL_SOCKET_IFNAME from launch_environment and the script, since muster sets it on each node "
            "to the interface of node_address; without muster, set NCCL_SOCKET_IFNAME=bond0, replacing bond0 "
            "with the interface that reaches the other nodes"
        ),
        source="NVIDIA/nccl#697",
        recoverable=True,
        refines=("nccl-system-error", "nccl-internal-error", "nccl-connection-failed"),
    ),
    CatalogueEntry(
        id="nccl-invalid-argument",
        title="NCCL refuses an argument",
        example="NCCL error in: .../NCCLUtils.hpp:39, invalid argument, NCCL version 2.4.8",
        texts=(
            r"NCCL error in: [^\n]{1,200}:\d{1,5}, invalid argument",
            r"Invalid rank requested : \d{1,7}/\d",
        ),
        cause=(
            "Usually the ranks and the world size do not match, because the script computes them itself, without "
            "taking into account the number of nodes or of processes that the launcher started."
        ),
        remedy=(
            "take RANK, LOCAL_RANK and WORLD_SIZE from the environment, as init_process_group does when called "
            "without arguments; with Lightning, set Trainer(num_nodes=N) to the number of nodes. `Last error` below "
            'may name another cause; launch with -e \'{"launch_environment": {"NCCL_DEBUG": "WARN"}}\' to log it'
        ),
        source="Lightning-AI/pytorch-lightning#20219",
        weak=True,
    ),
    CatalogueEntry(
        id="nccl-start-waits",
        title="Rank 0 did not start NCCL",
        example="DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via c10d key-value store by key '0', but store->get('0') got error: wait timeout after "
        "600000ms",
        texts=(r"is setting up NCCL communicator and retr\w{1,6}ing ncclUniqueId from",),
        cause="This rank waited for rank 0 in the first collective, and rank 0 did not arrive: it failed or "
        "ended earlier, is still loading or downloading, or calls a different collective.",
        remedy=(
            "read the log of rank 0 (ansible-playbook logs.yml -e rank=0). If rank 0 only takes longer (for example, "
            "it is preparing data before the others may continue), use init_process_group(timeout=timedelta(hours=1))"
        ),
        source="NVIDIA-NeMo/Speech#14399",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-versions-differ",
        title="NCCL received an invalid address from another rank",
        example="NCCL WARN ncclSocketInit: connecting to address with family 33022 is neither AF_INET(2) nor "
        "AF_INET6(10)",
        texts=(
            r"connecting to address {1,3}with family \d{1,6} is neither AF_INET",
            r"NCCL WARN [^\n]{0,60}wrong type \d{1,3} != \d{1,3}",
            r"NCCL WARN [^\n]{0,60}[Vv]ersion mismatch",
        ),
        cause=(
            "NCCL received invalid data instead of another rank's address. Either NCCL_SOCKET_IFNAME names an "
            "interface that a node does not have, which NCCL does not report; or the nodes use different NCCL "
            "versions, or one of them loads an NCCL other than torch's."
        ),
        remedy=(
            "remove NCCL_SOCKET_IFNAME from launch_environment and the script; muster sets it on each node to the "
            f"interface of node_address. {SAME_SOFTWARE}python_env,pytorch makes the versions the same; remove other "
            "NCCL libraries from LD_LIBRARY_PATH in launch_environment"
        ),
        source="aws/aws-ofi-nccl#715",
        weak=True,
        refines=("nccl-internal-error", "nccl-system-error"),
    ),
    CatalogueEntry(
        id="nccl-loopback",
        title="NCCL uses the loopback interface",
        example="NCCL WARN Connect to 127.0.0.1<45371> failed : Connection refused",
        texts=(r"[Cc]onnect to 127\.\d{1,3}\.\d{1,3}\.\d{1,3}<\d{1,5}> (?:failed|returned)",),
        cause=(
            "NCCL connects to 127.0.0.1, which refers to the node itself on every node: NCCL_SOCKET_IFNAME names the "
            "loopback interface lo, or a node's own name resolves to a loopback address."
        ),
        remedy=(
            "remove NCCL_SOCKET_IFNAME from launch_environment and the script, since muster sets it on each node to "
            "the interface of node_address; run ansible-playbook site.yml --tags hosts_file to fix the names. If all "
            "ranks are on one node, another rank ended earlier, so look in the other logs"
        ),
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    CatalogueEntry(
        id="nccl-network-card",
        title="NCCL cannot find one of the network cards",
        example="NCCL WARN Could not find NET with id 0",
        texts=(r"Could not find NET with id \d{1,4}",),
        cause=(
            "This is a bug in this NCCL version: it merges the machine's network cards and then looks for one by its "
            "old number."
        ),
        remedy=(
            "use a newer NCCL version (2.27 or later), which comes with a newer torch (ansible-playbook site.yml "
            "--tags python_env,pytorch) or a newer container image"
        ),
        source="NVIDIA/nccl#1748",
    ),
    CatalogueEntry(
        id="nccl-first-collective",
        title="The first collective never completes",
        example="Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLGATHER, ...)",
        texts=(r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=[12], ",),
        cause=(
            "The ranks waited for each other in the very first collective: either not all ranks arrived, or no "
            "data gets through even though the connections open. Common reasons for the latter are peer-to-peer "
            "traffic (P2P) between a node's GPUs that PCIe ACS or the IOMMU redirects, an InfiniBand or RoCE "
            "network that does not connect all nodes, and a blocked port."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_P2P_DISABLE": "1"}}\'; if it helps, disable ACS and '
            "the IOMMU in the BIOS. Then try NCCL_IB_DISABLE=1; if it helps, set "
            "NCCL_IB_GID_INDEX=3. Run ansible-playbook preflight.yml to test the connections"
        ),
        source="NVIDIA/nccl#719",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-duplicate-gpu",
        title="Two ranks use one GPU",
        example="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device ...",
        texts=(r"Duplicate GPU detected",),
        cause=(
            "The script puts several ranks on the same GPU, because all of them use cuda:0 or a hard-coded GPU. Or "
            "more processes than GPUs were started."
        ),
        remedy=(
            "in the script, call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group and "
            "do not set CUDA_VISIBLE_DEVICES; leave nproc_per_node out"
        ),
        source="verl-project/verl#161",
    ),
    CatalogueEntry(
        id="nccl-sizes-differ",
        title="Ranks exchange different data",
        example="NCCL WARN NET/Socket : message truncated : receiving 1048576 bytes instead of 65536",
        texts=(
            r"[Mm]essage truncated : receiv(?:ing|ed) \d{1,12} bytes instead of",
            r"NCCL WARN Mismatched collective detected",
            r"NET/IB : collective mismatch error",
        ),
        cause="The ranks call NCCL with different sizes or in a different order, or their NCCL versions or settings "
        "differ.",
        remedy=(
            f"{SAME_SOFTWARE}python_env,pytorch makes them the same; set the same NCCL_* variables on all nodes. "
            'If the script is at fault, launch with -e \'{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": '
            '"DETAIL"}}\' to see the call'
        ),
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
            r"WARN Socket creation failed : Address family not supported",
        ),
        cause="NCCL_SOCKET_IFNAME names an interface that this node does not have, or one without an address; or a "
        "container has no network interface of its own.",
        remedy=(
            "remove NCCL_SOCKET_IFNAME from launch_environment and the script; muster sets it on each node to "
            "the interface of node_address. In a container, use the host's network and do not set --network in "
            "launch_container_options"
        ),
        source="rwth-i6/returnn#1470",
    ),
    CatalogueEntry(
        id="nccl-connection-failed",
        title="NCCL cannot connect two nodes",
        example="NCCL WARN Connect to 10.0.0.2<21724> failed : Connection refused",
        texts=(
            r"NCCL WARN [^\n]{0,60}[Cc]onnect to [^\n]{1,120} failed",
            r"NCCL WARN Call to connect failed",
            r"socket(?:Poll|Start)?Connect: Connect to [^\n]{1,120} (?:returned|failed)",
            r"113\(No route to host\)",
        ),
        cause=(
            "A port between two nodes is closed (NCCL may use any free port), the address belongs to a network "
            "inside the machine, or the other rank ended earlier."
        ),
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
            r"NCCL WARN [^\n]{0,30}Call to (?:recv|send|read|write)\b[^\n]{0,80} failed",
            r"remote process exited or there was a network error",
        ),
        cause="The rank at the other end exited or was killed, or the network between the two nodes failed.",
        remedy=(
            "look in the logs of the other ranks (ansible-playbook logs.yml -e fetch=true). If none shows an error: "
            f"{OPEN_NETWORK}"
        ),
        source="NVIDIA/nccl#1612",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-time-out",
        title="A collective took too long",
        example="Watchdog caught collective operation timeout: WorkNCCL(SeqNum=..., OpType=ALLREDUCE, ...)",
        texts=(
            r"(?:Watchdog c|C)aught collective operation timeout",
            r"Some NCCL operations have failed or timed out",
            r"Received a dump signal due to a collective timeout from",
        ),
        refines=("nccl-peer-gone",),  # the watchdog aborts the communicator
        cause=(
            "This rank waited for a rank that never arrived: that rank failed, is hanging, is still loading or "
            "saving, had fewer batches, or is at a different point in the script."
        ),
        remedy=(
            "find the rank that is not waiting; launch with -e debug=true to make torch log what each rank was "
            "doing. Avoid collectives and barriers inside `if rank == 0`, and give all ranks the same number of "
            "batches (drop_last=True). If work between two collectives may take longer, use "
            "init_process_group(timeout=timedelta(hours=1))"
        ),
        source="hiyouga/LlamaFactory#7396",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-watchdog-stuck",
        title="The NCCL watchdog is stuck",
        example="ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued "
        "collectives",
        texts=(
            r"watchdog got stuck for \d{1,7} seconds without making progress",
            r"Heartbeat monitor timed out! Process will be terminated",
        ),
        cause=(
            "A CUDA or NCCL call is not returning on this rank. Usually it is waiting for a collective that "
            "another rank has not started, as in a collective timeout; otherwise, a GPU or the network is "
            "hanging, or another thread has been blocking Python for minutes (a long save or compilation)."
        ),
        remedy=(
            "run ansible-playbook stacks.yml while the job is hanging to see where each rank is. Make the same "
            "calls on all ranks, with the same number of batches. If a rank was only busy for a long time, "
            'launch with -e \'{"launch_environment": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "3600"}}\''
        ),
        source="om-ai-lab/VLM-R1#257",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-cuda-error",
        title="A CUDA call failed inside NCCL",
        example="ncclUnhandledCudaError: Call to CUDA function failed",
        texts=(r"ncclUnhandledCudaError\b", r"unhandled cuda error"),
        cause=(
            "A CUDA call failed inside NCCL. Possible causes are two ranks on one GPU, a GPU that ran out of "
            "memory, a torch or NCCL build without code for this GPU, an incompatible driver, a container or "
            "scheduler that hides the node's GPUs from each other (P2P, IPC), or a faulty GPU; in older "
            "versions, also a wrong network interface."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_DEBUG": "WARN"}}\' to see the call that failed; run '
            "ansible-playbook preflight.yml to check the GPUs and drivers. If setting NCCL_P2P_DISABLE=1 helps, "
            "that points to a P2P problem; let muster set NCCL_SOCKET_IFNAME"
        ),
        source="NVIDIA/nccl#1410",
        weak=True,
    ),
    CatalogueEntry(
        id="nccl-system-error",
        title="A system call made by NCCL failed",
        example="ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error",
        texts=(r"ncclSystemError\b", r"unhandled system error"),
        cause=(
            "A system call failed inside NCCL. Most often, the cause is a connection: a port between two nodes "
            "is closed (NCCL may use any free port), or the network interface is the wrong one, as in a "
            "container without the host's network. Otherwise, /dev/shm is full, the limits on locked memory "
            "(RDMA) or open files have been reached, or another rank ended."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_DEBUG": "WARN"}}\' to log the call that failed; run '
            "ansible-playbook preflight.yml to check the connections, /dev/shm and limits"
        ),
        source="NVIDIA/nccl#875",
        weak=True,
    ),
    CatalogueEntry(
        id="nccl-internal-error",
        title="An internal NCCL check failed",
        example="ncclInternalError: Internal check failed.",
        texts=(
            r"ncclInternalError\b",
            r"internal error - please report this issue to the NCCL",
            r"NCCL Error 3: internal error",
            r"NCCL error in: [^\n]{1,200}:\d{1,5}, internal error, NCCL version",
        ),
        cause=(
            "This is not necessarily a bug, since NCCL 2.18 reports every network error this way; other possible "
            "causes are different NCCL versions on the nodes and a wrong network interface."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_DEBUG": "WARN"}}\' to see what failed; '
            f"{SAME_SOFTWARE}python_env,pytorch makes the versions the same"
        ),
        source="NVIDIA/nccl#1092",
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="nccl-invalid-usage",
        title="NCCL was used incorrectly",
        example="ncclInvalidUsage: This usually reflects invalid usage of NCCL library.",
        texts=(
            r"ncclInvalidUsage\b",
            r"invalid usage \(run with NCCL_DEBUG",
            r"ProcessGroupNCCL\.cpp:\d{1,5}, invalid usage,",
        ),
        cause=(
            "Usually several ranks use the same GPU, because there are more processes than GPUs on a node, or "
            "because the script does not select the GPU of its LOCAL_RANK."
        ),
        remedy=(
            "in the script, call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group, and "
            "do not set nproc_per_node. If there is another cause, the line `Last error` below the message names it; "
            'launch with -e \'{"launch_environment": {"NCCL_DEBUG": "WARN"}}\' to log it'
        ),
        source="NVIDIA/nccl#1241",
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="nccl-foreign-connection",
        title="Another program connected to an NCCL port",
        example="NCCL WARN socketFinalizeAccept: wrong magic 74656d2f20544547 != 7970663b906d70b9",
        texts=(r"NCCL WARN [^\n]{0,60}wrong magic [0-9a-f]{1,16} != [0-9a-f]{1,16}",),
        cause=(
            "A program that is not part of the job, such as a port scanner or a monitoring system, connected to "
            "a port on which NCCL was waiting for its own ranks; older versions of NCCL then fail or hang."
        ),
        remedy=(
            "exclude the nodes from port scans while jobs are running, or run ansible-playbook site.yml --tags "
            "firewall -e firewall_close=true, which refuses all connections from other machines except SSH and the "
            "ports in firewall_open"
        ),
        source="NVIDIA/nccl#1808",
        recoverable=True,
        refines=("nccl-system-error", "nccl-internal-error", "nccl-peer-gone", "nccl-time-out"),
    ),
)

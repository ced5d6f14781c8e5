# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of RDMA networks."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "InfiniBand, RoCE and EFA"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="rdma-timed-out",
        title="The RDMA network does not connect two nodes",
        example="NCCL WARN NET/IB : Got completion from peer ... with error 12, opcode 0, len 0, vendor err 129",
        texts=(r"Got completion [^\n]{0,80}with (?:error |status=)(?:IBV_WC_RETRY_EXC_ERR\()?12\b",),
        cause=(
            "A packet sent over InfiniBand or RoCE was not answered (error 12 is a timeout): the network cards "
            "of two nodes cannot reach each other. With RoCE, the usual cause is that the default GID is of the "
            "wrong type or that the switches do not route between the subnets."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_IB_GID_INDEX": "3"}}\' to set the index of the RoCE '
            "v2 GID that `show_gids` lists. Test the connection with `ib_write_bw` between the two nodes. To use "
            "TCP instead of RDMA, set NCCL_IB_DISABLE=1"
        ),
        source="NVIDIA/nccl#1405",
    ),
    CatalogueEntry(
        id="rdma-transfer-failed",
        title="A transfer over RDMA failed",
        example="NCCL WARN NET/IB : Got completion from peer 10.0.0.2<54862> with error 4, opcode 0, len 0, "
        "vendor err 81 (Send)",
        texts=(r"Got completion [^\n]{0,80}with (?:error |status=)",),
        cause=(
            "An RDMA adapter reported an error other than a timeout. Status 1 or 4 means that the data exceeded "
            "the receiver's buffer, or that the adapter cannot access the memory, because the MTUs on the two "
            "nodes differ or because of GPUDirect RDMA. Status 10 means that the other node refused access. "
            "Status 5 means that the transfer was canceled after an earlier error."
        ),
        remedy=(
            "compare the MTU of both nodes (`ip link`, and active_mtu of `ibv_devinfo`) and of the switches, and "
            "set the same MTU everywhere; look for an earlier line with another status. If the error concerns "
            'GPU memory, disable GPUDirect RDMA with -e \'{"launch_environment": {"NCCL_NET_GDR_LEVEL": '
            '"LOC"}}\'; to disable RDMA entirely, use -e \'{"launch_environment": {"NCCL_IB_DISABLE": "1"}}\''
        ),
        source="NVIDIA/nccl#1052",
        weak=True,
        general=True,
        refines=("nccl-internal-error", "nccl-system-error"),
    ),
    CatalogueEntry(
        id="rdma-connection-failed",
        title="Two RDMA adapters cannot connect",
        example="NCCL WARN Call to ibv_modify_qp failed with error Connection timed out",
        texts=(
            r"Call to ibv_modify_qp failed with",
            r"Failed to modify QP to RTR",
        ),
        cause=(
            "The network has no path between two RDMA adapters. Often each of a node's adapters is on a separate "
            "network (rail), or only some ports belong to the cluster's network, and NCCL connects two adapters "
            "that cannot reach each other; or the GID in use is one that the other adapter cannot reach."
        ),
        remedy=(
            'select the ports that connect to the other nodes with -e \'{"launch_environment": {"NCCL_IB_HCA": '
            '"=mlx5_0:1,mlx5_1:1"}}\'; the line in the message says which pair failed, and `ibv_devinfo` and '
            "`show_gids` list the ports with their addresses. With one network per adapter, use -e "
            '\'{"launch_environment": {"NCCL_CROSS_NIC": "0"}}\' to keep NCCL on one rail. With RoCE, use -e '
            '\'{"launch_environment": {"NCCL_IB_GID_INDEX": "3"}}\' to select another GID. To run over TCP in '
            'the meantime, use -e \'{"launch_environment": {"NCCL_IB_DISABLE": "1"}}\''
        ),
        source="NVIDIA/nccl#2013",
    ),
    CatalogueEntry(
        id="rdma-locked-memory",
        title="RDMA cannot lock enough memory",
        example="NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory",
        texts=(
            r"(?:ibv_reg_mr|ibv_create_cq|ibv_create_qp|fi_mr_reg)\w{0,12}\b[^\n]{0,40} failed[^\n]{0,40}Cannot al"
            r"locate memory",
            r"ibv_reg_mr\w{0,10} failed: Cannot allocate memory",
        ),
        cause="RDMA adapters need locked memory, and the job's limit on locked memory (ulimit -l) is too small.",
        remedy=(
            "run ansible-playbook site.yml --tags base_packages to set the limit to unlimited "
            "(base_packages_memlock) for jobs that start afterwards; a container needs memlock=-1, which "
            "launch_container_ulimits includes unless you changed it"
        ),
        source="NVIDIA/nccl-tests#206",
    ),
    CatalogueEntry(
        id="efa-unreachable",
        title="EFA cannot reach another node",
        example="NCCL WARN NET/OFI Unable to insert remote address into address vector for device 1",
        texts=(
            r"NET/OFI Unable to insert remote address",
            r"Unresponsive receiver\b",
            r"NET/OFI Request [^\n]{0,60}completed with error",
        ),
        cause=(
            "AWS's network adapter (EFA) works only between instances in the same subnet whose security group "
            "allows all traffic to and from itself, in both directions. Either these conditions are not met, or "
            "the process at the other end has ended."
        ),
        remedy=(
            "in the security group, allow all traffic with the group itself as the source (inbound) and as the "
            "destination (outbound); check the logs of the other ranks. To run over TCP until then, use -e "
            '\'{"launch_environment": {"NCCL_NET": "Socket"}}\''
        ),
        source="aws/aws-ofi-nccl#663",
    ),
    CatalogueEntry(
        id="efa-libfabric-differs",
        title="NCCL's EFA plug-in was built for a different libfabric version",
        example="NCCL WARN NET/OFI Couldn't set FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES. RC: -92, ERROR: "
        "Protocol not available",
        texts=(
            r"NET/OFI (?:Could(?:n't| not)|Failed to) (?:set|get) FI_OPT_[^\n]{0,120}not (?:available|supported|"
            r"implemented)",
            r"libnccl-(?:net|ofi)[^\n]{0,120}undefined symbol: fi_\w{1,60}",
            r"libfabric\.so[^\n]{0,80}version [`']FABRIC_[\d.]{1,9}' not found",
        ),
        cause=(
            "The loaded libfabric is older than the version for which the plug-in (aws-ofi-nccl) was built: it "
            "does not support an option or function that the plug-in uses."
        ),
        remedy=(
            "install the plug-in and libfabric together from the same version of the EFA installer, in the image and "
            "on all nodes, and put /opt/amazon/efa/lib first in LD_LIBRARY_PATH; `fi_info --version` shows which "
            'libfabric is used. To run over TCP until then, use -e \'{"launch_environment": {"NCCL_NET": "Socket"}}\''
        ),
        source="aws/aws-ofi-nccl#241",
        refines=("nccl-system-error", "nccl-internal-error", "nccl-peer-gone"),
    ),
    CatalogueEntry(
        id="efa-registration",
        title="EFA cannot register memory for RDMA",
        example="NCCL WARN NET/OFI Unable to register memory (type = 2) for device 4. RC: -22, Error: Invalid argument",
        texts=(r"NET/OFI Unable to register memory\b",),
        cause=(
            "AWS's network adapter (EFA) could not register a buffer. RC -22 for GPU memory (type = 2) is a bug in "
            "the libfabric of EFA installers older than 1.29 with NCCL 2.19 and newer; other codes, such as -12, "
            "mean too little locked memory or too few huge pages."
        ),
        remedy=(
            "use a newer EFA installer on the nodes and in the image (1.29 or later; `fi_info --version` shows "
            'the version of libfabric); until then, use -e \'{"launch_environment": '
            '{"FI_EFA_SET_CUDA_SYNC_MEMOPS": "0"}}\'. For other codes, make sure that `ulimit -l` in the job is '
            "unlimited; you can also disable huge pages with FI_EFA_USE_HUGE_PAGE=0"
        ),
        source="awslabs/awsome-distributed-ai#203",
        refines=("nccl-system-error", "nccl-internal-error", "nccl-peer-gone"),
    ),
    CatalogueEntry(
        id="efa-device-missing",
        title="The container cannot access the EFA adapter",
        example="NCCL WARN NET/OFI Couldn't find any optimal provider",
        texts=(
            r"NET/OFI (?:OFI )?fi_getinfo\(\) call failed",
            r"NET/OFI Could(?:n't| not) find any optimal provider",
            r"Error: network AWS Libfabric not found",
            r"fi_getinfo: provider efa output empty list",
        ),
        cause="AWS's NCCL plug-in (aws-ofi-nccl) finds no EFA adapter through libfabric: the instance has none, the "
        "container was started without the devices /dev/infiniband/uverbs*, or the image contains a libfabric other "
        "than the EFA installer's.",
        remedy=(
            "check that `fi_info -p efa -t FI_EP_RDM` lists an adapter in the container. Give the container "
            'access to the devices with -e \'{"launch_container_options": ["--device=/dev/infiniband"]}\', and '
            "use the libfabric of the EFA installer (/opt/amazon/efa/lib). To run over TCP without EFA, use -e "
            '\'{"launch_environment": {"NCCL_NET": "Socket"}}\''
        ),
        source="aws-samples/aws-efa-nccl-baseami-pipeline#2",
        recoverable=True,
        refines=("nccl-invalid-usage", "nccl-system-error", "nccl-internal-error"),
    ),
    CatalogueEntry(
        id="rdma-resources",
        title="The RDMA adapter cannot allocate resources for the process",
        example="NCCL WARN Call to ibv_create_cq failed",
        texts=(
            r"Call to ibv_create_(?:cq|qp|ah|srq|comp_channel) failed",
            r"ibv_create_(?:cq|qp)\([^\n)]{0,60}\) failed: ",
        ),
        cause=(
            "Usually the process cannot lock enough memory (`ulimit -l`, often 64 kB). Otherwise, a container "
            "lacks /dev/infiniband or the IPC_LOCK capability, or other jobs use up the adapter's queues."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags base_packages to lift the limit; in a container, add --ulimit "
            "memlock=-1 --device /dev/infiniband to launch_container_options. To continue without RDMA, which is "
            'slower, use -e \'{"launch_environment": {"NCCL_IB_DISABLE": "1"}}\''
        ),
        source="NVIDIA/nccl#380",
        weak=True,
        refines=("nccl-system-error", "nccl-internal-error"),
    ),
    CatalogueEntry(
        id="rdma-link-lost",
        title="An RDMA adapter's link went down",
        example="NCCL WARN NET/IB : Got async event : port error",
        texts=(
            r"NCCL WARN NET/IB ?: (?:\w{1,20}(?::\d{1,2})? )?(?:Got async event ?: |async fatal event[^\n:]{0,60}: )"
            r"(?:port error|local catastrophic error|device fatal)",
        ),
        cause=(
            "The port of an InfiniBand or RoCE adapter on this node lost its link (port error), or the adapter "
            "itself failed (catastrophic error), so a transfer was not answered. If the link comes back and is "
            "lost again, it is flapping: a cable, a transceiver, a switch port or the adapter is faulty."
        ),
        remedy=(
            "leave this node out (-e nodes=A,B) and launch again from the last checkpoint. Then run `sudo "
            "ibqueryerrors` (for RoCE, `ethtool -S INTERFACE`), `sudo mlxlink -d mlx5_0 -c` and `sudo dmesg -T | grep "
            "mlx5` on this node to see the port and its error counters. Reseat or replace the cable or transceiver, "
            "or have the provider do it"
        ),
        source="NVIDIA/nccl#905",
        recoverable=True,
        refines=(
            "rdma-timed-out",
            "rdma-transfer-failed",
            "nccl-peer-gone",
            "nccl-system-error",
            "nccl-internal-error",
            "nccl-time-out",
        ),
    ),
    CatalogueEntry(
        id="rdma-gpu-memory",
        title="The RDMA adapter cannot register GPU memory",
        example="NCCL WARN Call to ibv_reg_mr_iova2 failed with error Bad address",
        texts=(
            r"ibv_reg_mr\w{0,12} failed with error (?:Bad address|Invalid argument)",
            r"ibv_reg_dmabuf_mr\w{0,12} failed with error ",
        ),
        cause=(
            "GPUDirect RDMA does not work on this node: the adapter's driver cannot register GPU memory because the "
            "nvidia_peermem module is not loaded, or because the driver, OFED and the kernel are incompatible."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"NCCL_NET_GDR_LEVEL": "LOC"}}\' to turn off GPUDirect '
            "RDMA. To use GPUDirect RDMA, run `sudo modprobe nvidia_peermem` on each node (after installing "
            "OFED, reinstall the GPU driver). If the message is about dmabuf, set NCCL_DMABUF_ENABLE=0"
        ),
        source="Mellanox/nv_peer_memory#115",
        refines=("nccl-system-error", "nccl-internal-error", "nccl-peer-gone"),
    ),
)

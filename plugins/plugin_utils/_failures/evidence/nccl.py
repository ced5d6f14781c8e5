# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence in NCCL's log: the state of a link, the status of a transfer, a container's address, the peer."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.network import (
    HOST_NETWORK,
    NCCL_SOCKETS,
    NCCL_WAITS,
    OF_MUSTER,
    RENDEZVOUS,
    has_several_nodes,
    is_foreign_address,
)
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "What NCCL's log shows"
PEER = r"(?P<peer>[\w.:%-]{3,80})<\d{1,5}>"
STATUS = r"Got completion [^\n]{0,120}with (?:error |status=)(?:IBV_\w{1,40}\()?"
TRAINED = (
    r"\b(?:steps?|iter|iteration|epoch|batch)\b[ =:\[#(]{0,8}\d|\bloss\b'?[ =:]{1,3}-?\d|\d%\||\d(?:it/s|s/it)\b|"
    r"\[\d{1,2}:\d\d<"
)
LEAVE_OUT = "leave that node out (-e nodes=A,B) and launch again from the last checkpoint"
NO_GPUDIRECT = """-e '{{"launch_environment": {{"NCCL_NET_GDR_LEVEL": "LOC"}}}}'"""
LINK = (
    "run `ibqueryerrors` and `ibdiagnet` (for RoCE, `ethtool -S` and `mlxlink -d mlx5_0 -m -c`) to see the port, "
    "its error counters and its cable or transceiver"
)

RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="transfer-lost-later",
        entries=("rdma-timed-out",),
        shows=(rf"{STATUS}12\b", TRAINED, rf"Got completion from peer {PEER}"),
        cause="The RDMA network worked and then lost a packet for good: the link to {peer} went down or is faulty, a "
        "switch is congested, or the node or rank there has failed. The settings are not to blame.",
        remedy=(
            "look at the ranks on {peer} first (ansible-playbook logs.yml -e fetch=true); if none failed there, "
            f'{LEAVE_OUT}; {LINK}. For short interruptions, set a longer limit with -e \'{{{{"launch_environment": '
            '{{"NCCL_IB_TIMEOUT": "23"}}}}\''
        ),
    ),
    EvidenceRule(
        id="transfer-of-gpu-memory",
        entries=("rdma-transfer-failed",),
        shows=(rf"{STATUS}(?P<status>4|9|10|11)\b",),
        # On the receiving side, status 4 can also result from different MTUs.
        unless=rf"{STATUS}(?:12|1)\b|{STATUS}4\b[^\n]{{0,80}}\(Recv\)",
        cause=(
            "The RDMA adapter could not access the memory of a GPU (status {status}, a protection or access error): "
            "GPUDirect RDMA does not work between this adapter and this GPU, because of ACS or the IOMMU, or because "
            "of incompatible drivers (nvidia_peermem, OFED)."
        ),
        remedy=(
            f"launch with {NO_GPUDIRECT} to turn off GPUDirect RDMA. To use GPUDirect RDMA, load the installed "
            "driver's nvidia_peermem on all nodes (sudo modprobe nvidia_peermem), update OFED and NCCL, and "
            "disable ACS (`sudo lspci -vvv | grep ACSCtl` must not show SrcValid+)"
        ),
    ),
    EvidenceRule(
        id="transfer-cancelled",
        entries=("rdma-transfer-failed",),
        shows=(rf"{STATUS}5\b[^\n]{{0,160}}", rf"Got completion from peer {PEER}"),
        unless=rf"{STATUS}(?:1|2|3|4|6|7|8|9|10|11|12|13)\b",
        cause=(
            "The transfer to {peer} was canceled (status 5) because the connection had failed earlier: the rank "
            "there ended, or another rank's log contains the first error, with a different status."
        ),
        remedy="look for the first error in the logs of the ranks on {peer}: ansible-playbook logs.yml -e fetch=true, "
        "then grep -rn 'NCCL WARN' over the fetched files. If no rank failed, the link did: "
        f"{LINK}",
    ),
    EvidenceRule(
        id="container-as-host",
        entries=RENDEZVOUS,
        shows=(r"connect to \((?P<host>(?=[0-9]{0,11}[a-f])[0-9a-f]{12}), \d{1,5}\)",),
        cause=(
            "The rendezvous is announced as {host}, the name of a container, which exists only inside that "
            "container: other nodes cannot resolve or reach it, and inside the container it may resolve to an "
            "address on which nothing is listening."
        ),
        remedy=(
            f"{HOST_NETWORK}; or announce an address with torchrun --local-addr=$(hostname -i) "
            "--rdzv_endpoint={first_address}:29500"
        ),
    ),
    EvidenceRule(
        id="name-of-container",
        entries=("nccl-system-error", "nccl-connection-failed", "nccl-internal-error"),
        shows=(
            r"^(?:\[?\d{0,3}[\]:]? ?)(?P<host>(?=[0-9]{0,11}[a-f])[0-9a-f]{12}):\d{1,7}:\d{1,7} \[\d{1,2}\]",
            r"\beth0:(?P<address>\d{1,3}(?:\.\d{1,3}){3})<",
            r"(?:[Cc]onnect(?:ion)?|socket\.cc:\d{1,5} -> |bootstrap\.cc:\d{1,5} -> |include/socket\.h)",
        ),
        unless=r"Got completion|ibv_|Duplicate GPU|Connect to 127\.",
        condition=is_foreign_address,
        cause=(
            "The ranks run in containers with their own network (host name {host}, address {address}): the ports "
            "that NCCL opens there are not open on the machine itself."
        ),
        remedy=HOST_NETWORK,
    ),
    EvidenceRule(
        id="adapters-mixed",
        entries=("rdma-connection-failed", "rdma-timed-out"),
        shows=(
            r"NET/IB : Using [^\n]{0,400}\[\d{1,2}\](?P<first>\w{1,20}:\d)/IB\b[^\n]{0,400}"
            r"\[\d{1,2}\](?P<second>\w{1,20}:\d)/RoCE|"
            r"NET/IB : Using [^\n]{0,400}\[\d{1,2}\](?P<third>\w{1,20}:\d)/RoCE\b[^\n]{0,400}"
            r"\[\d{1,2}\](?P<fourth>\w{1,20}:\d)/IB\b",
        ),
        cause=(
            "NCCL uses two kinds of adapters on this node, InfiniBand ({first}{fourth}) and RoCE "
            "({second}{third}), and connects one kind to the other, which cannot work."
        ),
        remedy=(
            'select adapters of one kind, the same on all nodes, with -e \'{{"launch_environment": '
            '{{"NCCL_IB_HCA": "={first}{fourth}"}}}}\', listing all InfiniBand ports, separated by commas; to '
            "see the ports, run `ibv_devinfo | grep -E 'hca_id|link_layer|state'`"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="gid-missing",
        entries=("rdma-connection-failed",),
        shows=(r"ibv_modify_qp failed with error (?P<reason>No data available|No such device)",),
        cause="The address (GID) that NCCL uses does not exist on the adapter ({reason}): NCCL_IB_GID_INDEX has no "
        "entry "
        "there, the interface has no address, or the container does not see the interface of the adapter.",
        remedy=(
            "run `show_gids` on each node (in the container) to list the GIDs, and set the index of the RoCE v2 GID "
            "with the node's IPv4 address, the same on all nodes, with -e '{{\"launch_environment\": "
            '{{"NCCL_IB_GID_INDEX": "3"}}}}\'; containers need the host\'s network and --device=/dev/infiniband'
        ),
    ),
    EvidenceRule(
        id="dmabuf-unsupported",
        entries=("rdma-gpu-memory",),
        shows=(r"ibv_reg_dmabuf_mr\w{0,12} failed with error (?P<reason>[\w ]{1,60})",),
        cause=(
            "The RDMA adapter's driver cannot register GPU memory through DMA-BUF ({reason}), and this version of "
            "NCCL does not fall back to nvidia_peermem."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"NCCL_DMABUF_ENABLE": "0"}}}}\' to use nvidia_peermem '
            "instead (run sudo modprobe nvidia_peermem on each node); newer versions of OFED and NCCL support DMA-BUF"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="hip-handle-refused",
        entries=("rccl-no-peer-access",),
        shows=(r"NCCL WARN (?P<call>hipIpc\w{1,40}) failed",),
        cause=(
            "The processes of this node cannot share GPU memory ({call} failed), which RCCL needs for direct copies. "
            "Usually they run in a container, or the driver does not support this there."
        ),
        remedy=(
            'launch with -e \'{{"launch_environment": {{"NCCL_P2P_DISABLE": "1"}}}}\' to copy through the host\'s '
            "memory instead; if you use --ipc=host, --device=/dev/kfd and --device=/dev/dri "
            "(launch_container_options), try without this setting"
        ),
    ),
    EvidenceRule(
        id="shm-not-writable",
        entries=("nccl-shared-memory",),
        shows=(r"NCCL WARN [^\n]{0,80}(?:shm_open|shared memory)[^\n]{0,200}Permission denied",),
        cause="This user may not create files in /dev/shm, through which the ranks of a node communicate.",
        remedy=(
            "run sudo chmod 1777 /dev/shm on that node, or in the image; to run without shared memory, which is "
            'slower, use -e \'{{"launch_environment": {{"NCCL_SHM_DISABLE": "1"}}}}\''
        ),
        certain=True,
    ),
    EvidenceRule(
        id="shm-not-shared",
        entries=("nccl-shared-memory",),
        shows=(r"attaching to shared memory segment [^\n]{0,200}No such file or directory",),
        cause=(
            "A rank cannot find the shared memory that another rank of its node created in /dev/shm: the ranks "
            "run in containers that do not share /dev/shm, or something removed the file (systemd's RemoveIPC, a "
            "cleanup)."
        ),
        remedy=(
            "run the containers of a node with --ipc=host (launch_container_options), or all ranks of a node in "
            "one container; set RemoveIPC=no in /etc/systemd/logind.conf; or launch with -e "
            '\'{{"launch_environment": {{"NCCL_SHM_DISABLE": "1"}}}}\' to do without shared memory'
        ),
    ),
    EvidenceRule(
        id="interface-loopback",
        entries=NCCL_SOCKETS,
        shows=(
            r"Using (?:interface )?(?:\[\d\])?lo:127\.\d",
            r"[Cc]onnection refused|[Cc]onnection closed|socket\.cc:\d{1,5} -> |bootstrap\.c[cu]:\d{1,5} -> ",
        ),
        condition=has_several_nodes,
        cause=(
            "NCCL uses the loopback interface lo, which connects each node to itself: NCCL_SOCKET_IFNAME names "
            "or allows this interface, for example with ^docker0, which replaces the default that also excludes "
            "lo."
        ),
        remedy=(
            f"{OF_MUSTER}. To set it by hand, use the interface that leads to the other nodes, or "
            "NCCL_SOCKET_IFNAME=^lo,docker"
        ),
    ),
    EvidenceRule(
        id="networks-differ",
        entries=("nccl-versions-differ",),
        # NCCL's connection types: 3 is its network over sockets, 4 the one over InfiniBand or RoCE.
        shows=(r"wrong type (?:3 != (?P<rdma>4)|4 != (?P<sockets>3))\b",),
        cause=(
            "The nodes use different networks for NCCL: one of them uses InfiniBand or RoCE and another uses "
            "sockets, because it has no adapter that NCCL can use, or has different settings. The two kinds "
            "cannot be connected."
        ),
        remedy=(
            'let all nodes use sockets with -e \'{{"launch_environment": {{"NCCL_IB_DISABLE": "1"}}}}\', or make '
            "the adapters usable on each node: run `grep 'Using network'` on the logs to see which kind each "
            "node uses, and `ibv_devinfo` on the node that uses Socket to see what is wrong (no driver, a port "
            "that is down or, in containers, no --device=/dev/infiniband). To compare the nodes, run "
            "ansible-playbook preflight.yml"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="setting-of-one-node",
        entries=("nccl-sizes-differ",),
        shows=(
            r"(?P<variable>NCCL_(?:ALGO|PROTO|BUFFSIZE|NTHREADS|MIN_NCHANNELS|MAX_NCHANNELS|MIN_CTAS|MAX_CTAS|LL_THRESHOLD|"
            r"CROSS_NIC|NSOCKS_PERTHREAD|SOCKET_NTHREADS|P2P_NET_CHUNKSIZE|NET_PLUGIN|TOPO_FILE|TUNER_PLUGIN))"
            r" set (?:by environment )?to (?P<value>[\w,:/^-]{1,80}(?:\.\w{1,20}){0,4})",
        ),
        cause=(
            "{variable} is set to {value} on this node, but both ends of a transfer must use the same value: "
            "another node has no value or a different one, so the sizes of their messages differ."
        ),
        remedy=(
            "remove {variable} from the image, ~/.bashrc and /etc/nccl.conf, or set it for all nodes with -e "
            '\'{{"launch_environment": {{"{variable}": "{value}"}}}}\''
        ),
    ),
    EvidenceRule(
        id="sizes-at-bootstrap",
        entries=("nccl-sizes-differ",),
        shows=(
            r"bootstrap\.cc:\d{1,5}|bootstrap\w{0,20}: ?[Mm]essage truncated|received \d{1,12} bytes instead of "
            r"\d{1,3}\b",
        ),
        cause=(
            "The ranks set up different communicators at the same time: they call new_group, or their first "
            "collectives, in different orders or with different members; or the nodes have different versions of "
            "NCCL."
        ),
        remedy=(
            "call new_group on all ranks, in the same order, even for groups that a rank does not belong to; to "
            "find nodes whose versions differ, run ansible-playbook preflight.yml"
        ),
    ),
)
# After the rules about connections: the network may be the reason why a connection was closed.
LAST_TOPIC = "What the addresses in a log show"
LAST_RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="address-of-container",
        entries=(*NCCL_SOCKETS, *NCCL_WAITS, "gloo-full-mesh", *RENDEZVOUS),
        shows=(r"(?<![\d.])(?P<address>172\.17\.\d{1,3}\.\d{1,3})(?![\d.])",),
        condition=is_foreign_address,
        cause=(
            "The ranks run in containers with their own network: {address} is an address of Docker's bridge, which "
            "the containers on other nodes cannot reach."
        ),
        remedy=f"{HOST_NETWORK}. Outside containers, {OF_MUSTER}",
    ),
    EvidenceRule(
        id="peer-ended",
        entries=("nccl-peer-gone", "nccl-internal-error", "nccl-system-error"),
        shows=(rf"(?:Connection closed by remote peer|Call to (?:recv|send|read|write)\w{{0,4}} (?:from|to)) {PEER}",),
        unless=rf"{STATUS}|port error",
        cause="The connection to the rank on {peer} was closed: that rank ended or was killed first, or, if no rank "
        "there shows an error, the network of that node failed.",
        remedy=(
            "look at the log of the ranks on {peer} with ansible-playbook logs.yml -e fetch=true; if they show "
            "no error, run `sudo dmesg -T | grep -iE 'killed process|xid|link'` on that node, and leave it out "
            "(-e nodes=A,B)"
        ),
    ),
    EvidenceRule(
        id="bootstrap-failed",
        entries=("nccl-system-error", "nccl-internal-error"),
        shows=(r"socket\.cc:\d{1,5} -> [236]\b", r"bootstrap\.cc:\d{1,5} -> [236]\b"),
        unless=r"NCCL WARN",
        cause=(
            "NCCL's first connection to another rank failed without a message: a firewall drops or rejects the "
            "connection (NCCL uses any free port), the interface in use has no route to the other nodes, or that "
            "rank has ended."
        ),
        remedy=(
            "run ansible-playbook preflight.yml to test each connection in both directions. If all are open, "
            f"{OF_MUSTER}; then find the rank that exited first with ansible-playbook logs.yml -e fetch=true"
        ),
    ),
)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about connections: the interface, address or variable that the log mentions, and how a connection failed."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.activity import LIMIT
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Why a connection failed"
NCCL_SOCKETS = (
    "nccl-connection-failed",
    "nccl-internal-address",
    "nccl-peer-gone",
    "nccl-system-error",
    "nccl-internal-error",
)
NCCL_WAITS = ("nccl-time-out", "nccl-first-collective", "nccl-start-waits")
RENDEZVOUS = ("rendezvous-unreached", "ranks-missing", "store-time-out", "no-route-to-host", "store-reset")
RDMA = ("rdma-connection-failed", "rdma-timed-out")
GLOO = ("gloo-full-mesh",)
IPV4 = r"\d{1,3}(?:\.\d{1,3}){3}"
BRIDGE = r"172\.(?:1[7-9]|2[0-9]|30)\.\d{1,3}\.\d{1,3}"  # Docker's networks; 172.31 is EC2's default
VIRTUAL = (
    r"(?:docker\d|br-[0-9a-f]{6,12}|veth\w{1,12}|virbr\d|lxdbr\d|lxcbr\d|cni\d|flannel[\w.]{1,10}|cali\w{1,12}|tun\d|"
    r"tap\d|wg\d|tailscale\d|zt\w{1,12}|ppp\d|kube\w{1,12}|podman\d)"
)
OF_MUSTER = (
    "remove NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME from launch_environment, the script, the image and "
    "/etc/nccl.conf: muster sets both on each node to the interface of node_address{of_interface}"
)
BY_HAND = (
    'set the interface with -e \'{{"launch_environment": {{"NCCL_SOCKET_IFNAME": "{own_interface}", '
    '"GLOO_SOCKET_IFNAME": "{own_interface}"}}}}\'; it must be the one that `ip -br addr` shows with the address '
    "at which the other nodes reach this one"
)
HOST_NETWORK = (
    "run the container on the host's network with docker run --network=host (muster does so unless "
    "launch_container_options has another --network); opening individual ports is not enough"
)


JOINED = (
    r"(?:world_size=(?P<size>\d{1,7}), worker_count=(?P<joined>\d{1,7})|"
    r"(?P<clients>\d{1,7})/(?P<expected>\d{1,7}) (?:clients|workers) joined)"
)


def is_foreign_interface(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the interface is not the one that muster chose; muster sets the variable itself."""
    return groups.get("interface", "").lstrip("=") != facts.interface or not facts.interface


def is_foreign_address(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether an address does not belong to any of the nodes, as far as their addresses are known."""
    return groups.get("address", "") not in facts.addresses


def foreign(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether an address certainly does not belong to any of the nodes."""
    return facts.is_foreign(groups.get("address", ""))


def has_missing_nodes(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the ranks that joined may be exactly those on some of the nodes, while other nodes are missing."""
    joined, size = (int(groups.get(a) or groups.get(b) or 0) for a, b in (("joined", "clients"), ("size", "expected")))
    if not 0 < joined < size or len(facts.addresses) == 1:
        return False
    if facts.slots:
        return joined % max(facts.slots) == 0
    return size % joined == 0 and (joined > 1 or "clients" in groups)  # a single rank may simply be early


def has_fewer_ranks(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the script is waiting for more ranks than the run has."""
    return 0 < sum(facts.slots) < int(groups.get("size") or groups.get("expected") or 0)


def has_unknown_ranks(groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the run's number of ranks is unknown, and some ranks joined while others did not."""
    joined, size = (int(groups.get(a) or groups.get(b) or 0) for a, b in (("joined", "clients"), ("size", "expected")))
    return not facts.slots and 0 < joined < size


def has_several_nodes(_groups: Mapping[str, str], facts: RunFacts) -> bool:
    """Return whether the run may have more than one node."""
    return len(facts.addresses) != 1


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="address-of-bridge",
        entries=(*NCCL_SOCKETS, *NCCL_WAITS, *GLOO, *RENDEZVOUS),
        shows=(
            rf"(?:[Cc]onnect(?:ion|ing|ed)? to (?:\[?::ffff:)?|[Uu]sing (?:interface )?(?:\[\d\])?[\w@-]{{1,20}}:|"
            rf"remote=\[|trying to connect to \()(?P<address>{BRIDGE})\b",
        ),
        cause=(
            "{address} is an address on Docker's own network (bridge), which exists only inside one machine: the "
            "other nodes cannot reach it."
        ),
        remedy=f"{HOST_NETWORK}. Outside containers, {OF_MUSTER}",
        condition=is_foreign_address,
    ),
    EvidenceRule(
        id="interface-virtual",
        entries=(*NCCL_SOCKETS, *NCCL_WAITS, *GLOO),
        shows=(rf"(?:Using (?:interface )?|\[\d{{1,2}}\])(?P<interface>{VIRTUAL}):(?P<address>[0-9a-fA-F.:]{{3,45}})",),
        cause=(
            "The ranks connect over {interface} ({address}), a network interface for containers, virtual machines or "
            "a VPN inside the machine, which has no route to the other nodes."
        ),
        remedy=f"{OF_MUSTER}; or {BY_HAND}",
        condition=is_foreign_interface,
    ),
    EvidenceRule(
        id="interface-not-of-node",
        entries=(*NCCL_SOCKETS, *NCCL_WAITS),
        shows=(
            rf"(?:Bootstrap : |OOB |NET : )(?:Using )?(?:interface "
            rf")?(?P<interface>[\w.@-]{{1,20}}):(?P<address>{IPV4})<",
        ),
        cause=(
            "NCCL uses the interface {interface} with the address {address}, but muster reaches the nodes at "
            "other addresses: most likely that interface has no route to the other nodes."
        ),
        remedy=f"{OF_MUSTER}; or {BY_HAND}",
        condition=foreign,
    ),
    EvidenceRule(
        id="gid-of-link",
        entries=(*RDMA, *NCCL_SOCKETS, *NCCL_WAITS),
        shows=(
            r"NCCL_IB_GID_INDEX (?:set by environment to|=) ?(?P<index>\d{1,3})",
            r"ibv_modify_qp failed|Failed to modify QP|with (?:error|status=)\D{0,30}12\b",
        ),
        cause="NCCL_IB_GID_INDEX={index} selects an address (GID) of the adapters that the other nodes cannot reach, "
        "such as a link-local one (fe80::) or RoCE v1.",
        remedy=(
            "run `show_gids` on each node to list the GIDs, and set the index of the RoCE v2 GID with the node's "
            'IPv4 address, the same on all nodes and usually 3, with -e \'{{"launch_environment": '
            '{{"NCCL_IB_GID_INDEX": "3"}}}}\''
        ),
    ),
    EvidenceRule(
        id="gid-of-roce",
        entries=(*RDMA, "nccl-system-error"),
        shows=(
            r"\[\d{1,2}\]\w{1,20}:\d/RoCE\b",
            r"ibv_modify_qp failed|Failed to modify QP|with (?:error|status=)\D{0,30}12\b",
        ),
        cause=(
            "The adapters use RoCE, and the default address (GID) is of the wrong type (link-local, or RoCE v1), "
            "so two adapters cannot reach each other; otherwise, the switches do not route between their subnets."
        ),
        remedy=(
            'use -e \'{{"launch_environment": {{"NCCL_IB_GID_INDEX": "3"}}}}\', or the index that `show_gids` '
            "lists as RoCE v2 with the node's IPv4 address, the same on all nodes; to test the connection, run "
            "`ib_write_bw` between two nodes. To disable RDMA, set NCCL_IB_DISABLE=1"
        ),
    ),
    EvidenceRule(
        id="interface-of-variable",
        entries=(*NCCL_SOCKETS, *NCCL_WAITS),
        shows=(
            r"NCCL_SOCKET_IFNAME(?: set (?:by environment )?to |=)(?P<interface>=?[\w.,:-]{1,60})",
            r"(?:Connect to|[Cc]onnection (?:closed|refused|reset|timed out)|socketProgress|socketPoll|No route to "
            r"host|"
            r"socket\.cc:\d{1,5} -> |bootstrap\.cc:\d{1,5} -> )",
        ),
        cause=(
            "NCCL_SOCKET_IFNAME selects the interface {interface}, over which the nodes cannot reach each other: "
            "their address is on a different interface (such as a bridge or bond), or this interface is on a "
            "separate cable or network."
        ),
        remedy=(
            f"{OF_MUSTER}; or {BY_HAND}. If that is the right interface, run ansible-playbook logs.yml -e fetch=true, "
            "and look in the logs of the other ranks for the one that ended first"
        ),
        condition=is_foreign_interface,
        unless=r"ibv_|NET/IB : Got completion",
    ),
    EvidenceRule(
        id="bootstrap-interface",
        entries=("nccl-system-error", "nccl-internal-error", "nccl-connection-failed"),
        shows=(
            rf"Bootstrap : Using (?:interface )?(?P<interface>[\w.@-]{{1,20}}):(?P<address>{IPV4})<",
            r"(?:socket\.cc|socket\.h|bootstrap\.cc):\d{1,5} -> [236]\b",
        ),
        cause=(
            "NCCL's first connection to another node failed. It uses the interface {interface} ({address}). Usually "
            "that interface has no route to the other nodes; otherwise, a firewall is in between."
        ),
        remedy=(
            f"{BY_HAND}; or {OF_MUSTER}. If the interface is right, run ansible-playbook preflight.yml to test each "
            "connection; all TCP ports must be open between the nodes"
        ),
        unless=r"ibv_|NET/IB : Got completion|Connect to 127\.|Duplicate GPU|Cuda failure|shm",
    ),
    EvidenceRule(
        id="peer-refused",
        entries=("nccl-connection-failed", "nccl-system-error", "nccl-internal-error"),
        shows=(
            r"[Cc]onnect to (?P<address>[\w.:%-]{3,60})<(?P<port>\d{1,5})> (?:failed|returned)[^\n]{0,20}"
            r"[Cc]onnection refused",
        ),
        cause=(
            "The machine at {address} responds, but no process is listening on the port anymore: the rank there "
            "has ended or was killed earlier. In rare cases, a firewall rejects the connection."
        ),
        remedy=(
            "look in the logs of that node's ranks for what ended first with ansible-playbook logs.yml -e "
            "fetch=true. If none failed, run ansible-playbook preflight.yml to test the connections"
        ),
    ),
    EvidenceRule(
        id="peer-rejected",
        entries=("nccl-connection-failed", "nccl-system-error", "nccl-internal-error"),
        shows=(
            r"(?:[Cc]onnect to (?P<address>[\w.:%-]{3,60})<\d{1,5}> (?:failed|returned)|Call to connect failed|"
            r"connect returned)[^\n]{0,30}(?:No route to host|113)",
        ),
        cause=(
            "A firewall on the other node rejects the connection, since NCCL uses any free port (Linux reports that "
            "as `No route to host`); or that node has no address in this network."
        ),
        remedy=(
            "allow all TCP ports between the nodes with ansible-playbook site.yml --tags firewall, or with `sudo "
            "firewall-cmd --zone=trusted --add-source=SUBNET` on each node; to test the connections, run "
            f"ansible-playbook preflight.yml. Otherwise {OF_MUSTER}"
        ),
    ),
    EvidenceRule(
        id="peer-unreachable",
        entries=("nccl-connection-failed", "nccl-system-error", "nccl-internal-error"),
        shows=(
            r"(?:[Cc]onnect to (?P<address>[\w.:%-]{3,60})<\d{1,5}> (?:failed|returned)|Call to connect (?:failed|"
            r"returned))[^\n]{0,30}(?:[Tt]imed out|Network is unreachable|Software caused connection abort)",
        ),
        cause=(
            "Nothing responds when NCCL connects to the other node: a firewall or security group drops the packets "
            "(NCCL uses any free port), or the interface in use has no route to that node."
        ),
        remedy=(
            "open all TCP ports between the nodes in the security group and the firewall, and run ansible-playbook "
            f"preflight.yml to test each connection in both directions. If they are open, {OF_MUSTER}"
        ),
    ),
    EvidenceRule(
        id="rendezvous-name-of-digits",
        entries=RENDEZVOUS,
        shows=(r"(?<![\d.])(?P<address>0\.\d{1,3}\.\d{1,3}\.\d{1,3})\b[^\n]{0,8}:\d{1,5}",),
        cause=(
            "The name of this machine consists only of digits, so it is interpreted as an address: {address} "
            "does not exist."
        ),
        remedy=(
            "give the machine a name that contains a letter (sudo hostnamectl set-hostname NAME), or use an address: "
            "--rdzv_endpoint=ADDRESS:29500 or --master_addr ADDRESS instead of --standalone; muster uses node_address"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="rendezvous-on-loopback",
        entries=RENDEZVOUS,
        shows=(
            r"(?:connect to |failed to connect to )(?:any network address of )?[\[(]?(?:::ffff:)?"
            r"(?P<address>localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[?::1)\b",
        ),
        cause=(
            "This node looks for the rendezvous at {address}, which is its own address: MASTER_ADDR is localhost, or "
            "the name of the first node resolves to a loopback address here (127.0.1.1 in /etc/hosts). If all ranks "
            "are on one node, rank 0 has ended or is still starting."
        ),
        remedy=(
            "set MASTER_ADDR (--master_addr, --rdzv_endpoint) to the address of the first node, {first_address}: "
            "muster does so unless launch_environment or the script sets it. To fix names, run ansible-playbook "
            "site.yml --tags hosts_file. If all ranks are on one node, run ansible-playbook logs.yml -e rank=0"
        ),
        condition=has_several_nodes,
    ),
    EvidenceRule(
        id="rendezvous-of-other-address",
        entries=RENDEZVOUS,
        shows=(rf"(?:connect to |connect to \[?::ffff:|connect to \()(?P<address>{IPV4})\b[^\n]{{0,8}}\d",),
        cause=(
            "The rendezvous address {address} is not one at which muster reaches the nodes: MASTER_ADDR, "
            "--master_addr or --rdzv_endpoint is wrong, or is another address of the first node, at which it "
            "does not respond."
        ),
        remedy="remove MASTER_ADDR from launch_environment and the script: muster sets it to {first_address}, the "
        "address of the first node",
        condition=foreign,
        certain=True,
    ),
    EvidenceRule(
        id="rendezvous-without-host",
        entries=("rendezvous-unreached",),
        shows=(
            r"c10d_rendezvous_backend\.py[^\n]{0,40}, in _create_tcp_store|rdzv_backend {1,8}: c10d",
            r"timed out|RendezvousConnectionError|errno: 111",
        ),
        unless=r"errno: 11[03] |gai error|Broken pipe|Connection reset",
        cause=(
            "No node hosts the rendezvous, or a firewall blocks its port. With the c10d backend, the rendezvous "
            "is hosted by the node whose own host name or address is the one in --rdzv_endpoint, and a node does "
            "not recognize an address or name that its host name does not resolve to."
        ),
        remedy=(
            "use the first node's name in --rdzv_endpoint, as `hostname` shows it there, with its address in "
            "/etc/hosts on all nodes (ansible-playbook site.yml --tags hosts_file); add --rdzv_conf is_host=1 on "
            "the first node and is_host=0 on the others; or use --master_addr {first_address} --master_port "
            "29500 --node_rank N instead. If the first node is listening on the port (`ss -ltn`), run "
            "ansible-playbook preflight.yml to test the connections"
        ),
    ),
    EvidenceRule(
        id="rendezvous-refused",
        entries=RENDEZVOUS,
        shows=(r"(?:errno: 111 - Connection refused|\(errno: 111\)|\[Errno 111\] Connection refused)",),
        unless=r"errno: 110 ",
        cause=(
            "The first node responds, but nothing is listening on the rendezvous port: rank 0 has not started yet, "
            "has already failed, or uses another port or address."
        ),
        remedy=(
            "look at rank 0 first with ansible-playbook logs.yml -e rank=0. Start all nodes within the time limit, "
            "with the same MASTER_ADDR and MASTER_PORT on all of them, and --node_rank 0 on the node with that "
            "address"
        ),
    ),
    EvidenceRule(
        id="rendezvous-incomplete",
        entries=("rendezvous-unreached",),
        shows=(r"RendezvousTimeoutError\b",),
        unless=r"errno: |client socket has|C10d store has failed|RendezvousConnectionError|gai error",
        cause=(
            "Not all nodes joined torchrun's rendezvous within its time limit: on one of them, the job was not "
            "started, failed earlier, or was started with a different --rdzv_id, --rdzv_endpoint or --nnodes."
        ),
        remedy=(
            "look at the logs of the other nodes with ansible-playbook logs.yml -e fetch=true. Start torchrun on all "
            "nodes with the same --rdzv_id, --rdzv_endpoint and --nnodes; for nodes that start later, use "
            "--rdzv_conf join_timeout=3600"
        ),
    ),
    EvidenceRule(
        id="rendezvous-rejected",
        entries=RENDEZVOUS,
        shows=(r"(?:errno: 113 - No route to host|\[Errno 113\] No route to host)",),
        cause="A firewall on the first node rejects the connection (Linux reports that as `No route to host`), or no "
        "machine has that address.",
        remedy=(
            "allow all TCP ports between the nodes with ansible-playbook site.yml --tags firewall, or with `sudo "
            "firewall-cmd --zone=trusted --add-source=SUBNET` on each node; to test the connections, run "
            "ansible-playbook preflight.yml. MASTER_ADDR must be an address of the first node (muster sets "
            "{first_address})"
        ),
    ),
    EvidenceRule(
        id="rendezvous-ended",
        entries=("rendezvous-unreached",),
        shows=(
            r"has failed to (?:shutdown|send a keep-alive heartbeat to) the rendezvous|num_nodes_waiting\(\)|"
            r"_invoke_run[^\n]{0,200}\n[^\n]{0,200}num_nodes_waiting",
            r"Broken pipe|Connection reset by peer|RendezvousConnectionError",
        ),
        cause=(
            "The rendezvous worked and then closed, because the process that hosts it has exited: either torchrun on "
            "the first node, or the torchrun of another job on the same port."
        ),
        remedy=(
            "give each job on a machine its own port and ID: use torchrun --rdzv_endpoint=HOST:PORT "
            "--rdzv_id=NAME, or --standalone on one node; with muster, use -e launch_master_port=29600. If no "
            "other job is running there, look at what ended first on the first node with ansible-playbook "
            "logs.yml -e rank=0"
        ),
    ),
    EvidenceRule(
        id="rendezvous-cut-off",
        entries=("rendezvous-unreached",),
        shows=(r"Error: Connection reset by peer", r"RendezvousConnectionError"),
        cause=(
            "The first node's port accepted the connection and closed it immediately: something in between "
            "closes it (a proxy, a VPN, a firewall), another program is listening on the port, or the nodes have "
            "different versions of torch."
        ),
        remedy=(
            "use another port, --rdzv_endpoint={first_address}:29600, and an address that reaches the node "
            "directly; to test the connections and find nodes with a different torch version, run "
            "ansible-playbook preflight.yml"
        ),
    ),
    EvidenceRule(
        id="rendezvous-no-answer",
        entries=RENDEZVOUS,
        shows=(r"failed to connect to \[?(?:::ffff:)?(?P<address>[\w.:-]{3,80}?)\]?:(?P<port>\d{1,5}) \(errno: 110",),
        cause="No machine responds at {address}, port {port}: MASTER_ADDR is not an address at which this node reaches "
        "the first one (a placeholder, a public or an internal address), or a firewall or security group drops the "
        "packets.",
        remedy=(
            "set MASTER_ADDR (--master_addr, --rdzv_endpoint) to the first node's address, as `hostname -I` shows it "
            "there, or to 127.0.0.1 if all ranks are on one node; muster sets {first_address}. If it is already "
            "right, open the port, and run ansible-playbook preflight.yml to test each connection in both directions"
        ),
    ),
    EvidenceRule(
        id="world-size-too-large",
        entries=("ranks-missing",),
        shows=(JOINED,),
        cause=(
            "The script is waiting for {size}{expected} processes, but the whole run has fewer "
            "({joined}{clients} joined): the script passes its own world_size to init_process_group, such as "
            "torch.cuda.device_count() or a constant, or its options or configuration set one."
        ),
        remedy=(
            "leave world_size and rank out of init_process_group, so that it reads the launcher's values, or use "
            "int(os.environ['WORLD_SIZE']); or start as many ranks as the script expects with -e nproc_per_node=N"
        ),
        condition=has_fewer_ranks,
        certain=True,
    ),
    EvidenceRule(
        id="world-size-of-script",
        entries=("ranks-missing",),
        shows=(JOINED, r"init_process_group\([^\n]{0,200}\bworld_size ?= ?(?!int\(os\.)"),
        cause=(
            "The script passes its own world_size to init_process_group, {size}{expected}, and {joined}{clients} "
            "processes joined. Most likely only these were started, and the script's number has a different "
            "source, such as torch.cuda.device_count(). Otherwise, the job was not started on the other nodes."
        ),
        remedy=(
            "leave world_size and rank out of init_process_group, so that it reads the launcher's values, or use "
            "int(os.environ['WORLD_SIZE']); or start as many processes as the script expects with torchrun "
            "--nproc_per_node=GPUS. On several nodes, look at the logs of the missing nodes with "
            "ansible-playbook logs.yml -e fetch=true"
        ),
        condition=has_unknown_ranks,
    ),
    EvidenceRule(
        id="nodes-missing",
        entries=("ranks-missing",),
        shows=(JOINED,),
        cause=(
            "Only the ranks of some nodes joined ({joined}{clients} of {size}{expected}): the job was not started on "
            "the others, or was started there with a different MASTER_ADDR, port, node rank or number of ranks (for "
            "example because of unequal numbers of GPUs), or their connection is blocked."
        ),
        remedy=(
            "look at the logs of the missing nodes with ansible-playbook logs.yml -e fetch=true. Start the job on "
            "all nodes within the time limit, with the same MASTER_ADDR, MASTER_PORT, --nnodes and number of ranks "
            "per node (-e nproc_per_node=N; devices=N in Lightning, not -1), and --node_rank 0, 1, ...; to test the "
            "connections, run ansible-playbook preflight.yml"
        ),
        condition=has_missing_nodes,
    ),
    EvidenceRule(
        id="start-of-ended-rank",
        entries=("nccl-start-waits",),
        shows=(r"got error: (?:Connection reset by peer|Broken pipe|Connection (?:was )?closed|failed to recv)",),
        cause="Rank 0 ended while this rank was waiting for it in the first collective. Rank 0's own log says why.",
        remedy="run ansible-playbook logs.yml -e rank=0 to see what ended it",
    ),
    EvidenceRule(
        id="start-of-compiling-rank",
        entries=("nccl-start-waits",),
        shows=(
            r"got error: (?:wait timeout|Socket Timeout|[Tt]imeout waiting)",
            r", in (?P<function>\w{0,40}(?:compile|fused_kernels|build_ext|cpp_extension)\w{0,40})$",
        ),
        cause=(
            "Rank 0 did not reach the first collective in time: it was supposed to compile CUDA extensions while "
            "the others wait in {function}. Most likely it is waiting for a lock file that an interrupted build "
            "left behind; otherwise, compiling took longer than the time limit."
        ),
        remedy=(
            "remove the build directory with its lock on each node, then start again: run rm -rf "
            "megatron/fused_kernels/build (Megatron-LM) or ~/.cache/torch_extensions (DeepSpeed, torch). To compile "
            "before the job, start it once with one rank. To see what rank 0 was doing, run ansible-playbook "
            "logs.yml -e rank=0"
        ),
    ),
    EvidenceRule(
        id="start-of-busy-rank",
        entries=("nccl-start-waits",),
        shows=(r"got error: (?:wait timeout|Socket Timeout|[Tt]imeout waiting)",),
        cause=(
            "Rank 0 did not reach the first collective in time: it is still preparing data, or downloading or "
            "loading the model on its own (inside `if rank == 0` or main_process_first), while this rank is "
            "already waiting for it."
        ),
        remedy=(
            f"do that work before the job, or before init_process_group; or {LIMIT}. To see what rank 0 was doing, "
            "run ansible-playbook logs.yml -e rank=0"
        ),
    ),
    EvidenceRule(
        id="gloo-loopback",
        entries=GLOO,
        shows=(
            r"Using the loopback address as fallback|"
            r"(?:remote=\[|[Cc]onnect[^\n]{0,30}\[?)(?:127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)\b",
        ),
        cause=(
            "A node announces its loopback address to the others: its own name resolves to that address in "
            "/etc/hosts, or does not resolve at all."
        ),
        remedy=(
            f"run ansible-playbook site.yml --tags hosts_file to write the nodes' addresses to /etc/hosts; {BY_HAND}"
        ),
        condition=has_several_nodes,
    ),
    EvidenceRule(
        id="peer-of-one-link",
        entries=("nccl-internal-address",),
        shows=(r"[Cc]onnect to (?P<address>fe80:[0-9a-fA-F:]{1,40}(?:%\w{1,16})?)<",),
        cause=(
            "Another rank announced {address}, an IPv6 address that is valid on one link only: on that rank's node, "
            "NCCL chose an interface without a proper address, such as a container's interface (veth)."
        ),
        remedy=(
            f"{BY_HAND}; look for `Bootstrap : Using` in the logs of the other ranks to see the interface on each "
            f"node. If you do not use your own launcher, {OF_MUSTER}"
        ),
        unless=r"NCCL_SOCKET_IFNAME(?: set|=)",
    ),
    EvidenceRule(
        id="gloo-peer-on-node",
        entries=GLOO,
        shows=(r"connect \[(?P<address>127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)\]:\d{1,5}: Connection refused",),
        cause=(
            "Nothing is listening at {address} anymore: the rank at the other end, on the same node, ended earlier."
        ),
        remedy="look for the rank that failed first with ansible-playbook logs.yml -e fetch=true",
    ),
)

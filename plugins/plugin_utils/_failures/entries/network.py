# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failed or interrupted connections between ranks."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    OPEN_NETWORK,
)

TOPIC = "Connections between ranks"

# A pattern cannot compare numbers, only their number of digits and first digit; it cannot do so for sizes that begin
# with 9.
MORE_WORKERS = "|".join(
    rf"{first}\d{{{rest}}}, worker_count=(?:[{first + 1}-9]\d{{{rest}}}|[1-9]\d{{{rest + 1},6}})\b"
    for rest in range(4)
    for first in range(1, 9)
)
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="port-privileged",
        title="The rendezvous port is reserved for root",
        example="The server socket has failed to bind to [::]:520 (errno: 13 - Permission denied).",
        texts=(r"failed to bind to [^\n]{1,100}:(?:\d{1,3}|10[01]\d|102[0-3]) \(errno: 13 - Permission denied\)",),
        cause="Only root can listen on ports below 1024, and the job's rendezvous uses such a port.",
        remedy=(
            "use port 1024 or above with -e launch_master_port=29600; check how the script sets MASTER_PORT and "
            "--master_port, for example to $RANDOM without an offset"
        ),
        source="liucongg/ChatGLM-Finetuning#140",
    ),
    CatalogueEntry(
        id="store-reused",
        title="More processes joined than the job has ranks",
        example="Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=4, worker_count=8, timeout=0:30:00)",
        texts=(rf"store[- ]based barrier [^\n]{{0,160}}\(world_size=(?:{MORE_WORKERS})",),
        cause=(
            "The rendezvous store counts more processes than world_size. Either it still contains the processes "
            "of an earlier run, for example in the file used by init_method=file://, or the job was started "
            "twice with the same address and port, or the script passes a world_size smaller than the number of "
            "processes."
        ),
        remedy=(
            "remove the file used by init_method=file:// before each run, or use env:// (no init_method), which "
            "muster sets up anew for each run; run ansible-playbook stop.yml to end an earlier run; read "
            "WORLD_SIZE from the environment"
        ),
        source="ultralytics/yolov5#4574",
    ),
    CatalogueEntry(
        id="address-in-use",
        title="The rendezvous port is already in use",
        example="The server socket has failed to listen on any local network address ... Address already in use",
        texts=(
            r"server socket has failed to listen on any local network address",
            r"\[Errno 98\] Address already in use",
            r"RuntimeError: Address already in use",
            r"errno: 98 - Address already in use",
            r"EADDRINUSE\b",
            r"Tried to launch distributed communication on port",
        ),
        cause=(
            "Another process on the first node is already listening on the port: a leftover process, a second "
            "job, or another process of this job with the same rank."
        ),
        remedy=(
            "run ansible-playbook preflight.yml to find the process, and ansible-playbook stop.yml to end what "
            "muster started there; or use a different port with -e launch_master_port=29600. If you call srun "
            "yourself, start one task per GPU (--ntasks-per-node), or one task per node if it starts torchrun"
        ),
        source="pytorch/pytorch#85604",
        recoverable=True,
    ),
    CatalogueEntry(
        id="no-route-to-host",
        title="A node cannot reach an address",
        example="OSError: [Errno 113] No route to host",
        texts=(r"\[Errno 113\] No route to host", r"RuntimeError: No route to host"),
        cause=(
            "The address belongs to a network that this node cannot reach, the machine at that address is down, or a "
            "firewall rejects connections to the port, which Linux reports in the same way."
        ),
        remedy=(
            "run ansible-playbook preflight.yml to test the connections between all nodes and find closed ports; if "
            "there is a firewall on the nodes, run ansible-playbook site.yml --tags firewall, or allow the nodes' "
            "addresses. Check MASTER_ADDR if the script sets it"
        ),
        source="facebookresearch/PyTorch-BigGraph#99",
        weak=True,
        recoverable=True,
    ),
    CatalogueEntry(
        id="rendezvous-unreached",
        title="A node cannot reach the rendezvous on the first node",
        example="The client socket has timed out after 60s while trying to connect to ...",
        texts=(
            r"client socket has timed out after",
            r"client socket has failed to connect to any network address of \(",
            r"Rendezvous(?:Connection|Timeout)Error\b",
            r"connection to the C10d store has failed",
            r"connect\(\) timed out\. Original timeout was",
            r"RuntimeError: (?:connect\(\) timed out\.|Connection timed out)$",
        ),
        cause=(
            "The first node's port is closed to the other nodes, its name resolves to 127.0.1.1 there, or its "
            "process ended earlier."
        ),
        remedy=(
            f"first check whether a rank on the first node failed on its own. If none did, {OPEN_NETWORK}; run "
            "ansible-playbook site.yml --tags hosts_file to fix the names"
        ),
        source="pytorch/pytorch#107021",
        recoverable=True,
        kind="consequence",
    ),
    CatalogueEntry(
        id="rendezvous-ids-differ",
        title="Each node generated its own rendezvous id",
        example="config has no run_id, generated a random run_id: 174580650467654300307713793029077439978",
        texts=(r"config has no run_id, generated a random run_id",),
        cause=(
            "The value of torchrun's --rdzv_id was empty, usually because it is an unset variable. Each node "
            "therefore generated a random id, and nodes with different ids never meet."
        ),
        remedy=(
            "give all nodes the same id with torchrun --rdzv_id=NAME --rdzv_endpoint=FIRST_NODE:29500 (with "
            "c10d, --master_addr has no effect); or let muster start torchrun with -e launch_rdzv_backend=c10d"
        ),
        source="ymcui/Chinese-LLaMA-Alpaca-2#274",
        recoverable=True,
        refines=("rendezvous-unreached",),
    ),
    CatalogueEntry(
        id="ranks-missing",
        title="Not all ranks joined",
        example="DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined",
        texts=(
            r"Timed out after \d{1,7} seconds waiting for (?:clients|workers)",
            r"Timed out initializing process group in store[- ]based barrier",
            r"DistStoreError: wait timeout after \d{1,9}ms, keys: ",
        ),
        cause="Some ranks never started, exited early, or took so long to load that the others gave up.",
        remedy=(
            "look in the logs of the missing ranks (ansible-playbook logs.yml -e fetch=true). If they just take "
            "longer to load, use init_process_group(timeout=...)"
        ),
        source="NVIDIA/Megatron-LM#782",
        kind="consequence",
    ),
    CatalogueEntry(
        id="gloo-full-mesh",
        title="gloo cannot connect all nodes to each other",
        example="RuntimeError: Gloo connectFullMesh failed with ...",
        texts=(
            r"Gloo connectFullMesh failed",
            r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] connect \[(?:127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1)\]",
            r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] connect \[[^\]\n]{1,60}\]:\d{1,5}: (?:No route|Network is|"
            r"Connection timed out)",
        ),
        cause="The nodes advertised unreachable addresses: a node's own name resolves to its loopback address, or "
        "gloo picked the interface of a container network.",
        remedy=(
            "let muster set GLOO_SOCKET_IFNAME, which it sets on each node to the interface of node_address; run "
            f"ansible-playbook site.yml --tags hosts_file to fix the names; {OPEN_NETWORK}"
        ),
        source="vllm-project/vllm#6775",
    ),
    CatalogueEntry(
        id="gloo-peer-gone",
        title="Another rank exited (gloo)",
        example="gloo/transport/tcp/pair.cc:598] Connection closed by peer",
        texts=(
            r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] [^\n]{0,60}(?:closed by peer|reset by peer)",
            r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] connect \[[^\]\n]{1,60}\]:\d{1,5}: Connection refused",
        ),
        cause="The rank at the other end exited or was killed. That rank's own log says why.",
        remedy="look in the logs of the other ranks: ansible-playbook logs.yml -e fetch=true",
        source="CGCL-codes/pFedSD#3",
        kind="consequence",
    ),
    CatalogueEntry(
        id="store-gone",
        title="The rendezvous on the first node ended",
        example="[c10d] recvValue failed on SocketImpl(...): Connection reset by peer",
        texts=(
            r"\[c10d\] (?:recvValue|sendBytes|recvVector)\w{0,10} failed on SocketImpl",
            r"TCPStore server has shut down too early",
        ),
        cause="Rank 0 ended while this rank was still working. Rank 0's own log says why.",
        remedy="look in the log of rank 0: ansible-playbook logs.yml -e rank=0",
        source="tdrussell/diffusion-pipe#333",
        kind="consequence",
    ),
    CatalogueEntry(
        id="gloo-no-interface",
        title="gloo cannot find its network interface",
        example="RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:83] ifa != nullptr. Unable to "
        "find address for: ib0",
        texts=(r"Unable to find (?:address|interface) for: ",),
        cause=(
            "GLOO_SOCKET_IFNAME names an interface that this node does not have, or, if the variable is not set, the "
            "node's own name resolves to an address that none of its interfaces has."
        ),
        remedy=(
            "remove GLOO_SOCKET_IFNAME from launch_environment and the script; muster sets it on each node to "
            "the interface of node_address. If you set it yourself, spell out the name of the interface in full. "
            "Run ansible-playbook site.yml --tags hosts_file to fix the node's own name"
        ),
        source="Megvii-BaseDetection/YOLOX#139",
    ),
    CatalogueEntry(
        id="rendezvous-closed",
        title="torchrun's rendezvous is closed",
        example="torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        texts=(r"RendezvousClosedError\b",),
        cause=(
            "torchrun on another node has ended, successfully or not, and this node is trying to join or to restart "
            "its ranks."
        ),
        remedy=(
            "look in the logs of the other nodes to find what ended first (ansible-playbook logs.yml -e "
            "fetch=true). If you use restarts, leave launch_max_restarts out unless the script resumes from "
            "checkpoints"
        ),
        source="pytorch/pytorch#116974",
        kind="consequence",
    ),
    CatalogueEntry(
        id="store-time-out",
        title="A rank waited too long at the rendezvous",
        example="RuntimeError: Socket Timeout",
        texts=(r"(?:RuntimeError|Dist(?:Store|Network)Error): (?:Socket Timeout|Broken pipe)",),
        cause=(
            "This rank waited at the first node's rendezvous for another rank, which did not arrive within the "
            "time limit: the other rank is preparing data, evaluating or saving on its own, or has ended."
        ),
        remedy=(
            "look in the logs of all ranks for one that ended or is at a different point in the script "
            "(ansible-playbook logs.yml -e fetch=true). For work that takes longer, use "
            "init_process_group(timeout=timedelta(hours=1)), or ddp_timeout=3600 for the Trainer"
        ),
        source="rwth-i6/returnn#1621",
        kind="consequence",
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="store-reset",
        title="The connection to the rendezvous was closed",
        example="RuntimeError: Connection reset by peer",
        texts=(
            r"(?:RuntimeError|Dist(?:Store|Network)Error): Connection reset by peer",
            r"TCP client failed to connect/validate to host [^\n]{1,300}Connection reset by peer",
        ),
        cause=(
            "This rank reached the first node's port, and the connection was closed immediately. If this happens "
            "at startup, the cause is between the nodes: a service mesh's proxy or sidecar (Istio), a firewall "
            "or load balancer, or another program that is listening on the port; with many hundreds of ranks, "
            "too many of them connect at the same time. If it happens later, rank 0 has ended."
        ),
        remedy=(
            "read the log of rank 0 first (ansible-playbook logs.yml -e rank=0). If rank 0 is still waiting for "
            "the others, a longer timeout will not help; use addresses that reach the node directly, without "
            "proxies, and a different port (-e launch_master_port=29600). Run ansible-playbook preflight.yml to "
            "test the connections in both directions"
        ),
        source="pytorch/pytorch#76913",
        kind="consequence",
        weak=True,
        recoverable=True,
    ),
)

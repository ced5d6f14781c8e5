# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about names that cannot be resolved: which name, and why it cannot be resolved."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "Why a name is not resolved"
NAMES = ("name-unknown",)
# Whose name it is, in messages from torch, ssh and MPICH.
NAMED = (
    r"(?:network addresses of \((?P<name>[^\n,)]{1,255}), \d{1,5}\) cannot be retrieved|"
    r"Could not resolve hostname (?P<host>[^\s:]{1,255})|host=(?P<peer>[\w.-]{1,255}) was not reachable)"
)
# A name such as Kubernetes operators give to pods: it ends with a number, usually followed by the name of a Service.
POD = (
    r"network addresses of \((?P<name>(?!ip-\d)[\w-]{1,200}-(?:master|worker|launcher|"
    r"workers|head|leader|node|main|trainer|\d{1,4})-\d{1,4}(?:\.[\w.-]{1,200})?|[\w-]{1,200}\.[\w-]{1,60}\.svc[\w.-]{0,60}|"
    r"[\w-]{1,200}-(?:master|leader|head)(?:\.[\w.-]{1,200})?)(?:,| ?:)"
)
TIMED_OUT = r"timed out after (?P<waited>(?:(?P<milliseconds>\d{4,10})m|(?P<seconds>\d{1,6}))s)\b"
LONG = 600  # seconds after which a name that is still unknown would have been published
WAIT = "wait for the name before starting, in the pod's command: until getent hosts {name}; do sleep 2; done"
SERVICE = (
    "run `kubectl get service,endpoints` to see the names: MASTER_ADDR must be POD.SERVICE with the name of a "
    "headless Service (clusterIP: None) in the same namespace, or POD.SERVICE.NAMESPACE.svc.cluster.local"
)


def has_waited_long(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether a rank tried to resolve a name for so long that the name must be wrong rather than late."""
    seconds, milliseconds = int(groups.get("seconds") or 0), int(groups.get("milliseconds") or 0)
    return max(seconds, milliseconds // 1000) >= LONG


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="gloo-list-of-interfaces",
        entries=("gloo-no-interface",),
        shows=(
            r"Unable to find (?:address|interface) for: "
            r"(?P<name>\^[\w.,^-]{1,100}|[\w.-]{1,60},[\w.,-]{1,100}|=\w{1,60})",
        ),
        cause=(
            "GLOO_SOCKET_IFNAME contains {name}: gloo accepts only exact names of interfaces, separated by commas, not "
            "a pattern as NCCL_SOCKET_IFNAME does (^lo,docker0)."
        ),
        remedy=(
            "remove GLOO_SOCKET_IFNAME from launch_environment, the script and the image: muster sets it on each "
            "node to the interface of node_address{of_interface}. To set it by hand, run export "
            "GLOO_SOCKET_IFNAME=INTERFACE on each node, with the interface that `ip -br addr` shows with the address "
            "at which the other nodes reach this one"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="own-name-elsewhere",
        entries=("gloo-no-interface",),
        shows=(
            r"Unable to find (?:address|interface) for: "
            r"(?P<name>(?!(?:eth|en|ib|bond|lo|br|docker|wl|team|vlan|tun|tap|"
            r"wg|mlx|hsn|veth|ppp|tailscale)[\w-]{0,12}(?:\.\d{1,4})?(?:\s|$))[\w.-]{1,255})",
        ),
        cause=(
            "The host name of this node, {name}, resolves to an address that none of its interfaces has (an old or a "
            "public one), or does not resolve at all, and gloo looks for that address."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags hosts_file to write the correct address of {name} to /etc/hosts, "
            'or specify the interface with -e \'{{"launch_environment": {{"GLOO_SOCKET_IFNAME": '
            '"{own_interface}"}}}}\''
        ),
    ),
    EvidenceRule(
        id="name-of-variable",
        entries=NAMES,
        shows=(
            r"(?:network addresses of \(|Could not resolve hostname )(?P<name>[^\n,):]{0,100}"
            r"(?:\$\{?[A-Za-z_]\w{0,60}\}?|%[A-Z_]{2,40}%|\{\{[^\n}]{1,60}\}\}|<[A-Za-z_]\w{0,40}>|\byour[_-]\w{2,40}))",
        ),
        cause=(
            "The host name is {name}, a variable or placeholder that was not replaced: for example, it is in single "
            "quotes, in YAML or in a command that no shell reads."
        ),
        remedy=(
            "let a shell expand it with bash -c 'torchrun --master_addr=$MASTER_ADDR ...', or use the address of the "
            "first node, {first_address}; muster sets MASTER_ADDR itself, so remove it from launch_environment and "
            "the script"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="name-with-slots",
        entries=NAMES,
        shows=(r"Could not resolve hostname (?P<name>[\w.-]{1,200}:\d{1,4}): ",),
        cause=(
            "The launcher interprets {name} as a host name: this MPI implementation (or this option) expects the "
            "number of slots in a format other than NAME:NUMBER."
        ),
        remedy=(
            "give the hosts in the format that this launcher reads: a hostfile with `NAME slots=N` on each line "
            "for Open MPI and deepspeed; or leave launch_launcher out, since torchrun needs no list of hosts"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="name-of-host-bare",
        entries=NAMES,
        shows=(POD.replace("(?P<name>", r"(?P<name>(?=[\w-]{1,200},)"), TIMED_OUT),
        cause=(
            "{name} is the bare host name of the first node or pod, and neither a DNS server nor /etc/hosts has "
            "resolved it for {waited}: torchrun with the c10d backend announces this name to the other nodes as "
            "MASTER_ADDR."
        ),
        remedy=(
            "announce the address instead with torchrun --local-addr=$(hostname -i) on each node (muster uses "
            "node_address). Or make the name resolvable: run ansible-playbook site.yml --tags hosts_file to "
            "write it to /etc/hosts on all nodes; in Kubernetes, use POD.SERVICE of a headless Service"
        ),
        condition=has_waited_long,
    ),
    EvidenceRule(
        id="name-of-pod-wrong",
        entries=NAMES,
        shows=(POD, TIMED_OUT),
        cause=(
            "MASTER_ADDR names a host that does not exist: neither a DNS server nor /etc/hosts has resolved "
            "{name} for {waited}. In Kubernetes, the part after the first dot is not the name of the pods' "
            "Service, or the pod has a different name."
        ),
        remedy=f"set MASTER_ADDR to a name that `getent hosts NAME` resolves inside a pod. {SERVICE}",
        condition=has_waited_long,
    ),
    EvidenceRule(
        id="name-of-pod",
        entries=NAMES,
        shows=(POD,),
        cause="{name}, the host of the rendezvous, cannot be resolved yet: its pod, or the Service that publishes its "
        "name, did not exist when this rank started. If it never resolves, the name is wrong.",
        remedy=(
            f"{WAIT} (or use an init container that does so); to publish the name earlier, set "
            f"publishNotReadyAddresses: true in the Service. If it never resolves: {SERVICE}"
        ),
    ),
    EvidenceRule(
        id="name-of-pod-hidden",
        entries=NAMES,
        shows=(
            r"host not found: ",
            r"\b(?:KUBERNETES_|kubeflow|PyTorchJob|PET_\w|pod\b)|\.svc\b|[\w-]-(?:master|worker)-\d",
        ),
        cause="The master's host name in MASTER_ADDR cannot be resolved yet: this worker started before the master's "
        "pod and its Service existed. If it never resolves, the name is wrong.",
        remedy=(
            'wait for the name before starting, in the worker\'s command: until getent hosts "$MASTER_ADDR"; do '
            "sleep 2; done (or use an init container that does so; the Kubeflow operator has included one since "
            f"0.5). If it never resolves: {SERVICE}"
        ),
    ),
    EvidenceRule(
        id="name-of-lightning",
        entries=NAMES,
        shows=(r"init_ddp_connection|lightning", r"host not found: "),
        cause=(
            "The name that Lightning uses for the first node does not exist. Under Slurm, Lightning derives the "
            "name from the list of nodes (SLURM_NODELIST), and old versions parse lists such as node[01-04] "
            "incorrectly (with an extra or missing 0); otherwise MASTER_ADDR is misspelled."
        ),
        remedy=(
            "install a newer Lightning version (pip install -U lightning), and run export MASTER_ADDR=$(scontrol "
            "show hostnames $SLURM_JOB_NODELIST | head -n 1) before srun, which newer versions respect. Without "
            "Slurm, remove MASTER_ADDR: muster sets it to {first_address}"
        ),
    ),
    EvidenceRule(
        id="dns-no-answer",
        entries=NAMES,
        shows=(rf"{NAMED}[^\n]{{0,40}}Temporary failure in name resolution",),
        cause=(
            "No DNS server answered the query for {name}{host}{peer}, and this node's /etc/hosts does not "
            "contain it. If it is the node's own name, for example with --standalone, only the line in "
            "/etc/hosts is missing."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags hosts_file to write the nodes' names to /etc/hosts on each "
            "node. To add the node's own name by hand, run echo '127.0.1.1 {name}{host}{peer}' | sudo tee -a "
            "/etc/hosts. To see the DNS servers, run `resolvectl status`"
        ),
    ),
    EvidenceRule(
        id="name-in-message",
        entries=NAMES,
        shows=(NAMED,),
        cause=(
            "This node cannot resolve the name {name}{host}{peer}: it is missing from /etc/hosts and DNS, or is "
            "misspelled."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags hosts_file to write the names of all nodes to /etc/hosts on "
            "each node. If the name is not a node's name, replace it in MASTER_ADDR, --rdzv_endpoint or the "
            "hostfile with the address {first_address}; to test it, run `getent hosts {name}{host}{peer}` on the "
            "node"
        ),
    ),
    EvidenceRule(
        id="name-in-variable",
        entries=NAMES,
        shows=(r"TCPStore\(|rendezvous\.py|host not found: ",),
        cause=(
            "This node cannot resolve the name in MASTER_ADDR (--master_addr): the name is misspelled or missing "
            "from /etc/hosts, or its machine (in Kubernetes, its Service) is not up yet."
        ),
        remedy=(
            "set MASTER_ADDR to the address of the first node, {first_address}, instead of a name: muster does "
            "so if launch_environment and the script do not set it. To test a name, run `getent hosts "
            '"$MASTER_ADDR"`; if it only becomes available later, run until getent hosts "$MASTER_ADDR"; do '
            "sleep 2; done before starting"
        ),
    ),
)

"""Facts about a healthy cluster, for a test to modify, and the findings of the checks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ansible_collections.muster.training.plugins.action.launch_plan import ARGUMENT_SPEC
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Thresholds
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding
from ansible_collections.muster.training.plugins.plugin_utils._checks.gather import run_checks
from ansible_collections.muster.training.plugins.plugin_utils._plan.read_job import read_job

PORT = 41234
GIB = 2**30
Facts = dict[str, Any]
Spoil = Callable[[dict[str, Facts]], None]


def names(count: int) -> list[str]:
    return [f"node{number}" for number in range(1, count + 1)]


def address(name: str) -> str:
    return f"10.0.0.{10 + int(name.removeprefix('node'))}"


def peer_record(own_fixed: list[int], peer_fixed: list[int]) -> Facts:
    """Return a node's record of a peer that it reached."""
    return {
        "to": "",
        "back": {str(port): "" for port in [PORT, *own_fixed]},
        "ports": {str(port): "" for port in peer_fixed},
        "sent": 65536,
        "received": 65536,
        "answered_by": None,
    }


def gpus(count: int) -> Facts:
    """Return a node's GPUs, or none for a node without GPUs."""
    device = {
        "name": "H100 80GB HBM3",
        "driver": "570.124.06",
        "memory_mib": 81559,
        "memory_used_mib": 7,
        "compute_mode": "Default",
        "ecc_uncorrected": 0,
        "page_retirement_pending": False,
        "error": "",
    }
    version = "570.124.06" if count else None
    return {
        "smi": {"state": "ok" if count else "absent", "output": "", "path": "/usr/bin/nvidia-smi" if count else ""},
        "devices": [{**device, "index": index, "uuid": f"GPU-{index}"} for index in range(count)],
        "count": count,
        "pci": count,
        "driver": {"loaded": version, "library": version, "on_disk": version},
        "nouveau": False,
        "processes": [],
    }


def links(count: int) -> Facts:
    """Return the links between the GPUs of a virtual machine on an HGX node, whose NVSwitches belong to the host."""
    return {
        "switches": 0,
        "fabric": [{"state": "Completed", "status": "Success"}] * count,
        "manager": {"version": "", "service": ""},
        "nvlinks": 18 * count,
        "acs": [],
        "iommu": "",
        "gpudirect": {"peermem": True, "dma_buf": True},
    }


def rdma_ports(count: int = 2) -> list[Facts]:
    """Return the ports of RoCE adapters."""
    gids = [{"index": 0, "type": "IB/RoCE v1", "ipv4": False}, {"index": 3, "type": "RoCE v2", "ipv4": True}]
    item = {"state": "ACTIVE", "link": "Ethernet", "driver": "mlx5_core", "gids": gids}
    return [{"name": f"mlx5_{index}/1", **copy.deepcopy(item)} for index in range(count)]


def health(name: str, gpu_count: int) -> Facts:
    """Return the health of a node."""
    gpu = {
        "serial": "",
        "pcie_gen": 1,
        "pcie_gen_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "ecc_aggregate": 0,
        "rows": {"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
        "throttling": [],
    }
    counters = {"link_downed": 1, "symbol_error": 0}
    port = {"state": "ACTIVE", "physical": "LinkUp", "link": "Ethernet", "rate": "400 Gb/sec (4X NDR)"}
    return {
        "identity": {"serial": f"serial-of-{name}", "asset": "", "machine_id": f"id-of-{name}"},
        "gpus": [
            {
                **copy.deepcopy(gpu),
                "index": index,
                "uuid": f"GPU-{name}-{index}",
                "pci": f"00000000:{index + 16:02X}:00.0",
            }
            for index in range(gpu_count)
        ],
        "nvlinks": [
            {"index": index, "active": list(range(18)), "inactive": [], "errors": 0} for index in range(gpu_count)
        ],
        "ports": [{"name": "mlx5_0/1", **port, "counters": counters}] if gpu_count else [],
        "memory": {
            "total_bytes": 64 * GIB,
            "available_bytes": 60 * GIB,
            "swap_total_bytes": 8 * GIB,
            "swap_free_bytes": 8 * GIB,
        },
        "kernel_log": {"readable": True, "reason": "", "errors": []} if gpu_count else None,
    }


def imported() -> Facts:
    """Return an import test without a failure."""
    return {
        "tested": True,
        "cached": False,
        "ended": "",
        "failures": [],
        "cuda": [],
        "libraries": ["numpy", "torch"],
        "features": [],
        "files": 1,
        "python_h": True,
    }


def caches() -> dict[str, Facts]:
    """Return the job's home and caches, on the disk of its runs."""
    paths = {"HOME": "/home/ubuntu", "HF_HOME": "/home/ubuntu/.cache/huggingface", "TMPDIR": "/tmp"}
    item = {"writable": True, "free_bytes": 50 * GIB, "device": 1, "explicit": False}
    return {name: {"path": path, "existing": path, **item} for name, path in paths.items()}


def node(name: str, everyone: list[str], gpu_count: int = 0) -> Facts:
    """Return one node's facts, in the form produced by node_facts."""
    own_address = address(name)
    fixed = {peer: [29500, 29499] if peer == everyone[0] else [] for peer in everyone}
    peers = [peer for peer in everyone if peer != name]
    disk = {"path": "/home/ubuntu", "device": 1, "total_bytes": 100 * GIB, "free_bytes": 50 * GIB, "free_inodes": 10**6}
    return {
        "hostname": name,
        "user": "ubuntu",
        "home": "/home/ubuntu",
        "systemd": True,
        "node_python": {"path": "/usr/bin/python3", "version": "3.10.12"},
        "kernel": "6.8.0-45-generic",
        "glibc": "2.35",
        "machine": f"boot-of-{name} net:[4026531840]",
        "interfaces": {
            "lo": {"mtu": 65536, "up": True, "loopback": True, "addresses": ["127.0.0.1/8"]},
            "ens5": {"mtu": 9001, "up": True, "loopback": False, "addresses": [f"{own_address}/24"]},
        },
        "addresses": {"127.0.0.1": "lo", own_address: "ens5"},
        "interface": "ens5",
        "routes": {
            address(peer): {"interface": "ens5", "source": own_address, "gateway": None, "mtu": 0} for peer in peers
        },
        "runs": [],
        "hides_processes": False,
        "ports": {},
        "binds": {"29500": "", "29499": ""},
        "runs_directory": "/home/ubuntu/.muster/runs",
        "runs_writable": True,
        "interpreter": "/home/ubuntu/venv/bin/python",
        "working_directory": {"path": "/home/ubuntu", "is_directory": True, "dead_mount": ""},
        "script": {
            "path": "/home/ubuntu/train.py",
            "is_file": True,
            "readable": True,
            "dead_mount": "",
            "sha256": "aa" * 32,
        },
        "existing_run": "",
        "gpu_count": gpu_count,
        "gpus": gpus(gpu_count),
        "software": {
            "python": "3.11.9",
            "prefix": "/home/ubuntu/venv",
            "packages": {"torch": "2.7.1", "nccl": "2.26.2", "numpy": "2.2.6"},
            "cuda": "12.8",
            "hip": None,
            "archs": [],
            "error": "",
        },
        "programs": {},
        "environments": [],
        **({"links": links(gpu_count)} if gpu_count else {}),
        "health": health(name, gpu_count),
        "imports": imported(),
        "caches": caches(),
        "compilers": {"cc": "/usr/bin/gcc", "cxx": "/usr/bin/g++", "nvcc": "/usr/local/cuda/bin/nvcc"},
        "resumed_checkpoints": {},
        "services": {"models": {}, "buckets": []},
        "storage": {
            "mounts": [],
            "disks": {"runs": dict(disk), "work": dict(disk), "temporary": dict(disk)},
            "shm": {
                "path": "/dev/shm",
                "device": 2,
                "total_bytes": 8 * GIB,
                "free_bytes": 8 * GIB,
                "free_inodes": 10**6,
            },
        },
        "system": {
            "operating_system": "Ubuntu 22.04.5 LTS",
            "memory": {"total_bytes": 64 * GIB, "available_bytes": 60 * GIB},
            "rdma": [],
            "rdma_ports": rdma_ports() if gpu_count else [],
            "numa": {"gpus": [0] * gpu_count, "cpus": {"0": "0-31"}},
            "limits": {"nofile": 1048576, "memlock": -1, "from": "the run's unit"},
            "left_over": [],
        },
        "names": {
            "hostname": name,
            "own": {"gethostbyname": own_address, "getaddrinfo": [own_address], "getfqdn": name},
            "hosts_file": {peer: [address(peer)] for peer in peers},
            "resolver": {peer: [address(peer)] for peer in peers},
            "unanswered": [],
        },
        "connections": {
            "port": PORT,
            "fixed": fixed[name],
            "lifetime": 31,
            "peers": {peer: {**peer_record(fixed[name], fixed[peer]), "answered_by": peer} for peer in peers},
        },
        "clock": {"before": 1000.0, "start": 1000.2, "end": 1000.3, "after": 1000.5},
    }


def cluster(count: int = 4, gpu_count: int = 0) -> dict[str, Facts]:
    """Return the facts of several nodes without any problems."""
    everyone = names(count)
    return {name: node(name, everyone, gpu_count) for name in everyone}


def arguments(read: dict[str, Facts], **options: Any) -> dict[str, Any]:
    """Return arguments of launch_plan for the nodes of these facts."""
    return {
        **{name: option.get("default") for name, option in ARGUMENT_SPEC.items()},
        "nodes": [
            {"name": name, "address": address(name), "slots": item["gpu_count"] or 1} for name, item in read.items()
        ],
        "facts": {name: {"facts": item} for name, item in read.items()},
        "run_id": "run",
        "script": "train.py",
        "thresholds": {"disk_gib": Thresholds.disk_gib},
        **options,
    }


def findings(read: dict[str, Facts], names_needed: bool = True, **options: Any) -> list[Finding]:
    """Return all findings of the checks."""
    args = arguments(read, **options)
    return run_checks(args, read_job(args), names_needed)[1]


def spoilt(spoil: Spoil, count: int = 4, gpu_count: int = 0, **options: Any) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return the findings on a cluster after `spoil` has changed its facts: severity, ID, nodes."""
    facts = copy.deepcopy(cluster(count, gpu_count))
    spoil(facts)
    return [(finding.severity, finding.id, finding.nodes) for finding in findings(facts, **options)]


def nothing(_facts: dict[str, Facts]) -> None:
    """Do not change the cluster."""


def together(*spoils: Spoil) -> Spoil:
    """Return a function that applies all changes."""

    def spoil(facts: dict[str, Facts]) -> None:
        for item in spoils:
            item(facts)

    return spoil

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All checks, by the ids of their findings. Pure. Private to this collection."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from ansible_collections.muster.training.plugins.plugin_utils._checks import start_conditions
from ansible_collections.muster.training.plugins.plugin_utils._checks.code import check_code
from ansible_collections.muster.training.plugins.plugin_utils._checks.connections import check_connections
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import Case
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error
from ansible_collections.muster.training.plugins.plugin_utils._checks.gpus import check_gpus
from ansible_collections.muster.training.plugins.plugin_utils._checks.images import check_images
from ansible_collections.muster.training.plugins.plugin_utils._checks.launcher_support import check_launchers
from ansible_collections.muster.training.plugins.plugin_utils._checks.names import check_names
from ansible_collections.muster.training.plugins.plugin_utils._checks.network import check_network
from ansible_collections.muster.training.plugins.plugin_utils._checks.software import check_software
from ansible_collections.muster.training.plugins.plugin_utils._checks.system import check_system
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import launcher_of

# All findings, as described in the manual.
IDS = {
    "unreachable": "the node does not answer",
    "address-not-here": "node_address is on none of the node's interfaces",
    "busy": "another muster run is running on the node",
    "clock-skew": "the node's clock differs from the others'",
    "code-older": "the code on the node is older than on the controller, or different",
    "code-unread": "the code on the controller cannot be read",
    "deepspeed-batch": "the batch sizes of the DeepSpeed configuration do not fit the number of ranks",
    "deepspeed-config": "the DeepSpeed configuration is missing, differs, or has a removed setting",
    "deepspeed-precision": "a node's GPUs do not support the precision of the DeepSpeed configuration",
    "deepspeed-too-old": "DeepSpeed's launcher does not support --no_ssh",
    "disk-full": "not enough disk space for logs and checkpoints",
    "driver-mismatch": "the loaded NVIDIA driver and its library differ in version",
    "driver-not-loaded": "there is a GPU, but no driver is loaded",
    "driver-pending": "the driver on disk is not the one that is loaded",
    "driver-too-old": "the driver is too old for the CUDA that torch was built for",
    "duplicate-address": "two machines have the same node_address",
    "duplicate-hostname": "two nodes have the same hostname",
    "environment-left-over": "RANK, WORLD_SIZE, PET_* or similar variables are set on the node",
    "gpu-broken": "a GPU does not answer",
    "gpu-busy": "a process holds a GPU",
    "gpu-count": "fewer GPUs than processes",
    "gpu-idle": "more GPUs than processes",
    "gpu-memory-errors": "a GPU reports memory errors",
    "image-gpu-toolkit": "there are GPUs, but the container engine cannot pass them to a container",
    "image-memory-limit": "the container engine cannot enforce the memory limit that is set",
    "image-missing": "the job's image is missing, and a launch does not pull it",
    "image-no-room": "the job's image does not fit on the container engine's disk",
    "image-skew": "the job's image is not the same on all nodes",
    "image-unread": "the run's user cannot query the container engine",
    "interface-variable": "NCCL_SOCKET_IFNAME or a similar variable names an interface that does not exist",
    "internal-interface": "node_address is on a network inside the machine",
    "interpreter-broken": "the job's interpreter does not start",
    "interpreter-differs": "the job's interpreter is not at the same path on all nodes, which the launcher needs",
    "interpreter-missing": "the job's interpreter is missing",
    "launcher": "the launcher does not support a setting, such as unequal slots",
    "loopback-address": "node_address is a loopback address, but the nodes are several machines",
    "memlock-small": "the locked-memory limit of a run is low",
    "mount-differs": "a mount does not show the same on all nodes",
    "mount-missing": "a mount is missing",
    "mount-no-rename": "a run would write to a mount-s3 mount, where files cannot be renamed or changed",
    "mount-stale": "a mount does not answer",
    "mount-unreadable": "a mount cannot be read by the run's user",
    "mtu-black-hole": "full-size packets do not get through between two nodes",
    "mtu-mismatch": "the interfaces' MTUs differ",
    "name-differs": "a name resolves to a different address than on the other nodes",
    "name-elsewhere": "a name resolves to another address than node_address on all nodes",
    "name-unanswered": "the resolver did not answer in time",
    "name-unknown": "a node cannot resolve a name",
    "no-gpu": "the node shows no GPU, and the number of processes to start is not set",
    "no-route": "there is no route to a peer",
    "nofile-small": "the open-files limit of a run is low",
    "nvidia-smi-hangs": "nvidia-smi does not answer",
    "own-name-loopback": "the node's own name resolves to its loopback address",
    "package-missing": "the interpreter lacks the launcher's package",
    "peers-blocked": "no TCP connection opens between two nodes",
    "peers-unmet": "nodes were queried too far apart in time to test their connections",
    "port-blocked": "a port of the run is closed between two nodes",
    "port-in-use": "a port of the run is taken on the first node",
    "program-missing": "a program the launcher calls is missing",
    "rank-order": "torch numbers the nodes in another order than node_rank",
    "requirements-changed": "the project's requirements differ from what was installed",
    "run-id-taken": "a run with this name already exists",
    "runs-directory": "the run's user cannot write to the runs directory",
    "script-missing": "the job's script is missing",
    "script-not-executable": "the job's program is not executable",
    "several-interfaces": "two interfaces of the node are in the nodes' network",
    "shm-small": "/dev/shm is small",
    "skew-accelerate": "versions of accelerate differ",
    "skew-cuda": "torch was built for different CUDA versions",
    "skew-cudnn": "versions of cuDNN differ",
    "skew-deepspeed": "versions of DeepSpeed differ",
    "skew-driver": "versions of the NVIDIA driver differ",
    "skew-flash-attn": "versions of flash-attn differ",
    "skew-gpu": "models of GPUs differ",
    "skew-kernel": "kernels differ",
    "skew-lightning": "versions of lightning differ",
    "skew-nccl": "versions of NCCL differ",
    "skew-numpy": "versions of numpy differ",
    "skew-python": "versions of Python differ",
    "skew-script": "the script's content differs",
    "skew-torch": "versions of torch differ",
    "skew-transformers": "versions of transformers differ",
    "ssh-between-nodes": "nodes cannot log in to each other, which the launcher needs",
    "torch-missing": "the interpreter has no torch",
    "torch-no-kernels": "torch was not built for a node's GPUs",
    "torch-without-cuda": "there are GPUs, but torch was built for the CPU only",
    "working-directory-missing": "the job's working directory is missing",
    "wrong-interface": "the route to a peer uses another interface than node_address",
}


# A launch cannot be planned without these.
NEEDED = ("unreachable", "address-not-here", "interpreter-missing", "launcher", "run-id-taken")


def skip_problems(ids: Iterable[str]) -> str:
    """Which names in a list of checks to skip are unknown, with the closest known ones; "" if none."""
    problems = []
    for identity in ids:
        if identity in NEEDED:
            problems.append(f"the check {identity} cannot be skipped: {IDS[identity]}, so no run can be planned there")
        elif identity not in IDS:
            near = difflib.get_close_matches(identity, IDS, n=2, cutoff=0.6)
            hint = f": did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(IDS)}"
            problems.append(f"there is no check {ascii(identity)[:60]} to skip{hint}")
    return "\n".join(problems)


def check_all(case: Case, unreached: Mapping[str, str]) -> list[Finding]:
    """All findings; unreached: the reason by node name."""
    job, table, facts = case.job, case.table, case.facts
    return [
        *start_conditions.check_reached([node.name for node in table.nodes], unreached),
        *(
            error("launcher", [], problem, "a job this launcher can start", "change the setting named above")
            for problem in launcher_of(job).problems(job, table)
        ),
        *start_conditions.check_launch(job, table, facts, case.replace),
        *check_code(case),
        *check_network(case),
        *check_names(case),
        *check_connections(case),
        *check_software(case),
        *check_launchers(case),
        *check_images(case),
        *check_gpus(case),
        *check_system(case),
    ]

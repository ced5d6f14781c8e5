# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""All checks, and the ids of their findings."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ansible_collections.muster.training.plugins.plugin_utils._checks import start_conditions
from ansible_collections.muster.training.plugins.plugin_utils._checks.bad_nodes import check_bad_nodes
from ansible_collections.muster.training.plugins.plugin_utils._checks.checkpoints import check_checkpoints
from ansible_collections.muster.training.plugins.plugin_utils._checks.code import check_code
from ansible_collections.muster.training.plugins.plugin_utils._checks.connections import check_connections
from ansible_collections.muster.training.plugins.plugin_utils._checks.context import CheckContext
from ansible_collections.muster.training.plugins.plugin_utils._checks.debugger import check_debugger
from ansible_collections.muster.training.plugins.plugin_utils._checks.environments import (
    check_environments,
    facts_without_software,
    nodes_without_environment,
)
from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error
from ansible_collections.muster.training.plugins.plugin_utils._checks.gpu_vendors import check_gpu_vendors
from ansible_collections.muster.training.plugins.plugin_utils._checks.gpudirect import check_gpudirect
from ansible_collections.muster.training.plugins.plugin_utils._checks.gpus import check_gpus
from ansible_collections.muster.training.plugins.plugin_utils._checks.health import check_node_health
from ansible_collections.muster.training.plugins.plugin_utils._checks.images import check_images
from ansible_collections.muster.training.plugins.plugin_utils._checks.imports import check_imports
from ansible_collections.muster.training.plugins.plugin_utils._checks.interconnect import check_interconnect
from ansible_collections.muster.training.plugins.plugin_utils._checks.job_environment import check_job_environment
from ansible_collections.muster.training.plugins.plugin_utils._checks.job_inputs import check_job_inputs
from ansible_collections.muster.training.plugins.plugin_utils._checks.launcher_support import check_launchers
from ansible_collections.muster.training.plugins.plugin_utils._checks.names import check_names
from ansible_collections.muster.training.plugins.plugin_utils._checks.network import check_network
from ansible_collections.muster.training.plugins.plugin_utils._checks.software import check_software
from ansible_collections.muster.training.plugins.plugin_utils._checks.system import check_system
from ansible_collections.muster.training.plugins.plugin_utils._plan.plan import get_launcher
from ansible_collections.muster.training.plugins.plugin_utils._software.user_python import install_with_pip

# All findings, as described in the manual.
IDS = {
    "unreachable": "the node is not responding",
    "address-not-here": "node_address is not on any interface of the node",
    "amd-driver-not-loaded": "the amdgpu driver is not loaded",
    "amd-smi-hangs": "amd-smi is not responding",
    "amd-smi-missing": "the node has AMD GPUs, but not amd-smi",
    "bad-node": "the machine is recorded in bad-nodes.json",
    "bucket-credentials": "the job reads from a bucket, and the node has no AWS credentials",
    "bucket-unreachable": "the node cannot reach the endpoint of the job's bucket",
    "busy": "another muster run is active on the node",
    "cache-no-room": "a disk that holds a cache of the job's libraries is nearly full",
    "cache-unwritable": "the job's user cannot write to its home directory, its temporary directory or a cache",
    "checkpoint-missing": "the checkpoint in the job's arguments is missing or unreadable on a node",
    "checkpoint-no-room": "the checkpoints that the job keeps do not fit on the disk",
    "checkpoint-node-local": "the job's checkpoints would be lost with the node that saved them",
    "checkpoint-parts-missing": "a node lacks parts of the newest complete checkpoint",
    "checkpoint-shards": "a DeepSpeed checkpoint was written by a different number of ranks",
    "checkpoint-torn": "the newest checkpoint is not complete",
    "checkpoint-world-size": "the checkpoint was saved by a different number of ranks, and cannot be loaded",
    "clock-skew": "the node's clock differs from the other nodes' clocks",
    "code-older": "the code on the node is older than the code on the controller, or differs from it",
    "code-unread": "the code on the controller cannot be read",
    "compiler-missing": "the job compiles code, and a compiler or header is missing",
    "credentials-expire": "temporary AWS credentials have expired or soon will",
    "cuda-fails": "the job's torch cannot run a kernel on a GPU",
    "debug-rank": "the rank to debug does not exist, or would not wait",
    "debugpy-missing": "the rank to debug has no debugpy",
    "deepspeed-arguments": "the DeepSpeed configuration contradicts the job's arguments",
    "deepspeed-batch": "the batch sizes of the DeepSpeed configuration do not match the number of ranks",
    "deepspeed-config": "the DeepSpeed configuration is missing, differs, or has a removed setting",
    "deepspeed-precision": "a node's GPUs do not support the precision of the DeepSpeed configuration",
    "deepspeed-too-old": "DeepSpeed's launcher does not support --no_ssh",
    "disk-full": "not enough disk space for logs and checkpoints",
    "driver-mismatch": "the loaded NVIDIA driver and its library differ in version",
    "driver-not-loaded": "the node has a GPU, but no driver is loaded",
    "driver-pending": "the driver on disk is not the one that is loaded",
    "driver-too-old": "the driver is too old for the CUDA version that torch was built for",
    "duplicate-address": "two machines have the same node_address",
    "duplicate-hostname": "two nodes have the same hostname",
    "environment-left-over": "RANK, WORLD_SIZE, PET_* or similar variables are set on the node",
    "environment-missing": "the job's project has no Python environment on the node",
    "fabric-manager": "the NVSwitch fabric is not ready, so CUDA cannot initialize",
    "gpu-broken": "a GPU does not respond",
    "gpu-busy": "a process is using a GPU",
    "gpu-count": "fewer GPUs than processes",
    "gpu-idle": "more GPUs than processes",
    "gpu-memory-errors": "a GPU reports memory errors",
    "gpu-memory-history": "a GPU has had many uncorrected memory errors over its lifetime",
    "gpu-memory-rows": "a GPU has a broken memory row that it could not remap, or that it will remap at its next reset",
    "gpu-pcie-narrow": "a GPU is using fewer PCI Express lanes than it could",
    "gpu-peer-access": "the GPUs have no NVLink, and PCI bridges or the IOMMU redirect the traffic between them",
    "gpu-throttled": "a GPU is running at a reduced clock",
    "gpu-xid": "since boot, the driver has reported an error after which the GPU needs a reset or a repair",
    "gpudirect-acs": "PCI bridges redirect the traffic between GPUs and RDMA adapters",
    "gpudirect-rdma": "RDMA adapters cannot access GPU memory",
    "host-memory-small": "the node has less memory than DeepSpeed's offloading needs",
    "hub-unreachable": "the node cannot reach the Hugging Face Hub, and the job needs a model from it",
    "image-environment": "the machine's image includes a torch installation that the job does not use",
    "image-gpu-toolkit": "the node has GPUs, but the container engine cannot pass them to a container",
    "image-memory-limit": "the container engine cannot enforce the configured memory limit",
    "image-missing": "the job's image is missing, and a launch does not pull it",
    "image-no-room": "the job's image does not fit on the container engine's disk",
    "image-skew": "the job's image is not the same on all nodes",
    "image-unread": "the run's user cannot query the container engine",
    "import-fails": "a library that the job imports cannot be imported",
    "import-slow": "the job's libraries did not load within a minute",
    "interface-variable": "NCCL_SOCKET_IFNAME or a similar variable names an interface that does not exist",
    "internal-interface": "node_address is on a network inside the machine",
    "interpreter-broken": "the job's interpreter does not start",
    "interpreter-differs": "the job's interpreter is not at the same path on all nodes, which the launcher needs",
    "interpreter-missing": "the job's interpreter is missing",
    "job-interface": (
        "launch_environment names a network interface that does not exist or has no route to other nodes"
    ),
    "launcher": "the launcher does not support a setting, such as unequal slots",
    "loopback-address": "node_address is a loopback address, but the nodes are several machines",
    "memlock-small": "the locked-memory limit of a run is low",
    "memory-low": "the node has little memory available",
    "mount-differs": "a mount has different contents on different nodes",
    "mount-missing": "a mount is missing",
    "mount-no-rename": "a run would write to a mount-s3 mount, where files cannot be renamed or changed",
    "mount-stale": "a mount does not respond",
    "mount-unreadable": "a mount cannot be read by the run's user",
    "mtu-black-hole": "full-size packets are lost between two nodes",
    "mtu-mismatch": "the interfaces' MTUs differ",
    "mixed-gpus": "the nodes have GPUs from different vendors",
    "mixed-processors": "the nodes have different processor architectures",
    "name-differs": "a name resolves to a different address than on the other nodes",
    "name-elsewhere": "on all nodes, a name resolves to an address other than node_address",
    "name-unanswered": "the resolver did not respond in time",
    "name-unknown": "a node cannot resolve a name",
    "no-gpu": "the node has no visible GPU, and the number of processes to start is not set",
    "no-route": "there is no route to a peer",
    "nofile-small": "the open-file limit of a run is low",
    "nvidia-smi-hangs": "nvidia-smi is not responding",
    "nvlink-down": "a GPU has fewer active NVLinks than others",
    "nvlink-errors": "the NVLinks of a GPU have errors",
    "own-name-loopback": "the node's own name resolves to its loopback address",
    "package-missing": "the interpreter lacks the launcher's package",
    "peers-blocked": "no TCP connection can be opened between two nodes",
    "peers-unmet": "nodes were queried too far apart in time to test their connections",
    "port-blocked": "a port of the run is closed between two nodes",
    "port-in-use": "a port of the run is in use on the first node",
    "program-missing": "a program the launcher calls is missing",
    "rank-order": "torch numbers the nodes in an order that differs from node_rank",
    "rdma-errors": "an RDMA port has many errors",
    "rdma-gid": "RoCE v2 addresses are at different indexes, or not at the configured one",
    "rdma-ports": "the active RDMA ports differ between nodes",
    "rdma-rate": "the RDMA ports of a node are slower than those of the other nodes",
    "requirements-changed": "the project's requirements differ from what was installed",
    "restart-no-checkpoint": "the run may restart, and the location of its checkpoints is unknown",
    "run-id-taken": "a run with this name already exists",
    "runs-directory": "the run's user cannot write to the runs directory",
    "runs-hidden": "/proc hides the runs of other accounts",
    "script-missing": "the job's script is missing",
    "script-not-executable": "the job's program is not executable",
    "several-interfaces": "two interfaces of the node are in the nodes' network",
    "shm-small": "/dev/shm is small",
    "skew-accelerate": "versions of accelerate differ",
    "skew-amd-driver": "the amdgpu driver versions differ",
    "skew-cuda": "torch was built for different CUDA versions",
    "skew-cudnn": "versions of cuDNN differ",
    "skew-deepspeed": "versions of DeepSpeed differ",
    "skew-driver": "the NVIDIA driver versions differ",
    "skew-flash-attn": "the flash-attn versions differ",
    "skew-gpu": "models of GPUs differ",
    "skew-kernel": "kernels differ",
    "skew-lightning": "versions of lightning differ",
    "skew-nccl": "versions of NCCL differ",
    "skew-numpy": "versions of numpy differ",
    "skew-python": "versions of Python differ",
    "skew-rocm": "torch was built for different ROCm versions",
    "skew-script": "the script's content differs",
    "skew-torch": "versions of torch differ",
    "skew-transformers": "versions of transformers differ",
    "slurm-job": "Slurm is running a job on the node",
    "ssh-between-nodes": "nodes cannot log in to each other, which the launcher needs",
    "torch-missing": "the interpreter has no torch",
    "torch-no-kernels": "torch was not built for a node's GPUs",
    "torch-other-vendor": "torch was built for another vendor's GPUs, or for the CPU although the GPUs are AMD's",
    "torch-without-cuda": "the node has GPUs, but torch was built for the CPU only",
    "wandb-no-key": "the job logs to W&B, and the first node has no key",
    "wandb-unreachable": "the first node cannot reach W&B, to which the job logs",
    "working-directory-missing": "the job's working directory is missing",
    "wrong-interface": "the route to a peer uses a different interface from node_address",
}


# A launch cannot be planned without these facts.
REQUIRED = ("unreachable", "address-not-here", "interpreter-missing", "launcher", "run-id-taken")


def find_skip_errors(ids: Iterable[str]) -> str:
    """Return one line for each check that cannot be skipped, with the most similar valid ids, or an empty string."""
    errors = []
    for check_id in ids:
        if check_id in REQUIRED:
            errors.append(f"the check {check_id} cannot be skipped: {IDS[check_id]}, so no run can be planned there")
        elif check_id not in IDS:
            close_ids = difflib.get_close_matches(check_id, IDS, n=2, cutoff=0.6)
            hint = f"; did you mean {' or '.join(close_ids)}?" if close_ids else f"; valid checks: {', '.join(IDS)}"
            errors.append(f"cannot skip {ascii(check_id)[:60]}: unknown check{hint}")
    return "\n".join(errors)


def check_all(context: CheckContext, unreached: Mapping[str, str]) -> list[Finding]:
    """Return all findings; unreached: the reason for each unreached node, by name."""
    job, table, facts = context.job, context.table, context.facts
    environments = check_environments(context)
    lacking = set(nodes_without_environment(context))
    checked_facts = {name: facts_without_software(item) if name in lacking else item for name, item in facts.items()}
    context = replace(context, facts=checked_facts)
    findings = [
        *start_conditions.check_reachable([node.name for node in table.nodes], unreached),
        *(
            error(
                "launcher",
                [],
                problem=problem,
                requirement="a job this launcher can start",
                remedy="change the setting named above",
            )
            for problem in get_launcher(job).problems(job, table)
        ),
        *start_conditions.check_launch(job, table, facts, context.replace, context.code),
        *check_code(context),
        *check_network(context),
        *check_names(context),
        *check_connections(context),
        *environments,
        *check_software(context),
        *check_debugger(context),
        *check_launchers(context),
        *check_imports(context),
        *check_job_inputs(context),
        *check_job_environment(context),
        *check_images(context),
        *check_gpus(context),
        *check_gpu_vendors(context),
        *check_interconnect(context),
        *check_gpudirect(context),
        *check_system(context),
        *check_checkpoints(context),
        *check_node_health(context),
        *check_bad_nodes(context, context.bad_nodes),
    ]
    return [replace(finding, remedy=install_with_pip(finding.remedy, context.user_python)) for finding in findings]

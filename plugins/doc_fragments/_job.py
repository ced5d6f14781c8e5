# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options of modules that take a job."""

from __future__ import annotations


class ModuleDocFragment:
    """The job to check and plan, and the container that it runs in."""

    DOCUMENTATION = r"""
options:
  nnodes:
    description:
      - Number of O(nodes) to use, starting with the first. If empty or omitted, all are used.
      - A range such as V(2:4) makes the run elastic. It starts with the upper number of nodes and continues while at
        least the lower number remain. Requires O(rdzv_backend=c10d), which is then the default. Quote a range, since
        YAML reads C(2:4) without quotes as the number 124.
    type: raw
  launcher:
    description:
      - Launcher that starts the processes.
      - V(torchrun) starts one process per slot with torch's own launcher.
      - V(env) starts one process per node, which finds C(MASTER_ADDR), C(MASTER_PORT), C(NODE_RANK) and C(WORLD_SIZE)
        (processes, not nodes) in its environment. Lightning and scripts that start their own processes expect this.
        Needs the same number of slots on each node.
      - V(deepspeed) starts one process per slot with DeepSpeed's launcher, one launcher on each node. See
        O(deepspeed_launcher).
      - V(mpirun) starts one process per slot with Open MPI, from the first node. Processes find the variables that
        torch reads in addition to those that MPI sets. Needs IPv4 addresses. The nodes need not be able to log in to
        each other.
      - V(accelerate) starts one process per slot with C(accelerate launch) on each node, using a configuration file
        generated from the nodes. Needs the same number of slots on each node. See O(accelerate_config).
    type: str
    choices: [torchrun, env, deepspeed, mpirun, accelerate]
    default: torchrun
  deepspeed_launcher:
    description:
      - For O(launcher=deepspeed), the program that DeepSpeed on the first node uses to start the other nodes. If empty,
        DeepSpeed is started on each node instead, without such a program.
      - The supervisors relay the commands. SSH logins between nodes are neither needed nor set up.
    type: str
    choices: ["", pdsh, openmpi]
    default: ""
  environment:
    description:
      - Environment of the job. A plan contains only the names. Pass the values to
        O(muster.training.training_run#module:environment).
      - Variables that the launcher sets from the rank table, such as C(RANK) and C(MASTER_ADDR), are rejected.
      - Values that cannot hold a secret, such as that of C(NCCL_SOCKET_IFNAME), are compared with the nodes.
      - Numbers and dates are passed exactly as written, as in O(args).
    type: dict
    default: {}
  accelerate_config:
    description:
      - For O(launcher=accelerate), keys of Accelerate's configuration file in addition to those derived from the nodes,
        such as C(mixed_precision), C(distributed_type) or C(fsdp_config).
    type: dict
    default: {}
  no_python:
    description:
      - Execute the script directly instead of with O(interpreter), for example because it is a compiled program.
    type: bool
    default: false
  image:
    description:
      - Container image in which the launcher and the ranks of each node run, in the foreground of the run's unit. The
        container ends with the run. O(interpreter) then refers to the image; of several separated by colons, the last
        is used. If empty, the job runs without a container.
      - The run directory, O(working_directory) and the directory of O(script) are mounted at the same paths, and the
        container shares the node's network. GPUs are available if the node has any.
    type: str
    default: ""
  container_engine:
    description: Container engine. The run's user must be allowed to use it.
    type: str
    choices: [docker, podman]
    default: docker
  gpus:
    description:
      - GPUs of each node that the job uses, by the numbers that C(nvidia-smi) shows, as a list or as V(0,1).
      - The job sees only these. One process is started for each, unless O(nproc_per_node) is set. Runs with different
        GPUs may share a node. If empty, the job uses all GPUs.
    type: raw
    default: []
  rdzv_backend:
    description:
      - How the nodes of O(launcher=torchrun) find each other.
      - V(static) numbers the ranks in the order of O(nodes).
      - V(c10d) can restart ranks on all nodes together and survive the loss of nodes. It numbers the nodes by their
        addresses, sorted as text.
      - If omitted, defaults to V(static), or to V(c10d) if O(nnodes) is a range.
    type: str
    choices: [static, c10d]
  script:
    description:
      - Path of the script on the nodes. A relative path is resolved against O(working_directory). A job has either a
        script or a module.
    type: str
    default: ""
  args:
    description:
      - Arguments of the script or module. A list with one argument per item, or a string, which is split into words as
        a POSIX shell does. Nothing is expanded.
      - Numbers and dates are passed exactly as written, C(007) as C(007). The module fails and asks for quotes if their
        original spelling is unknown, and for values such as C(yes) and C(null).
    type: raw
    default: []
  interpreter:
    description: Python interpreter of the job, as a path or a name, the same on each node.
    type: str
    default: python3
  working_directory:
    description:
      - Directory in which the job starts, the same on each node. If empty, defaults to the user's home directory.
    type: str
    default: ""
  master_port:
    description: TCP port of the rendezvous on the first node (C(MASTER_PORT)), from 1024 to 65535.
    type: int
    default: 29500
  lifeline_port:
    description: TCP port on the first node for the lifeline that connects the supervisors, from 1024 to 65535.
    type: int
    default: 29499
"""

    CONTAINER_OPTIONS = r"""
options:
  container_options:
    description: Further arguments for C(docker run) or C(podman run).
    type: list
    elements: str
    default: []
"""

    CONTAINER = r"""
options:
  container_mounts:
    description: Further directories to mount into the container, such as C(/data:/data:ro).
    type: list
    elements: str
    default: []
  container_ulimits:
    description:
      - Resource limits inside the container. Use an empty list if the node cannot raise limits because it is a
        container itself.
    type: list
    elements: str
    default: [memlock=-1, stack=67108864]
  container_shm_size:
    description: Size of the container's private C(/dev/shm), such as V(16g). If empty, the node's is shared.
    type: str
    default: ""
"""

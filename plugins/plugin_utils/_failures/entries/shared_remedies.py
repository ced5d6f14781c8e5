# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remedies that several catalogue entries share."""

from __future__ import annotations

LESS_GPU_MEMORY = (
    "use a smaller batch per rank with more gradient accumulation steps; use gradient checkpointing; or use ZeRO "
    "stage 2 or 3, or FSDP, which shard the optimizer across ranks. If a lot of memory is reserved but "
    'unallocated, use -e \'{"launch_environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}\''
)
GPUS_IN_USE = "To see whether other processes are using the GPUs, run ansible-playbook preflight.yml, which names them"
LESS_HOST_MEMORY = (
    "use fewer DataLoader workers (each one copies what the dataset keeps in Python lists), a streaming dataset, "
    "fewer ranks per node (-e nproc_per_node=N), or machines with more memory, or disable CPU offload"
)
MORE_SHARED_MEMORY = (
    "run ansible-playbook site.yml --tags base_packages to set /dev/shm to half of the memory "
    "(base_packages_shm_size); a run in a container uses the node's /dev/shm, or its own with -e "
    "launch_container_shm_size=16g; or use fewer workers"
)
SAME_SOFTWARE = (
    "ansible-playbook preflight.yml names the nodes whose versions differ, and ansible-playbook site.yml --tags "
)
CPU_ONLY_TORCH = (
    "on nodes without GPUs, {change}. On nodes with GPUs, run ansible-playbook site.yml --tags "
    "python_env,pytorch -e pytorch_cuda=auto to install the CUDA build"
)
CHECK_CALLS = (
    'launch with -e \'{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}\' to make torch name the first '
    "call that differs"
)
MPI_NETWORK = (
    "set node_address in the inventory to the nodes' addresses in the right network, which muster makes mpirun use; "
    "for an mpirun of your own, set OMPI_MCA_btl_tcp_if_include and OMPI_MCA_oob_tcp_if_include to the network's "
    "range, such as 10.0.0.0/24"
)
OPEN_NETWORK = (
    "run ansible-playbook preflight.yml, which tests each connection in both directions and names what is "
    "blocked; all TCP ports must be open between the nodes (security group, firewall)"
)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of AMD GPUs, involving HIP, the driver, or RCCL, which prints the same messages as NCCL."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "AMD: ROCm and RCCL"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="hip-no-gpu",
        title="HIP shows no GPU",
        example="RuntimeError: No HIP GPUs are available",
        texts=(r"No HIP GPUs are available", r"Unable to open /dev/kfd read-write"),
        cause=(
            "The job's user cannot open /dev/kfd and /dev/dri, which belong to the groups render and video; the "
            "amdgpu driver is not loaded; or HIP_VISIBLE_DEVICES names GPUs that do not exist."
        ),
        remedy=(
            "run sudo usermod -aG render,video USER on the node, then log in again; to see the GPUs of each node, "
            "run ansible-playbook ping.yml. Remove HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES from the script and "
            "launch_environment"
        ),
        source="kyuz0/amd-strix-halo-vllm-toolboxes#6",
        recoverable=True,
    ),
    CatalogueEntry(
        id="hip-no-kernels",
        title="torch for ROCm has no kernels for the GPU",
        example="RuntimeError: HIP error: invalid device function",
        texts=(
            r"HIP error: invalid device function",
            r"HIP error: no kernel image is available for execution on the device",
        ),
        cause=(
            "This build of torch, or a compiled package, has no kernels for the GPU's architecture (gfx942, gfx90a, "
            "...), or HSA_OVERRIDE_GFX_VERSION names a different one."
        ),
        remedy=(
            "remove HSA_OVERRIDE_GFX_VERSION from the script and launch_environment, and run ansible-playbook "
            "site.yml --tags python_env,pytorch -e pytorch_version=auto -e pytorch_cuda=auto to install a matching "
            "build. Rebuild extensions with PYTORCH_ROCM_ARCH set to the GPU's architecture, which amd-smi "
            "static --asic shows"
        ),
        source="etched-ai/open-oasis#27",
    ),
    CatalogueEntry(
        id="hip-memory-fault",
        title="A kernel accessed invalid GPU memory",
        example="Memory access fault by GPU node-2 (Agent handle: 0x56468ab3bb50) on address 0x7fe55fb03000. "
        "Reason: Page "
        "not present or supervisor privilege.",
        texts=(r"Memory access fault by GPU node-\d{1,4} ",),
        cause=(
            "A kernel read or wrote an invalid address: an index is out of range, a tensor was freed or is on "
            "another GPU, a package was compiled for a different ROCm version, or the driver has a bug."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"AMD_SERIALIZE_KERNEL": "3"}}\' to see the line that '
            "launched the kernel; check the indices of embeddings and gathers, and that compiled packages were "
            "built for torch's ROCm version. If it happens on only one node, look at the output of sudo dmesg "
            "there and reboot that node"
        ),
        source="ROCm/pytorch#797",
    ),
    CatalogueEntry(
        id="rccl-no-peer-access",
        title="RCCL cannot copy directly between two GPUs",
        example="/src/rccl/build/hipify/src/transport/p2p.cc:237 NCCL WARN Cuda failure 'invalid argument'",
        texts=(
            r"hipify/src/transport/p2p\.cc:\d{1,5} NCCL WARN (?:Cuda|HIP) failure",
            r"NCCL WARN hipIpc\w{1,40} failed",
        ),
        cause="Direct copies between the GPUs of a node (P2P) fail: the IOMMU translates them, the machine's "
        "PCI bridges "
        "redirect them (ACS), or the cards do not support them.",
        remedy=(
            "boot the node with iommu=pt on the kernel command line, and disable ACS on the PCI bridges. To "
            'disable direct copies instead, which is slower, use -e \'{"launch_environment": '
            '{"NCCL_P2P_DISABLE": "1"}}\''
        ),
        source="ROCm/rccl#1454",
        refines=("nccl-cuda-error", "nccl-system-error", "nccl-internal-error"),
    ),
    CatalogueEntry(
        id="rccl-kernel-settings",
        title="RCCL warns about kernel settings",
        example='NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
        texts=(
            r'NCCL WARN Missing "iommu=pt" from kernel command line',
            r"NCCL WARN NUMA auto balancing enabled",
        ),
        cause=(
            "RCCL prints this at startup on many machines that work. Without iommu=pt, copies between GPUs can hang "
            "on some machines; automatic NUMA balancing slows the copies down."
        ),
        remedy=(
            "if nothing else explains the failure, add iommu=pt to GRUB_CMDLINE_LINUX in /etc/default/grub, run "
            "sudo update-grub and reboot; also run sudo sysctl kernel.numa_balancing=0"
        ),
        source="ROCm/rocm-systems#7916",
        weak=True,
        recoverable=True,
    ),
)

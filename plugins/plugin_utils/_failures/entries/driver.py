# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of GPUs, their drivers and related software."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "GPUs and drivers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="driver-too-old-for-image",
        title="The container's CUDA version is newer than the node's driver supports",
        example="Error 804: forward compatibility was attempted on non supported HW",
        texts=(
            r"forward compatibility was attempted on non supported HW",
            r"cudaErrorCompatNotSupportedOnDevice\b",
        ),
        cause=(
            "If no container is used, the driver was updated, often automatically, and the node has not been "
            "rebooted since, so the driver's libraries are newer than the loaded kernel module. If a container "
            "is used, the image has a newer CUDA version than the driver supports, and forward compatibility "
            "works only on data center GPUs."
        ),
        remedy=(
            "compare `cat /proc/driver/nvidia/version` with `modinfo -F version nvidia` on that node; if they "
            "differ, reboot it. If a container is used, update the driver on the node (ansible-playbook site.yml "
            "--tags nvidia_driver -e nvidia_driver_cuda=12.4), or use an image with the current driver's CUDA "
            "version"
        ),
        source="oobabooga/textgen#4407",
    ),
    CatalogueEntry(
        id="cuda-unknown-error",
        title="CUDA fails to initialize: unknown error",
        example="CUDA unknown error - this may be due to an incorrectly set up environment",
        texts=(
            r"CUDA unknown error - this may be due to",
            r"cuda runtime error \((?:999|30)\) ?: unknown error",
            r"error=(?:30|999) : unknown error",
            r"(?:CUDA error|CUDA initialization): unknown error",
            r"(?:CUDA_ERROR_UNKNOWN|cudaErrorUnknown)\b",
        ),
        cause=(
            "The NVIDIA driver is in a bad state: it was installed or updated without a reboot, or its module "
            "nvidia_uvm is not loaded or hangs, for example after the machine was suspended."
        ),
        remedy=(
            "run sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm on that node; if that does not help, reboot "
            "the node. Run ansible-playbook site.yml --tags nvidia_driver to repair the installation"
        ),
        source="pytorch/pytorch#159954",
        recoverable=True,
        lasting=True,
    ),
    CatalogueEntry(
        id="driver-too-old",
        title="The NVIDIA driver is too old for torch's CUDA version",
        example="The NVIDIA driver on your system is too old (found version ...)",
        texts=(
            r"NVIDIA driver on your system is too old",
            r"CUDA driver version is insufficient for CUDA runtime version",
        ),
        cause="torch was built for a newer CUDA version than the node's driver supports.",
        remedy=(
            "run ansible-playbook site.yml --tags nvidia_driver -e nvidia_driver_cuda=12.4 to install a newer "
            "driver; or run ansible-playbook site.yml --tags python_env,pytorch -e pytorch_cuda=auto to install "
            "a torch build that matches the current driver"
        ),
        source="lllyasviel/Fooocus#1313",
        recoverable=True,
        lasting=True,
    ),
    CatalogueEntry(
        id="driver-library-mismatch",
        title="The loaded driver and the installed driver libraries differ",
        example="Failed to initialize NVML: Driver/library version mismatch",
        texts=(r"Driver/library version mismatch",),
        cause="The NVIDIA driver was upgraded while the old version was loaded, usually by unattended-upgrades.",
        remedy=(
            "run ansible-playbook site.yml --tags nvidia_driver, which loads the new driver or names the node that "
            "needs a reboot, and prevents further unattended driver upgrades"
        ),
        source="mozilla/translations#1167",
        recoverable=True,
        lasting=True,
    ),
    CatalogueEntry(
        id="no-gpu",
        title="CUDA shows no GPU",
        example="RuntimeError: No CUDA GPUs are available",
        texts=(r"No CUDA GPUs are available", r"Found no NVIDIA driver on your system"),
        cause="The node has no GPU, its driver is not loaded, or CUDA_VISIBLE_DEVICES names GPUs that do not exist.",
        remedy=(
            "run ansible-playbook ping.yml to see the GPUs of each node; remove CUDA_VISIBLE_DEVICES from the script "
            "and launch_environment, and select the GPU by local_rank instead"
        ),
        source="jiaw-z/CoR-GS#23",
        recoverable=True,
    ),
    CatalogueEntry(
        id="invalid-device-ordinal",
        title="A rank requests a GPU that the node does not have",
        example="RuntimeError: CUDA error: invalid device ordinal",
        texts=(
            r"invalid device ordinal",
            r"You requested (?:gpu|GPUs): \[[\d, ]{1,60}\]\s{1,40}But your machine only has",
        ),
        cause=(
            "The process sees fewer GPUs than the script's device number requires: more processes than GPUs were "
            "started on a node, CUDA_VISIBLE_DEVICES or the scheduler lets each process see only its own GPU, or the "
            "script selects its GPU by the global rank."
        ),
        remedy=(
            "print torch.cuda.device_count() and CUDA_VISIBLE_DEVICES in each rank. If all GPUs are visible, "
            "call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) instead of using RANK, and leave "
            "nproc_per_node out; if each process sees one GPU, use device 0 in all of them"
        ),
        source="cfzd/Ultra-Fast-Lane-Detection#193",
    ),
    CatalogueEntry(
        id="fabric-manager",
        title="The machine's NVSwitch is not ready",
        example="Error 802: system not yet initialized",
        texts=(
            r"Error 802: system not yet initialized",
            r"Cuda failure (?:802 )?'system not yet initialized'",
            r"error \(802\)",
            r"cudaErrorSystemNotReady\b",
        ),
        cause=(
            "On GPUs connected by NVSwitch, CUDA works only if nvidia-fabricmanager is running, in the same "
            "version as the driver. The service is not installed, is not running, or has a different version."
        ),
        remedy=(
            "run systemctl status nvidia-fabricmanager on that node; install the version that matches the driver and "
            "reboot"
        ),
        source="microsoft/lisa#2823",
    ),
    CatalogueEntry(
        id="gpu-memory-error",
        title="A GPU's memory is broken",
        example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        texts=(
            r"uncorrectable ECC error",
            r"uncorrectable NVLink error",
            r"(?:cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE)\b",
        ),
        cause="A GPU reported an uncorrectable memory error. This is a hardware fault.",
        remedy=(
            "reboot the node so that the GPU can remap the faulty cells; if the error returns, leave the node out "
            "(-e nodes=...) and have the GPU replaced"
        ),
        source="huggingface/accelerate#1192",
    ),
    CatalogueEntry(
        id="gpu-lost",
        title="A GPU no longer responds",
        example="NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus",
        texts=(
            r"GPU has fallen off the bus",
            r"Unable to determine the device handle for GPU",
            r"NVRM: Xid \(PCI:[^\n)]{1,40}\): (?:48|62|64|74|79|95|119|120)\b",
        ),
        cause="A GPU failed because of a problem with its memory, NVLink, power, heat, the slot, or the GPU itself.",
        remedy="reboot the node; if the error returns, leave it out (-e nodes=...) and have the GPU replaced",
        source="NVIDIA/NVSentinel#155",
        kind="confirmation",
    ),
    CatalogueEntry(
        id="device-side-assert",
        title="An index is out of range on the GPU",
        example="CUDA error: device-side assert triggered",
        texts=(r"device-side assert triggered", r"Assertion `t >= 0 && t < n_classes` failed"),
        cause="A label, class or token index is negative or too large for its layer.",
        remedy=(
            "compare the number of classes and the size of the embedding with the data; launch with -e "
            '\'{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}\' to see which line fails'
        ),
        source="layumi/Person_reID_baseline_pytorch#372",
    ),
    CatalogueEntry(
        id="illegal-memory-access",
        title="A kernel accessed invalid memory",
        example="CUDA error: an illegal memory access was encountered",
        texts=(r"an illegal memory access was encountered", r"CUDA error: misaligned address"),
        cause=(
            "There is a bug in a CUDA kernel, usually one from an extension or from torch.compile's output, or "
            "one called with unusual sizes; rarely, the GPU itself is at fault."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}\' to see which line fails; '
            "then try without the extension, or with a different version of it. If it always happens on the same "
            "node, run ansible-playbook preflight.yml to check its GPUs for memory errors"
        ),
        source="vllm-project/vllm#4108",
    ),
    CatalogueEntry(
        id="cuda-initialization-error",
        title="CUDA cannot be used in this process",
        example="RuntimeError: CUDA error: initialization error",
        texts=(r"cuda runtime error \(3\) ?: initialization error", r"CUDA error: initialization error"),
        cause=(
            "Most likely this process was forked by another that had already used CUDA: it is a DataLoader worker, "
            "or a rank that the script starts itself. Otherwise, the driver is failing on that node."
        ),
        remedy=(
            "do not use CUDA before the processes are started (even torch.cuda.is_available() counts as use), "
            "keep tensors in the dataset on the CPU, or start the processes with spawn: "
            "mp.set_start_method('spawn'), DataLoader(multiprocessing_context='spawn'). If the error remains, run "
            "ansible-playbook preflight.yml to check the driver"
        ),
        source="pytorch/pytorch#17357",
        weak=True,
    ),
    CatalogueEntry(
        id="cuda-after-fork",
        title="CUDA is used in a forked process",
        example="RuntimeError: Cannot re-initialize CUDA in forked subprocess",
        texts=(r"Cannot re-initialize CUDA in forked subprocess",),
        cause=(
            "A worker, usually a DataLoader worker, is using CUDA, but its parent had already used CUDA before the "
            "fork."
        ),
        remedy="keep tensors in the dataset and in collate_fn on the CPU, or use "
        "DataLoader(multiprocessing_context='spawn')",
        source="facebookresearch/pycls#183",
    ),
    CatalogueEntry(
        id="driver-combination",
        title="The CUDA library belongs to a different driver version",
        example="Error 803: system has unsupported display driver / cuda driver combination",
        texts=(r"system has unsupported display driver / cuda driver combination",),
        cause=(
            "The libcuda library that the job loads does not belong to the loaded driver: the driver was "
            "upgraded without a reboot, or LD_LIBRARY_PATH or the image provides a different libcuda."
        ),
        remedy=(
            "reboot the node, or run ansible-playbook site.yml --tags nvidia_driver to load the installed "
            "driver. If the error remains, remove directories that contain libcuda.so (cuda/compat) from "
            "LD_LIBRARY_PATH in launch_environment and from the image"
        ),
        source="CompVis/stable-diffusion#439",
        recoverable=True,
    ),
    CatalogueEntry(
        id="launch-failure",
        title="A kernel failed on the GPU",
        example="RuntimeError: CUDA error: unspecified launch failure",
        texts=(r"unspecified launch failure",),
        cause=(
            "A kernel crashed. Either an extension or torch.compile's output accessed invalid memory, or, if this "
            "happens at random times and always on the same node, the GPU itself is failing."
        ),
        remedy=(
            "run sudo dmesg on the node to see the GPU's own message (NVRM: Xid), and ansible-playbook "
            "preflight.yml to check the GPUs. If it always happens on the same node, reboot that node or leave "
            'it out (-e nodes=...); otherwise, launch with -e \'{"launch_environment": {"CUDA_LAUNCH_BLOCKING": '
            '"1"}}\' to see which line fails, and try a different version of the extension, which may help'
        ),
        source="opendatalab/MinerU#426",
        weak=True,
    ),
    CatalogueEntry(
        id="gpu-exclusive",
        title="A GPU accepts only one process",
        example="RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
        texts=(r"all CUDA-capable devices are busy or unavailable",),
        cause=(
            "The GPU is in exclusive mode and another process holds it, because a leftover process is still running "
            "or several ranks use GPU 0. Less often, the GPU or its driver is in a bad state."
        ),
        remedy=(
            "run ansible-playbook preflight.yml to find the processes that hold GPUs; in the script, call "
            "torch.cuda.set_device(local_rank) before any other CUDA call. Run sudo nvidia-smi -c DEFAULT on the "
            "node to end exclusive mode"
        ),
        source="huggingface/pytorch-image-models#1033",
    ),
    CatalogueEntry(
        id="cublas-failed",
        title="A matrix multiplication failed on the GPU",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`",
        texts=(r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE|NOT_SUPPORTED|ARCH_MISMATCH)\b",),
        cause=(
            "This is usually caused by an earlier error: an index outside an embedding, a label outside the "
            "classes, or full GPU memory. Otherwise, the loaded cuBLAS is not the one that comes with torch, or "
            "does not support this GPU."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}\' to see the line that failed; '
            "remove LD_LIBRARY_PATH from launch_environment, so that torch loads its own cuBLAS"
        ),
        source="isl-org/DPT#4",
        weak=True,
        general=True,
    ),
    CatalogueEntry(
        id="lightning-no-gpu",
        title="Lightning finds no GPU",
        example="MisconfigurationException: No supported gpu backend found!",
        texts=(r"No supported gpu backend found",),
        cause=(
            "accelerator='gpu' is requested, but torch.cuda.is_available() is false in this process: the driver "
            "is not loaded, torch is a CPU-only build or too new for the driver, or the scheduler gave the job "
            "no GPU."
        ),
        remedy=(
            "run `python -c 'import torch; print(torch.version.cuda, torch.cuda.is_available())'` with the job's "
            "Python on that node to see which of these is the case. Run ansible-playbook ping.yml to see the "
            "GPUs, and ansible-playbook site.yml --tags nvidia_driver,python_env,pytorch -e pytorch_cuda=auto to "
            "install a matching driver and torch build"
        ),
        source="microsoft/mattergen#217",
    ),
    CatalogueEntry(
        id="nccl-without-gpu",
        title="The NCCL backend was requested on a node without a GPU",
        example="ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        texts=(r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",),
        cause="The script requests the nccl backend, but torch sees no GPU in this process: CUDA_VISIBLE_DEVICES is "
        "empty, the driver is not loaded or too old for torch, the container was started without GPUs, or the node has "
        "none.",
        remedy=(
            "run `python -c 'import torch; print(torch.cuda.device_count())'` with the job's Python on that node to "
            "see how many GPUs torch finds; run ansible-playbook ping.yml to see the GPUs of each node, and "
            "ansible-playbook site.yml --tags nvidia_driver to repair the driver. On nodes without GPUs, use "
            'init_process_group("gloo")'
        ),
        source="OFA-Sys/OFA#304",
    ),
    CatalogueEntry(
        id="allocator-nvml",
        title="torch's memory allocator cannot read the GPU's state",
        example='RuntimeError: NVML_SUCCESS == r INTERNAL ASSERT FAILED at "../c10/cuda/CUDACachingAllocator.cpp":830',
        texts=(r'NVML_SUCCESS == [^\n]{1,200}INTERNAL ASSERT FAILED at "[^"\n]{1,200}CUDACachingAllocator',),
        cause=(
            "The GPU ran out of memory, and torch could not read from the driver how much is free. This happens "
            "on a GPU slice (MIG) or virtual GPU, when CUDA_VISIBLE_DEVICES names a GPU other than the job's, or "
            "when the driver's library and the loaded driver differ."
        ),
        remedy=(
            "use less memory (a smaller batch per rank), as you would for a CUDA out of memory error. On MIG, "
            "leave CUDA_VISIBLE_DEVICES as the scheduler set it; if nvidia-smi fails on the node, reboot the node"
        ),
        source="pytorch/pytorch#121899",
        weak=True,
    ),
    CatalogueEntry(
        id="gpu-count-changed",
        title="torch and CUDA count different GPUs",
        example="RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "
        '"../aten/src/ATen/cuda/CUDAContext.cpp":50',
        texts=(r"device >= 0 && device < num_gpus INTERNAL ASSERT FAILED",),
        cause=(
            "The GPUs that torch counted through the driver's library (NVML) are not the ones that CUDA exposes to "
            "the process: CUDA_VISIBLE_DEVICES was changed after torch had counted them, it names GPUs that the "
            "scheduler did not assign, or the GPUs are partitioned (MIG)."
        ),
        remedy=(
            "set CUDA_VISIBLE_DEVICES before Python starts, or better, leave it as the launcher or scheduler set it "
            "and select the GPU by LOCAL_RANK; remove lines that set os.environ['CUDA_VISIBLE_DEVICES'] from the "
            "script; for MIG, specify the slices by their UUID (nvidia-smi -L)"
        ),
        source="pytorch/pytorch#110000",
    ),
    CatalogueEntry(
        id="device-id-invalid",
        title="The script specifies a GPU that is not visible",
        example="AssertionError: Invalid device id",
        texts=(r"AssertionError: Invalid device id",),
        cause=(
            "The script's list of GPUs (device_ids, --gpus, n_gpu) includes GPUs that this process does not see: the "
            "node has fewer, or CUDA_VISIBLE_DEVICES hides some. The visible GPUs are numbered from 0."
        ),
        remedy=(
            "set the list to range(torch.cuda.device_count()); with one process per GPU, use "
            "DistributedDataParallel(model, device_ids=[local_rank]) instead of DataParallel"
        ),
        source="torralba-lab/im2recipe-Pytorch#11",
    ),
)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures caused by a lack of GPU memory."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    GPUS_IN_USE,
    LESS_GPU_MEMORY,
)

TOPIC = "GPU memory"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="checkpoint-loaded-on-gpu",
        title="A checkpoint is loaded into GPU memory",
        example='File ".../torch/serialization.py", line 187, in _cuda_deserialize',
        texts=(r'torch/serialization\.py", line \d{1,6}, in (?:_cuda_deserialize|default_restore_location)',),
        cause=(
            "A GPU ran out of memory in torch.load. Without map_location, torch.load loads the whole checkpoint onto "
            "the GPU from which it was saved, usually GPU 0, in addition to the model and its optimizer, and does so "
            "for each rank on the node."
        ),
        remedy=(
            'use torch.load(path, map_location="cpu"), then call load_state_dict; delete the loaded dictionary '
            "afterwards. If host memory is also short, add mmap=True"
        ),
        source="nkolot/SPIN#76",
        recoverable=True,
        refines=("cuda-out-of-memory", "cuda-driver-out-of-memory"),
    ),
    CatalogueEntry(
        id="cuda-oom-absurd",
        title="A rank received a corrupt size",
        example="CUDA out of memory. Tried to allocate more than 1EB memory",
        texts=(
            r"Tried to allocate more than 1EB memory",
            r"Trying to create tensor with negative dimension -\d{13,20}\b",
        ),
        cause=(
            "A rank received a corrupt size from another rank, because the ranks are in different collectives, for "
            "example after a timeout, or because only some of them resume from a checkpoint or take a branch. Memory "
            "is not the problem."
        ),
        remedy=(
            "look in the logs of the other ranks for earlier problems, especially a timeout (ansible-playbook "
            "logs.yml -e fetch=true). Make the same calls on every rank; on all ranks, use the same output "
            "directory, without random names, and resume from the same checkpoint"
        ),
        source="pytorch/pytorch#145369",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-out-of-memory",
        title="NCCL has no memory left on the GPU",
        example="NCCL WARN Cuda failure 'out of memory'",
        texts=(r"Cuda failure (?:\d{1,4} )?'out of memory'", r"Failed to CUDA (?:calloc|malloc|host alloc)"),
        cause="The model uses so much GPU memory that none is left for NCCL, which needs a few hundred MB of its own.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_IN_USE}",
        source="NVIDIA/nccl#1235",
    ),
    CatalogueEntry(
        id="cuda-out-of-memory",
        title="The GPU's memory is full",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ...",
        texts=(r"(?:CUDA|HIP|XPU) out of memory", r"torch\.(?:cuda\.)?OutOfMemoryError"),
        cause="The model, optimizer, gradients and activations together need more memory than is free on the GPU.",
        remedy=(
            f"{LESS_GPU_MEMORY}. {GPUS_IN_USE}. If only GPU 0 is full, several ranks are using it: call "
            "torch.cuda.set_device(local_rank), and load checkpoints with torch.load(..., map_location='cpu')"
        ),
        source="the guide to DeepSpeed over Open MPI",
        recoverable=True,
    ),
    CatalogueEntry(
        id="cuda-driver-out-of-memory",
        title="CUDA itself ran out of memory on the GPU",
        example="RuntimeError: CUDA error: out of memory",
        texts=(r"CUDA error: out of memory", r"cudaErrorMemoryAllocation\b", r"CUDA_ERROR_OUT_OF_MEMORY\b"),
        cause=(
            "No GPU memory is left outside torch's own allocator. If this happens at the very start of a job, other "
            "processes are using the GPU, or all ranks of a node are using GPU 0."
        ),
        remedy=(
            "run ansible-playbook preflight.yml to find the processes that hold GPUs; in the script, call "
            f"torch.cuda.set_device(local_rank) before any other CUDA call. Otherwise: {LESS_GPU_MEMORY}"
        ),
        source="taohan10200/IIM#28",
        recoverable=True,
    ),
    CatalogueEntry(
        id="cublas-alloc-failed",
        title="A CUDA library ran out of memory on the GPU",
        example="CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        texts=(r"CUBLAS_STATUS_ALLOC_FAILED\b", r"CUDNN_STATUS_ALLOC_FAILED\b"),
        cause="The GPU is out of memory, so cuBLAS or cuDNN cannot allocate the memory that it needs.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_IN_USE}",
        source="the guide to DeepSpeed over Open MPI",
        recoverable=True,
    ),
    CatalogueEntry(
        id="cublas-not-initialized",
        title="cuBLAS does not start",
        example="CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        texts=(r"CUBLAS_STATUS_NOT_INITIALIZED\b",),
        cause=(
            "Usually the GPU is out of memory; other causes are an index out of range, such as a token beyond the "
            "embedding, and mismatched libraries."
        ),
        remedy=(
            "try a batch size of 1. If it runs, memory was the problem; if not, launch with -e "
            '\'{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}\' to see the line that fails first'
        ),
        source="karpathy/llama2.c#279",
        weak=True,
    ),
    CatalogueEntry(
        id="cudnn-no-algorithm",
        title="cuDNN cannot find an algorithm for a layer",
        example="cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        texts=(
            r"CUDNN_STATUS_(?:NOT_SUPPORTED|EXECUTION_FAILED)\b",
            r"[Uu]nable to find (?:a valid cuDNN algorithm|an engine to execute)",
        ),
        cause=(
            "Usually the GPU is out of memory and no algorithm fits; otherwise, cuDNN does not support the layer's "
            "sizes or layout."
        ),
        remedy="try a smaller batch. If that does not help, call .contiguous() on the layer's input, or set "
        "torch.backends.cudnn.enabled = False to see whether cuDNN is the cause",
        source="pytorch/pytorch#11065",
        recoverable=True,
        weak=True,
    ),
    CatalogueEntry(
        id="triton-shared-memory",
        title="A Triton kernel is too large for this GPU",
        example="triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: ..., Hardware limit: "
        "...",
        texts=(r"out of resources?: shared memory",),
        cause="A kernel requests more on-chip shared memory than this GPU model has. This is neither GPU memory nor "
        "/dev/shm.",
        remedy=(
            "use smaller block sizes or a smaller num_stages for the kernel, a version of the package that "
            "supports this GPU, or the package's non-Triton implementation"
        ),
        source="Yuliang-Liu/MonkeyOCR#86",
        recoverable=True,
    ),
    CatalogueEntry(
        id="vllm-no-cache",
        title="vLLM has no GPU memory left for its cache",
        example="ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
        "when initializing the engine.",
        texts=(
            r"No available memory for the cache blocks",
            r"is less than desired GPU memory utilization",
        ),
        cause=(
            "vLLM, which generates samples during training, reserves a share of GPU memory (gpu_memory_utilization), "
            "and after the model is loaded nothing remains for the key-value cache; or the trainer or another "
            "process is already using the memory."
        ),
        remedy=(
            "raise gpu_memory_utilization if the GPU is otherwise free, or lower it and max_model_len if the "
            "trainer shares the GPU (the option is called vllm_gpu_memory_utilization in TRL and "
            "rollout.gpu_memory_utilization in verl); or use a larger tensor_parallel_size; run ansible-playbook "
            "preflight.yml to find other processes on the GPUs"
        ),
        source="vllm-project/vllm#10439",
    ),
)

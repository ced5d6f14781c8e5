# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The error catalogue: messages of failing jobs, their causes and remedies.

docs/what_went_wrong.md is generated from it: make pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# root: it may have ended the job. consequence: it follows from an earlier failure, mostly on another rank.
# confirmation: it does not come from the job, and confirms what ended it.
Kind = Literal["root", "consequence", "confirmation"]


@dataclass(frozen=True)
class CatalogueEntry:
    """A known failure, recognised by its error message.

    Attributes:
        texts: Regular expressions, each matched within one line. No repetition is unbounded, since a job may write
            anything; each begins with literal characters if possible, which makes the search fast.
        example: The message as a user sees it.
        weak: Whether the message has other causes, too.
        min_lines: Minimum number of matching lines; fewer are harmless.
    """

    id: str
    title: str
    example: str
    texts: tuple[str, ...]
    cause: str
    remedy: str
    kind: Kind = "root"
    weak: bool = False
    min_lines: int = 1


LESS_GPU_MEMORY = (
    "use a smaller batch per rank with more gradient accumulation steps; gradient checkpointing; or ZeRO stage 2 or "
    "3, or FSDP, which shard the optimizer across ranks. If much memory is reserved but unallocated: "
    """-e '{"launch_environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}'"""
)
GPUS_IN_USE = "Check whether other processes use the GPUs: ansible-playbook preflight.yml names them"
LESS_HOST_MEMORY = (
    "use fewer DataLoader workers (each copies what the dataset keeps in Python lists), a streaming dataset, no CPU "
    "offload, fewer ranks per node (-e nproc_per_node=N), or machines with more memory"
)
MORE_SHARED_MEMORY = (
    "ansible-playbook site.yml --tags base_packages sets /dev/shm to half of the memory (base_packages_shm_size); a "
    "run in a container has the node's, or its own with -e launch_container_shm_size=16g; or use fewer workers"
)
SAME_SOFTWARE = (
    "ansible-playbook preflight.yml names the nodes whose versions differ, ansible-playbook site.yml --tags "
)
CPU_ONLY_TORCH = (
    "on nodes without GPUs, {change}. On nodes with GPUs: ansible-playbook site.yml --tags python_env,pytorch -e "
    "pytorch_cuda=auto installs the build with CUDA"
)
OPEN_NETWORK = (
    "ansible-playbook preflight.yml tests each connection in both directions and names what is blocked; all TCP ports "
    "must be open between the nodes (security group, firewall)"
)

MEMORY_OF_GPUS = (
    CatalogueEntry(
        id="cuda-oom-absurd",
        title="An absurd amount of GPU memory was requested",
        example="CUDA out of memory. Tried to allocate more than 1EB memory",
        texts=(r"Tried to allocate more than 1EB memory",),
        cause="A rank received a corrupt size from another rank: the ranks are out of sync, for example after a "
        "collective timed out. Memory is not the problem.",
        remedy="look in the logs of the other ranks for what happened earlier, especially a timeout: ansible-playbook "
        "logs.yml -e fetch=true",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-out-of-memory",
        title="NCCL has no room on the GPU",
        example="NCCL WARN Cuda failure 'out of memory'",
        texts=(r"Cuda failure (?:\d{1,4} )?'out of memory'", r"Failed to CUDA (?:calloc|malloc|host alloc)"),
        cause="The model uses so much GPU memory that none is left for NCCL, which needs a few hundred MB of its own.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_IN_USE}",
    ),
    CatalogueEntry(
        id="cuda-out-of-memory",
        title="The GPU's memory is full",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ...",
        texts=(r"(?:CUDA|HIP|XPU) out of memory", r"torch\.(?:cuda\.)?OutOfMemoryError"),
        cause="Model, optimizer, gradients and activations together need more memory than is free on the GPU.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_IN_USE}",
    ),
    CatalogueEntry(
        id="cuda-driver-out-of-memory",
        title="CUDA itself is out of memory on the GPU",
        example="RuntimeError: CUDA error: out of memory",
        texts=(r"CUDA error: out of memory", r"cudaErrorMemoryAllocation\b", r"CUDA_ERROR_OUT_OF_MEMORY\b"),
        cause="No GPU memory is left outside torch's own allocator. At the very start of a job, this means that other "
        "processes use it, or that all ranks of a node use GPU 0.",
        remedy="ansible-playbook preflight.yml names the processes that hold GPUs; in the script call "
        f"torch.cuda.set_device(local_rank) before any other CUDA call. Otherwise: {LESS_GPU_MEMORY}",
    ),
    CatalogueEntry(
        id="cublas-alloc-failed",
        title="A CUDA library is out of memory on the GPU",
        example="CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        texts=(r"CUBLAS_STATUS_ALLOC_FAILED\b", r"CUDNN_STATUS_ALLOC_FAILED\b"),
        cause="The GPU's memory is full, with no room for what cuBLAS or cuDNN need.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_IN_USE}",
    ),
    CatalogueEntry(
        id="cublas-not-initialized",
        title="cuBLAS does not start",
        example="CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        texts=(r"CUBLAS_STATUS_NOT_INITIALIZED\b",),
        cause="Usually the GPU's memory is full; other causes are an index out of range, such as a token beyond the "
        "embedding, and mismatched libraries.",
        remedy="try a batch size of 1. If it runs, memory was the problem; if not, -e "
        """'{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}' shows the line that fails first""",
        weak=True,
    ),
    CatalogueEntry(
        id="cudnn-no-algorithm",
        title="cuDNN finds no algorithm for a layer",
        example="cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        texts=(
            r"CUDNN_STATUS_(?:NOT_SUPPORTED|EXECUTION_FAILED)\b",
            r"[Uu]nable to find (?:a valid cuDNN algorithm|an engine to execute)",
        ),
        cause="Usually the GPU's memory is full and no algorithm fits; otherwise cuDNN does not support the layer's "
        "sizes or layout.",
        remedy="try a smaller batch. If that does not help, call .contiguous() on the layer's input, or set "
        "torch.backends.cudnn.enabled = False to see whether it is cuDNN",
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
        remedy="use smaller block sizes or num_stages for the kernel, a release of the package that supports this "
        "GPU, or its implementation without Triton",
    ),
)
MEMORY_OF_MACHINES = (
    CatalogueEntry(
        id="host-allocator-out-of-memory",
        title="torch is out of host memory",
        example="DefaultCPUAllocator: can't allocate memory: you tried to allocate ... bytes",
        texts=(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",),
        cause="The machine's own memory (not a GPU's) has no room for a tensor.",
        remedy=LESS_HOST_MEMORY,
    ),
    CatalogueEntry(
        id="host-out-of-memory",
        title="The machine's memory is full",
        example="terminate called after throwing an instance of 'std::bad_alloc'",
        texts=(
            r"std::bad_alloc\b",
            r"MemoryError(?<![\w.]MemoryError)\b",
            r"_ArrayMemoryError: Unable to allocate",
            r"\[Errno 12\] Cannot allocate memory",
        ),
        cause="The machine's own memory, or the job's memory limit, is exhausted.",
        remedy=LESS_HOST_MEMORY,
    ),
    CatalogueEntry(
        id="container-out-of-memory",
        title="The kernel killed a process at the memory limit of its container or service",
        example="Memory cgroup out of memory: Killed process ...",
        texts=(
            r"Memory cgroup out of memory: Kill",
            r"oom-kill:constraint=CONSTRAINT_MEMCG",
            r"killed by the cgroup out-of-memory handler",
            r"the kernel killed processes at the memory limit",
        ),
        cause="The job used more memory than its container, service or scheduler allows.",
        remedy="raise the limit (launch_container_options: [--memory=...], or what the machine's own service sets), "
        f"or use less memory: {LESS_HOST_MEMORY}",
        kind="confirmation",
    ),
    CatalogueEntry(
        id="kernel-out-of-memory",
        title="The kernel killed a process for lack of memory",
        example="Out of memory: Killed process ... (python)",
        texts=(
            r"Out of memory: Kill(?:ed)? process",
            r"invoked oom-killer",
            r"oom-kill:constraint=",
            r"the kernel killed processes for lack of memory",
        ),
        cause="The machine ran out of memory, and the kernel killed the process that used the most.",
        remedy=LESS_HOST_MEMORY,
        kind="confirmation",
    ),
    CatalogueEntry(
        id="dataloader-shared-memory",
        title="/dev/shm is too small for the DataLoader",
        example="DataLoader worker (pid ...) is killed by signal: Bus error",
        texts=(
            r"DataLoader worker \(pid[^\n]{0,40}\) is killed by signal: Bus error",
            r"insufficient shared memory \(shm\)",
        ),
        cause="DataLoader workers pass batches through /dev/shm, which is full.",
        remedy=MORE_SHARED_MEMORY,
    ),
    CatalogueEntry(
        id="nccl-shared-memory",
        title="/dev/shm is too small for NCCL",
        example="NCCL WARN Error: failed to extend /dev/shm/nccl-... to ... bytes",
        texts=(
            r"failed to extend /dev/shm/",
            r"Error while creating shared memory segment",
            r"Call to posix_fallocate failed",
        ),
        cause="The ranks of a node communicate through /dev/shm, which is full; a container's default 64 MB fills up "
        "at once.",
        remedy=MORE_SHARED_MEMORY,
    ),
    CatalogueEntry(
        id="dataloader-killed",
        title="A DataLoader worker was killed",
        example="DataLoader worker (pid ...) is killed by signal: Killed",
        texts=(r"DataLoader worker \(pid[^\n]{0,40}\) is killed by signal: (?:Killed|Terminated)",),
        cause="Almost always the machine was out of memory and the kernel killed the worker; if so, dmesg on the node "
        "shows it.",
        remedy=LESS_HOST_MEMORY,
    ),
    CatalogueEntry(
        id="dataloader-exited",
        title="A DataLoader worker exited",
        example="DataLoader worker (pid(s) ...) exited unexpectedly",
        texts=(r"DataLoader worker \(pid\(s\) [\d, ]{1,200}\) exited unexpectedly",),
        cause="A worker exited earlier; the reason is above this line or, if it was killed, in dmesg on the node.",
        remedy="read the rank's earlier output; num_workers=0 shows the dataset's own error",
        kind="consequence",
    ),
)
GPUS = (
    CatalogueEntry(
        id="no-kernel-image",
        title="torch was not built for this GPU",
        example="CUDA error: no kernel image is available for execution on the device",
        texts=(
            r"no kernel image is available for execution on the device",
            r"is not compatible with the current PyTorch installation",
        ),
        cause="torch, or an extension such as flash-attention, has no code for this GPU model: it is older than the "
        "GPU, or so new that it no longer supports it.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch installs a torch that supports all GPUs of the "
        "cluster (pytorch_version: auto); extensions must be rebuilt for it",
    ),
    CatalogueEntry(
        id="driver-too-old",
        title="The NVIDIA driver is too old for torch's CUDA",
        example="The NVIDIA driver on your system is too old (found version ...)",
        texts=(
            r"NVIDIA driver on your system is too old",
            r"CUDA driver version is insufficient for CUDA runtime version",
        ),
        cause="torch was built for a newer CUDA than the node's driver supports.",
        remedy="ansible-playbook site.yml --tags nvidia_driver -e nvidia_driver_cuda=12.4 installs a newer driver; or "
        "install a torch that fits the current driver: ansible-playbook site.yml --tags python_env,pytorch -e "
        "pytorch_cuda=auto",
    ),
    CatalogueEntry(
        id="driver-library-mismatch",
        title="The loaded driver and the installed driver libraries differ",
        example="Failed to initialize NVML: Driver/library version mismatch",
        texts=(r"Driver/library version mismatch",),
        cause="The NVIDIA driver was upgraded while the old one was loaded, usually by unattended-upgrades.",
        remedy="ansible-playbook site.yml --tags nvidia_driver loads the new one or names the node that needs a "
        "reboot, and prevents further unattended driver upgrades",
    ),
    CatalogueEntry(
        id="no-gpu",
        title="CUDA shows no GPU",
        example="RuntimeError: No CUDA GPUs are available",
        texts=(r"No CUDA GPUs are available", r"Found no NVIDIA driver on your system"),
        cause="The node has no GPU, its driver is not loaded, or CUDA_VISIBLE_DEVICES names GPUs that do not exist.",
        remedy="ansible-playbook ping.yml shows the GPUs of each node; remove CUDA_VISIBLE_DEVICES from the script "
        "and launch_environment, and select the GPU by local_rank instead",
    ),
    CatalogueEntry(
        id="torch-without-cuda",
        title="torch was built without CUDA",
        example="AssertionError: Torch not compiled with CUDA enabled",
        texts=(r"Torch not compiled with CUDA enabled",),
        cause="The installed torch is the CPU-only build.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch -e pytorch_cuda=auto",
    ),
    CatalogueEntry(
        id="set-device-without-cuda",
        title="The script selects a GPU, but torch was built without CUDA",
        example="AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
        texts=(r"module 'torch\._C' has no attribute '_cuda_",),
        cause="The installed torch is the CPU-only build, so calls such as torch.cuda.set_device do not exist.",
        remedy=CPU_ONLY_TORCH.format(change="make them conditional: if torch.cuda.is_available()"),
    ),
    CatalogueEntry(
        id="nccl-not-built",
        title="torch was built without NCCL",
        example="RuntimeError: Distributed package doesn't have NCCL built in",
        texts=(r"Distributed package doesn't have NCCL built in",),
        cause="The script asks for the backend nccl, which needs GPUs, but the installed torch is the CPU-only build.",
        remedy=CPU_ONLY_TORCH.format(
            change='choose the backend in the script: "nccl" if torch.cuda.is_available() else "gloo"'
        ),
    ),
    CatalogueEntry(
        id="invalid-device-ordinal",
        title="A rank requests a GPU that the node does not have",
        example="RuntimeError: CUDA error: invalid device ordinal",
        texts=(r"invalid device ordinal",),
        cause="More processes than GPUs were started on a node, or the script selects its GPU by the global rank.",
        remedy="leave nproc_per_node out to start one process per GPU; in the script use "
        "int(os.environ['LOCAL_RANK']), not RANK, for torch.cuda.set_device",
    ),
    CatalogueEntry(
        id="fabric-manager",
        title="The NVSwitch of the machine is not ready",
        example="Error 802: system not yet initialized",
        texts=(r"Error 802: system not yet initialized", r"error \(802\)", r"cudaErrorSystemNotReady\b"),
        cause="GPUs connected by NVSwitch need nvidia-fabricmanager in the driver's version before CUDA works. It is "
        "not installed, not running, or a different version.",
        remedy="on that node: systemctl status nvidia-fabricmanager; install the version that matches the driver and "
        "reboot",
    ),
    CatalogueEntry(
        id="gpu-memory-error",
        title="A GPU's memory is broken",
        example="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        texts=(r"uncorrectable ECC error", r"(?:cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE)\b"),
        cause="A GPU found an uncorrectable error in its memory. This is a hardware fault.",
        remedy="reboot the node so that the GPU can remap the broken cells; if the error returns, leave the node out "
        "(-e nodes=...) and have the GPU replaced",
    ),
    CatalogueEntry(
        id="gpu-lost",
        title="A GPU no longer responds",
        example="NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus",
        texts=(
            r"GPU has fallen off the bus",
            r"NVRM: Xid \(PCI:[^\n)]{1,40}\): (?:48|62|63|64|74|79|94|95|119|120)\b",
        ),
        cause="The machine lost a GPU: power, heat, the slot, or the GPU itself.",
        remedy="reboot the node; if the error returns, leave it out (-e nodes=...) and have the GPU replaced",
        kind="confirmation",
    ),
    CatalogueEntry(
        id="device-side-assert",
        title="An index is out of range on the GPU",
        example="CUDA error: device-side assert triggered",
        texts=(r"device-side assert triggered", r"Assertion `t >= 0 && t < n_classes` failed"),
        cause="A label, class or token index is negative or too large for its layer.",
        remedy="compare the number of classes and the size of the embedding with the data; "
        """-e '{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}' shows the line""",
    ),
    CatalogueEntry(
        id="illegal-memory-access",
        title="A kernel accessed invalid memory",
        example="CUDA error: an illegal memory access was encountered",
        texts=(r"an illegal memory access was encountered", r"CUDA error: unspecified launch failure"),
        cause="A bug in a CUDA kernel, usually in an extension, in torch.compile's output, or with unusual sizes; "
        "rarely the GPU itself.",
        remedy="""-e '{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}' shows the line; then try without the """
        "extension, or another release of it. If it is always the same node: ansible-playbook preflight.yml checks its "
        "GPUs for memory errors",
    ),
    CatalogueEntry(
        id="cuda-after-fork",
        title="CUDA is used in a forked process",
        example="RuntimeError: Cannot re-initialize CUDA in forked subprocess",
        texts=(r"Cannot re-initialize CUDA in forked subprocess",),
        cause="A worker, usually of the DataLoader, uses CUDA after its parent did so before the fork.",
        remedy="keep tensors in the dataset and in collate_fn on the CPU, or use "
        "DataLoader(multiprocessing_context='spawn')",
    ),
    CatalogueEntry(
        id="nccl-symbol-missing",
        title="The wrong NCCL is loaded for torch",
        example="libtorch_cuda.so: undefined symbol: ncclCommRegister",
        texts=(r"undefined symbol: nccl",),
        cause="An older libnccl is found before torch's own: from the system, from LD_LIBRARY_PATH, or from a package "
        "for another CUDA in the same environment.",
        remedy="remove it from LD_LIBRARY_PATH in launch_environment; `pip list` must show exactly one nvidia-nccl in "
        "the environment. To recreate it: ansible-playbook site.yml --tags python_env,pytorch",
    ),
    CatalogueEntry(
        id="flash-attention-mismatch",
        title="flash-attention was built for another torch",
        example="flash_attn_2_cuda...so: undefined symbol: ...",
        texts=(r"flash_attn\w{0,20}[^\n]{0,120}undefined symbol",),
        cause="The flash-attention wheel is for another torch release or another C++ ABI.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch,flash_attention -e flash_attention_enabled=true "
        "chooses a matching torch and wheel",
    ),
    CatalogueEntry(
        id="nccl-library-missing",
        title="NCCL is not installed",
        example="ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
        texts=(r"(?:ImportError|OSError): libnccl[\w.]{0,20}: cannot open shared object file",),
        cause="torch's own NCCL is missing, or was removed from the environment.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch installs torch with its dependencies",
    ),
    CatalogueEntry(
        id="cuda-library-missing",
        title="A CUDA library is missing",
        example="ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        texts=(
            r"(?:ImportError|OSError): lib(?:cu|nv|c10_cuda|torch_cuda)[\w.]{0,40}: cannot open shared object file",
        ),
        cause="A package was built for another CUDA version than the one bundled with torch.",
        remedy="install the package's build for torch's CUDA (python -c 'import torch; print(torch.version.cuda)'), or "
        "choose torch for its CUDA: ansible-playbook site.yml --tags python_env,pytorch -e pytorch_cuda=12.4",
    ),
    CatalogueEntry(
        id="cuda-toolkit-mismatch",
        title="The CUDA toolkit does not match torch's version",
        example="Installed CUDA version ... does not match the version torch was compiled with ...",
        texts=(r"Installed CUDA version \S{1,20} does not match the version torch was compiled with",),
        cause="DeepSpeed compiles an op for this job with the node's nvcc, which is from another CUDA version than "
        "torch.",
        remedy="install torch for that CUDA (ansible-playbook site.yml --tags python_env,pytorch -e "
        "pytorch_cuda=12.4), or set CUDA_HOME in launch_environment to a toolkit of torch's version",
    ),
    CatalogueEntry(
        id="cuda-home-missing",
        title="There is no CUDA toolkit",
        example="MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)",
        texts=(r"CUDA_HOME does not exist", r"CUDA_HOME environment variable is not set"),
        cause="DeepSpeed, or another package, compiles GPU code on first use and finds no nvcc on the node.",
        remedy="install a toolkit of torch's CUDA on each node and set CUDA_HOME in launch_environment; or do without "
        "the op (torch.optim.AdamW instead of FusedAdam)",
    ),
    CatalogueEntry(
        id="python-headers-missing",
        title="Python's header files are not installed",
        example="fatal error: Python.h: No such file or directory",
        texts=(r"fatal error: Python\.h: No such file or directory",),
        cause="A package compiles C++ code on first use, DeepSpeed's optimizers for example, and the node lacks the "
        "header files of its Python.",
        remedy="""ansible-playbook site.yml --tags base_packages -e '{"base_packages_extra": ["python3-dev"]}' (for """
        "another Python than the system's: python3.11-dev and so on); or do without the op (torch.optim.AdamW instead "
        "of FusedAdam)",
    ),
    CatalogueEntry(
        id="extension-build-failed",
        title="C++ or CUDA code could not be compiled",
        example="RuntimeError: Error building extension '...'",
        texts=(r"Error building extension '",),
        cause="A package compiles C++ or CUDA code on first use, and the compiler failed.",
        remedy="the first line with 'error:' in the rank's log says why; mostly header files are missing, the compiler "
        "is too old or too new for the CUDA toolkit, or memory ran out (MAX_JOBS=2 in launch_environment)",
        weak=True,
    ),
    CatalogueEntry(
        id="numpy-mismatch",
        title="A package was built for another numpy",
        example="A module that was compiled using NumPy 1.x cannot be run in NumPy 2...",
        texts=(r"A module that was compiled using NumPy 1\.x cannot be run in",),
        cause="numpy 2 is installed, but something in the environment was built for numpy 1.",
        remedy="add numpy<2 to the job's requirements, or newer releases of the packages in the traceback, and run "
        "ansible-playbook site.yml --tags python_env",
        weak=True,
    ),
)
RANKS = (
    CatalogueEntry(
        id="address-in-use",
        title="The port of the rendezvous is taken",
        example="The server socket has failed to listen on any local network address ... Address already in use",
        texts=(
            r"server socket has failed to listen on any local network address",
            r"\[Errno 98\] Address already in use",
            r"EADDRINUSE\b",
        ),
        cause="Another process on the first node, usually a leftover job, already listens on the port.",
        remedy="ansible-playbook preflight.yml names the process; ansible-playbook stop.yml ends what muster started "
        "there; or use another port: -e launch_master_port=29600",
    ),
    CatalogueEntry(
        id="rendezvous-unreached",
        title="A node does not reach the first node's rendezvous",
        example="The client socket has timed out after 60s while trying to connect to ...",
        texts=(
            r"client socket has timed out after",
            r"Rendezvous(?:Connection|Timeout)Error\b",
            r"connection to the C10d store has failed",
        ),
        cause="The first node's port is closed to the others, its name resolves to 127.0.1.1 there, or its process "
        "ended earlier.",
        remedy=f"first check whether a rank on the first node failed on its own. Then: {OPEN_NETWORK}; "
        "ansible-playbook site.yml --tags hosts_file fixes names",
        kind="consequence",
    ),
    CatalogueEntry(
        id="ranks-missing",
        title="Not all ranks joined",
        example="DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined",
        texts=(
            r"Timed out after \d{1,7} seconds waiting for (?:clients|workers)",
            r"Timed out initializing process group in store based barrier",
        ),
        cause="Some ranks never started, exited early, or loaded so long that the others gave up. A worker_count "
        "above world_size means ranks are left over from an earlier job.",
        remedy="look in the logs of the missing ranks: ansible-playbook logs.yml -e fetch=true. If they just load "
        "longer, use init_process_group(timeout=...)",
        kind="consequence",
    ),
    CatalogueEntry(
        id="gloo-full-mesh",
        title="gloo cannot connect all nodes with each other",
        example="RuntimeError: Gloo connectFullMesh failed with ...",
        texts=(r"Gloo connectFullMesh failed",),
        cause="The nodes advertised unreachable addresses: a node's own name resolves to its loopback address, or "
        "gloo picked the interface of a container network.",
        remedy="leave GLOO_SOCKET_IFNAME to muster, which sets it on each node to the interface of node_address; "
        f"ansible-playbook site.yml --tags hosts_file fixes names; {OPEN_NETWORK}",
    ),
    CatalogueEntry(
        id="nccl-duplicate-gpu",
        title="Two ranks use one GPU",
        example="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device ...",
        texts=(r"Duplicate GPU detected",),
        cause="The script puts several ranks on the same GPU: all on cuda:0, or a hard-coded GPU. Or more processes "
        "than GPUs were started.",
        remedy="in the script call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group and "
        "do not set CUDA_VISIBLE_DEVICES; leave nproc_per_node out",
    ),
    CatalogueEntry(
        id="nccl-sizes-differ",
        title="Ranks exchange different things",
        example="NCCL WARN NET/Socket : message truncated : receiving 1048576 bytes instead of 65536",
        texts=(
            r"[Mm]essage truncated : receiv(?:ing|ed) \d{1,12} bytes instead of",
            r"NCCL WARN Mismatched collective detected",
        ),
        cause="The ranks call NCCL with different sizes or in a different order, or their NCCL versions or settings "
        "differ.",
        remedy=f"{SAME_SOFTWARE}python_env,pytorch makes them the same; use the same NCCL_* on all nodes. "
        """For the script: -e '{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}' names the call""",
    ),
    CatalogueEntry(
        id="nccl-no-interface",
        title="NCCL finds no network interface",
        example="Bootstrap : no socket interface found",
        texts=(
            r"no socket interface found",
            r"Call to bind failed : Cannot assign requested address",
            r"no NCCL_SOCKET_IFNAME interface found",
        ),
        cause="NCCL_SOCKET_IFNAME names an interface that this node does not have, or one without an address.",
        remedy="remove NCCL_SOCKET_IFNAME from launch_environment and the script: muster sets it on each node to "
        "the interface of node_address",
    ),
    CatalogueEntry(
        id="nccl-connection-failed",
        title="NCCL cannot connect two nodes",
        example="NCCL WARN Connect to 10.0.0.2<21724> failed : Connection refused",
        texts=(r"NCCL WARN [^\n]{0,60}[Cc]onnect to [^\n]{1,120} failed", r"NCCL WARN Call to connect failed"),
        cause="A port between two nodes is closed (NCCL uses any free one), the address belongs to a network inside "
        "the machine, or the other rank ended earlier.",
        remedy=OPEN_NETWORK,
    ),
    CatalogueEntry(
        id="collectives-differ",
        title="Ranks are at different points of the script",
        example="Detected mismatch between collectives on ranks",
        texts=(r"Detected mismatch between collectives on ranks",),
        cause="One rank calls a different collective, or the same one with another shape: a branch only some ranks "
        "take, a smaller last batch, metrics only rank 0 has.",
        remedy="make the same calls with the same shapes on each rank: drop_last=True, and no collective inside `if "
        "rank == 0`",
    ),
    CatalogueEntry(
        id="ddp-models-differ",
        title="The ranks have different models",
        example="DDP expects same model across all ranks, but Rank 0 has 686 params, while rank 1 has inconsistent 0 "
        "params",
        texts=(r"DDP expects same model across all ranks",),
        cause="The ranks built different models or froze different layers; with 0 params, a rank has ended or is "
        "elsewhere in the script.",
        remedy="use the same code and settings on each node (ansible-playbook preflight.yml compares the script); "
        "nothing in the model may depend on the rank. For 0 params, read that rank's log",
    ),
    CatalogueEntry(
        id="ddp-unused-parameters",
        title="Parameters took no part in the loss",
        example="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one",
        texts=(r"Expected to have finished reduction in the prior iteration",),
        cause="DistributedDataParallel waits for the gradient of each parameter, but some have none in this step.",
        remedy="DistributedDataParallel(..., find_unused_parameters=True), or freeze or remove unused parameters; "
        """-e '{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}' names the parameters""",
    ),
    CatalogueEntry(
        id="process-group-missing",
        title="torch.distributed was not initialised",
        example="Default process group has not been initialized, please make sure to call init_process_group",
        texts=(r"Default process group has not been initialized",),
        cause="The script uses collectives, or a layer such as SyncBatchNorm, before init_process_group or without it.",
        remedy="call torch.distributed.init_process_group() first; frameworks need an option: --launcher pytorch "
        "(MMEngine), strategy='ddp' (Lightning)",
    ),
    CatalogueEntry(
        id="gloo-peer-gone",
        title="Another rank exited (gloo)",
        example="gloo/transport/tcp/pair.cc:598] Connection closed by peer",
        texts=(r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] [^\n]{0,60}(?:closed by peer|reset by peer|Timed out)",),
        cause="The rank at the other end exited or was killed. Its own log says why.",
        remedy="look in the logs of the other ranks: ansible-playbook logs.yml -e fetch=true",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-peer-gone",
        title="Another rank exited (NCCL)",
        example="ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
        "prematurely",
        texts=(
            r"ncclRemoteError\b",
            r"NCCL WARN [^\n]{0,60}Connection closed by remote peer",
            r"NCCL communicator was aborted",
        ),
        cause="The rank at the other end exited or was killed, or the network between two nodes failed.",
        remedy="look in the logs of the other ranks: ansible-playbook logs.yml -e fetch=true. If none shows an error: "
        "{OPEN_NETWORK}",
        kind="consequence",
    ),
    CatalogueEntry(
        id="store-gone",
        title="The first node's rendezvous ended",
        example="[c10d] recvValue failed on SocketImpl(...): Connection reset by peer",
        texts=(
            r"\[c10d\] (?:recvValue|sendBytes|recvVector)\w{0,10} failed on SocketImpl",
            r"TCPStore server has shut down too early",
        ),
        cause="Rank 0 ended while this rank was still working. Its own log says why.",
        remedy="look in the log of rank 0: ansible-playbook logs.yml -e rank=0",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-time-out",
        title="A collective took too long",
        example="Watchdog caught collective operation timeout: WorkNCCL(SeqNum=..., OpType=ALLREDUCE, ...)",
        texts=(r"Watchdog caught collective operation timeout", r"Some NCCL operations have failed or timed out"),
        cause="This rank waited for one that never arrived: it failed, hangs, is still loading or saving, or is at "
        "another point of the script.",
        remedy="find the rank that is not waiting: -e debug=true makes torch log what each rank was doing. If work "
        "between two collectives may take longer, use init_process_group(timeout=timedelta(hours=1))",
        kind="consequence",
    ),
    CatalogueEntry(
        id="nccl-cuda-error",
        title="A CUDA call failed inside NCCL",
        example="ncclUnhandledCudaError: Call to CUDA function failed",
        texts=(r"ncclUnhandledCudaError\b", r"unhandled cuda error"),
        cause="A CUDA call failed inside NCCL: a GPU that is out of memory or broken, two ranks on one GPU, "
        "or an incompatible driver.",
        remedy="""-e '{"launch_environment": {"NCCL_DEBUG": "WARN"}}' names the call that failed; """
        "ansible-playbook preflight.yml checks GPUs and drivers",
        weak=True,
    ),
    CatalogueEntry(
        id="nccl-system-error",
        title="A system call of NCCL failed",
        example="ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error",
        texts=(r"ncclSystemError\b", r"unhandled system error"),
        cause="A connection, memory or /dev/shm: the message does not say which.",
        remedy="""-e '{"launch_environment": {"NCCL_DEBUG": "WARN"}}' logs the call that failed; """
        "ansible-playbook preflight.yml checks the connections and /dev/shm",
        weak=True,
    ),
)
DEEPSPEED = (
    CatalogueEntry(
        id="local-rank-unknown",
        title="The script does not accept --local_rank",
        example="train.py: error: unrecognized arguments: --local_rank=0",
        texts=(r"unrecognized arguments: [^\n]{0,200}--local[-_]rank",),
        cause="DeepSpeed's launcher passes --local_rank to each process, and the script's parser rejects it.",
        remedy="launch with -e launch_deepspeed_local_rank=false, if the script reads LOCAL_RANK; or add "
        "parser.add_argument('--local_rank', type=int, default=-1) to it",
    ),
    CatalogueEntry(
        id="deepspeed-batch-sizes",
        title="The batch sizes of DeepSpeed do not fit",
        example="train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        texts=(r"Check batch related parameters", r"train_batch_size is not equal to micro_batch_per_gpu"),
        cause="DeepSpeed requires train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * "
        "number of ranks. A world_size of 1 in the message means that deepspeed was initialised before "
        "torch.distributed.",
        remedy='leave train_batch_size out of the configuration (with the Hugging Face Trainer: "auto"), so that it '
        "follows from the number of ranks",
    ),
    CatalogueEntry(
        id="deepspeed-configuration",
        title="The DeepSpeed configuration is not found",
        example="Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string",
        texts=(r"Expected a string path to an existing deepspeed config",),
        cause="The file is not where the job starts, or not on that node.",
        remedy="give its path relative to launch_working_directory, or an absolute one; with code_source set, "
        "ansible-playbook site.yml --tags code copies it to all nodes",
    ),
    CatalogueEntry(
        id="json-error",
        title="A JSON file is not JSON",
        example="json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
        texts=(r"JSONDecodeError: (?:Expecting|Extra data|Invalid|Unterminated)",),
        cause="A configuration or data file has a comment, a comma before a closing bracket or single quotes, or is "
        "empty.",
        remedy="`python -m json.tool FILE` shows the position; if the file is an incomplete download, remove it",
    ),
    CatalogueEntry(
        id="fp16-scale-at-minimum",
        title="No loss scale is small enough for fp16",
        example="Current loss scale already at minimum - cannot decrease scale anymore",
        texts=(
            r"Current loss scale already at minimum",
            r"OVERFLOW! [^\n]{0,60}Attempted loss scale: 1(?:\.0)?, reducing to (?:1|0)\b",
        ),
        cause="Gradients are infinite or NaN at any scale: the model was trained in bf16 and overflows in fp16, the "
        "learning rate is too high, or the data contain NaN.",
        remedy="use bf16 instead of fp16 if the GPUs support it (Ampere and newer); otherwise lower the learning "
        "rate, clip gradients, and check the first batch for NaN",
    ),
    CatalogueEntry(
        id="fp16-overflow",
        title="fp16 overflows at every step",
        example="[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        texts=(r"OVERFLOW! [^\n]{0,60}Attempted loss scale",),
        cause="The loss scale starts too high, so step after step is skipped. A few of these lines at the start are "
        "normal.",
        remedy='"fp16": {"enabled": true, "initial_scale_power": 10} in the DeepSpeed configuration, lower if '
        "needed; or bf16 if the GPUs support it",
        min_lines=6,
    ),
    CatalogueEntry(
        id="fp16-unsupported",
        title="fp16 does not run here",
        example="ValueError: Type fp16 is not supported.",
        texts=(r"Type fp16 is not supported",),
        cause="DeepSpeed finds no GPU, or one that is too old for fp16 (before Volta).",
        remedy='"fp16": {"enabled": false} in the DeepSpeed configuration; ansible-playbook preflight.yml names the '
        "nodes whose GPUs do not support its precision",
    ),
    CatalogueEntry(
        id="bf16-unsupported",
        title="bf16 does not run here",
        example="ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with "
        "cuda>=11.0",
        texts=(r"Your setup doesn't support bf16",),
        cause="The GPUs are older than Ampere and do not support bf16, or torch sees no GPU.",
        remedy="--fp16 True instead of --bf16 True (and fp16 in the DeepSpeed configuration)",
    ),
    CatalogueEntry(
        id="fp16-gradients",
        title="The weights themselves are fp16",
        example="ValueError: Attempting to unscale FP16 gradients.",
        texts=(r"Attempting to unscale FP16 gradients",),
        cause="The model was loaded in fp16, but mixed precision needs the trained weights in fp32.",
        remedy="load with torch_dtype=torch.float32 (LoRA: only the trainable weights), or train in bf16",
    ),
)
FILES = (
    CatalogueEntry(
        id="disk-full",
        title="The disk is full",
        example="OSError: [Errno 28] No space left on device",
        texts=(r"No space left on device",),
        cause="The disk with the checkpoints, logs, cache or /tmp is full on that node.",
        remedy="ansible-playbook runs.yml -e keep=5 removes older runs and what they saved; keep fewer checkpoints "
        "(save_total_limit), or save to a larger disk; HF_HOME in launch_environment moves the cache",
    ),
    CatalogueEntry(
        id="disk-quota",
        title="The disk quota is exceeded",
        example="OSError: [Errno 122] Disk quota exceeded",
        texts=(r"Disk quota exceeded",),
        cause="The file system has space, but not for this user.",
        remedy="`quota -s` on the node; remove files, or save elsewhere: launch_node_directory moves the runs, "
        "HF_HOME in launch_environment the cache",
    ),
    CatalogueEntry(
        id="checkpoint-not-written",
        title="A checkpoint was not fully written",
        example="PytorchStreamWriter failed writing file data/...: file write failed",
        texts=(r"PytorchStreamWriter failed writing file", r"unexpected pos \d{1,20} vs \d{1,20}"),
        cause="Usually the disk is full, or a network drive failed while the checkpoint was being saved.",
        remedy="check free space on that node (df -h); ansible-playbook runs.yml -e keep=5 removes older runs; avoid "
        "mounts that only append or cannot rename, such as mount-s3",
        weak=True,
    ),
    CatalogueEntry(
        id="read-only",
        title="The file system is read-only",
        example="OSError: [Errno 30] Read-only file system",
        texts=(r"Read-only file system",),
        cause="The directory is on a read-only mount, on a container mount with :ro, or on a disk the kernel "
        "remounted read-only after errors.",
        remedy="save elsewhere, or set HF_HOME in launch_environment to a writable directory; a local disk that "
        "became read-only is failing: see dmesg",
    ),
    CatalogueEntry(
        id="permission-denied",
        title="The job may not use a file",
        example="PermissionError: [Errno 13] Permission denied: '...'",
        texts=(r"\[Errno 13\] Permission denied",),
        cause="The file or directory belongs to another user, often root after a job in a container or with sudo.",
        remedy="run `ls -ld` on the path on that node and chown it to the job's user; or use another directory, for "
        "caches "
        "HF_HOME, TRITON_CACHE_DIR or XDG_CACHE_HOME in launch_environment",
    ),
    CatalogueEntry(
        id="mount-died",
        title="A mount lost its server",
        example="OSError: [Errno 107] Transport endpoint is not connected",
        texts=(r"Transport endpoint is not connected",),
        cause="The program behind the mount (s3fs, mount-s3) exited during the job.",
        remedy="ansible-playbook site.yml --tags s3fs,mount_s3,cifs_share mounts it again; the journal of its service "
        "on that node says why it exited",
    ),
    CatalogueEntry(
        id="stale-file",
        title="A file on a network drive was removed",
        example="OSError: [Errno 116] Stale file handle",
        texts=(r"Stale (?:NFS )?file handle",),
        cause="Another node removed or replaced a file this one had open, as happens with a shared cache; or the "
        "drive's server was restarted.",
        remedy="keep each node's cache on its own disk (HF_HOME in launch_environment), prepared by one rank before "
        "the others continue; remount if every access fails",
    ),
    CatalogueEntry(
        id="too-many-files",
        title="Too many open files",
        example="OSError: [Errno 24] Too many open files",
        texts=(r"\[Errno 24\] Too many open files", r"received 0 items of ancdata"),
        cause="Each tensor a DataLoader worker passes is an open file, and the limit is reached.",
        remedy="ansible-playbook site.yml --tags base_packages raises the limit; or call in the script "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    CatalogueEntry(
        id="checkpoint-on-one-node",
        title="A checkpoint is on one node only",
        example="FileNotFoundError: Checkpoint file not found: .../epoch_000.ckpt",
        texts=(
            r"Checkpoint file not found:",
            r"Checkpoint at .{1,300} not found",
            r"FileNotFoundError: \[Errno 2\].{1,300}\.ckpt\b",
        ),
        cause="Rank 0 writes the checkpoints, on the first node of the run. The nodes share no disk, so the others "
        "lack the file that trainer.test or ckpt_path loads.",
        remedy="leave the test out (test=False in a Hydra template), and test in a launch of its own on the first "
        "node: ./muster launch -n 1 train.py ARGUMENTS; or save to a directory that all nodes mount: ./muster site "
        "--tags data. To resume on all nodes, copy the checkpoint to them: ./muster stage-data -e "
        "stage_data_path=DIRECTORY -e stage_data_destination=DIRECTORY",
    ),
    CatalogueEntry(
        id="file-missing",
        title="A file is missing",
        example="FileNotFoundError: [Errno 2] No such file or directory: '...'",
        texts=(r"FileNotFoundError: \[Errno 2\]",),
        cause="The path is wrong relative to launch_working_directory, or the file is only on some nodes.",
        remedy="use absolute paths for data; ansible-playbook site.yml --tags code copies the code, ansible-playbook "
        "stage_data.yml a bucket, to all nodes",
    ),
    CatalogueEntry(
        id="checkpoint-keys",
        title="The checkpoint does not fit the model",
        example="Error(s) in loading state_dict for ...: Missing key(s) in state_dict: ...",
        texts=(r"Error\(s\) in loading state_dict for", r"(?:Missing|Unexpected) key\(s\) in state_dict"),
        cause="The checkpoint is from another model or other settings, or its keys have a prefix: 'module.' from "
        "DistributedDataParallel, '_orig_mod.' from torch.compile.",
        remedy="save model.module.state_dict() and load before wrapping; strip the prefix from the keys of an old one",
    ),
    CatalogueEntry(
        id="checkpoint-torn",
        title="A checkpoint is incomplete",
        example="PytorchStreamReader failed reading zip archive: failed finding central directory",
        texts=(r"PytorchStreamReader failed", r"MetadataIncompleteBuffer\b"),
        cause="The file is truncated: a job ended while saving, or a download was interrupted.",
        remedy="use the previous one and remove this one (for a download: from the cache). Save under a temporary "
        "name and rename when complete",
    ),
    CatalogueEntry(
        id="checkpoint-pickle",
        title="torch.load refuses the contents of a checkpoint",
        example="_pickle.UnpicklingError: Weights only load failed",
        texts=(r"Weights only load failed",),
        cause="Since torch 2.6, torch.load accepts only tensors and plain types, but this checkpoint contains objects "
        "of a class.",
        remedy="if you trust the file, use torch.load(..., weights_only=False), or "
        "torch.serialization.add_safe_globals([CLASS])",
    ),
    CatalogueEntry(
        id="module-missing",
        title="A Python package is not installed",
        example="ModuleNotFoundError: No module named '...'",
        texts=(r"ModuleNotFoundError: No module named", r"python[\d.]{0,5}: No module named \S"),
        cause="The job's interpreter on that node does not have the package.",
        remedy="add it to the job's requirements (requirements: [...] in the job file, or python_env_requirements) "
        "and run ansible-playbook site.yml --tags python_env; your own modules: ansible-playbook site.yml --tags code",
    ),
)
HUBS = (
    CatalogueEntry(
        id="hub-gated",
        title="The Hugging Face model is gated",
        example="Cannot access gated repo for url https://huggingface.co/...",
        texts=(r"GatedRepoError\b", r"Cannot access gated repo", r"trying to access a gated repo"),
        cause="Only accounts that accepted the authors' terms can download it, and the job has no token of such an "
        "account.",
        remedy="request access on the model's page; then HF_TOKEN=... ansible-playbook site.yml --tags hugging_face, "
        "or pass "
        """it to this job only: -e '{"launch_pass_environment": ["HF_TOKEN"]}'""",
    ),
    CatalogueEntry(
        id="hub-rate-limit",
        title="The Hugging Face Hub received too many requests",
        example="429 Client Error: Too Many Requests for url: https://huggingface.co/...",
        texts=(r"429 Client Error", r"429 Too Many Requests"),
        cause="All ranks of all nodes contacted the Hub at once.",
        remedy="download once before the job and run it offline: "
        """-e '{"launch_environment": {"HF_HUB_OFFLINE": "1"}}'; with a token more requests are allowed""",
    ),
    CatalogueEntry(
        id="hub-unauthorised",
        title="The Hugging Face Hub does not find the model, or rejects the user",
        example="RepositoryNotFoundError: 401 Client Error. Repository Not Found for url: https://huggingface.co/...",
        texts=(
            r"RepositoryNotFoundError\b",
            r"40[134] Client Error[^\n]{0,120}huggingface\.co",
            r"Repository Not Found for url",
        ),
        cause="The name is misspelt, or is a directory missing on this node, or the model is private and the token is "
        "missing, expired or without access.",
        remedy="compare the name with its page; HF_TOKEN=... ansible-playbook site.yml --tags hugging_face; for a "
        "model on disk, give an absolute path that exists on all nodes",
    ),
    CatalogueEntry(
        id="hub-unreachable",
        title="The node does not reach the Hugging Face Hub",
        example="We couldn't connect to 'https://huggingface.co' to load this file",
        texts=(
            r"Failed to resolve 'huggingface\.co'",
            r"host='huggingface\.co', port=443\): Max retries exceeded",
            r"We couldn't connect to 'https://huggingface\.co'",
            r"LocalEntryNotFoundError\b",
        ),
        cause="The node has no internet access or no DNS, and the file is not in its cache.",
        remedy="copy the model to all nodes (ansible-playbook stage_data.yml, or a shared drive) and set HF_HOME, and "
        "HF_HUB_OFFLINE to 1, in launch_environment; behind a proxy, set HTTPS_PROXY",
    ),
    CatalogueEntry(
        id="wandb-key-missing",
        title="Weights & Biases has no API key",
        example="wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        texts=(r"api_key not configured",),
        cause="The job's user has no Weights & Biases API key on that node.",
        remedy="WANDB_API_KEY=... ansible-playbook site.yml --tags wandb; or for this job only "
        """-e '{"launch_pass_environment": ["WANDB_API_KEY"]}'; without it: """
        """-e '{"launch_environment": {"WANDB_MODE": "offline"}}'""",
    ),
    CatalogueEntry(
        id="wandb-refused",
        title="Weights & Biases denies access to the project",
        example="wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)",
        texts=(
            r"Error while calling W&B API: [^\n]{0,60}(?:permission denied|not found)",
            r"wandb\.errors\.(?:\w{1,20}\.)?(?:CommError|AuthenticationError)",
        ),
        cause="The key is valid, but not for the entity or project named in the script.",
        remedy="set your own: wandb_entity and wandb_project, or WANDB_ENTITY and WANDB_PROJECT in launch_environment",
    ),
)
LAUNCHERS = (
    CatalogueEntry(
        id="mpi-slots",
        title="Open MPI counts fewer slots than processes",
        example="There are not enough slots available in the system to satisfy the 2 slots that were requested",
        texts=(r"There are not enough slots available in the system",),
        cause="More processes were requested than the hostfile has slots.",
        remedy="leave nproc_per_node out, or set node_slots in the inventory; do not add -np or --hostfile yourself",
    ),
    CatalogueEntry(
        id="killed",
        title="A process was killed from outside",
        example="Signal 9 (SIGKILL) received by PID ...",
        texts=(
            r"Signal 9 \(SIGKILL\) received by PID",
            r"failed \(exitcode: -9\)",
            r"exitcode {1,4}: -9\b",
            r"was killed by SIGKILL",
        ),
        cause="Something sent it SIGKILL, most often the kernel for lack of memory; if so, dmesg on the node shows it.",
        remedy=f"check free -g and dmesg on that node while the job runs; if it is memory: {LESS_HOST_MEMORY}",
        weak=True,
    ),
    CatalogueEntry(
        id="native-crash",
        title="A process crashed outside Python",
        example="Signal 11 (SIGSEGV) received by PID ...",
        texts=(
            r"Signal 11 \(SIGSEGV\) received by PID",
            r"was killed by SIGSEGV",
            r"Segmentation fault \(core dumped\)",
        ),
        cause="Compiled code accessed memory that it must not; mostly a package that was built for another torch, CUDA "
        "or Python.",
        remedy="""-e '{"launch_environment": {"PYTHONFAULTHANDLER": "1"}}' logs the line of Python where it happens; """
        "reinstall the package of that line; ansible-playbook preflight.yml compares the versions on all nodes",
        weak=True,
    ),
    CatalogueEntry(
        id="rank-variables-missing",
        title="The script expects a launcher that starts its ranks",
        example="KeyError: 'LOCAL_RANK'",
        texts=(
            r"KeyError: '(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
            r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
        ),
        cause="launch_launcher: env starts one process per node, without RANK and LOCAL_RANK. Lightning starts the "
        "others itself; most scripts do not.",
        remedy="leave launch_launcher out: torchrun starts one process per GPU and sets these variables",
    ),
    CatalogueEntry(
        id="debugger-without-terminal",
        title="A breakpoint was reached",
        example="bdb.BdbQuit",
        texts=(r"\bbdb\.BdbQuit\b",),
        cause="breakpoint() or pdb.set_trace() reads commands from a terminal, and the ranks of a run have none.",
        remedy="remove it and print what you want to see. To debug by hand: ansible-playbook shell.yml -e nodes=NODE "
        "shows how to log in to a node with the job's environment; run the script there with one process (WORLD_SIZE=1 "
        "RANK=0 python -m pdb train.py), or call torch.distributed.breakpoint() there",
    ),
    CatalogueEntry(
        id="rank-failed",
        title="The launcher reports a failed rank",
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        texts=(
            r"ChildFailedError\b",
            r"elastic\.multiprocessing\.api:failed \(exitcode",
            r"multiprocessing/api\.py:\d{1,5}\] failed \(exitcode",
        ),
        cause="A rank on this node failed. Its own output says why.",
        remedy="read the log of the rank named under 'Root Cause': ansible-playbook logs.yml -e rank=N",
        kind="consequence",
    ),
)

# Entries by topic. If several match a line, the first one counts: specific entries come before general ones.
TOPICS: dict[str, tuple[CatalogueEntry, ...]] = {
    "GPU memory": MEMORY_OF_GPUS,
    "Host memory": MEMORY_OF_MACHINES,
    "GPUs, drivers and torch builds": GPUS,
    "Ranks that cannot connect or get out of sync": RANKS,
    "DeepSpeed and precision": DEEPSPEED,
    "Files, disks, mounts, packages": FILES,
    "Hugging Face Hub, Weights & Biases": HUBS,
    "Launcher messages": LAUNCHERS,
}
CATALOGUE = tuple(entry for entries in TOPICS.values() for entry in entries)

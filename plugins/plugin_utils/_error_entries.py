# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What jobs write when they fail, what it means, and what to do. Data only. Private to this collection, controller.

docs/what_went_wrong.md is made of it: make pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# root: it may have ended the job. consequence: it follows from something that has gone wrong before, mostly on another
# rank. confirmation: it does not come from the job, and proves what ended it.
Kind = Literal["root", "consequence", "confirmation"]


@dataclass(frozen=True)
class Entry:
    """One thing that goes wrong, by the words in which it is told.

    texts: regular expressions, each found within one line. None repeats anything without a bound, since they are
    searched for in whatever a job has written; and each begins with plain characters where it can, by which re finds
    them soon. seen: the words by which a person knows it again. weak: the words have other causes too. at_least: in how
    many lines they must stand; less often they are harmless.
    """

    id: str
    title: str
    seen: str
    texts: tuple[str, ...]
    cause: str
    remedy: str
    kind: Kind = "root"
    weak: bool = False
    at_least: int = 1


LESS_GPU_MEMORY = (
    "a smaller batch for each rank, with more steps of gradient accumulation instead; gradient checkpointing; ZeRO "
    "stage 2 or 3, or FSDP, which spread the optimizer over the ranks. Where much is reserved but unallocated: "
    """-e '{"launch_environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}'"""
)
GPUS_TAKEN = "See whether somebody else's processes hold the GPUs: ansible-playbook preflight.yml names them"
LESS_HOST_MEMORY = (
    "fewer workers of the DataLoader (each copies what the dataset keeps in Python lists), a dataset that is read "
    "piece by piece, no offload to the CPU, fewer ranks a node (-e nproc_per_node=N), or machines with more memory"
)
MORE_SHARED_MEMORY = (
    "ansible-playbook site.yml --tags base_packages gives /dev/shm half of the memory (base_packages_shm_size); a run "
    "in a container has the node's, or one of its own by -e launch_container_shm_size=16g; or use fewer workers"
)
SAME_SOFTWARE = (
    "ansible-playbook preflight.yml names the nodes whose versions differ, ansible-playbook site.yml --tags "
)
OPEN_NETWORK = (
    "ansible-playbook preflight.yml tries each connection in both directions and names what is closed; the nodes need "
    "all TCP ports among themselves (security group, firewall)"
)

MEMORY_OF_GPUS = (
    Entry(
        id="cuda-oom-absurd",
        title="A nonsensical amount of GPU memory is asked for",
        seen="CUDA out of memory. Tried to allocate more than 1EB memory",
        texts=(r"Tried to allocate more than 1EB memory",),
        cause="A rank has received a damaged size from another one: the ranks no longer agree on what they exchange, "
        "as after a collective that has timed out. Memory is not the trouble.",
        remedy="look in the logs of the other ranks for what happened before, a time-out above all: "
        "ansible-playbook logs.yml -e fetch=true",
        kind="consequence",
    ),
    Entry(
        id="nccl-out-of-memory",
        title="NCCL has no room on the GPU",
        seen="NCCL WARN Cuda failure 'out of memory'",
        texts=(r"Cuda failure (?:\d{1,4} )?'out of memory'", r"Failed to CUDA (?:calloc|malloc|host alloc)"),
        cause="The model has taken so much of the GPU's memory that none is left for NCCL, which needs some hundred MB "
        "beside it.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_TAKEN}",
    ),
    Entry(
        id="cuda-out-of-memory",
        title="The GPU's memory is full",
        seen="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ...",
        texts=(r"(?:CUDA|HIP|XPU) out of memory", r"torch\.(?:cuda\.)?OutOfMemoryError"),
        cause="Model, optimizer, gradients and activations together need more memory than is free on the GPU.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_TAKEN}",
    ),
    Entry(
        id="cuda-driver-out-of-memory",
        title="CUDA itself finds no memory on the GPU",
        seen="RuntimeError: CUDA error: out of memory",
        texts=(r"CUDA error: out of memory", r"cudaErrorMemoryAllocation\b", r"CUDA_ERROR_OUT_OF_MEMORY\b"),
        cause="Outside torch's own allocator there is no memory left on the GPU. At the very start of a job this "
        "means that other processes hold it, or that all ranks of a node use GPU 0.",
        remedy="ansible-playbook preflight.yml names the processes that hold GPUs; in the script call "
        f"torch.cuda.set_device(local_rank) before anything else of CUDA. Else: {LESS_GPU_MEMORY}",
    ),
    Entry(
        id="cublas-alloc-failed",
        title="A library of CUDA finds no memory on the GPU",
        seen="CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        texts=(r"CUBLAS_STATUS_ALLOC_FAILED\b", r"CUDNN_STATUS_ALLOC_FAILED\b"),
        cause="The GPU's memory is full but for what cuBLAS or cuDNN need for themselves.",
        remedy=f"{LESS_GPU_MEMORY}. {GPUS_TAKEN}",
    ),
    Entry(
        id="cublas-not-initialized",
        title="cuBLAS does not start",
        seen="CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        texts=(r"CUBLAS_STATUS_NOT_INITIALIZED\b",),
        cause="Mostly the GPU's memory is full; it is also seen after an index that is out of range, such as a token "
        "beyond the embedding, and with libraries that do not belong together.",
        remedy="try a batch of 1. If it runs, memory it was; if not, -e "
        """'{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}' shows the line that fails first""",
        weak=True,
    ),
    Entry(
        id="cudnn-no-algorithm",
        title="cuDNN finds no way to compute a layer",
        seen="cuDNN error: CUDNN_STATUS_NOT_SUPPORTED",
        texts=(
            r"CUDNN_STATUS_(?:NOT_SUPPORTED|EXECUTION_FAILED)\b",
            r"[Uu]nable to find (?:a valid cuDNN algorithm|an engine to execute)",
        ),
        cause="Mostly the GPU's memory is full, so that no algorithm has room; else the layer's sizes or layout are "
        "ones that cuDNN does not know.",
        remedy="try a smaller batch. If that does not help, call .contiguous() on what goes into the layer, or set "
        "torch.backends.cudnn.enabled = False to see whether it is cuDNN",
        weak=True,
    ),
    Entry(
        id="triton-shared-memory",
        title="A Triton kernel is too large for this GPU",
        seen="triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: ..., Hardware limit: ...",
        texts=(r"out of resources?: shared memory",),
        cause="A kernel asks for more of the fast memory inside the GPU's processors than this model of GPU has. "
        "Neither GPU memory nor /dev/shm is meant.",
        remedy="smaller block sizes or num_stages of the kernel, a release of the package that knows this GPU, or its "
        "implementation without Triton",
    ),
)
MEMORY_OF_MACHINES = (
    Entry(
        id="host-allocator-out-of-memory",
        title="torch finds no memory on the machine",
        seen="DefaultCPUAllocator: can't allocate memory: you tried to allocate ... bytes",
        texts=(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory",),
        cause="The machine's own memory, not that of a GPU, has no room for a tensor.",
        remedy=LESS_HOST_MEMORY,
    ),
    Entry(
        id="host-out-of-memory",
        title="The machine's memory is full",
        seen="terminate called after throwing an instance of 'std::bad_alloc'",
        texts=(
            r"std::bad_alloc\b",
            r"MemoryError(?<![\w.]MemoryError)\b",
            r"_ArrayMemoryError: Unable to allocate",
            r"\[Errno 12\] Cannot allocate memory",
        ),
        cause="The machine's own memory, or what a limit leaves the job of it, is used up.",
        remedy=LESS_HOST_MEMORY,
    ),
    Entry(
        id="container-out-of-memory",
        title="The kernel has ended a process at the memory limit of its container or service",
        seen="Memory cgroup out of memory: Killed process ...",
        texts=(
            r"Memory cgroup out of memory: Kill",
            r"oom-kill:constraint=CONSTRAINT_MEMCG",
            r"killed by the cgroup out-of-memory handler",
            r"the kernel killed processes at the memory limit",
        ),
        cause="The job has used more memory than its container, its service or the scheduler allows it.",
        remedy=f"raise the limit (launch_container_options: [--memory=...], or what the machine's own service sets), "
        f"or need less: {LESS_HOST_MEMORY}",
        kind="confirmation",
    ),
    Entry(
        id="kernel-out-of-memory",
        title="The kernel has ended a process for lack of memory",
        seen="Out of memory: Killed process ... (python)",
        texts=(
            r"Out of memory: Kill(?:ed)? process",
            r"invoked oom-killer",
            r"oom-kill:constraint=",
            r"the kernel killed processes for lack of memory",
        ),
        cause="The machine's memory was used up, and the kernel has killed the process that had most of it.",
        remedy=LESS_HOST_MEMORY,
        kind="confirmation",
    ),
    Entry(
        id="dataloader-shared-memory",
        title="/dev/shm is too small for the DataLoader",
        seen="DataLoader worker (pid ...) is killed by signal: Bus error",
        texts=(
            r"DataLoader worker \(pid[^\n]{0,40}\) is killed by signal: Bus error",
            r"insufficient shared memory \(shm\)",
        ),
        cause="The workers of the DataLoader hand over their batches through /dev/shm, which is full.",
        remedy=MORE_SHARED_MEMORY,
    ),
    Entry(
        id="nccl-shared-memory",
        title="/dev/shm is too small for NCCL",
        seen="NCCL WARN Error: failed to extend /dev/shm/nccl-... to ... bytes",
        texts=(
            r"failed to extend /dev/shm/",
            r"Error while creating shared memory segment",
            r"Call to posix_fallocate failed",
        ),
        cause="The ranks of a node talk to each other through /dev/shm, which is full, as the 64 MB of a container "
        "are at once.",
        remedy=MORE_SHARED_MEMORY,
    ),
    Entry(
        id="dataloader-killed",
        title="A worker of the DataLoader was killed",
        seen="DataLoader worker (pid ...) is killed by signal: Killed",
        texts=(r"DataLoader worker \(pid[^\n]{0,40}\) is killed by signal: (?:Killed|Terminated)",),
        cause="Almost always the machine's memory was full and the kernel has killed the worker; dmesg on the node "
        "says so then.",
        remedy=LESS_HOST_MEMORY,
    ),
    Entry(
        id="dataloader-exited",
        title="A worker of the DataLoader is gone",
        seen="DataLoader worker (pid(s) ...) exited unexpectedly",
        texts=(r"DataLoader worker \(pid\(s\) [\d, ]{1,200}\) exited unexpectedly",),
        cause="A worker has ended before; why it did stands above this line, or, where it was killed, in dmesg on the "
        "node.",
        remedy="read what the rank wrote before; with num_workers=0 the error of the dataset itself is shown",
        kind="consequence",
    ),
)
GPUS = (
    Entry(
        id="no-kernel-image",
        title="torch was not built for this GPU",
        seen="CUDA error: no kernel image is available for execution on the device",
        texts=(
            r"no kernel image is available for execution on the device",
            r"is not compatible with the current PyTorch installation",
        ),
        cause="torch, or an extension such as flash-attention, holds no code for this model of GPU: it is older than "
        "the GPU, or so new that the GPU is no longer supported.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch installs a torch with code for all GPUs of the "
        "cluster (pytorch_version: auto); extensions must be rebuilt for it",
    ),
    Entry(
        id="driver-too-old",
        title="The NVIDIA driver is too old for torch's CUDA",
        seen="The NVIDIA driver on your system is too old (found version ...)",
        texts=(
            r"NVIDIA driver on your system is too old",
            r"CUDA driver version is insufficient for CUDA runtime version",
        ),
        cause="torch was built for a CUDA that is newer than what the node's driver runs.",
        remedy="ansible-playbook site.yml --tags nvidia_driver -e nvidia_driver_cuda=12.4 brings a newer driver; or a "
        "torch that fits the one that is there: ansible-playbook site.yml --tags python_env,pytorch -e "
        "pytorch_cuda=auto",
    ),
    Entry(
        id="driver-library-mismatch",
        title="The loaded driver is not the one whose libraries are installed",
        seen="Failed to initialize NVML: Driver/library version mismatch",
        texts=(r"Driver/library version mismatch",),
        cause="The NVIDIA driver was upgraded while the former one was loaded, mostly by unattended upgrades.",
        remedy="ansible-playbook site.yml --tags nvidia_driver loads the new one, or says which node needs a reboot, "
        "and keeps upgrades from doing it again",
    ),
    Entry(
        id="no-gpu",
        title="CUDA shows no GPU",
        seen="RuntimeError: No CUDA GPUs are available",
        texts=(r"No CUDA GPUs are available", r"Found no NVIDIA driver on your system"),
        cause="The node has no GPU, its driver is not loaded, or CUDA_VISIBLE_DEVICES names GPUs that are not there.",
        remedy="ansible-playbook ping.yml shows the GPUs of each node; look for CUDA_VISIBLE_DEVICES in the script "
        "and in launch_environment, and let local_rank choose the GPU instead",
    ),
    Entry(
        id="torch-without-cuda",
        title="torch was built without CUDA",
        seen="AssertionError: Torch not compiled with CUDA enabled",
        texts=(r"Torch not compiled with CUDA enabled",),
        cause="The torch that is installed computes on the CPU alone.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch -e pytorch_cuda=auto",
    ),
    Entry(
        id="invalid-device-ordinal",
        title="A rank asks for a GPU that the node does not have",
        seen="RuntimeError: CUDA error: invalid device ordinal",
        texts=(r"invalid device ordinal",),
        cause="More processes than GPUs were started on a node, or the script chooses its GPU by the global rank.",
        remedy="leave nproc_per_node out, which starts one process a GPU; in the script take "
        "int(os.environ['LOCAL_RANK']), not RANK, for torch.cuda.set_device",
    ),
    Entry(
        id="fabric-manager",
        title="The NVSwitch of the machine is not ready",
        seen="Error 802: system not yet initialized",
        texts=(r"Error 802: system not yet initialized", r"error \(802\)", r"cudaErrorSystemNotReady\b"),
        cause="GPUs that are connected by an NVSwitch need nvidia-fabricmanager, of the driver's own version, before "
        "CUDA works. It is not installed, not running, or of another version.",
        remedy="on that node: systemctl status nvidia-fabricmanager; install the one of the driver's version and "
        "reboot",
    ),
    Entry(
        id="gpu-memory-error",
        title="A GPU's memory is broken",
        seen="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        texts=(r"uncorrectable ECC error", r"(?:cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE)\b"),
        cause="A GPU has found an error in its memory that it cannot correct. It is the hardware.",
        remedy="reboot the node, which lets the GPU set the broken cells aside; if it comes back, leave the node out "
        "(-e nodes=...) and have the GPU replaced",
    ),
    Entry(
        id="gpu-lost",
        title="A GPU no longer answers",
        seen="NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus",
        texts=(
            r"GPU has fallen off the bus",
            r"NVRM: Xid \(PCI:[^\n)]{1,40}\): (?:48|62|63|64|74|79|94|95|119|120)\b",
        ),
        cause="The machine has lost a GPU: power, heat, the slot, or the GPU itself.",
        remedy="reboot the node; if it comes back, leave it out (-e nodes=...) and have the GPU replaced",
        kind="confirmation",
    ),
    Entry(
        id="device-side-assert",
        title="An index is out of range on the GPU",
        seen="CUDA error: device-side assert triggered",
        texts=(r"device-side assert triggered", r"Assertion `t >= 0 && t < n_classes` failed"),
        cause="A label, a class or a token is larger than the layer that it goes to, or negative.",
        remedy="compare the number of classes and the size of the embedding with the data; "
        """-e '{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}' shows the line""",
    ),
    Entry(
        id="illegal-memory-access",
        title="A kernel reads or writes where it must not",
        seen="CUDA error: an illegal memory access was encountered",
        texts=(r"an illegal memory access was encountered", r"CUDA error: unspecified launch failure"),
        cause="A fault in a CUDA kernel, mostly in an extension, in torch.compile's output, or for sizes that nobody "
        "has tried; rarely the GPU itself.",
        remedy="""-e '{"launch_environment": {"CUDA_LAUNCH_BLOCKING": "1"}}' shows the line; then without the """
        "extension, or in another release of it. Always on the same node: ansible-playbook preflight.yml looks for "
        "memory errors of its GPUs",
    ),
    Entry(
        id="cuda-after-fork",
        title="CUDA is used in a forked process",
        seen="RuntimeError: Cannot re-initialize CUDA in forked subprocess",
        texts=(r"Cannot re-initialize CUDA in forked subprocess",),
        cause="A worker, mostly of the DataLoader, touches CUDA although its parent had done so before it was forked.",
        remedy="keep tensors in the dataset and in collate_fn on the CPU, or "
        "DataLoader(multiprocessing_context='spawn')",
    ),
    Entry(
        id="nccl-symbol-missing",
        title="Another NCCL is loaded than torch needs",
        seen="libtorch_cuda.so: undefined symbol: ncclCommRegister",
        texts=(r"undefined symbol: nccl",),
        cause="An older libnccl is found before torch's own: from the system, from LD_LIBRARY_PATH, or from a package "
        "for another CUDA in the same environment.",
        remedy="take it out of LD_LIBRARY_PATH in launch_environment; in the environment `pip list` must show one "
        "nvidia-nccl alone. A fresh one: ansible-playbook site.yml --tags python_env,pytorch",
    ),
    Entry(
        id="flash-attention-mismatch",
        title="flash-attention was built for another torch",
        seen="flash_attn_2_cuda...so: undefined symbol: ...",
        texts=(r"flash_attn\w{0,20}[^\n]{0,120}undefined symbol",),
        cause="The wheel of flash-attention belongs to another release of torch or another C++ interface.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch,flash_attention -e flash_attention_enabled=true "
        "chooses a torch and a wheel that fit each other",
    ),
    Entry(
        id="nccl-library-missing",
        title="NCCL is not installed",
        seen="ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
        texts=(r"(?:ImportError|OSError): libnccl[\w.]{0,20}: cannot open shared object file",),
        cause="torch's own NCCL is missing, or was removed from the environment.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch installs torch with what it needs",
    ),
    Entry(
        id="cuda-library-missing",
        title="A library of CUDA is not there",
        seen="ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        texts=(
            r"(?:ImportError|OSError): lib(?:cu|nv|c10_cuda|torch_cuda)[\w.]{0,40}: cannot open shared object file",
        ),
        cause="A package was built for another CUDA than the one that torch has brought along.",
        remedy="install the package's build for torch's CUDA (python -c 'import torch; print(torch.version.cuda)'), or "
        "choose torch for its CUDA: ansible-playbook site.yml --tags python_env,pytorch -e pytorch_cuda=12.4",
    ),
    Entry(
        id="cuda-toolkit-mismatch",
        title="The CUDA toolkit is not of torch's version",
        seen="Installed CUDA version ... does not match the version torch was compiled with ...",
        texts=(r"Installed CUDA version \S{1,20} does not match the version torch was compiled with",),
        cause="DeepSpeed compiles an op for this job with the node's nvcc, which belongs to another CUDA than torch.",
        remedy="choose torch for that CUDA (ansible-playbook site.yml --tags python_env,pytorch -e "
        "pytorch_cuda=12.4), or set CUDA_HOME in launch_environment to a toolkit of torch's version",
    ),
    Entry(
        id="cuda-home-missing",
        title="There is no CUDA toolkit",
        seen="MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)",
        texts=(r"CUDA_HOME does not exist", r"CUDA_HOME environment variable is not set"),
        cause="DeepSpeed, or another package, compiles code for the GPU when it is used first, and finds no nvcc on "
        "the node.",
        remedy="install a toolkit of torch's CUDA on each node and set CUDA_HOME in launch_environment; or do without "
        "the op (torch.optim.AdamW instead of FusedAdam)",
    ),
    Entry(
        id="numpy-mismatch",
        title="A package was built for another numpy",
        seen="A module that was compiled using NumPy 1.x cannot be run in NumPy 2...",
        texts=(r"A module that was compiled using NumPy 1\.x cannot be run in",),
        cause="numpy 2 is installed, and something in the environment was built for numpy 1.",
        remedy="write numpy<2 into the requirements of the job, or newer releases of the packages in the traceback, "
        "and run ansible-playbook site.yml --tags python_env",
        weak=True,
    ),
)
RANKS = (
    Entry(
        id="address-in-use",
        title="The port of the rendezvous is taken",
        seen="The server socket has failed to listen on any local network address ... Address already in use",
        texts=(
            r"server socket has failed to listen on any local network address",
            r"\[Errno 98\] Address already in use",
            r"EADDRINUSE\b",
        ),
        cause="Another process on the first node, mostly a job that was left over, listens on the port already.",
        remedy="ansible-playbook preflight.yml names the process; ansible-playbook stop.yml ends what muster has "
        "started there; or take another port: -e launch_master_port=29600",
    ),
    Entry(
        id="rendezvous-unreached",
        title="A node does not reach the first node's rendezvous",
        seen="The client socket has timed out after 60s while trying to connect to ...",
        texts=(
            r"client socket has timed out after",
            r"Rendezvous(?:Connection|Timeout)Error\b",
            r"connection to the C10d store has failed",
        ),
        cause="The first node's port is closed for the others, its name means 127.0.1.1 there, or its process has "
        "ended before.",
        remedy=f"look first whether a rank of the first node has failed on its own. Then: {OPEN_NETWORK}; "
        "ansible-playbook site.yml --tags hosts_file mends names",
        kind="consequence",
    ),
    Entry(
        id="ranks-missing",
        title="Not all ranks have arrived",
        seen="DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined",
        texts=(
            r"Timed out after \d{1,7} seconds waiting for (?:clients|workers)",
            r"Timed out initializing process group in store based barrier",
        ),
        cause="Some ranks were never started, have ended before, or load so long that the others gave up. A "
        "worker_count above world_size tells of ranks that an earlier job has left over.",
        remedy="look in the logs of the ranks that are missing: ansible-playbook logs.yml -e fetch=true. Where they "
        "only load longer, init_process_group(timeout=...)",
        kind="consequence",
    ),
    Entry(
        id="gloo-full-mesh",
        title="gloo cannot connect all nodes with each other",
        seen="RuntimeError: Gloo connectFullMesh failed with ...",
        texts=(r"Gloo connectFullMesh failed",),
        cause="The nodes have told each other addresses that are not reachable: a node's own name means its loopback, "
        "or gloo took the interface of a container network.",
        remedy="leave GLOO_SOCKET_IFNAME to muster, which sets it on each node to the interface of node_address; "
        f"ansible-playbook site.yml --tags hosts_file mends names; {OPEN_NETWORK}",
    ),
    Entry(
        id="nccl-duplicate-gpu",
        title="Two ranks use one GPU",
        seen="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device ...",
        texts=(r"Duplicate GPU detected",),
        cause="The script puts several ranks on the same GPU: all on cuda:0, or a GPU chosen by a setting. Or more "
        "processes than GPUs were started.",
        remedy="in the script torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group, and no "
        "CUDA_VISIBLE_DEVICES; leave nproc_per_node out",
    ),
    Entry(
        id="nccl-sizes-differ",
        title="Ranks exchange different things",
        seen="NCCL WARN NET/Socket : message truncated : receiving 1048576 bytes instead of 65536",
        texts=(
            r"[Mm]essage truncated : receiv(?:ing|ed) \d{1,12} bytes instead of",
            r"NCCL WARN Mismatched collective detected",
        ),
        cause="The ranks call NCCL with different sizes or in different order, or they run different versions or "
        "settings of NCCL.",
        remedy=f"{SAME_SOFTWARE}python_env,pytorch makes them one; the same NCCL_* on all nodes. "
        """In the script: -e '{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}' names the call""",
    ),
    Entry(
        id="nccl-no-interface",
        title="NCCL finds no network interface",
        seen="Bootstrap : no socket interface found",
        texts=(
            r"no socket interface found",
            r"Call to bind failed : Cannot assign requested address",
            r"no NCCL_SOCKET_IFNAME interface found",
        ),
        cause="NCCL_SOCKET_IFNAME names an interface that this node does not have, or one without an address.",
        remedy="take NCCL_SOCKET_IFNAME out of launch_environment and of the script: muster sets it on each node to "
        "the interface of node_address",
    ),
    Entry(
        id="nccl-connection-failed",
        title="NCCL cannot connect two nodes",
        seen="NCCL WARN Connect to 10.0.0.2<21724> failed : Connection refused",
        texts=(r"NCCL WARN [^\n]{0,60}[Cc]onnect to [^\n]{1,120} failed", r"NCCL WARN Call to connect failed"),
        cause="A port between two nodes is closed (NCCL takes any free one), the address belongs to a network inside "
        "the machine, or the other rank has ended before.",
        remedy=OPEN_NETWORK,
    ),
    Entry(
        id="collectives-differ",
        title="Ranks are at different points of the script",
        seen="Detected mismatch between collectives on ranks",
        texts=(r"Detected mismatch between collectives on ranks",),
        cause="One rank calls another collective, or the same with another shape: a branch that only some ranks take, "
        "a last batch that is smaller, metrics that only rank 0 has.",
        remedy="let each rank make the same calls with the same shapes: drop_last=True, and no collective within "
        "`if rank == 0`",
    ),
    Entry(
        id="ddp-models-differ",
        title="The ranks have different models",
        seen="DDP expects same model across all ranks, but Rank 0 has 686 params, while rank 1 has inconsistent 0 "
        "params",
        texts=(r"DDP expects same model across all ranks",),
        cause="The ranks have built different models or frozen different layers; with 0 params a rank has ended or is "
        "elsewhere in the script.",
        remedy="the same code and settings on each node (ansible-playbook preflight.yml compares the script); build "
        "the model by nothing that differs by rank. Where 0 is said, look at that rank's log",
    ),
    Entry(
        id="ddp-unused-parameters",
        title="Parameters took no part in the loss",
        seen="RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one",
        texts=(r"Expected to have finished reduction in the prior iteration",),
        cause="DistributedDataParallel waits for the gradient of each parameter, and some have none in this step.",
        remedy="DistributedDataParallel(..., find_unused_parameters=True), or freeze or remove what is not used; "
        """-e '{"launch_environment": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}}' names the parameters""",
    ),
    Entry(
        id="process-group-missing",
        title="torch.distributed was not initialised",
        seen="Default process group has not been initialized, please make sure to call init_process_group",
        texts=(r"Default process group has not been initialized",),
        cause="The script uses collectives, or a layer such as SyncBatchNorm, before init_process_group or without it.",
        remedy="call torch.distributed.init_process_group() first; frameworks want to be told: --launcher pytorch "
        "(MMEngine), strategy='ddp' (Lightning)",
    ),
    Entry(
        id="gloo-peer-gone",
        title="Another rank has gone (gloo)",
        seen="gloo/transport/tcp/pair.cc:598] Connection closed by peer",
        texts=(r"gloo/transport/tcp/\w{1,20}\.cc:\d{1,5}\] [^\n]{0,60}(?:closed by peer|reset by peer|Timed out)",),
        cause="The rank at the other end has ended or was ended. Its own log says why.",
        remedy="look in the logs of the other ranks: ansible-playbook logs.yml -e fetch=true",
        kind="consequence",
    ),
    Entry(
        id="nccl-peer-gone",
        title="Another rank has gone (NCCL)",
        seen="ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely",
        texts=(
            r"ncclRemoteError\b",
            r"NCCL WARN [^\n]{0,60}Connection closed by remote peer",
            r"NCCL communicator was aborted",
        ),
        cause="The rank at the other end has ended or was ended, or the network between two nodes has failed.",
        remedy="look in the logs of the other ranks: ansible-playbook logs.yml -e fetch=true. Where none tells of an "
        f"error: {OPEN_NETWORK}",
        kind="consequence",
    ),
    Entry(
        id="store-gone",
        title="The first node's rendezvous has gone",
        seen="[c10d] recvValue failed on SocketImpl(...): Connection reset by peer",
        texts=(
            r"\[c10d\] (?:recvValue|sendBytes|recvVector)\w{0,10} failed on SocketImpl",
            r"TCPStore server has shut down too early",
        ),
        cause="Rank 0 has ended while this rank was still at work. Its own log says why.",
        remedy="look in the log of rank 0: ansible-playbook logs.yml -e rank=0",
        kind="consequence",
    ),
    Entry(
        id="nccl-time-out",
        title="A collective took too long",
        seen="Watchdog caught collective operation timeout: WorkNCCL(SeqNum=..., OpType=ALLREDUCE, ...)",
        texts=(r"Watchdog caught collective operation timeout", r"Some NCCL operations have failed or timed out"),
        cause="This rank has waited for one that did not come: that one has failed, hangs, still loads or saves, or "
        "is at another point of the script.",
        remedy="find the rank that does not wait: -e debug=true lets torch write what each rank was at. Where work "
        "between two collectives may take longer, init_process_group(timeout=timedelta(hours=1))",
        kind="consequence",
    ),
    Entry(
        id="nccl-cuda-error",
        title="CUDA has failed within NCCL",
        seen="ncclUnhandledCudaError: Call to CUDA function failed",
        texts=(r"ncclUnhandledCudaError\b", r"unhandled cuda error"),
        cause="A call of CUDA has failed within NCCL: a GPU that is out of memory or broken, two ranks on one GPU, or "
        "a driver that does not fit.",
        remedy="""-e '{"launch_environment": {"NCCL_DEBUG": "WARN"}}' names the call that failed; """
        "ansible-playbook preflight.yml looks at GPUs and drivers",
        weak=True,
    ),
    Entry(
        id="nccl-system-error",
        title="The system has refused NCCL something",
        seen="ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error",
        texts=(r"ncclSystemError\b", r"unhandled system error"),
        cause="A connection, memory or /dev/shm: the message does not say which.",
        remedy="""-e '{"launch_environment": {"NCCL_DEBUG": "WARN"}}' writes the call that failed into the log; """
        "ansible-playbook preflight.yml looks at the connections and at /dev/shm",
        weak=True,
    ),
)
DEEPSPEED = (
    Entry(
        id="local-rank-unknown",
        title="The script does not know --local_rank",
        seen="train.py: error: unrecognized arguments: --local_rank=0",
        texts=(r"unrecognized arguments: [^\n]{0,200}--local[-_]rank",),
        cause="DeepSpeed's launcher gives each process the argument --local_rank, and the script's parser refuses it.",
        remedy="in the script parser.add_argument('--local_rank', type=int, default=-1); or let the script read "
        "LOCAL_RANK and start it by -e launch_launcher=torchrun, under which DeepSpeed works as well",
    ),
    Entry(
        id="deepspeed-batch-sizes",
        title="The batch sizes of DeepSpeed do not fit",
        seen="train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size",
        texts=(r"Check batch related parameters", r"train_batch_size is not equal to micro_batch_per_gpu"),
        cause="DeepSpeed wants train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * "
        "number of ranks. A world_size of 1 in the message means that deepspeed was initialised before "
        "torch.distributed.",
        remedy='leave train_batch_size out of the configuration (with the Hugging Face Trainer: "auto"), so that it '
        "follows from the number of ranks",
    ),
    Entry(
        id="deepspeed-configuration",
        title="The configuration of DeepSpeed is not found",
        seen="Expected a string path to an existing deepspeed config, or a dictionary, or a base64 encoded string",
        texts=(r"Expected a string path to an existing deepspeed config",),
        cause="The file does not lie where the job starts, or is not on that node.",
        remedy="give its path as seen from launch_working_directory, or an absolute one; with code_source set, "
        "ansible-playbook site.yml --tags code brings it to all nodes",
    ),
    Entry(
        id="json-error",
        title="A JSON file is not JSON",
        seen="json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes",
        texts=(r"JSONDecodeError: (?:Expecting|Extra data|Invalid|Unterminated)",),
        cause="A configuration or data file has a comment, a comma before a closing bracket or single quotes, or is "
        "empty.",
        remedy="`python -m json.tool FILE` names the place; where the file is a half-finished download, remove it",
    ),
    Entry(
        id="fp16-scale-at-minimum",
        title="No loss scale is small enough for fp16",
        seen="Current loss scale already at minimum - cannot decrease scale anymore",
        texts=(
            r"Current loss scale already at minimum",
            r"OVERFLOW! [^\n]{0,60}Attempted loss scale: 1(?:\.0)?, reducing to (?:1|0)\b",
        ),
        cause="Gradients are infinite or not a number whatever the scale: the model was trained in bf16 and does not "
        "fit into fp16, the learning rate is too high, or the data hold NaN.",
        remedy="bf16 instead of fp16 where the GPUs have it (Ampere and newer), else a lower learning rate, gradient "
        "clipping, and a look for NaN in the first batch",
    ),
    Entry(
        id="fp16-overflow",
        title="fp16 overflows at every step",
        seen="[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
        texts=(r"OVERFLOW! [^\n]{0,60}Attempted loss scale",),
        cause="The loss scale starts too high, so step after step is skipped. A few of these lines at the start are "
        "normal.",
        remedy='"fp16": {"enabled": true, "initial_scale_power": 10} in the configuration of DeepSpeed, lower if '
        "needed; or bf16 where the GPUs have it",
        at_least=6,
    ),
    Entry(
        id="fp16-unsupported",
        title="fp16 does not run here",
        seen="ValueError: Type fp16 is not supported.",
        texts=(r"Type fp16 is not supported",),
        cause="DeepSpeed finds no GPU, or one that is too old for fp16 (before Volta).",
        remedy='"fp16": {"enabled": false} in the configuration of DeepSpeed; ansible-playbook preflight.yml names the '
        "nodes whose GPUs do not compute in the precision of the configuration",
    ),
    Entry(
        id="bf16-unsupported",
        title="bf16 does not run here",
        seen="ValueError: Your setup doesn't support bf16/gpu. You need torch>=1.10, using Ampere GPU with cuda>=11.0",
        texts=(r"Your setup doesn't support bf16",),
        cause="The GPUs are older than Ampere and do not compute in bf16, or torch sees no GPU.",
        remedy="--fp16 True instead of --bf16 True (and fp16 in the configuration of DeepSpeed)",
    ),
    Entry(
        id="fp16-gradients",
        title="The weights themselves are fp16",
        seen="ValueError: Attempting to unscale FP16 gradients.",
        texts=(r"Attempting to unscale FP16 gradients",),
        cause="The model was loaded in fp16, and mixed precision wants the weights that it trains in fp32.",
        remedy="load with torch_dtype=torch.float32 (LoRA: only the trainable weights), or train in bf16",
    ),
)
FILES = (
    Entry(
        id="disk-full",
        title="The disk is full",
        seen="OSError: [Errno 28] No space left on device",
        texts=(r"No space left on device",),
        cause="The disk of the checkpoints, of the logs, of the cache or of /tmp has no room left on that node.",
        remedy="ansible-playbook runs.yml -e keep=5 removes older runs with what they saved; keep fewer checkpoints "
        "(save_total_limit), or save to a larger disk; HF_HOME in launch_environment moves the cache",
    ),
    Entry(
        id="disk-quota",
        title="The quota of the disk is used up",
        seen="OSError: [Errno 122] Disk quota exceeded",
        texts=(r"Disk quota exceeded",),
        cause="The file system has room, but not for this user.",
        remedy="`quota -s` on the node; remove files, or save elsewhere: launch_node_directory moves the runs, "
        "HF_HOME in launch_environment the cache",
    ),
    Entry(
        id="checkpoint-not-written",
        title="A checkpoint was not written to its end",
        seen="PytorchStreamWriter failed writing file data/...: file write failed",
        texts=(r"PytorchStreamWriter failed writing file", r"unexpected pos \d{1,20} vs \d{1,20}"),
        cause="Mostly the disk is full, or a network drive has failed while the checkpoint was saved.",
        remedy="look at the room on that node (df -h); ansible-playbook runs.yml -e keep=5 removes older runs; mind "
        "mounts that only append or do not rename, such as mount-s3",
        weak=True,
    ),
    Entry(
        id="read-only",
        title="The file system cannot be written",
        seen="OSError: [Errno 30] Read-only file system",
        texts=(r"Read-only file system",),
        cause="The directory lies on a mount that was made read-only, in a container on a mount with :ro, or on a "
        "disk that the kernel no longer trusts.",
        remedy="save elsewhere, or HF_HOME in launch_environment to a directory that can be written; a disk of the "
        "machine's own that has become read-only is broken: dmesg says so",
    ),
    Entry(
        id="permission-denied",
        title="The job may not use a file",
        seen="PermissionError: [Errno 13] Permission denied: '...'",
        texts=(r"\[Errno 13\] Permission denied",),
        cause="The file or directory belongs to somebody else, often to root after a job in a container or by sudo.",
        remedy="`ls -ld` of the path on that node, and chown to the job's user; or another directory, for caches "
        "HF_HOME, TRITON_CACHE_DIR or XDG_CACHE_HOME in launch_environment",
    ),
    Entry(
        id="mount-died",
        title="A mounted directory has lost its server",
        seen="OSError: [Errno 107] Transport endpoint is not connected",
        texts=(r"Transport endpoint is not connected",),
        cause="The program behind the mount (s3fs, mount-s3) has ended under the job.",
        remedy="ansible-playbook site.yml --tags s3fs,mount_s3,cifs_share mounts it again; why it ended stands in the "
        "journal of its service on that node",
    ),
    Entry(
        id="stale-file",
        title="A file on a network drive has gone",
        seen="OSError: [Errno 116] Stale file handle",
        texts=(r"Stale (?:NFS )?file handle",),
        cause="Another node has removed or replaced a file that this one had open, as several nodes do that share a "
        "cache; or the server of the drive was restarted.",
        remedy="let each node have its cache on its own disk (HF_HOME in launch_environment), prepared by one rank "
        "before the others go on; mount again if every access fails",
    ),
    Entry(
        id="too-many-files",
        title="Too many open files",
        seen="OSError: [Errno 24] Too many open files",
        texts=(r"\[Errno 24\] Too many open files", r"received 0 items of ancdata"),
        cause="Each tensor that a worker of the DataLoader hands over is an open file, and the limit is reached.",
        remedy="ansible-playbook site.yml --tags base_packages raises the limit; or in the script "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    Entry(
        id="file-missing",
        title="A file is not there",
        seen="FileNotFoundError: [Errno 2] No such file or directory: '...'",
        texts=(r"FileNotFoundError: \[Errno 2\]",),
        cause="The path is wrong as seen from launch_working_directory, or the file is on some of the nodes only.",
        remedy="absolute paths for data; ansible-playbook site.yml --tags code brings the code, ansible-playbook "
        "stage_data.yml a bucket, to all nodes",
    ),
    Entry(
        id="checkpoint-keys",
        title="The checkpoint does not fit the model",
        seen="Error(s) in loading state_dict for ...: Missing key(s) in state_dict: ...",
        texts=(r"Error\(s\) in loading state_dict for", r"(?:Missing|Unexpected) key\(s\) in state_dict"),
        cause="The checkpoint was made by another model or settings, or its names have a prefix: 'module.' from "
        "DistributedDataParallel, '_orig_mod.' from torch.compile.",
        remedy="save model.module.state_dict(), and load before wrapping; strip the prefix from the names of an old "
        "one",
    ),
    Entry(
        id="checkpoint-torn",
        title="A checkpoint is incomplete",
        seen="PytorchStreamReader failed reading zip archive: failed finding central directory",
        texts=(r"PytorchStreamReader failed", r"MetadataIncompleteBuffer\b"),
        cause="The file was cut off: a job ended while it saved, or a download broke off.",
        remedy="take the one before, and remove this one (for a download: from the cache). Save under another name "
        "and rename when it is whole",
    ),
    Entry(
        id="checkpoint-pickle",
        title="torch.load refuses what is in a checkpoint",
        seen="_pickle.UnpicklingError: Weights only load failed",
        texts=(r"Weights only load failed",),
        cause="Since torch 2.6 torch.load takes tensors and plain types alone, and this checkpoint holds objects of a "
        "class.",
        remedy="if the file is your own, torch.load(..., weights_only=False), or "
        "torch.serialization.add_safe_globals([CLASS])",
    ),
    Entry(
        id="module-missing",
        title="A Python package is not installed",
        seen="ModuleNotFoundError: No module named '...'",
        texts=(r"ModuleNotFoundError: No module named", r"python[\d.]{0,5}: No module named \S"),
        cause="The job's interpreter on that node does not have the package.",
        remedy="enter it in the job's requirements (requirements: [...] in the job file, or python_env_requirements) "
        "and run ansible-playbook site.yml --tags python_env; your own modules: ansible-playbook site.yml --tags code",
    ),
)
HUBS = (
    Entry(
        id="hub-gated",
        title="The model wants to be asked for on the Hugging Face Hub",
        seen="Cannot access gated repo for url https://huggingface.co/...",
        texts=(r"GatedRepoError\b", r"Cannot access gated repo", r"trying to access a gated repo"),
        cause="The authors let only those download it who have accepted their terms, and the job has no token of such "
        "an account.",
        remedy="ask for access on the model's page; then HF_TOKEN=... ansible-playbook site.yml --tags hugging_face, "
        "or hand "
        """it to the job alone: -e '{"launch_pass_environment": ["HF_TOKEN"]}'""",
    ),
    Entry(
        id="hub-rate-limit",
        title="The Hugging Face Hub has had too many requests",
        seen="429 Client Error: Too Many Requests for url: https://huggingface.co/...",
        texts=(r"429 Client Error", r"429 Too Many Requests"),
        cause="All ranks of all nodes have asked the hub at once.",
        remedy="download once, before the job, and let the job ask nobody: "
        """-e '{"launch_environment": {"HF_HUB_OFFLINE": "1"}}'; with a token more requests are allowed""",
    ),
    Entry(
        id="hub-unauthorised",
        title="The Hugging Face Hub does not know the model, or not the user",
        seen="RepositoryNotFoundError: 401 Client Error. Repository Not Found for url: https://huggingface.co/...",
        texts=(
            r"RepositoryNotFoundError\b",
            r"40[134] Client Error[^\n]{0,120}huggingface\.co",
            r"Repository Not Found for url",
        ),
        cause="The name is misspelt, or means a directory that is not on this node, or the model is private and the "
        "token missing, outdated or without the right.",
        remedy="compare the name with its page; HF_TOKEN=... ansible-playbook site.yml --tags hugging_face; for a "
        "model on the disk give an absolute path that is there on all nodes",
    ),
    Entry(
        id="hub-unreachable",
        title="The node does not reach the Hugging Face Hub",
        seen="We couldn't connect to 'https://huggingface.co' to load this file",
        texts=(
            r"Failed to resolve 'huggingface\.co'",
            r"host='huggingface\.co', port=443\): Max retries exceeded",
            r"We couldn't connect to 'https://huggingface\.co'",
            r"LocalEntryNotFoundError\b",
        ),
        cause="The node has no way to the internet or no name server, and the file is not in its cache.",
        remedy="bring the model to all nodes (ansible-playbook stage_data.yml, or a shared drive) and set HF_HOME, and "
        "HF_HUB_OFFLINE to 1, in launch_environment; behind a proxy HTTPS_PROXY",
    ),
    Entry(
        id="wandb-key-missing",
        title="Weights & Biases has no key",
        seen="wandb.errors.UsageError: api_key not configured (no-tty). call wandb.login(key=[your_api_key])",
        texts=(r"api_key not configured",),
        cause="The job's user has no key of Weights & Biases on that node.",
        remedy="WANDB_API_KEY=... ansible-playbook site.yml --tags wandb; or for this job alone "
        """-e '{"launch_pass_environment": ["WANDB_API_KEY"]}'; without it: """
        """-e '{"launch_environment": {"WANDB_MODE": "offline"}}'""",
    ),
    Entry(
        id="wandb-refused",
        title="Weights & Biases refuses the project",
        seen="wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)",
        texts=(
            r"Error while calling W&B API: [^\n]{0,60}(?:permission denied|not found)",
            r"wandb\.errors\.(?:\w{1,20}\.)?(?:CommError|AuthenticationError)",
        ),
        cause="The key is valid, but not for the entity or project that the script names.",
        remedy="set your own: wandb_entity and wandb_project, or WANDB_ENTITY and WANDB_PROJECT in launch_environment",
    ),
)
LAUNCHERS = (
    Entry(
        id="mpi-slots",
        title="Open MPI counts fewer slots than processes",
        seen="There are not enough slots available in the system to satisfy the 2 slots that were requested",
        texts=(r"There are not enough slots available in the system",),
        cause="More processes were asked for than the hostfile has slots.",
        remedy="leave nproc_per_node out, or set node_slots in the inventory; an -np or --hostfile of your own is not "
        "needed",
    ),
    Entry(
        id="killed",
        title="A process was killed from outside",
        seen="Signal 9 (SIGKILL) received by PID ...",
        texts=(
            r"Signal 9 \(SIGKILL\) received by PID",
            r"failed \(exitcode: -9\)",
            r"exitcode {1,4}: -9\b",
            r"was killed by SIGKILL",
        ),
        cause="Something has sent it SIGKILL. Most often that is the kernel, for lack of memory; dmesg on the node "
        "says so then.",
        remedy=f"free -g and dmesg on that node while the job runs; where it is memory: {LESS_HOST_MEMORY}",
        weak=True,
    ),
    Entry(
        id="rank-failed",
        title="The launcher tells that a rank has failed",
        seen="torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        texts=(
            r"ChildFailedError\b",
            r"elastic\.multiprocessing\.api:failed \(exitcode",
            r"multiprocessing/api\.py:\d{1,5}\] failed \(exitcode",
        ),
        cause="A rank on this node has failed. What it wrote itself says why.",
        remedy="read the log of the rank that is named under 'Root Cause': ansible-playbook logs.yml -e rank=N",
        kind="consequence",
    ),
)

# By what they are about. Where several stand for one line, the first counts: special ones come before general ones.
TOPICS: dict[str, tuple[Entry, ...]] = {
    "The memory of GPUs": MEMORY_OF_GPUS,
    "The memory of machines": MEMORY_OF_MACHINES,
    "GPUs, their driver, and what torch was built for": GPUS,
    "Ranks that do not find each other, or disagree": RANKS,
    "DeepSpeed and precision": DEEPSPEED,
    "Files, disks, mounts, packages": FILES,
    "Hugging Face Hub, Weights & Biases": HUBS,
    "What launchers say": LAUNCHERS,
}
CATALOGUE = tuple(entry for entries in TOPICS.values() for entry in entries)

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures to compile code on the nodes."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry

TOPIC = "Compilers and toolkits"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="triton-libcuda",
        title="Triton cannot find the driver's library",
        example="AssertionError: libcuda.so cannot found!",
        texts=(
            r"libcuda\.so cannot found!",
            r"cannot find -lcuda(?![\w])",
        ),
        cause=(
            "Triton, and therefore torch.compile, links its kernels against the driver's library but cannot find "
            "libcuda.so: the container was started without the driver's files, the linker's cache does not list "
            "them, or only libcuda.so.1 exists."
        ),
        remedy=(
            "make sure that `ldconfig -p | grep libcuda` lists it in the job's environment. On the node or in "
            "the image, run sudo ldconfig and create a link from libcuda.so to libcuda.so.1 in the same "
            "directory; with Apptainer, start the container with --nv. Or specify the library's directory with "
            '-e \'{"launch_environment": {"TRITON_LIBCUDA_PATH": "/usr/lib/x86_64-linux-gnu", "LIBRARY_PATH": '
            '"/usr/lib/x86_64-linux-gnu"}}\''
        ),
        source="unslothai/unsloth#679",
        recoverable=True,
    ),
    CatalogueEntry(
        id="extension-not-built",
        title="A C++ or CUDA extension was not built",
        example="ImportError: .../torch_extensions/.../cpu_adam.so: cannot open shared object file: No such file "
        "or directory",
        texts=(
            r"torch_extensions/[^\n]{1,160}\.so: (?:cannot open shared object file|file too short|invalid ELF header)",
        ),
        cause="The op was not built: its compilation failed earlier, on this or another rank, because nvcc, "
        "ninja, a compiler or header files are missing on the node.",
        remedy=(
            "read the first build error, which is further up in the logs of all ranks (ansible-playbook logs.yml "
            "-e fetch=true); install the CUDA toolkit version that torch was built with and set CUDA_HOME in "
            "launch_environment; or do without the op (use torch.optim.AdamW instead of FusedAdam). Remove "
            "~/.cache/torch_extensions before trying again"
        ),
        source="deepspeedai/DeepSpeed#5723",
    ),
    CatalogueEntry(
        id="cuda-toolkit-mismatch",
        title="The CUDA toolkit does not match torch's version",
        example="Installed CUDA version ... does not match the version torch was compiled with ...",
        texts=(
            r"Installed CUDA version \S{1,20} does not match the version torch was compiled with",
            r"The detected CUDA version \(\S{1,12}\) mismatches the version that was used",
        ),
        cause=(
            "DeepSpeed, or another package, is compiling GPU code with the node's nvcc, whose CUDA version differs "
            "from torch's."
        ),
        remedy=(
            "install a torch build for that CUDA version (ansible-playbook site.yml --tags python_env,pytorch -e "
            "pytorch_cuda=12.4), or set CUDA_HOME in launch_environment to the CUDA toolkit version that torch was "
            "built with"
        ),
        source="JIA-Lab-research/MGM#91",
        recoverable=True,
    ),
    CatalogueEntry(
        id="cuda-home-missing",
        title="There is no CUDA toolkit",
        example="MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA op(s)",
        texts=(r"CUDA_HOME does not exist", r"CUDA_HOME environment variable is not set"),
        cause="DeepSpeed, or another package, compiles GPU code on first use and cannot find nvcc on the node.",
        remedy=(
            "install the CUDA toolkit version that torch was built with on each node and set CUDA_HOME in "
            "launch_environment; or do without the op (use torch.optim.AdamW instead of FusedAdam)"
        ),
        source="thinhlpg/vixtts-demo#12",
        recoverable=True,
    ),
    CatalogueEntry(
        id="python-headers-missing",
        title="Python's header files are not installed",
        example="fatal error: Python.h: No such file or directory",
        texts=(r"fatal error: Python\.h: No such file or directory",),
        cause=(
            "A package (DeepSpeed for its optimizers, for example) compiles C++ code on first use, but the node "
            "lacks the header files for its Python version."
        ),
        remedy=(
            'run ansible-playbook site.yml --tags base_packages -e \'{"base_packages_extra": ["python3-dev"]}\' '
            "(for a Python version other than the system's, use python3.11-dev and so on); or avoid the op (use "
            "torch.optim.AdamW instead of FusedAdam)"
        ),
        source="torch 2.13.0 on a CPU",
    ),
    CatalogueEntry(
        id="extension-build-failed",
        title="C++ or CUDA code could not be compiled",
        example="RuntimeError: Error building extension '...'",
        texts=(
            r"Error building extension '",
            r"Command '\['ninja', '-v'\]' returned non-zero",
        ),
        cause="A package compiles C++ or CUDA code on first use, and the compiler failed.",
        remedy=(
            "find the first line with 'error:' in the rank's log, which says why. Often header files are missing, "
            "the compiler is too old or too new for the CUDA toolkit, or memory ran out (if so, set MAX_JOBS=2 in "
            "launch_environment)"
        ),
        source="torch 2.13.0 on a CPU",
        weak=True,
    ),
    CatalogueEntry(
        id="c-compiler-missing",
        title="There is no C compiler",
        example="RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        texts=(
            r"Failed to find C compiler",
            r"InvalidCxxCompiler\b",
            r"Command '\['which', '(?:c\+\+|g\+\+|gcc)'\]' returned non-zero",
            r"No such file or directory: '(?:/usr/bin/)?(?:gcc|g\+\+|cc|c\+\+|x86_64-linux-gnu-g\+\+|x86_64-linux-"
            r"gnu-gcc)'",
            r"gcc: (?:command )?not found",
            r"g\+\+: (?:command )?not found",
            r"c\+\+: (?:command )?not found",
        ),
        cause=(
            "Triton, torch.compile and DeepSpeed compile code while the job is running, and the node or the image "
            "has no compiler."
        ),
        remedy=(
            'run ansible-playbook site.yml --tags base_packages -e \'{"base_packages_extra": ["build-essential"]}\'; '
            "in a container, use an image that has gcc, or a -devel image"
        ),
        source="MIC-DKFZ/nnUNet#2268",
        recoverable=True,
    ),
    CatalogueEntry(
        id="ninja-missing",
        title="ninja is not installed",
        example="RuntimeError: Ninja is required to load C++ extensions",
        texts=(r"Ninja is required to load C\+\+ extensions",),
        cause=(
            "A package, often DeepSpeed, compiles an extension while the job is running and needs the program ninja, "
            "which is not installed or not in the job's PATH on that node."
        ),
        remedy="add ninja to the job's requirements (requirements: [...]) and run ansible-playbook site.yml "
        "--tags python_env",
        source="deepspeedai/DeepSpeed#5627",
        recoverable=True,
    ),
    CatalogueEntry(
        id="cuda-toolkit-too-old",
        title="The CUDA toolkit does not support this GPU",
        example="nvcc fatal   : Unsupported gpu architecture 'compute_89'",
        texts=(r"nvcc fatal[ \t]{0,8}: Unsupported gpu architecture",),
        cause=(
            "An extension is being compiled for a GPU that the node's nvcc does not support: the toolkit is older "
            "than the GPU, or so new that it has dropped support for it."
        ),
        remedy=(
            "set CUDA_HOME in launch_environment to the CUDA toolkit version that torch was built with; or "
            "compile for an architecture that both the toolkit and the GPU support, for example with -e "
            '\'{"launch_environment": {"TORCH_CUDA_ARCH_LIST": "8.0+PTX"}}\''
        ),
        source="facebookresearch/3detr#59",
    ),
    CatalogueEntry(
        id="deepspeed-libaio-missing",
        title="libaio, needed for DeepSpeed's disk offload, is missing",
        example="RuntimeError: Unable to JIT load the async_io op due to it not being compatible due to "
        "hardware/software issue.",
        texts=(
            r"Unable to JIT load the async_io op due to it not being compatible",
            r"Unable to pre-compile async_io\b",
        ),
        cause=(
            "Offloading to NVMe uses the async_io op, which DeepSpeed compiles against libaio, but the node "
            "lacks libaio's header or library."
        ),
        remedy=(
            "install libaio on all nodes with ansible-playbook site.yml --tags base_packages -e "
            '\'{"base_packages_extra": ["libaio-dev"]}\'; or offload to the CPU instead'
        ),
        source="deepspeedai/DeepSpeed#1037",
        refines=("deepspeed-op-not-built",),
    ),
    CatalogueEntry(
        id="deepspeed-op-not-built",
        title="A DeepSpeed op was not built",
        example="AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
        texts=(
            r"object has no attribute 'ds_opt_\w{1,20}'",
            r"Unable to JIT load the \w{1,40} op due to it not being compatible",
        ),
        cause=(
            "DeepSpeed compiles its ops (fused_adam, cpu_adam and so on) when they are first used, and the build "
            "failed earlier, usually because the node is missing a compiler, Python.h, nvcc or the CUDA toolkit "
            "version that torch was built with."
        ),
        remedy=(
            "find the first build error further up in the log. Run rm -rf ~/.cache/torch_extensions on each node "
            "to remove what the failed build left behind, and run ds_report there to list what is missing. Or do "
            "without the op (use torch.optim.AdamW instead of FusedAdam)"
        ),
        source="deepspeedai/DeepSpeed#1846",
        weak=True,
        recoverable=True,
    ),
    CatalogueEntry(
        id="gcc-too-new",
        title="The compiler is too new for the CUDA toolkit",
        example="error: #error -- unsupported GNU version! gcc versions later than 12 are not supported!",
        texts=(r"unsupported GNU version! gcc versions later than",),
        cause="nvcc accepts only C++ compilers up to a certain version, and the one that it found is newer.",
        remedy=(
            "install the newest accepted version on the nodes (sudo apt-get install g++-12) and use it with -e "
            '\'{"launch_environment": {"CC": "gcc-12", "CXX": "g++-12", "NVCC_PREPEND_FLAGS": "-ccbin '
            "g++-12\"}}'; or install a newer CUDA toolkit"
        ),
        source="tianzhi0549/FCOS#37",
    ),
    CatalogueEntry(
        id="cuda-toolkit-incomplete",
        title="The CUDA toolkit lacks header files or libraries",
        example="CUDAContext.h:10:10: fatal error: cusolverDn.h: No such file or directory",
        texts=(
            r"fatal error: (?:cuda|cudnn|cusparse|cusolver|cublas|curand|cufft|nvrtc|nvtx|nccl)\w{0,30}\.h: No suc"
            r"h file",
            r"cannot find -l(?:cuda|cudart|curand|cublas|cublasLt|cusparse|cusolver|nvrtc|cudnn|nccl)\b",
        ),
        cause=(
            "A package compiles CUDA code, and the toolkit that it finds has no development files: the toolkit "
            "is only partly installed, or CUDA_HOME points to the wrong directory."
        ),
        remedy=(
            "install the full CUDA toolkit on the nodes, in the version that torch was built with (sudo apt-get "
            'install cuda-toolkit-12-4), point to it with -e \'{"launch_environment": {"CUDA_HOME": '
            '"/usr/local/cuda-12.4"}}\', and set LIBRARY_PATH to its lib64 directory; or use an image with '
            "`devel` in its tag"
        ),
        source="deepspeedai/DeepSpeed#2684",
    ),
    CatalogueEntry(
        id="triton-too-old",
        title="triton does not support this GPU",
        example="ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'",
        texts=(
            r"ptxas\S{0,20} fatal {1,4}: Value '",
            r"PTX \.version [\d.]{1,8} does not support \.target sm_",
        ),
        cause="triton comes with its own GPU assembler (ptxas), which is older than this GPU.",
        remedy=(
            "install a newer torch, which comes with a newer triton (ansible-playbook site.yml --tags "
            'python_env,pytorch); or use the assembler of a newer CUDA toolkit with -e \'{"launch_environment": '
            '{"TRITON_PTXAS_PATH": "/usr/local/cuda/bin/ptxas"}}\''
        ),
        source="triton-lang/triton#8539",
    ),
    CatalogueEntry(
        id="compile-worker-ended",
        title="A torch.compile worker process ended",
        example="RuntimeError: A compilation subprocess exited unexpectedly.",
        texts=(
            r"A compilation subprocess exited unexpectedly",
            r"RuntimeError: Attempting to use a closed pool",
            r"BrokenProcessPool: A (?:child process terminated|process in the process pool was terminated) abruptly",
        ),
        cause=(
            "torch.compile compiles in several worker processes, and one of them ended: it crashed, or the kernel "
            "killed it for lack of memory, since each rank on the node starts up to 32 of them."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"TORCHINDUCTOR_COMPILE_THREADS": "1"}}\' to compile in the '
            "rank's own process; if memory was short, use 4 instead of 1 to compile faster. If the rank itself "
            "then crashes, its message says why; upgrade torch and triton"
        ),
        source="pytorch/pytorch#135120",
    ),
    CatalogueEntry(
        id="dynamo-python",
        title="torch.compile does not support this version of Python yet",
        example="RuntimeError: Dynamo is not supported on Python 3.12+",
        texts=(
            r"(?:Dynamo|torch\.compile|Compile) is not (?:yet )?supported on Python 3\.\d{1,2}",
            r"Python 3\.1\d\+? (?:is )?not yet supported for torch\.compile",
        ),
        cause=(
            "The installed torch version cannot compile with this version of Python, and the script or a package "
            "calls torch.compile."
        ),
        remedy=(
            "install a newer torch: 2.4 or newer for Python 3.12, 2.6 for 3.13, 2.10 for 3.14 (ansible-playbook "
            "site.yml --tags python_env,pytorch -e pytorch_version=2.6.0); or use an older Python. If a package "
            "such as DeepSpeed calls torch.compile when it is imported, a newer version of that package may not "
            "do so"
        ),
        source="deepspeedai/DeepSpeed#7875",
        recoverable=True,
    ),
    CatalogueEntry(
        id="compile-failed",
        title="torch.compile failed",
        example="torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        texts=(r"BackendCompilerFailed: backend='[^'\n]{1,40}' raised", r"\bInductorError: "),
        cause=(
            "A part of the model could not be compiled; the error after `raised:` says why. Common reasons are a "
            "missing C compiler, Triton or header files on the node, a GPU that Triton does not support, several "
            "processes compiling into one cache, or an operation that this version of torch cannot compile, "
            "possibly only in combination with DDP or FSDP."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"TORCHDYNAMO_DISABLE": "1"}}\' to train without compiling, '
            "which shows whether anything else is wrong; then upgrade torch, or compile only parts of the model "
            "(call torch.compile on its blocks)"
        ),
        source="pytorch/pytorch#119054",
        weak=True,
        general=True,
    ),
)

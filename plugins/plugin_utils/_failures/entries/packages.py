# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures caused by missing or incompatible packages."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    CPU_ONLY_TORCH,
)

TOPIC = "Python packages and libraries"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="bitsandbytes-cuda",
        title="bitsandbytes does not match CUDA",
        example="RuntimeError: CUDA Setup failed despite GPU being available.",
        texts=(
            r"CUDA Setup failed despite (?:CUDA|GPU) being available",
            r"Could not find the bitsandbytes CUDA binary",
            r"'NoneType' object has no attribute 'cadam32bit",
            r"undefined symbol: cget_",
            r"object has no attribute 'cget_managed_ptr'",
        ),
        cause=(
            "The installed bitsandbytes is too old for this CUDA version: it does not include a library built for "
            "this version."
        ),
        remedy=(
            "upgrade bitsandbytes: add it to the job's requirements without an upper bound and run ansible-playbook "
            "site.yml --tags python_env. To see what it looks for, run `python -m bitsandbytes` on the node"
        ),
        source="bitsandbytes-foundation/bitsandbytes#1522",
        recoverable=True,
    ),
    CatalogueEntry(
        id="glibc-too-old",
        title="A package needs a newer glibc",
        example="ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by ...)",
        texts=(r"version `GLIBC_[\d.]{1,8}' not found",),
        cause=(
            "A package was built on a newer Linux distribution than the node's: the node's C library (glibc) is "
            "too old for the package."
        ),
        remedy=(
            "use an older version of the package named after `required by`, build it on the node (pip install "
            "--no-binary PACKAGE --no-build-isolation PACKAGE), or use machines or a container image with a newer "
            "system"
        ),
        source="Dao-AILab/flash-attention#1762",
        recoverable=True,
    ),
    CatalogueEntry(
        id="no-kernel-image",
        title="torch was not built for this GPU",
        example="CUDA error: no kernel image is available for execution on the device",
        texts=(
            r"no kernel image is available for execution on the device",
            r"is not compatible with the current PyTorch installation",
        ),
        cause=(
            "torch, or an extension such as flash-attention, was not compiled for this GPU model: the package is "
            "older than the GPU, or so new that it no longer supports the GPU."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags python_env,pytorch -e pytorch_version=auto -e pytorch_cuda=auto to "
            "install a torch build that supports all GPUs in the cluster, and rebuild any extensions against it"
        ),
        source="jiangyzy/GOAE#16",
        recoverable=True,
        refines=("nccl-cuda-error",),
    ),
    CatalogueEntry(
        id="torch-without-cuda",
        title="torch was built without CUDA",
        example="AssertionError: Torch not compiled with CUDA enabled",
        texts=(r"Torch not compiled with CUDA enabled",),
        cause="The installed torch is the CPU-only build.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch -e pytorch_cuda=auto",
        source="facebookresearch/detectron2#460",
    ),
    CatalogueEntry(
        id="set-device-without-cuda",
        title="The script selects a GPU, but torch was built without CUDA",
        example="AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'",
        texts=(r"module 'torch\._C' has no attribute '_cuda_",),
        cause="The installed torch is the CPU-only build, so calls such as torch.cuda.set_device do not exist.",
        remedy=CPU_ONLY_TORCH.format(change="make them conditional: if torch.cuda.is_available()"),
        source="torch 2.13.0 on a CPU",
    ),
    CatalogueEntry(
        id="nccl-not-built",
        title="torch was built without NCCL",
        example="RuntimeError: Distributed package doesn't have NCCL built in",
        texts=(r"Distributed package doesn't have NCCL built in",),
        cause=(
            "The script requests the nccl backend, which needs GPUs, but the installed torch is the CPU-only build."
        ),
        remedy=CPU_ONLY_TORCH.format(
            change='choose the backend in the script: "nccl" if torch.cuda.is_available() else "gloo"'
        ),
        source="torch 2.13.0 on a CPU",
    ),
    CatalogueEntry(
        id="nccl-symbol-missing",
        title="torch loaded the wrong NCCL version",
        example="libtorch_cuda.so: undefined symbol: ncclCommRegister",
        texts=(r"undefined symbol: nccl",),
        cause=(
            "An older libnccl is found before torch's own. It comes from the system, from LD_LIBRARY_PATH, or "
            "from a package for another CUDA version in the same environment."
        ),
        remedy=(
            "remove it from LD_LIBRARY_PATH in launch_environment, and make sure that `pip list` shows exactly "
            "one nvidia-nccl package in the environment. If it shows several, uninstall them all with "
            "pip, and run ansible-playbook site.yml --tags python_env,pytorch"
        ),
        source="rwth-i6/returnn#1802",
    ),
    CatalogueEntry(
        id="flash-attention-mismatch",
        title="flash-attention was built for a different torch version",
        example="flash_attn_2_cuda...so: undefined symbol: ...",
        texts=(r"flash_attn\w{0,20}[^\n]{0,120}undefined symbol",),
        cause="The flash-attention wheel was built for a different torch version or a different C++ ABI.",
        remedy=(
            "run ansible-playbook site.yml --tags python_env,pytorch,flash_attention -e "
            "flash_attention_enabled=true, which chooses a matching torch version and wheel"
        ),
        source="Dao-AILab/flash-attention#1832",
        recoverable=True,
    ),
    CatalogueEntry(
        id="nccl-library-missing",
        title="NCCL is not installed",
        example="ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
        texts=(r"(?:ImportError|OSError): libnccl[\w.]{0,20}: cannot open shared object file",),
        cause="torch's own NCCL is missing, or was removed from the environment.",
        remedy="run ansible-playbook site.yml --tags python_env,pytorch to install torch with its dependencies",
        source="pinokiocomputer/pinokio#193",
    ),
    CatalogueEntry(
        id="torchcodec-not-loaded",
        title="torchcodec cannot load its library",
        example="RuntimeError: Could not load libtorchcodec. Likely causes:",
        texts=(r"Could not load libtorchcodec",),
        cause=(
            "FFmpeg is not installed in this environment or image in a version that torchcodec supports (4 to 7; "
            "newer torchcodec versions also support 8); or torchcodec was built for a different version of torch or "
            "CUDA."
        ),
        remedy=(
            "install FFmpeg on each node with conda install -c conda-forge 'ffmpeg<8' or sudo apt-get install "
            "ffmpeg, and install the torchcodec version for your torch from torch's own index: pip install "
            "torchcodec --index-url https://download.pytorch.org/whl/cu128"
        ),
        source="huggingface/lerobot#964",
        recoverable=True,
        refines=("cuda-library-missing", "library-missing", "extension-abi"),
    ),
    CatalogueEntry(
        id="cuda-library-missing",
        title="A CUDA library is missing",
        example="ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        texts=(
            r"(?:ImportError|OSError): lib(?:cu|nv|c10_cuda|torch_cuda)[\w.]{0,40}: cannot open shared object file",
        ),
        cause="A package was built for a different CUDA version from the one bundled with torch.",
        remedy=(
            "install a build of the package for torch's CUDA version (python -c 'import torch; "
            "print(torch.version.cuda)'), or install a torch build for the package's CUDA version: "
            "ansible-playbook site.yml --tags python_env,pytorch -e pytorch_cuda=12.4"
        ),
        source="vllm-project/vllm#31018",
        recoverable=True,
    ),
    CatalogueEntry(
        id="numpy-mismatch",
        title="A package was built for a different numpy version",
        example="A module that was compiled using NumPy 1.x cannot be run in NumPy 2...",
        texts=(
            r"A module that was compiled using NumPy 1\.x cannot be run in",
            r"RuntimeError: Numpy is not available",
            r"Could not infer dtype of numpy\.\w{1,20}",
        ),
        cause="numpy 2 is installed, but something in the environment was built for numpy 1.",
        remedy=(
            "add numpy<2, or newer versions of the packages in the traceback, to the job's requirements and run "
            "ansible-playbook site.yml --tags python_env"
        ),
        source="salesforce/LAVIS#755",
        recoverable=True,
        weak=True,
    ),
    CatalogueEntry(
        id="module-missing",
        title="A Python package is not installed",
        example="ModuleNotFoundError: No module named '...'",
        texts=(
            r"ModuleNotFoundError: No module named",
            r"DistributionNotFound: The '[^'\n]{1,100}' distribution was not found",
            r"PackageNotFoundError: No package metadata was found for",
            r"the package flash_attn seems to be not installed",
            r"python[\d.]{0,5}: No module named \S",
        ),
        cause="The package is not installed for the job's Python interpreter on that node.",
        remedy=(
            "add it to the job's requirements (requirements: [...] in the job file, or python_env_requirements) and "
            "run ansible-playbook site.yml --tags python_env; for your own modules, run ansible-playbook site.yml "
            "--tags code"
        ),
        source="StarsfieldAI/R1-V#52",
        recoverable=True,
        general=True,
    ),
    CatalogueEntry(
        id="numpy-abi",
        title="A package was compiled for a different numpy version",
        example="ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C "
        "header, got 88 from PyObject",
        texts=(
            r"ValueError: numpy\.\w{1,20} size changed, may indicate binary incompatibility",
            r"ImportError: numpy\.core\.multiarray failed to import",
        ),
        cause=(
            "A compiled package was built for a different version of numpy from the one that is installed. If the "
            "message is about numpy.dtype, and 96 was expected but 88 was found, it was built for numpy 1, and numpy "
            "2 is installed; otherwise, it was usually built for a newer numpy."
        ),
        remedy=(
            "add numpy<2, or newer versions of numpy and of the package in the line above, to the job's "
            "requirements and run ansible-playbook site.yml --tags python_env"
        ),
        source="seung-lab/igneous#203",
        recoverable=True,
    ),
    CatalogueEntry(
        id="libstdcxx-too-old",
        title="The C++ library is too old for a package",
        example="ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.29' not found",
        texts=(r"version `(?:GLIBCXX|CXXABI)_[\d.]{1,12}' not found",),
        cause=(
            "The package was compiled for a newer C++ library (libstdc++) than the one that is loaded, either "
            "because the distribution is older or because another environment's library comes first in "
            "LD_LIBRARY_PATH."
        ),
        remedy=(
            "in a conda environment, run conda install -c conda-forge libstdcxx-ng, and put the environment's "
            "lib directory first in LD_LIBRARY_PATH (launch_environment). Otherwise, remove LD_LIBRARY_PATH from "
            "launch_environment, or install an older version of the package"
        ),
        source="Dao-AILab/flash-attention#1428",
        recoverable=True,
    ),
    CatalogueEntry(
        id="import-name-missing",
        title="Two Python packages are incompatible",
        example="ImportError: cannot import name 'top_k_top_p_filtering' from 'transformers'",
        texts=(
            r"ImportError: cannot import name '[^'\n]{1,100}' from '",
            r"^(?:\[rank\d{1,5}\]: ?)?cannot import name '\w{1,100}' from '",
        ),
        cause="The package named after `from` is too new or too old for the package that imports the name "
        "from it. In rare cases, one of your own files has the same name as a package and hides it.",
        remedy=(
            "pin compatible versions of both packages in the job's requirements (requirements: [...]): upgrade "
            "the package whose file is last in the traceback, or pin the other one to an older version; then run "
            "ansible-playbook site.yml --tags python_env"
        ),
        source="huggingface/trl#1409",
        general=True,
        recoverable=True,
    ),
    CatalogueEntry(
        id="transformers-import-failed",
        title="A transformers module cannot be imported",
        example="RuntimeError: Failed to import transformers.trainer because of the following error (look up "
        "to see its traceback):",
        texts=(r"Failed to import transformers\.[\w.]{1,100} because of the following error",),
        cause=(
            "transformers imports its submodules only when they are used, and one of the packages that this "
            "submodule needs cannot be imported. The next line says which one."
        ),
        remedy=(
            "fix that package: usually its version is incompatible. Run ansible-playbook site.yml --tags python_env "
            "to install the versions in the job's requirements"
        ),
        source="SkyworkAI/Matrix-3D#28",
        weak=True,
        recoverable=True,
    ),
    CatalogueEntry(
        id="argument-unknown",
        title="The installed version does not recognize an option",
        example="TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
        texts=(
            r"TypeError: (?:TrainingArguments|Seq2SeqTrainingArguments|(?:SFT|DPO|GRPO|PPO|ORPO|KTO|Reward)Config|"
            r"(?:Lora|Peft|BitsAndBytes)Config|\w{0,60}Trainer)\.__init__\(\) got an unexpected keyword argument '",
        ),
        cause=(
            "The option was renamed or removed in the installed version, or was added in a later one. transformers "
            "renamed evaluation_strategy to eval_strategy, and Trainer(tokenizer=...) to processing_class."
        ),
        remedy=(
            "use the new name, or pin the version that the script was written for in the job's requirements "
            "(requirements: [...]) and run ansible-playbook site.yml --tags python_env"
        ),
        source="TW-NLP/ChineseErrorCorrector#31",
        recoverable=True,
    ),
    CatalogueEntry(
        id="torchvision-mismatch",
        title="torchvision does not match torch",
        example="RuntimeError: operator torchvision::nms does not exist",
        texts=(
            r"operator torchvision::\w{1,30} does not exist",
            r"No such operator torchvision::",
            r"Couldn't load custom C\+\+ ops\b",
            r"Could not run 'torchvision::\w{1,40}' with arguments from the 'CUDA' backend",
        ),
        cause=(
            "torchvision was built without CUDA, or for a different torch or CUDA version from the one that is "
            "installed; often pip upgraded only one of the two packages."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags python_env,pytorch, which installs the torchvision build that "
            "matches torch; if the job's requirements pin versions of the two that do not match, remove those "
            "pins"
        ),
        source="fudan-generative-vision/hallo#98",
        recoverable=True,
    ),
    CatalogueEntry(
        id="operator-without-cuda",
        title="A package's operators were built without CUDA",
        example="NotImplementedError: Could not run 'torchaudio::_lfilter' with arguments from the 'CUDA' backend.",
        texts=(
            r"Could not run '(?!aten::|prim::|quantized::|c10d|torchvision::|_c10d)\w{1,40}::\w{1,60}' with arguments "
            r"from the 'CUDA' backend",
        ),
        cause=(
            "The operator comes from the package that its name begins with, and the installed build of that package "
            "supports it only on the CPU: it is a CPU wheel, or was built on a machine without nvcc or a visible GPU."
        ),
        remedy=(
            "install a build of the package for torch's CUDA version (for PyTorch wheels, use --index-url "
            "https://download.pytorch.org/whl/cuXXX), or build it on a GPU node with CUDA_HOME set and "
            "FORCE_CUDA=1: pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir PACKAGE"
        ),
        source="facebookresearch/sam2#220",
        recoverable=True,
    ),
    CatalogueEntry(
        id="extension-abi",
        title="A compiled package was built for a different torch version",
        example="ImportError: .../_C.cpython-311-x86_64-linux-gnu.so: undefined symbol: "
        "_ZN5torch3jit11parseSchemaERKSsb",
        texts=(r"\.so[.\d]{0,12}: undefined symbol: (?:_Z|_?Py[A-Z_])",),
        cause=(
            "The package's compiled code was built for a torch version, CUDA version or C++ ABI other than the "
            "installed ones."
        ),
        remedy=(
            "install the wheel of the package whose name contains your torch and CUDA versions, or rebuild the "
            "package in this environment: pip install --force-reinstall --no-build-isolation --no-cache-dir "
            "PACKAGE"
        ),
        source="pytorch/extension-cpp#103",
        general=True,
        recoverable=True,
    ),
    CatalogueEntry(
        id="version-required",
        title="A package needs a different version of another package",
        example="ImportError: numpy>=1.17 is required for a normal functioning of this module, but found "
        "numpy==1.16.3.",
        texts=(
            r"is required for a normal functioning of this module, but found",
            r"pkg_resources\.(?:Contextual)?VersionConflict",
        ),
        cause="Two packages in the environment have incompatible versions. The message names both packages.",
        remedy=(
            "put the version that the message asks for into the job's requirements (requirements: [...]) and run "
            "ansible-playbook site.yml --tags python_env. If the job finds packages from another Python "
            "installation first, remove PYTHONPATH from the job's environment, and set PYTHONNOUSERSITE to 1 in "
            "launch_environment to ignore ~/.local"
        ),
        source="huggingface/transformers#11713",
        recoverable=True,
    ),
    CatalogueEntry(
        id="numpy-name-removed",
        title="A package uses names that this version of numpy no longer has",
        example="AttributeError: module 'numpy' has no attribute 'bool'.",
        texts=(
            r"module 'numpy' has no attribute '(?:bool|int|float|object|str|complex|long|unicode|typeDict|bool8|fl"
            r"oat_|complex_|unicode_)'",
            r"AttributeError: `np\.\w{1,20}` was removed in the NumPy",
        ),
        cause=(
            "numpy 1.24 and 2.0 removed names such as np.bool, np.int and np.float_, and the package or script that "
            "the traceback shows just before numpy still uses one of them."
        ),
        remedy=(
            "upgrade that package, or add numpy<1.24 (or numpy<2 for the names that numpy 2 removed) to the "
            "job's requirements, and run ansible-playbook site.yml --tags python_env. In your own code, use "
            "bool, int and float instead of np.bool, np.int and np.float"
        ),
        source="predict-idlab/powershap#50",
        recoverable=True,
    ),
    CatalogueEntry(
        id="flash-attention-gpu",
        title="flash-attention does not support this GPU",
        example="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        texts=(r"FlashAttention only supports Ampere GPUs or newer",),
        cause=(
            "flash-attention needs an Ampere (A100, RTX 30) or newer GPU; it has no kernels for V100, T4 and older "
            "GPUs. All nodes of the run need such GPUs."
        ),
        remedy=(
            'choose another attention implementation: use attn_implementation="sdpa" (transformers) or '
            "--use_flash_attn false. Or run only on the nodes with newer GPUs (-e nodes=...); to list them, run "
            "ansible-playbook ping.yml"
        ),
        source="InternRobotics/PointLLM#47",
        recoverable=True,
    ),
    CatalogueEntry(
        id="cuda-libraries-mixed",
        title="torch loads CUDA libraries of a different version",
        example="ImportError: .../nvidia/cusparse/lib/libcusparse.so.12: undefined symbol: "
        "__nvJitLinkAddData_12_1, version libnvJitLink.so.12",
        texts=(
            r"undefined symbol: (?:__nvJitLink|cublas|cudnn|cusparse|cusolver|cufft|nvrtc)\w{1,60}",
            r"cuDNN version (?:incompatibility|mismatch): PyTorch was compiled",
        ),
        cause=(
            "LD_LIBRARY_PATH, or a system-wide CUDA toolkit, puts CUDA or cuDNN libraries of a different version "
            "ahead of those bundled with torch."
        ),
        remedy=(
            'clear LD_LIBRARY_PATH: launch with -e \'{"launch_environment": {"LD_LIBRARY_PATH": ""}}\', or '
            "remove the line in ~/.bashrc or the module that sets it. In an image whose own torch needs the "
            "variable, put the nvidia/nvjitlink/lib directory of site-packages first in it"
        ),
        source="pytorch/pytorch#131312",
        recoverable=True,
    ),
    CatalogueEntry(
        id="library-missing",
        title="A system library is missing",
        example="ImportError: libGL.so.1: cannot open shared object file: No such file or directory",
        texts=(r"(?:ImportError|OSError): lib[\w.+-]{1,80}: cannot open shared object file",),
        cause="A Python package needs a library that the node, or the container image, does not have.",
        remedy=(
            "install it on all nodes or in the image. For libGL.so.1 or libgthread, run sudo apt-get install libgl1 "
            "libglib2.0-0, or use opencv-python-headless instead of opencv-python; for libmpi.so, run "
            "ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true; for any other library, use `apt-file "
            "search LIBRARY`"
        ),
        source="amdegroot/ssd.pytorch#525",
        recoverable=True,
        general=True,
    ),
    CatalogueEntry(
        id="transformers-too-old",
        title="The model is newer than transformers",
        example="ValueError: The checkpoint you are trying to load has model type `qwen3` but Transformers "
        "does not recognize this architecture.",
        texts=(
            r"but Transformers does not recognize this architecture",
            r"Tokenizer class \w{1,80} does not exist or is not currently imported",
            r"data did not match any variant of untagged enum",
        ),
        cause=(
            "The installed version of transformers or tokenizers does not support this model, because it is "
            "older than the model or because the model comes with its own code."
        ),
        remedy=(
            "put a newer version of transformers (and tokenizers) into the job's requirements and run "
            "ansible-playbook site.yml --tags python_env; for a model with its own code, use "
            "from_pretrained(..., trust_remote_code=True)"
        ),
        source="declare-lab/Emma-X#1",
        recoverable=True,
    ),
    CatalogueEntry(
        id="torch-name-missing",
        title="torch is too old or too new for a package",
        example="AttributeError: module 'torch' has no attribute '...'",
        texts=(
            r"AttributeError: (?:partially initialized )?module '(?:torch|torchvision|triton)(?:\.[\w.]{1,60})?' h"
            r"as no attribute '",
        ),
        cause=(
            "The script or a package uses a function that this version of torch does not have yet or no longer has."
        ),
        remedy=(
            "compare `pip show torch` with the version that the package requires. Change the torch version with "
            "ansible-playbook site.yml --tags python_env,pytorch -e pytorch_version=2.6.0, or pin the package's "
            "version in the job's requirements"
        ),
        source="ultralytics/yolov3#67",
        recoverable=True,
        general=True,
    ),
    CatalogueEntry(
        id="mkl-threads",
        title="numpy's MKL and torch use different OpenMP libraries",
        example="Error: mkl-service + Intel(R) MKL: MKL_THREADING_LAYER=INTEL is incompatible with "
        "libgomp.so.1 library.",
        texts=(r"MKL_THREADING_LAYER=INTEL is incompatible with libgomp",),
        cause=(
            "numpy comes from conda and uses Intel's OpenMP library, and torch, which uses GNU's, was loaded first."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"MKL_THREADING_LAYER": "GNU"}}\', or import numpy before torch'
        ),
        source="pytorch/ort#102",
        recoverable=True,
    ),
    CatalogueEntry(
        id="cudnn-libraries-mixed",
        title="Libraries from different cuDNN versions are loaded",
        example="Could not load library libcudnn_cnn_train.so.8. Error: "
        "/usr/local/cuda-12.1/lib/libcudnn_cnn_train.so.8: undefined symbol: ...",
        texts=(
            r"Could not load library libcudnn\w{0,30}\.so[\d.]{0,10}\. {1,8}Error: ",
            r"Unable to load any of \{libcudnn",
        ),
        cause=(
            "torch has loaded one cuDNN library from its own packages but finds another one first in "
            "LD_LIBRARY_PATH, for example from the system's CUDA toolkit or a module, so the libraries are from "
            "different cuDNN versions."
        ),
        remedy=(
            'clear LD_LIBRARY_PATH: launch with -e \'{"launch_environment": {"LD_LIBRARY_PATH": ""}}\', or remove '
            "the line in ~/.bashrc or the module (module unload cudnn cuda) that sets it; torch bundles its own cuDNN"
        ),
        source="andimarafioti/florence2-finetuning#2",
        refines=("cudnn-no-algorithm", "aborted", "native-crash"),
    ),
    CatalogueEntry(
        id="cudnn-no-plan",
        title="cuDNN has no kernel for this attention call",
        example="RuntimeError: cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.",
        texts=(r"\[cudnn_frontend\] Error: No execution plans (?:support the graph|built successfully)",),
        cause=(
            "torch chose cuDNN attention, but cuDNN has no kernel for these shapes, this precision or this GPU; "
            "torch 2.5.0 chose cuDNN attention too often."
        ),
        remedy=(
            "call torch.backends.cuda.enable_cudnn_sdp(False) in the script so that torch uses a different "
            "implementation, or use another torch version (ansible-playbook site.yml --tags python_env,pytorch "
            "-e pytorch_version=2.6.0). On GPUs older than Ampere, use fp16 or fp32 instead of bf16"
        ),
        source="ostris/ai-toolkit#203",
    ),
    CatalogueEntry(
        id="xformers-no-operator",
        title="xformers has no kernel for this attention call",
        example="NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:",
        texts=(r"No operator found for `memory_efficient_attention_\w{1,20}`",),
        cause=(
            "None of the installed xformers kernels can be used: xformers was built for a different torch or CUDA "
            "version (operator wasn't built), this GPU is too old or too new, or the precision, head size or mask is "
            "not supported. The lines below the message give the reason for each kernel."
        ),
        remedy=(
            'do without xformers: use attn_implementation="sdpa" (transformers), or omit '
            "enable_xformers_memory_efficient_attention(). Or install the xformers version for your torch version. "
            "On GPUs older than Ampere, use fp16 instead of bf16. To list the available kernels, run `python -m "
            "xformers.info` on the node"
        ),
        source="facebookresearch/xformers#1263",
    ),
)

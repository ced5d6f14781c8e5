# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of packages that are missing or do not fit."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import (
    CPU_ONLY_TORCH,
)

TOPIC = "Python packages and libraries"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="bitsandbytes-cuda",
        title="bitsandbytes does not fit CUDA",
        example="RuntimeError: CUDA Setup failed despite GPU being available.",
        texts=(
            r"CUDA Setup failed despite (?:CUDA|GPU) being available",
            r"Could not find the bitsandbytes CUDA binary",
        ),
        cause="The installed bitsandbytes is too old for this CUDA: it has no library built for it.",
        remedy="upgrade it: put bitsandbytes without an upper bound in the job's requirements and run "
        "ansible-playbook site.yml --tags python_env; `python -m bitsandbytes` on the node shows what it "
        "looks for",
        source="bitsandbytes-foundation/bitsandbytes#1522",
        recoverable=True,
    ),
    CatalogueEntry(
        id="glibc-too-old",
        title="A package needs a newer glibc",
        example="ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by ...)",
        texts=(r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]{1,8}' not found",),
        cause="A package was built on a newer Linux than the node's: its C library (glibc, libstdc++) is too "
        "old for it.",
        remedy="use an older release of the package named after `required by`, build it on the node (pip install"
        " --no-binary PACKAGE --no-build-isolation PACKAGE), or use machines or a container image with a "
        "newer system",
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
        cause="torch, or an extension such as flash-attention, has no code for this GPU model: it is older than the "
        "GPU, or so new that it no longer supports it.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch installs a torch that supports all GPUs of the "
        "cluster (pytorch_version: auto); extensions must be rebuilt for it",
        source="jiangyzy/GOAE#16",
        recoverable=True,
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
        cause="The script asks for the backend nccl, which needs GPUs, but the installed torch is the CPU-only build.",
        remedy=CPU_ONLY_TORCH.format(
            change='choose the backend in the script: "nccl" if torch.cuda.is_available() else "gloo"'
        ),
        source="torch 2.13.0 on a CPU",
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
        source="rwth-i6/returnn#1802",
    ),
    CatalogueEntry(
        id="flash-attention-mismatch",
        title="flash-attention was built for another torch",
        example="flash_attn_2_cuda...so: undefined symbol: ...",
        texts=(r"flash_attn\w{0,20}[^\n]{0,120}undefined symbol",),
        cause="The flash-attention wheel is for another torch release or another C++ ABI.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch,flash_attention -e flash_attention_enabled=true "
        "chooses a matching torch and wheel",
        source="Dao-AILab/flash-attention#1832",
        recoverable=True,
    ),
    CatalogueEntry(
        id="nccl-library-missing",
        title="NCCL is not installed",
        example="ImportError: libnccl.so.2: cannot open shared object file: No such file or directory",
        texts=(r"(?:ImportError|OSError): libnccl[\w.]{0,20}: cannot open shared object file",),
        cause="torch's own NCCL is missing, or was removed from the environment.",
        remedy="ansible-playbook site.yml --tags python_env,pytorch installs torch with its dependencies",
        source="pinokiocomputer/pinokio#193",
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
        source="vllm-project/vllm#31018",
        recoverable=True,
    ),
    CatalogueEntry(
        id="numpy-mismatch",
        title="A package was built for another numpy",
        example="A module that was compiled using NumPy 1.x cannot be run in NumPy 2...",
        texts=(r"A module that was compiled using NumPy 1\.x cannot be run in",),
        cause="numpy 2 is installed, but something in the environment was built for numpy 1.",
        remedy="add numpy<2 to the job's requirements, or newer releases of the packages in the traceback, and run "
        "ansible-playbook site.yml --tags python_env",
        source="salesforce/LAVIS#755",
        recoverable=True,
        weak=True,
    ),
    CatalogueEntry(
        id="module-missing",
        title="A Python package is not installed",
        example="ModuleNotFoundError: No module named '...'",
        texts=(r"ModuleNotFoundError: No module named", r"python[\d.]{0,5}: No module named \S"),
        cause="The job's interpreter on that node does not have the package.",
        remedy="add it to the job's requirements (requirements: [...] in the job file, or python_env_requirements) "
        "and run ansible-playbook site.yml --tags python_env; your own modules: ansible-playbook site.yml --tags code",
        source="StarsfieldAI/R1-V#52",
        recoverable=True,
        general=True,
    ),
)

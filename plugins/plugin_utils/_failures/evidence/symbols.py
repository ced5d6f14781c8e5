# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence in the name of an undefined symbol: its namespace or prefix identifies the library that does not match."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Undefined symbols"
REBUILD = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary {package} --no-build-isolation {package}"
INSTALL = "in the job's requirements (requirements: [...]), then run ansible-playbook site.yml --tags python_env"
# A compiled object, in the directory of a package or beside it; libNAME.so belongs to NAME.
# An object beside the packages (selective_scan_cuda.cpython-312.so) does not tell the name of its package.
OBJECT = (
    r"/(?:site|dist)-packages/(?!torch/|nvidia/)(?:lib(?=\w{1,60}\.so))?(?P<package>[A-Za-z]\w{0,60}?)(?=/|-|\.so)"
    r"[^\n:]{0,240}\.so[.\d]{0,12}: "
)
NAMESPACE = r"undefined symbol: _Z(?:N|T[VIS]N?|GVN)?[rVK]{0,3}"
# Prefixes of the functions of CUDA libraries, and the package that contains the library.
CUDA_LIBRARIES = {
    "cublas": "nvidia-cublas",
    "cudnn": "nvidia-cudnn",
    "cusparse": "nvidia-cusparse",
    "cusolver": "nvidia-cusolver",
    "cufft": "nvidia-cufft",
    "__nvJitLink": "nvidia-nvjitlink",
    "nvrtc": "nvidia-cuda-nvrtc",
}


def make_cuda_library_rule(prefix: str, requirement: str) -> EvidenceRule:
    """Return the rule for a package that was built with a newer CUDA library than the one that is loaded."""
    return EvidenceRule(
        id=f"symbol-of-{requirement}",
        entries=("cuda-libraries-mixed",),
        shows=(rf"{OBJECT}undefined symbol: (?P<symbol>{prefix}\w{{0,80}})",),
        cause=(
            f"{{package}} was built with a newer version of {requirement} than the one that is loaded, which lacks "
            "{symbol}."
        ),
        remedy=(
            f"upgrade it: put {requirement}{'-cu13' if prefix == 'cudnn' else ''} (for CUDA 12: {requirement}-cu12) "
            "without a version, or a newer torch, "
            f"{INSTALL}; or install an older version of {{package}}. If LD_LIBRARY_PATH names an older CUDA toolkit, "
            'clear it with -e \'{{"launch_environment": {{"LD_LIBRARY_PATH": ""}}}}\''
        ),
    )


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="codec-of-other-cuda",
        entries=("torchcodec-not-loaded",),
        shows=(r"(?P<library>lib(?:nvrtc|cudart|npp\w{1,20}|cublas\w{0,10})\.so\.\d{1,3}): cannot open shared object",),
        cause=(
            "torchcodec was built for a different CUDA version than torch was: it needs {library}, which torch "
            "does not include."
        ),
        remedy=(
            "install the torchcodec build for torch's CUDA version (python -c 'import torch; "
            "print(torch.__version__)' shows it after the +): pip install --force-reinstall --no-deps torchcodec "
            "--index-url https://download.pytorch.org/whl/cu128, or .../whl/cpu"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="codec-without-ffmpeg",
        entries=("torchcodec-not-loaded",),
        shows=(r"(?P<library>lib(?:av\w{1,12}|sw\w{1,12})\.so\.\d{1,3}): cannot open shared object",),
        unless=r"undefined symbol|Could not load this library",
        cause=(
            "No FFmpeg version that torchcodec supports is installed in this environment or image: torchcodec "
            "found none of the supported versions' libraries ({library} and others)."
        ),
        remedy=(
            "run conda install -c conda-forge 'ffmpeg<8' in the job's environment, or install FFmpeg with sudo "
            "apt-get install ffmpeg on each node (ansible-playbook site.yml --tags base_packages -e "
            '\'{{"base_packages_extra": ["ffmpeg"]}}\') or in the image'
        ),
        certain=True,
    ),
    EvidenceRule(
        id="codec-of-other-torch",
        entries=("torchcodec-not-loaded",),
        shows=(r"undefined symbol|Could not load this library",),
        cause="torchcodec was built for a different version of torch from the installed one.",
        remedy=(
            "install the torchcodec version for your torch version (0.3 for 2.7, 0.7 for 2.8, 0.8 or 0.9 for 2.9, "
            "0.10 for 2.10), from torch's own index: pip install --force-reinstall --no-deps torchcodec==0.7 "
            "--index-url https://download.pytorch.org/whl/cu128"
        ),
    ),
    EvidenceRule(
        id="library-of-other-torch",
        entries=("cuda-library-missing", "library-missing"),
        shows=(
            r"(?P<library>lib(?:torch|c10)\w{0,40}\.so[.\d]{0,12}): cannot open shared object",
            r'/(?:site|dist)-packages/(?P<package>(?!torch/|nvidia/)[A-Za-z]\w{0,60})(?:/[^"\n]{1,200})?", line',
        ),
        cause=(
            "{library} belongs to a different version or build of torch (a CUDA build, for example) than the "
            "installed one: a compiled package, most likely {package}, was built for that other torch."
        ),
        remedy=(
            "install the version of {package} for your torch version (for torchvision and torchaudio, run "
            f"ansible-playbook site.yml --tags python_env,pytorch), or compile it in this environment: {REBUILD}"
        ),
    ),
    *(make_cuda_library_rule(prefix, requirement) for prefix, requirement in CUDA_LIBRARIES.items()),
    EvidenceRule(
        id="symbol-in-built-extension",
        entries=("extension-abi",),
        shows=(
            r"(?P<directory>/(?!\S{0,300}\.\.)[\w.+@/-]{1,200}/torch_extensions)/[^\s:'\"]{1,200}\.so: "
            r"undefined symbol: _Z",
        ),
        cause=(
            "A CUDA extension that was compiled earlier, for a different torch version, is still in the cache "
            "{directory}, and the installed torch cannot load it."
        ),
        remedy="remove the cache on each node with rm -rf {directory}, so that the extension is compiled again",
        certain=True,
    ),
    EvidenceRule(
        id="symbol-of-filesystem",
        entries=("extension-abi",),
        shows=(rf"{OBJECT}{NAMESPACE}St10filesystem",),
        cause="{package} was compiled with GCC 8, whose std::filesystem is in a separate library (libstdc++fs) that "
        "was not linked.",
        remedy=(
            "install a prebuilt wheel of {package}, or recompile it with GCC 9 or newer: CC=gcc-11 CXX=g++-11 "
            f"{REBUILD} (to install GCC, run sudo apt-get install g++-11 or conda install -c conda-forge gxx=11)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="symbol-of-itself",
        entries=("extension-abi",),
        shows=(rf"{OBJECT}{NAMESPACE}\d{{1,3}}(?P=package)",),
        cause=(
            "The compiled parts of {package} do not match: one part lacks a function of {package} itself, which "
            "another part uses. They are from different versions, or a build was interrupted or used an old build "
            "directory."
        ),
        remedy=(
            "remove all of its parts (`pip list | grep -i {package}` also shows those with suffixes such as _torch "
            "or -cu12), then install it in one step with pip install --no-cache-dir {package}; to install it from "
            "source, remove its build directory first"
        ),
    ),
    EvidenceRule(
        id="symbol-of-torch",
        entries=("extension-abi",),
        shows=(rf"{OBJECT}{NAMESPACE}(?:St\w{{0,40}}?)?(?:3c10|2at|5torch|6caffe2|4c10d)",),
        cause=(
            "The compiled part of {package} was built for a torch version, or a C++ ABI, other than the installed "
            "one: it uses a torch function that the installed torch lacks."
        ),
        remedy=(
            "install the version of {package} for your torch version (run python -c 'import torch; "
            "print(torch.__version__, torch.compiled_with_cxx11_abi())' to see it), or compile it in this "
            f"environment: {REBUILD}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="symbol-of-libstdcxx",
        entries=("extension-abi",),
        shows=(rf"{OBJECT}{NAMESPACE}S[tabsiod]",),
        cause=(
            "{package} was compiled with a GCC version that is newer than the loaded C++ library (libstdc++), "
            "which lacks a function that the compiled code needs."
        ),
        remedy=(
            "in a conda environment, run conda install -c conda-forge libstdcxx-ng. Otherwise, remove "
            "LD_LIBRARY_PATH (it may name an older library), install an older version of {package}, or compile "
            f"it on this node: {REBUILD}"
        ),
    ),
    EvidenceRule(
        id="symbol-of-python",
        entries=("extension-abi",),
        shows=(rf"{OBJECT}undefined symbol: _?Py(?P<symbol>[A-Z_]\w{{0,80}})",),
        cause=(
            "The compiled part of {package} is for a different version of Python than the job's, which lacks a "
            "function that the compiled code uses."
        ),
        remedy=(
            "reinstall {package} with the job's Python, as a wheel for this Python version: pip install "
            "--force-reinstall --no-deps --no-cache-dir {package}. If PYTHONPATH or ~/.local/lib contains "
            "packages for another Python, remove it from the path"
        ),
        certain=True,
    ),
)

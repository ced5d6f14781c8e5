# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence of why an extension's code failed to compile: the compiler's output above the traceback."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule

TOPIC = "Why an extension was not compiled"
FAILED = ("extension-build-failed", "package-failed", "program-failed")
REBUILD = "and remove what the failed build left behind: rm -rf ~/.cache/torch_extensions"

RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="compiler-killed",
        entries=("extension-build-failed",),
        shows=(
            r"^(?:[^\n]{0,200}: )?(?:Killed|fatal error: Killed signal)|nvcc error[^\n]{0,80}signal 9|Killed \(program "
            r"cc1plus\)",
        ),
        cause=(
            "The compiler was killed for lack of memory: several files are being compiled at the same time, on each "
            "rank."
        ),
        remedy=(
            'use -e \'{{"launch_environment": {{"MAX_JOBS": "2"}}}}\'; or build the extension once before the '
            "job (run DS_BUILD_OPS=1 pip install --force-reinstall --no-deps --no-cache-dir --no-build-isolation "
            "deepspeed, or use a prebuilt wheel of flash-attn)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="compiler-header-of-old-torch",
        entries=FAILED,
        shows=(r"fatal error: (?P<header>THC/[\w./]{1,60}): No such file",),
        cause="The extension's code is for an old torch version: {header} was removed in torch 1.11.",
        remedy=(
            "put a newer version of the extension, or torch<1.11, into the job's requirements, then run "
            "ansible-playbook site.yml --tags python_env"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="compiler-toolkit-in-parts",
        entries=FAILED,
        shows=(r"fatal error: (?P<header>(?:nv|cub|thrust|cuda|cooperative_groups)/[\w./]{1,60}): No such file",),
        cause=(
            "The environment's CUDA toolkit is incomplete ({header} is missing), because conda installs the "
            "toolkit's parts separately."
        ),
        remedy=(
            "install the full CUDA toolkit in the version that torch was built with (for 12.4: conda install -c nvidia "
            "cuda-toolkit=12.4, or sudo apt-get install cuda-toolkit-12-4), set CUDA_HOME to it in launch_environment, "
            f"{REBUILD}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="compiler-standard",
        entries=FAILED,
        shows=(
            r"C\+\+(?P<standard>1[47]|2[03]) or later compatible compiler is required|You need "
            r"C\+\+(?P<needed>1[47]|2[03]) to "
            r"compile PyTorch",
        ),
        cause=(
            "The extension is being compiled for an older C++ standard than this version of torch needs "
            "(C++{standard}{needed}): its build asks for -std=c++14, or the compiler is too old."
        ),
        remedy=(
            "install a newer version of the extension that supports this version of torch (or -std=c++17 in its "
            f"setup.py), g++ 9 or newer, {REBUILD}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="compiler-too-new",
        entries=FAILED,
        shows=(
            r"parameter packs not expanded with|error: identifier \"__\w{1,60}\" is undefined|unsupported GNU "
            r"version|bits/\w{1,40}\.h"
            r"[^\n]{0,60}error: ",
        ),
        cause=(
            "The C++ compiler is newer than those that the CUDA toolkit supports: nvcc rejects it, or fails in its "
            "header files."
        ),
        remedy=(
            "run sudo apt-get install g++-10 on all nodes (g++-11 for CUDA 11.8 and 12), and use -e "
            '\'{{"launch_environment": {{"CC": "gcc-10", "CXX": "g++-10", "NVCC_PREPEND_FLAGS": "-ccbin '
            "g++-10\"}}}}', "
        )
        + REBUILD,
    ),
    EvidenceRule(
        id="compiler-of-another-vendor",
        entries=FAILED,
        shows=(r"nvcc fatal\s{1,8}: (?P<what>Unsupported (?:NVHPC|host|clang|Clang)[^\n]{1,120})",),
        cause=(
            "nvcc does not work with the C++ compiler that it finds ({what}): CC, CXX or a loaded module selects "
            "another vendor's compiler."
        ),
        remedy=('use -e \'{{"launch_environment": {{"CC": "gcc", "CXX": "g++"}}}}\'; unload that compiler\'s module, ')
        + REBUILD,
        certain=True,
    ),
    EvidenceRule(
        id="compiler-header",
        entries=("extension-build-failed",),
        shows=(r"fatal error: (?P<header>[\w./+-]{1,100}): No such file or directory",),
        cause="The compiler cannot find the header file {header}: a development package is missing on the node.",
        remedy=(
            "run `apt-file search {header}` to see which package provides it (python3-dev for Python.h, "
            "libomp-dev for omp.h); install it on all nodes with base_packages_extra and ansible-playbook "
            f"site.yml --tags base_packages, {REBUILD}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="compiler-first-error",
        entries=("extension-build-failed",),
        shows=(r"^(?P<line>[\w./+-]{1,160}[:(]\d{1,6}[):][^\n]{0,40}error: [^\n]{1,160})",),
        cause="The compiler rejected the extension's code ({line}).",
        remedy=(
            "install a version of the extension that supports this version of torch and of CUDA (usually, the "
            f"installed one does not), {REBUILD}"
        ),
    ),
)

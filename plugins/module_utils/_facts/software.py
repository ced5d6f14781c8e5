# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of the packages a job's interpreter would import, without importing them.

torch alone takes seconds to import; its version is in its .dist-info directory's name, and its CUDA in
torch/version.py.
"""

from __future__ import annotations

import glob
import hashlib
import mmap
import os
import re
import shutil
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

INTERPRETER_TIMEOUT = 5.0  # seconds; 0.02 is usual
# Reads the path from the interpreter itself: virtual environments, conda and .pth files are all taken into account.
PATH_PROGRAM = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.prefix, *sys.path, sep=chr(0))"
# For each fact, the distributions that may provide it (named as in .dist-info: each run of - _ . becomes one _).
DISTRIBUTIONS = {
    "torch": r"torch",
    "nccl": r"nvidia_nccl_cu[0-9]+",
    "cudnn": r"nvidia_cudnn_cu[0-9]+",
    "flash_attn": r"flash_attn",
    "deepspeed": r"deepspeed",
    "transformers": r"transformers",
    "accelerate": r"accelerate",
    "lightning": r"lightning",
    "numpy": r"numpy",
    "debugpy": r"debugpy",
}
DISTRIBUTION_NAME = re.compile("|".join(f"(?P<{fact}>{pattern})" for fact, pattern in DISTRIBUTIONS.items()))
METADATA_NAME = re.compile(r"(.+?)-([0-9][^-]*?)(?:-py[0-9.]+.*)?\.(?:dist|egg)-info\Z")
ARCHS = re.compile(rb"((?:sm|compute)_[0-9]+[af]?(?: (?:sm|compute)_[0-9]+[af]?)*) ?\0")
# Programs that launchers other than torchrun run.
PROGRAMS = ("mpirun", "ompi_info", "orted", "pdsh", "docker", "podman")
# Project environments that the role python_env created in its default directory.
PROJECT_ENVIRONMENTS = "/opt/muster/envs/*/env"
# Where cloud images install their PyTorch environments, and the interpreter of each.
IMAGE_ENVIRONMENTS = (
    "/opt/pytorch",  # AWS
    "/opt/conda",  # AWS, Google Cloud, many containers
    "/opt/conda/envs/*",
    "/opt/miniconda*",
    "/opt/miniconda*/envs/*",
    "/opt/anaconda*",
    "/opt/anaconda*/envs/*",
    "/opt/venv",
)
# Paperspace, Lambda and NVIDIA install torch for the system Python.
SYSTEM_PACKAGES = ("/usr/local/lib/python3*/dist-packages", "/usr/lib/python3/dist-packages")
MAX_ENVIRONMENTS = 8
HASH_LIMIT = 16 * 2**20  # bytes of a script to hash; no script is longer than this


class SoftwareQuery:
    """A query for an interpreter's packages, started on creation."""

    def __init__(self, interpreter: str, directory: str, kernels: bool = False) -> None:
        """kernels: whether to read the architectures of torch's kernels, which takes about 30 ms."""
        self.interpreter = interpreter
        self.kernels = kernels
        self.deadline = time.monotonic() + INTERPRETER_TIMEOUT
        cwd = directory if os.path.isdir(directory) else "/"
        # like a run, which does not inherit this login's PYTHONPATH
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.command = Command([interpreter, "-B", "-c", PATH_PROGRAM], cwd=cwd, env=environment)

    def result(self) -> dict[str, Any]:
        """Return python (version), prefix, packages ({name: version}), cuda, hip, archs of torch, error ("": none)."""
        output = self.command.output(self.deadline)
        try:
            line = next(line for line in output.text.splitlines() if "\0" in line)  # the others are startup warnings
            python, prefix, *search_path = line.split("\0")
        except StopIteration:
            error = (
                f"no reply within {INTERPRETER_TIMEOUT:.0f} s" if output.hangs else " ".join(output.text.split())[-300:]
            )
            unknown = dict.fromkeys(("python", "prefix", "cuda", "hip"))
            return {**unknown, "packages": {}, "archs": [], "error": error}
        search_path = [directory for directory in search_path if directory]
        build = torch_build(search_path)
        return {
            "python": python,
            "prefix": prefix,
            "packages": find_packages(search_path),
            **build,
            "archs": torch_archs(search_path) if self.kernels and build["cuda"] else [],
            "error": "",
        }


def find_programs(search_path: list[str]) -> dict[str, str]:
    """Return {name: path} for those of PROGRAMS that are on a search path."""
    paths = {name: shutil.which(name, path=os.pathsep.join(search_path)) for name in PROGRAMS}
    return {name: path for name, path in paths.items() if path}


def find_environments(root: str = "/") -> list[dict[str, str | None]]:
    """Return the project and machine image environments that have torch, each with its torch and CUDA versions.

    Their project is the name of the environment, or "" for the image's. Reads names and one small file per environment;
    nothing is started.
    """
    environments: list[dict[str, str | None]] = []
    for pattern in IMAGE_ENVIRONMENTS:
        for packages in sorted(glob.glob(f"{root}{pattern[1:]}/lib/python3*/site-packages")):
            prefix = packages.split("/lib/python3")[0]
            add_environment(environments, f"{prefix}/bin/python", packages)
    for pattern in SYSTEM_PACKAGES:
        for packages in sorted(glob.glob(root + pattern[1:])):
            name = os.path.basename(os.path.dirname(packages))  # python3 or python3.10
            add_environment(environments, f"{root}usr/bin/{name}", packages)
    environments = environments[:MAX_ENVIRONMENTS]
    for prefix in sorted(glob.glob(root + PROJECT_ENVIRONMENTS[1:])):
        for packages in glob.glob(f"{glob.escape(prefix)}/lib/python3*/site-packages"):
            add_environment(environments, f"{prefix}/bin/python", packages, os.path.basename(os.path.dirname(prefix)))
    return environments[: 2 * MAX_ENVIRONMENTS]


def add_environment(
    environments: list[dict[str, str | None]], interpreter: str, packages: str, project: str = ""
) -> None:
    """Append an environment, if it has torch and an interpreter."""
    version = find_packages([packages]).get("torch")
    if version and os.access(interpreter, os.X_OK):
        cuda = torch_build([packages])["cuda"]
        environments.append({"interpreter": interpreter, "torch": version, "cuda": cuda, "project": project})


def find_packages(search_path: list[str]) -> dict[str, str]:
    """Return {fact: version} for DISTRIBUTIONS; the first match on the interpreter's path counts."""
    packages: dict[str, str] = {}
    for directory in search_path:
        try:
            entries = os.listdir(directory)
        except OSError:
            continue
        versions = {}
        for entry in entries:
            match = METADATA_NAME.match(entry)
            if match:
                distribution = DISTRIBUTION_NAME.fullmatch(re.sub(r"[-_.]+", "_", match[1]).lower())
                if distribution and distribution.lastgroup:
                    versions[distribution.lastgroup] = match[2]
        packages = {**versions, **packages}
    return packages


def torch_build(search_path: list[str]) -> dict[str, str | None]:
    """Return the CUDA or ROCm version that torch on this path was built for; both are None for a CPU build or without
    torch.
    """
    for directory in search_path:
        try:
            with open(os.path.join(directory, "torch", "version.py"), encoding="utf-8") as stream:
                return parse_torch_version(stream.read())
        except OSError:
            continue
    return {"cuda": None, "hip": None}


def parse_torch_version(text: str) -> dict[str, str | None]:
    """Parse torch/version.py, which has lines such as `cuda = '12.1'` or `cuda: Optional[str] = '12.4'`."""
    versions: dict[str, str | None] = {"cuda": None, "hip": None}
    for name, single, double in re.findall(
        r"^(cuda|hip)\b[^=\n]*=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\")", text, re.MULTILINE
    ):
        versions[name] = single or double or None
    return versions


def torch_archs(search_path: list[str]) -> list[str]:
    """Return the result of torch.cuda.get_arch_list(), such as sm_90, or [] if it cannot be read.

    Reads it as text from torch's Python library; importing torch would take seconds.
    """
    paths = [os.path.join(directory, "torch", "lib", "libtorch_python.so") for directory in search_path]
    path = next((path for path in paths if os.path.exists(path)), "")
    try:
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as library:
            return parse_archs(library)
    except (OSError, ValueError):  # ValueError: the file is empty
        return []


def parse_archs(library: bytes | mmap.mmap) -> list[str]:
    """Find the list of architectures in torch's library: names separated by spaces and terminated by a NUL."""
    start = library.find(b"sm_")
    while start >= 0:
        match = ARCHS.match(library, start)
        if match:
            return match[1].decode().split()
        start = library.find(b"sm_", start + 1)
    return []


def file_hash(path: str) -> str | None:
    """Return the SHA-256 of a file in hex, or None if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read(HASH_LIMIT)).hexdigest()
    except OSError:
        return None

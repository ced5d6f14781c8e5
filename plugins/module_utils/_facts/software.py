# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Versions of the packages a job's interpreter would import, without importing them. Private to this collection.

Runs on the node, standard library only, Python >= 3.8. torch alone takes seconds to import; its version is in its
.dist-info directory's name, and its CUDA in torch/version.py.
"""

from __future__ import annotations

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
# Asks the interpreter itself for its path: virtual environments, conda and .pth files all count.
QUESTION = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.prefix, *sys.path, sep=chr(0))"
# For each fact, the distributions that may provide it (named as in .dist-info: runs of - _ . become one _).
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
}
ONE_OF_THEM = re.compile("|".join(f"(?P<{fact}>{pattern})" for fact, pattern in DISTRIBUTIONS.items()))
ENTRY = re.compile(r"(.+?)-([0-9][^-]*?)(?:-py[0-9.]+.*)?\.(?:dist|egg)-info\Z")
ARCHS = re.compile(rb"((?:sm|compute)_[0-9]+[af]?(?: (?:sm|compute)_[0-9]+[af]?)*) ?\0")
# Programs that launchers other than torchrun call.
PROGRAMS = ("mpirun", "ompi_info", "orted", "pdsh", "docker", "podman")
HASH_LIMIT = 16 * 2**20  # bytes of a script to hash; no script is longer


class SoftwareQuestion:
    """The query of an interpreter's packages, started on creation."""

    def __init__(self, interpreter: str, directory: str, kernels: bool = False) -> None:
        """kernels: whether to read the architectures of torch's kernels, which takes about 30 ms."""
        self.kernels = kernels
        self.deadline = time.monotonic() + INTERPRETER_TIMEOUT
        cwd = directory if os.path.isdir(directory) else "/"
        # as in a run, which does not get this login's PYTHONPATH
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.command = Command([interpreter, "-B", "-c", QUESTION], cwd=cwd, env=environment)

    def answer(self) -> dict[str, Any]:
        """Return python (version), prefix, packages ({name: version}), cuda, hip, archs of torch, error ("": none)."""
        output = self.command.output(self.deadline)
        try:
            line = next(line for line in output.text.splitlines() if "\0" in line)  # others are startup warnings
            python, prefix, *places = line.split("\0")
        except StopIteration:
            error = "it does not answer" if output.hangs else " ".join(output.text.split())[-300:]
            nothing = dict.fromkeys(("python", "prefix", "cuda", "hip"))
            return {**nothing, "packages": {}, "archs": [], "error": error}
        places = [place for place in places if place]
        build = torch_build(places)
        return {
            "python": python,
            "prefix": prefix,
            "packages": packages_in(places),
            **build,
            "archs": torch_archs(places) if self.kernels and build["cuda"] else [],
            "error": "",
        }


def programs_in(places: list[str]) -> dict[str, str]:
    """Return {name: path} for those of PROGRAMS that are on a PATH."""
    found = {name: shutil.which(name, path=os.pathsep.join(places)) for name in PROGRAMS}
    return {name: path for name, path in found.items() if path}


def packages_in(places: list[str]) -> dict[str, str]:
    """Return {fact: version} for DISTRIBUTIONS; the first match on the interpreter's path counts."""
    found: dict[str, str] = {}
    for place in places:
        try:
            entries = os.listdir(place)
        except OSError:
            continue
        here = {}
        for entry in entries:
            match = ENTRY.match(entry)
            if match:
                one = ONE_OF_THEM.fullmatch(re.sub(r"[-_.]+", "_", match[1]).lower())
                if one and one.lastgroup:
                    here[one.lastgroup] = match[2]
        found = {**here, **found}
    return found


def torch_build(places: list[str]) -> dict[str, str | None]:
    """Return the CUDA or ROCm that torch on this path was built for; both None for a CPU build or without torch."""
    for place in places:
        try:
            with open(os.path.join(place, "torch", "version.py"), encoding="utf-8") as stream:
                return parse_torch_version(stream.read())
        except OSError:
            continue
    return {"cuda": None, "hip": None}


def parse_torch_version(text: str) -> dict[str, str | None]:
    """Read torch/version.py, with lines such as `cuda: Optional[str] = '12.4'` since torch 1.0."""
    found: dict[str, str | None] = {"cuda": None, "hip": None}
    for name, single, double in re.findall(
        r"^(cuda|hip)\b[^=\n]*=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\")", text, re.MULTILINE
    ):
        found[name] = single or double or None
    return found


def torch_archs(places: list[str]) -> list[str]:
    """Return the result of torch.cuda.get_arch_list(), such as sm_90, [] if it cannot be read.

    It is read as text from torch's Python library; asking torch itself would take seconds.
    """
    paths = [os.path.join(place, "torch", "lib", "libtorch_python.so") for place in places]
    path = next((path for path in paths if os.path.exists(path)), "")
    try:
        with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as library:
            return parse_archs(library)
    except (OSError, ValueError):  # ValueError: the file is empty
        return []


def parse_archs(library: bytes | mmap.mmap) -> list[str]:
    """Find the list of architectures in torch's library: words separated by spaces, followed by a NUL."""
    start = library.find(b"sm_")
    while start >= 0:
        match = ARCHS.match(library, start)
        if match:
            return match[1].decode().split()
        start = library.find(b"sm_", start + 1)
    return []


def file_hash(path: str) -> str | None:
    """Return the SHA-256 of a file in hex, None if it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read(HASH_LIMIT)).hexdigest()
    except OSError:
        return None

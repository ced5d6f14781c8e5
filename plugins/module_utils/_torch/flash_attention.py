# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find the flash-attention wheel for the environment, or prepare a build, and verify the installation.

This runs in the environment's interpreter and imports only torch and flash-attention apart from the standard library.
"""

from __future__ import annotations

import glob
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, report_result

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

AMPERE = (8, 0)  # compute capability; FlashAttention 2 has no kernels for older GPUs
MEMORY_PER_JOB = 20  # GB per build job (setup.py: 5 for each of the 4 nvcc threads)
# Releases, newest first: the torch minor releases for which wheels exist, the CUDA major versions as spelled in wheel
# names, and the oldest glibc that can load them (docs/software.md). The server is queried for the wheels that actually
# exist.
RELEASES = {
    "2.8.3": (("2.4", "2.5", "2.6", "2.7", "2.8"), {"12": "12"}, "2.32"),
    "2.7.4.post1": (("2.2", "2.3", "2.4", "2.5", "2.6"), {"12": "12"}, "2.31"),
    "2.6.3": (("2.2", "2.3", "2.4"), {"11": "118", "12": "123"}, "2.31"),
    "2.5.8": (("2.2", "2.3"), {"11": "118", "12": "122"}, "2.31"),
}


# --- Names of wheels --------------------------------------------------------------------------------------------------


def version_tuple(version: str) -> tuple[int, ...]:
    """Return the numbers in a version string."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", version))


def cuda_tag(release: str, cuda: str) -> str:
    """Return a release's tag for a CUDA version: the major version or, before 2.7.0, the CUDA version of its build.

    Return an empty string if the release has no wheels for that major version.
    """
    major = cuda.partition(".")[0]
    if version_tuple(release) >= (2, 7):
        return major
    built = {"11": "118", "12": "122" if version_tuple(release) < (2, 6) else "123"}
    return built.get(major, "")


def wheel_name(release: str, torch: str, cuda: str, abi: bool, python: str, machine: str) -> str:  # noqa: PLR0913
    """Return the name of a wheel, such as flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp311-cp311-linux_x86_64.whl.

    Return an empty string if it cannot exist.
    """
    if not cuda_tag(release, cuda):
        return ""
    minor = ".".join(torch.split(".")[:2])
    tag = "cp" + "".join(python.split(".")[:2])
    local = f"cu{cuda_tag(release, cuda)}torch{minor}cxx11abi{'TRUE' if abi else 'FALSE'}"
    return f"flash_attn-{release}+{local}-{tag}-{tag}-linux_{machine}.whl"


def wheel_url(pattern: str, release: str, name: str) -> str:
    """Return a wheel's URL with plus signs escaped, because not all servers understand unescaped ones."""
    return f"{pattern.replace('VERSION', release).rstrip('/')}/{urllib.parse.quote(name)}"


def neighbors(release: str, torch: str, cuda: str) -> list[tuple[str, str, str]]:
    """Return (release, torch minor release, CUDA major) that may have a wheel, closest first."""
    minor, major = ".".join(torch.split(".")[:2]), cuda.partition(".")[0]
    triples = [
        (flash, torch_minor, cuda_major)
        for flash, (torches, cudas, _glibc) in RELEASES.items()
        for torch_minor in torches
        for cuda_major in cudas
    ]

    def distance(triple: tuple[str, str, str]) -> tuple[Any, ...]:
        minor_distance = (
            abs(version_tuple(triple[1])[1] - version_tuple(minor)[1])
            if version_tuple(triple[1])[0] == version_tuple(minor)[0]
            else 99
        )
        # changing the flash-attention release is easier than changing torch
        return (
            minor_distance,
            triple[2] != major,
            triple[0] != release,
            [-number for number in version_tuple(triple[0])],
        )

    return sorted((triple for triple in triples if triple != (release, minor, major)), key=distance)


def can_load(release: str, glibc: str) -> bool:
    """Return whether a system with this glibc can load a release's wheels, as far as is known."""
    return release not in RELEASES or not glibc or version_tuple(glibc) >= version_tuple(RELEASES[release][2])


# --- The environment --------------------------------------------------------------------------------------------------


def url_exists(url: str) -> bool:
    """Return whether a file exists on a server. Raise StepError if the server cannot be queried."""
    try:
        with urllib.request.build_opener().open(urllib.request.Request(url, method="HEAD"), timeout=30):
            return True
    except urllib.error.HTTPError as problem:
        if problem.code in (403, 404, 410):
            return False
        raise StepError(f"cannot determine whether {url} exists: HTTP {problem.code}. Try again later") from None
    except OSError as problem:
        raise StepError(
            f"cannot reach {url} from the first node ({problem}). Set flash_attention_wheels to a server that it can "
            "reach, or flash_attention_build to true"
        ) from None


def glibc_version() -> str:
    """Return this system's glibc version, or an empty string if it uses another C library."""
    return (os.confstr("CS_GNU_LIBC_VERSION") or "").partition("glibc ")[2]


def torch_build() -> Data:
    """Return the properties of torch, Python and the machine that determine which wheel is needed."""
    try:
        import torch
    except ImportError:
        raise StepError(
            "torch is not installed in the environment. Install it: ansible-playbook site.yml --tags pytorch"
        ) from None
    if not torch.version.cuda:
        raise StepError(
            f"torch {torch.__version__} was built without CUDA, but flash-attention runs only on GPUs. Set "
            "pytorch_cuda, or flash_attention_enabled to false"
        )
    return {
        "torch": torch.__version__.partition("+")[0],
        "cuda": torch.version.cuda,
        "abi": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "machine": os.uname().machine,
    }


def capabilities(request: Data) -> Data:
    """Return the compute capabilities of this node's GPUs. Raise StepError if a GPU is older than Ampere."""
    try:
        argv = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
        completed = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return {"capabilities": [], "changed": False}
    except subprocess.TimeoutExpired:
        raise nvidia_smi_error("did not respond within 60 s") from None
    except OSError as problem:
        raise nvidia_smi_error(f"cannot be run: {problem.strerror}") from None
    text = completed.stdout
    if completed.returncode != 0:
        output = " ".join((completed.stdout + completed.stderr).split())[-300:]
        if "not a valid field" not in output:
            raise nvidia_smi_error(f"fails: {output or f'code {completed.returncode}'}")
        text = gpus_from_torch()  # drivers before 510 do not report the field
    values = set()
    for line in text.splitlines():
        name, _comma, capability = line.rpartition(", ")
        if not re.fullmatch(r"[0-9]+\.[0-9]+", capability):
            continue
        if version_tuple(capability) < AMPERE:
            raise StepError(
                f"the {name} GPU has compute capability {capability}, but FlashAttention 2 needs 8.0 or higher "
                "(Ampere). Set flash_attention_enabled to false, and use "
                "torch.nn.functional.scaled_dot_product_attention in the job"
            )
        values.add(capability)
    return {"capabilities": sorted(values), "changed": False}


def nvidia_smi_error(reason: str) -> StepError:
    """Return the error to report when nvidia-smi does not list the GPUs."""
    return StepError(
        f"nvidia-smi {reason}, so it is unknown whether this node's GPUs support flash-attention. Check the driver "
        "(sudo dmesg; ansible-playbook site.yml --tags nvidia_driver), or set flash_attention_enabled to false for "
        "this node"
    )


def gpus_from_torch() -> str:
    """Return the GPUs reported by torch, in nvidia-smi's format."""
    try:
        from torch import cuda
    except ImportError:
        raise nvidia_smi_error("is too old to report the compute capability, and torch is not installed") from None
    if not cuda.is_available():
        raise nvidia_smi_error("is too old to report the compute capability, and torch sees no GPU")
    gpus = [(cuda.get_device_name(index), cuda.get_device_capability(index)) for index in range(cuda.device_count())]
    return "".join(f"{name}, {major}.{minor}\n" for name, (major, minor) in gpus)


def jobs(memory: int, processors: int) -> int:
    """Return the number of concurrent build jobs; memory: the number of free bytes."""
    return max(1, min(processors // 2, int(memory / (MEMORY_PER_JOB * 1e9))))


def free_memory() -> int:
    """Return the available memory in bytes."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        return int(re.findall(r"MemAvailable:\s+([0-9]+)", file.read())[0]) * 1024


def find_compiler(cuda: str, home: str) -> str:
    """Find a CUDA toolkit whose compiler has the required major version, and return its directory."""
    homes = [home] if home else ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-*"), reverse=True), sys.prefix]
    other_releases = []
    for path in homes:
        try:
            argv = [os.path.join(path, "bin", "nvcc"), "--version"]
            text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            continue
        release = (re.findall(r"release ([0-9.]+)", text) or ["0"])[0]
        if release.partition(".")[0] == cuda.partition(".")[0]:
            return path
        other_releases.append(f"{release} in {path}")
    raise StepError(
        f"no nvcc for CUDA {cuda.partition('.')[0]} on the first node (found: "
        f"{', '.join(other_releases) or 'none'}). Install the cuda-toolkit version that torch was built with "
        f"(CUDA {cuda}) and set flash_attention_cuda_home"
    )


# --- The steps --------------------------------------------------------------------------------------------------------


def choose(request: Data) -> Data:
    """Return the requirements to install: an existing wheel, or a build with its settings. Cached by request."""
    cached = request["choice_file"]
    key = json.dumps({**request, "torch_file": torch_version_file()}, sort_keys=True)
    if os.path.exists(cached):
        with open(cached, encoding="utf-8") as file:
            stored = json.load(file)
        if stored["key"] == key:
            return {**stored["choice"], "changed": False}
    choice = {**choose_uncached(request), "changed": False}
    with open(cached, "w", encoding="utf-8") as file:
        json.dump({"key": key, "choice": choice}, file)
    return choice


def torch_version_file() -> str:
    """Return the file with torch's version and CUDA version, which avoids an import that takes seconds."""
    for path in glob.glob(os.path.join(sys.prefix, "lib", "python3*", "site-packages", "torch", "version.py")):
        with open(path, encoding="utf-8") as file:
            return file.read()
    return ""


def choose_uncached(request: Data) -> Data:
    """Return the requirements to install, based on torch and the server."""
    build, glibc = torch_build(), glibc_version()
    releases = list(RELEASES) if request["version"] == "auto" else [request["version"]]
    for release in releases:
        name = wheel_name(release, **build)
        url = wheel_url(request["wheels"], release, name)
        if name and can_load(release, glibc) and url_exists(url):
            digest = f"#sha256={request['sha256']}" if request["sha256"] else ""
            return {"requirements": [f"flash-attn @ {url}{digest}"], "environment": {}, "options": [], "summary": name}
    release = releases[0]
    if request["build"]:
        home = find_compiler(build["cuda"], request["cuda_home"])
        environment_of_build = {
            "CUDA_HOME": home,
            "MAX_JOBS": str(request["max_jobs"] or jobs(free_memory(), os.cpu_count() or 1)),
            "NVCC_THREADS": "4",
        }
        if request["capabilities"]:
            archs = sorted({capability.replace(".", "") for capability in request["capabilities"]})
            environment_of_build["FLASH_ATTN_CUDA_ARCHS"] = ";".join(archs)
        return {
            "requirements": [f"flash-attn=={release}"],
            "environment": environment_of_build,
            "options": ["--no-build-isolation", "--no-cache-dir"],
            "summary": (
                f"a build of {release} with {environment_of_build['MAX_JOBS']} jobs for {request['capabilities']}"
            ),
        }
    near: list[str] = []
    for candidate, torch, cuda in neighbors(release, build["torch"], build["cuda"]):
        if len(near) == 3:
            break
        name = wheel_name(candidate, **{**build, "torch": torch, "cuda": cuda})
        if can_load(candidate, glibc) and url_exists(wheel_url(request["wheels"], candidate, name)):
            near.append(f"flash-attention {candidate} with torch {torch} for CUDA {cuda}")
    raise StepError(
        f"there is no flash-attention {' or '.join(releases)} wheel for torch {build['torch']}, CUDA "
        f"{build['cuda']}, Python {build['python']}, {build['machine']}, C++ ABI "
        f"{'new' if build['abi'] else 'old'}{f', glibc {glibc}' if glibc else ''} in {request['wheels']}. The "
        f"nearest matches: {'; '.join(near) or 'none'}. Leave pytorch_version, pytorch_cuda and "
        "flash_attention_version at auto and run ansible-playbook site.yml --tags pytorch,flash_attention, or "
        "set them to one of these; or set flash_attention_build to true: a build takes minutes to hours"
    )


def verify(request: Data) -> Data:
    """Import flash-attention and, if there is a GPU, compare its results with those of torch's own attention."""
    imported, verified = f"{request['key']} imported without a GPU", f"{request['key']} verified on a GPU"
    if os.path.exists(request["marker"]):
        with open(request["marker"], encoding="utf-8") as file:
            before = file.read()
        if before == verified:
            return {"changed": False, "summary": "verified before"}
        if before == imported and not capabilities({})["capabilities"]:
            return {"changed": False, "summary": "imported before, without a GPU"}
    try:
        import flash_attn
        import flash_attn_2_cuda  # noqa: F401
        import torch
    except ImportError as problem:
        raise StepError(
            f"cannot import flash_attn: {problem}. Set flash_attention_build to true, which builds it for this "
            "torch build and this system's glibc"
        ) from None
    summary = f"flash-attention {flash_attn.__version__} imported"
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        torch.manual_seed(0)
        query, key, value = (torch.randn(2, 64, 4, 64, device="cuda", dtype=torch.bfloat16) for _index in range(3))
        actual = flash_attn.flash_attn_func(query, key, value)
        query, key, value = (tensor.transpose(1, 2).float() for tensor in (query, key, value))
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
        difference = (actual.float() - expected).abs().max().item()
        if difference > 0.03:  # bfloat16 has a precision of 8 bits
            raise StepError(
                f"flash-attention differs by {difference:.3f} from torch's attention, more than 0.03. Set "
                "flash_attention_build to true"
            )
        summary += f", differs by {difference:.4f} from torch's attention"
    with open(request["marker"], "w", encoding="utf-8") as file:
        file.write(verified if has_gpu else imported)
    return {"changed": False, "summary": summary}


STEPS = {"gpus": capabilities, "choose": choose, "prove": verify}


def main(request: Data) -> Data:
    """Return a step's result or its error; request: {"step": its name, ...}."""
    return report_result(STEPS[request["step"]], {name: value for name, value in request.items() if name != "step"})

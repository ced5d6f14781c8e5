# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose Python, torch, its CUDA version and flash-attention together, to match the nodes.

Values that the user sets are only checked, never changed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._checks.software import has_kernels
from ansible_collections.muster.training.plugins.plugin_utils._software.platforms import (
    CPU,
    DEFAULT,
    ROCM,
    Platform,
    PlatformError,
    build_name,
    describe_build,
    find_platform,
    format_build,
    is_rocm,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.tables import (
    FLASH_ATTENTION,
    FLASH_CAPABILITY,
    MANAGED_PYTHONS,
    Minor,
    TorchRelease,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.torch_pins import (
    TorchPin,
    newest_allowed,
    torchcodec_minors,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import MIN_DRIVER, version_tuple
from ansible_collections.muster.training.plugins.plugin_utils._text.name_list import format_list

AUTO = "auto"
NUMPY_2_TORCH = (2, 3)  # the first torch release that is built for numpy 2


class SoftwareChoiceError(Exception):
    """No combination is compatible. The message states the conflict, the requirement and the remedy."""


@dataclass(frozen=True)
class NodeSoftware:
    """The facts about a node that affect the choice."""

    name: str
    gpus: int = 0
    driver: str = ""  # version of the loaded driver
    devices: tuple[tuple[str, Minor], ...] = ()  # models and compute capabilities, if the driver reports them
    python: str = ""  # version of the environment's interpreter if there is an environment, or else of the system's
    has_environment: bool = False  # whether there is an environment already
    glibc: str = ""
    architecture: str = ""  # processor architecture, such as aarch64; "": unknown
    vendor: str = "nvidia"  # vendor of the GPUs
    targets: tuple[tuple[str, str], ...] = ()  # AMD GPU models, and the target that kernels for them are compiled for


@dataclass(frozen=True)
class SoftwareRequest:
    """The user's settings; auto means that the version is chosen automatically."""

    torch: str = AUTO
    cuda: str = AUTO  # CUDA version such as 12.4, or rocm6.4 or cpu
    python: str = AUTO  # name, path or version of an interpreter
    flash: str = ""  # flash-attention release for which a wheel is needed, or auto; empty: not requested
    manager: str = "uv"
    directory: str = "/opt/muster"  # directory of the environment
    name: str = "env"  # name of the environment
    pins: tuple[TorchPin, ...] = ()  # restrictions that the project's requirements place on torch
    platform: Platform = DEFAULT  # the nodes' platform


@dataclass(frozen=True)
class Interpreter:
    """An interpreter to choose from."""

    name: str  # name as passed to the manager
    minor: Minor | None  # None: unknown until it is installed
    origin: str  # its origin, for a message


@dataclass(frozen=True)
class Candidate:
    """One combination of versions."""

    python: Interpreter
    torch: str
    release: TorchRelease | None  # None: the tables do not include this release
    build: int
    flash: str = ""


@dataclass(frozen=True)
class Conflict:
    """Why a combination is incompatible. rank: higher if it passed more rules or, within a rule, came closer to
    passing.
    """

    rank: tuple[int, ...]
    description: str
    requirement: str
    remedy: str = ""


@dataclass(frozen=True)
class SoftwareChoice:
    """The versions to install on all nodes, with reasons."""

    python: str
    torch: str
    build: str  # cpu, cu and the digits of the CUDA version, or rocm and its version
    flash: str
    reasons: list[str] = field(default_factory=list)

    @property
    def cuda(self) -> str:
        """The CUDA version; empty for a CPU build."""
        return format_build(int(self.build[2:])) if self.build.startswith("cu") else ""

    @property
    def setting(self) -> str:
        """The value of pytorch_cuda that selects the build."""
        return self.cuda or self.build


# --- Words ------------------------------------------------------------------------------------------------------------


def format_minor(minor: Minor) -> str:
    """Format (3, 12) as 3.12."""
    return ".".join(map(str, minor))


def parse_minor(version: str) -> Minor:
    """Parse 3.8.10 as (3, 8)."""
    major, minor = version_tuple(version)[:2]
    return major, minor


def capitalize(text: str) -> str:
    """Return a sentence with its first letter capitalized."""
    return text[:1].upper() + text[1:]


def rebuild_advice(request: SoftwareRequest) -> str:
    """Return the steps for getting an environment with a different Python version."""
    return (
        f"remove it on all nodes (ansible-playbook env.yml -e remove={request.name}), and run ansible-playbook "
        "site.yml again to rebuild it"
    )


def group_by_value(values: Iterable[tuple[str, str]]) -> str:
    """Format (node, value) pairs as "580.65.06 on node1, node2; 535.183.01 on node3"."""
    nodes_by_value: dict[str, list[str]] = {}
    for name, value in values:
        if name not in nodes_by_value.setdefault(value, []):
            nodes_by_value[value].append(name)
    return "; ".join(f"{value} on {format_list(nodes)}" for value, nodes in sorted(nodes_by_value.items()))


def format_range(minors: tuple[Minor, Minor]) -> str:
    """Format a range for a message."""
    return f"{format_minor(minors[0])} to {format_minor(minors[1])}"


def known_builds(platform: Platform) -> str:
    """Return all combinations of torch and CUDA or ROCm, one line per torch release."""
    return "\n".join(
        f"  torch {format_minor(minor)}: {', '.join(map(format_build, release.builds))}"
        for minor, release in platform.releases.items()
    )


# --- Candidates -------------------------------------------------------------------------------------------------------


def list_interpreters(nodes: Mapping[str, NodeSoftware], request: SoftwareRequest) -> list[Interpreter]:
    """Return the interpreters to choose from, the preferred one first."""
    environments = [node for node in nodes.values() if node.has_environment and node.python]
    match = re.fullmatch(r"(?:.*python)?(3\.[0-9]+)(?:\.[0-9]+)?", request.python)
    if environments:
        minor = parse_minor(environments[0].python)
        if match and parse_minor(match[1]) != minor:
            versions = group_by_value((node.name, node.python) for node in environments)
            raise SoftwareChoiceError(
                f"the environment in {request.directory} has Python {versions}, "
                f"but python_env_python is {request.python}. {capitalize(rebuild_advice(request))}, or set "
                "python_env_python to auto"
            )
        return [
            Interpreter(
                format_minor(minor),
                minor,
                f"installed in {request.directory}/env; to change it, {rebuild_advice(request)}",
            )
        ]
    minors = {parse_minor(node.python) for node in nodes.values() if node.python}
    is_uniform = len(minors) == 1 and all(node.python for node in nodes.values())
    versions = group_by_value((node.name, node.python or "missing") for node in nodes.values())
    if request.python != AUTO:
        if is_uniform and request.manager != "conda":
            return [Interpreter(request.python, next(iter(minors)), "set by python_env_python")]
        return [Interpreter(request.python, parse_minor(match[1]) if match else None, "set by python_env_python")]
    system_interpreters = [Interpreter("python3", next(iter(minors)), "python3 of the nodes")] if is_uniform else []
    if request.manager == "venv":
        if system_interpreters:
            return system_interpreters
        raise SoftwareChoiceError(
            f"python3 is {versions}, but all nodes need the same minor version of Python, because venv uses the "
            "system's Python. Install the same version, or set python_env_manager to uv, which installs its own"
        )
    managed = [Interpreter(format_minor(minor), minor, f"installed by {request.manager}") for minor in MANAGED_PYTHONS]
    return managed if request.manager == "conda" else [*system_interpreters, *managed]


def list_releases(request: SoftwareRequest) -> list[tuple[str, TorchRelease | None]]:
    """Return the torch releases to choose from."""
    if request.torch == AUTO:
        table = request.platform.releases.values()
        releases = [(newest_allowed(release.newest, request.pins), release) for release in table]
        allowed: list[tuple[str, TorchRelease | None]] = [entry for entry in releases if entry[0]]
        if not allowed:
            raise SoftwareChoiceError(
                f"{format_list(map(str, request.pins))}, but no known torch release matches. Change it to one of "
                "these, or set pytorch_version and pytorch_cuda to install another release unchecked:\n"
                f"{known_builds(request.platform)}"
            )
        return allowed
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", request.torch):
        raise SoftwareChoiceError(
            f"pytorch_version is {request.torch!r}, but must be auto or a version with all three numbers, such as 2.5.1"
        )
    pin = next((pin for pin in request.pins if not pin.allows(request.torch)), None)
    if pin:
        raise SoftwareChoiceError(
            f"{pin}, but pytorch_version is {request.torch}. Set pytorch_version to auto, which follows the project's "
            f"requirements, or change {pin.source}"
        )
    release = request.platform.releases.get(parse_minor(request.torch))
    if release is None and request.cuda == AUTO:
        raise SoftwareChoiceError(
            f"no builds of torch {request.torch} are known. Set pytorch_cuda to install it unchecked, or choose one of "
            f"these:\n{known_builds(request.platform)}"
        )
    return [(request.torch, release)]


def list_builds(
    torch: str, release: TorchRelease | None, nodes: Mapping[str, NodeSoftware], request: SoftwareRequest
) -> list[int]:
    """Return the builds of a torch release to choose from."""
    if request.cuda == "cpu" or (request.cuda == AUTO and not any(node.gpus for node in nodes.values())):
        return [CPU]
    if request.cuda == AUTO:
        return list(release.builds) if release else []
    match = re.fullmatch(r"(rocm)?([0-9]+)\.([0-9])", request.cuda)
    build = (ROCM if match[1] else 0) + int(match[2] + match[3]) if match else -1
    is_for_platform = is_rocm(build) == (request.platform.gpus == "ROCm")
    if build >= 0 and is_for_platform and (release is None or build in release.builds):
        return [build]
    return []


def list_flash_releases(request: SoftwareRequest) -> list[str]:
    """Return the releases of flash-attention to choose from."""
    return list(FLASH_ATTENTION) if request.flash == AUTO else [request.flash]


def list_candidates(nodes: Mapping[str, NodeSoftware], request: SoftwareRequest) -> Iterator[Candidate]:
    """Yield all combinations that match the settings, whether or not they are compatible with the nodes."""
    for python, (torch, release), flash in itertools.product(
        list_interpreters(nodes, request), list_releases(request), list_flash_releases(request)
    ):
        for build in list_builds(torch, release, nodes, request):
            yield Candidate(python, torch, release, build, flash)


# --- Conflicts --------------------------------------------------------------------------------------------------------


def check_python(candidate: Candidate, nodes: Mapping[str, NodeSoftware], request: SoftwareRequest) -> Conflict | None:
    """Check that a torch wheel exists for the interpreter."""
    if candidate.release is None or candidate.python.minor is None:
        return None
    oldest, newest = candidate.release.pythons
    if oldest <= candidate.python.minor <= newest:
        return None
    versions = group_by_value((node.name, node.python) for node in nodes.values() if node.python)
    return Conflict(
        (1,),
        f"torch {candidate.torch} has no wheel for Python {format_minor(candidate.python.minor)} "
        f"({candidate.python.origin}{f'; found: {versions}' if versions else ''})",
        f"It needs Python {format_range(candidate.release.pythons)}",
        rebuild_advice(request) if any(node.has_environment for node in nodes.values()) else "",
    )


def check_build(candidate: Candidate, _nodes: Mapping[str, NodeSoftware], request: SoftwareRequest) -> Conflict | None:
    """Check that the build is the one specified in the project's requirements, if any."""
    pin = next((pin for pin in request.pins if pin.build not in ("", build_name(candidate.build))), None)
    if pin is None:
        return None
    cuda = format_build(int(pin.build[2:])) if pin.build.startswith("cu") else pin.build
    return Conflict(
        (0,),
        f"{pin}, but torch {candidate.torch} is chosen for {describe_build(candidate.build)}",
        f"It needs the build {pin.build}",
        f"set pytorch_cuda to {cuda}, or remove +{pin.build} from {pin.source}",
    )


def check_driver(candidate: Candidate, nodes: Mapping[str, NodeSoftware], _request: SoftwareRequest) -> Conflict | None:
    """Check that the drivers support the build's CUDA version."""
    minimum = MIN_DRIVER.get(candidate.build // 10)
    if candidate.build == CPU or minimum is None:
        return None
    outdated = [node for node in nodes.values() if node.gpus and node.driver and version_tuple(node.driver) < minimum]
    if not outdated:
        return None
    return Conflict(
        (2, -candidate.build),
        f"the NVIDIA driver is too old for torch {candidate.torch} with {describe_build(candidate.build)}: "
        f"{group_by_value((node.name, node.driver) for node in outdated)}",
        f"It needs {'.'.join(map(str, minimum))} or newer",
        "install a newer driver (ansible-playbook site.yml --tags nvidia_driver)",
    )


def check_kernels(
    candidate: Candidate, nodes: Mapping[str, NodeSoftware], _request: SoftwareRequest
) -> Conflict | None:
    """Check that the build includes kernels for the GPUs."""
    if candidate.build == CPU or candidate.release is None:
        return None
    targets = candidate.release.builds[candidate.build].split()
    unsupported = [
        (node.name, f"{model} (compute capability {format_minor(capability)})")
        for node in nodes.values()
        for model, capability in node.devices
        if not has_kernels(targets, capability)
    ]
    if is_rocm(candidate.build):
        unsupported += [
            (node.name, f"{model} ({target})")
            for node in nodes.values()
            for model, target in node.targets
            if target not in targets
        ]
    if not unsupported:
        return None
    return Conflict(
        (3,),
        f"torch {candidate.torch} for {describe_build(candidate.build)} has no kernels for "
        f"{group_by_value(unsupported)}",
        f"It is built for {', '.join(targets)}",
        f"remove {format_list(dict.fromkeys(name for name, _model in unsupported))} from the group",
    )


def check_flash_platform(
    candidate: Candidate, _nodes: Mapping[str, NodeSoftware], request: SoftwareRequest
) -> Conflict | None:
    """Check that flash-attention publishes wheels for the nodes' processors and GPUs."""
    if not candidate.flash or request.platform.flash_wheels:
        return None
    return Conflict(
        (4,),
        f"flash-attention has no wheels for {request.platform.title}",
        "Its wheels are for x86_64 and CUDA",
        "set flash_attention_enabled to false, and use torch.nn.functional.scaled_dot_product_attention in the job"
        + (", or set flash_attention_build to true" if request.platform.gpus == "CUDA" else ""),
    )


def check_flash_attention(
    candidate: Candidate, nodes: Mapping[str, NodeSoftware], _request: SoftwareRequest
) -> Conflict | None:
    """Check that flash-attention runs on the GPUs, and has a wheel for torch, CUDA, Python and glibc."""
    if not candidate.flash:
        return None
    if candidate.build == CPU:
        return Conflict(
            (4,),
            "flash-attention runs only on GPUs, but the torch build is for the CPU",
            "It needs GPUs on the nodes and a torch build for CUDA",
            "set flash_attention_enabled to false",
        )
    unsupported = [
        (node.name, f"{model} (compute capability {format_minor(capability)})")
        for node in nodes.values()
        for model, capability in node.devices
        if capability < FLASH_CAPABILITY
    ]
    if unsupported:
        return Conflict(
            (4,),
            f"FlashAttention 2 has no kernels for {group_by_value(unsupported)}",
            f"It needs compute capability {format_minor(FLASH_CAPABILITY)} or higher (Ampere)",
            "set flash_attention_enabled to false, and use torch.nn.functional.scaled_dot_product_attention in the job",
        )
    flash = FLASH_ATTENTION.get(candidate.flash)
    if flash is None or candidate.release is None:  # the role flash_attention queries the server
        return None
    outdated = [
        (node.name, node.glibc) for node in nodes.values() if node.glibc and parse_minor(node.glibc) < flash.glibc
    ]
    if outdated:
        return Conflict(
            (5,),
            f"the flash-attention {candidate.flash} wheels do not load with glibc {group_by_value(outdated)}",
            f"They need glibc {format_minor(flash.glibc)} or newer",
            "set flash_attention_build to true to build it there",
        )
    python = candidate.python.minor
    if (
        parse_minor(candidate.torch) in flash.torches
        and candidate.build // 10 in flash.cudas
        and (python is None or flash.pythons[0] <= python <= flash.pythons[1])
    ):
        return None
    return Conflict(
        (6,),
        f"flash-attention {candidate.flash} has no wheel for torch {candidate.torch} with "
        f"{describe_build(candidate.build)} and Python {format_minor(python) if python else candidate.python.name}",
        f"It has wheels for torch {format_range((flash.torches[0], flash.torches[-1]))} for CUDA "
        f"{' or '.join(map(str, flash.cudas))} on Python {format_range(flash.pythons)}",
        "set flash_attention_build to true",
    )


RULES = (
    check_build,
    check_python,
    check_driver,
    check_kernels,
    check_flash_platform,
    check_flash_attention,
)


def find_conflict(candidate: Candidate, nodes: Mapping[str, NodeSoftware], request: SoftwareRequest) -> Conflict | None:
    """Return the first conflict of a combination, or None if it is compatible."""
    return next(filter(None, (rule(candidate, nodes, request) for rule in RULES)), None)


# --- Choice -----------------------------------------------------------------------------------------------------------


def sort_key(candidate: Candidate) -> tuple[tuple[int, ...], ...]:
    """Return the sort key: by torch first, then flash-attention, then CUDA."""
    return version_tuple(candidate.torch), version_tuple(candidate.flash), (candidate.build,)


def choose_newest(fitting: list[Candidate]) -> Candidate:
    """Return the newest combination; among equals, the first one, which has the preferred interpreter."""
    return max(fitting, key=sort_key)


DRIVER_TITLES = {"CUDA": "NVIDIA", "ROCm": "amdgpu"}


def platform_of(nodes: Mapping[str, NodeSoftware]) -> Platform:
    """Return the platform that all nodes share. Raise SoftwareChoiceError if they differ."""
    try:
        return find_platform(
            (node.name, node.architecture, node.vendor if node.gpus else "") for node in nodes.values()
        )
    except PlatformError as error:
        raise SoftwareChoiceError(str(error)) from None


def choose(nodes: Mapping[str, NodeSoftware], request: SoftwareRequest) -> SoftwareChoice:
    """Choose the versions for all nodes. Raise SoftwareChoiceError, with a working alternative if there is one."""
    request = replace(request, platform=platform_of(nodes))
    driverless = [node.name for node in nodes.values() if node.gpus and not node.driver]
    if driverless and request.cuda == AUTO:
        raise SoftwareChoiceError(
            f"{format_list(driverless)}: no {DRIVER_TITLES[request.platform.gpus]} driver is loaded for the GPUs, "
            f"but the driver determines the torch build. {request.platform.driver}, or set pytorch_cuda"
        )
    combinations = list(list_candidates(nodes, request))
    if not combinations:
        raise SoftwareChoiceError(describe_missing_build(request))
    conflicts = [(candidate, find_conflict(candidate, nodes, request)) for candidate in combinations]
    fitting = [candidate for candidate, conflict in conflicts if conflict is None]
    if fitting:
        chosen = choose_newest(fitting)
        return SoftwareChoice(
            python=chosen.python.name,
            torch=chosen.torch,
            build=build_name(chosen.build),
            flash=chosen.flash,
            reasons=explain_choice(chosen, combinations, nodes, request),
        )
    # report the combination that satisfied the most rules, as it is the closest to working
    ranked = [(conflict.rank, sort_key(candidate), conflict) for candidate, conflict in conflicts if conflict]
    conflict = max(ranked, key=lambda entry: entry[:2])[2]
    advice = ", or ".join(text for text in (suggest_settings(nodes, request), conflict.remedy) if text)
    raise SoftwareChoiceError(
        f"{conflict.description}. {conflict.requirement}{f'. {capitalize(advice)}' if advice else ''}"
    )


def describe_missing_build(request: SoftwareRequest) -> str:
    """Return the message about a combination of torch and CUDA or ROCm that does not exist."""
    platform, kind = request.platform, "" if request.cuda.startswith("rocm") else "CUDA "
    if request.torch == AUTO:
        return (
            f"no torch is known for {kind}{request.cuda}{describe_platform(platform)}. Set pytorch_cuda to one of "
            f"these:\n{known_builds(platform)}"
        )
    release = platform.releases.get(parse_minor(request.torch))
    builds = ", ".join(map(format_build, release.builds)) if release else ""
    prefix = "CUDA " if platform.gpus == "CUDA" else ""
    extent = f"only for {prefix}{builds}" if builds else "as far as is known"
    releases = [
        format_minor(minor)
        for minor, entry in platform.releases.items()
        if request.cuda in map(format_build, entry.builds)
    ]
    hint = f" {kind}{request.cuda} is available for torch {', '.join(releases)}." if releases else ""
    return (
        f"torch {request.torch} does not exist for {kind}{request.cuda}{describe_platform(platform)}, {extent}."
        f"{hint} Set pytorch_version or pytorch_cuda to one of these:\n{known_builds(platform)}"
    )


def describe_platform(platform: Platform) -> str:
    """Describe a platform for a message; "" for the usual one."""
    return "" if platform is DEFAULT else f" on {platform.title}"


def suggest_settings(nodes: Mapping[str, NodeSoftware], request: SoftwareRequest) -> str:
    """Suggest the fewest changes to settings that make a combination compatible; empty if no change helps."""
    settings = {
        "cuda": ("pytorch_cuda", lambda choice: choice.setting),
        "torch": ("pytorch_version", lambda choice: choice.torch),
        "python": ("python_env_python", lambda choice: choice.python),
        "flash": ("flash_attention_version", lambda choice: choice.flash),
    }
    explicit = [name for name in settings if getattr(request, name) not in (AUTO, "")]
    for count in range(1, len(explicit) + 1):
        for names in itertools.combinations(explicit, count):
            automatic: dict[str, Any] = dict.fromkeys(names, AUTO)
            relaxed = replace(request, **automatic)
            try:
                fitting = [
                    candidate
                    for candidate in list_candidates(nodes, relaxed)
                    if find_conflict(candidate, nodes, relaxed) is None
                ]
            except SoftwareChoiceError:
                continue
            if fitting:
                newest = choose_newest(fitting)
                choice = SoftwareChoice(newest.python.name, newest.torch, build_name(newest.build), newest.flash)
                return "set " + " and ".join(f"{settings[name][0]} to {settings[name][1](choice)}" for name in names)
    return ""


# --- Reasons ----------------------------------------------------------------------------------------------------------


def explain_choice(
    chosen: Candidate, combinations: list[Candidate], nodes: Mapping[str, NodeSoftware], request: SoftwareRequest
) -> list[str]:
    """Return the reasons for the choice, one line each for Python, torch, CUDA and flash-attention."""

    def describe_rejection(rejected: Iterable[Candidate]) -> str:
        """Return the conflict of the newest rejected combination that has one."""
        conflicts = (
            (candidate, find_conflict(candidate, nodes, request))
            for candidate in sorted(rejected, key=sort_key, reverse=True)
        )
        return next((f"; {conflict.description}" for _candidate, conflict in conflicts if conflict), "")

    python = chosen.python
    version = format_minor(python.minor) if python.minor else python.name
    preferred = [candidate for candidate in combinations if candidate.python == combinations[0].python != python]
    same_torch = [
        candidate for candidate in preferred if candidate.torch == chosen.torch and candidate.build == chosen.build
    ]
    lines = [f"Python {version}: {python.origin}{describe_rejection(same_torch)}"]

    newer = [candidate for candidate in combinations if version_tuple(candidate.torch) > version_tuple(chosen.torch)]
    newest = max((version_tuple(candidate.torch) for candidate in newer), default=())
    if request.torch != AUTO:
        lines.append(f"torch {chosen.torch}: set by pytorch_version")
    else:
        rejected = [
            candidate for candidate in newer if version_tuple(candidate.torch) == newest and candidate.python == python
        ]
        pins = f" {format_list(map(str, request.pins))}" if request.pins else ""
        reason = "the newest compatible release" + (f", since{pins}" if pins else "")
        lines.append(f"torch {chosen.torch}: {reason}{describe_rejection(rejected)}")

    lines.append(explain_build(chosen, combinations, nodes, request, describe_rejection))
    if chosen.flash:
        lines.append(
            f"flash-attention {chosen.flash}: "
            + ("the newest with a wheel for this torch" if request.flash == AUTO else "set by flash_attention_version")
        )
    return lines


def explain_build(
    chosen: Candidate,
    combinations: list[Candidate],
    nodes: Mapping[str, NodeSoftware],
    request: SoftwareRequest,
    describe_rejection: Callable[[Iterable[Candidate]], str],
) -> str:
    """Return why this torch build was chosen."""
    if request.cuda != AUTO:
        return f"{describe_build(chosen.build)}: set by pytorch_cuda"
    if chosen.build == CPU:
        return "the CPU: no node has a GPU"
    drivers = group_by_value((node.name, node.driver) for node in nodes.values() if node.gpus)
    gpus = group_by_value(
        (node.name, f"{model} ({format_minor(capability)})")
        for node in nodes.values()
        for model, capability in node.devices
    ) or group_by_value((node.name, f"{model} ({target})") for node in nodes.values() for model, target in node.targets)
    newer = [
        candidate for candidate in combinations if candidate.torch == chosen.torch and candidate.python == chosen.python
    ]
    rejected = [candidate for candidate in newer if candidate.build > chosen.build]
    return (
        f"{describe_build(chosen.build)}: the newest build that the drivers support ({drivers}) and that has "
        f"kernels for the GPUs ({gpus or 'not reported by the driver'}){describe_rejection(rejected)}"
    )


# --- Requirements for pip ---------------------------------------------------------------------------------------------


def pip_requirements(torch: str, packages: list[str]) -> list[str]:
    """Return pip requirements: torch, companion packages pinned to matching releases, and all others unchanged."""
    major, minor = parse_minor(torch)
    companions = {
        "torchvision": f"torchvision==0.{minor + 15}.*",
        "torchaudio": f"torchaudio=={major}.{minor}.*",
    }
    codecs = torchcodec_minors(torch)
    if codecs:
        companions["torchcodec"] = f"torchcodec==0.{codecs[-1]}.*"
    if (major, minor) < NUMPY_2_TORCH:
        companions["numpy"] = "numpy<2"
    return [f"torch=={torch}", *(companions.get(name, name) for name in packages)]

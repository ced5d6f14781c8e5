# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Choose Python, torch, its CUDA build and flash-attention together, to fit the nodes. Pure.

What the user sets is never changed, only checked. Private to this collection.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ansible_collections.muster.training.plugins.plugin_utils._checks.context import listed
from ansible_collections.muster.training.plugins.plugin_utils._checks.software import has_kernels
from ansible_collections.muster.training.plugins.plugin_utils._software.tables import (
    BROUGHT_PYTHON,
    FLASH_ATTENTION,
    FLASH_CAPABILITY,
    TORCH,
    Minor,
    Torch,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import LEAST_DRIVER, version_tuple

AUTO = "auto"
CPU = 0  # the build without CUDA
BRING_PYTHON = ("uv", "conda")  # managers that can install an interpreter if the system's does not fit


class Refusal(Exception):
    """Nothing fits. The text says what was found, what is needed, and what to do."""


@dataclass(frozen=True)
class Node:
    """The facts of a node that affect the choice."""

    name: str
    gpus: int = 0
    driver: str = ""  # version of the loaded NVIDIA driver
    devices: tuple[tuple[str, Minor], ...] = ()  # models and compute capabilities, as far as the driver reports them
    python: str = ""  # version of the environment's interpreter if there is an environment, else of the system's
    made: bool = False  # whether there is an environment already
    glibc: str = ""


@dataclass(frozen=True)
class Wishes:
    """The user's settings; auto means that we choose."""

    torch: str = AUTO
    cuda: str = AUTO  # such as 12.4, or cpu
    python: str = AUTO  # name, path or version of an interpreter
    flash: str = ""  # release of flash-attention that needs a wheel, or auto; empty: not requested
    manager: str = "uv"
    directory: str = "/opt/muster"  # of the environment


@dataclass(frozen=True)
class Python:
    """An interpreter to choose from."""

    name: str  # as passed to the manager
    minor: Minor | None  # None: unknown until it is installed
    origin: str  # for a message


@dataclass(frozen=True)
class Candidate:
    """One combination of versions."""

    python: Python
    torch: str
    release: Torch | None  # None: the tables do not have this release
    build: int
    flash: str = ""


@dataclass(frozen=True)
class Problem:
    """Why a combination does not work. rank: higher if it passed more rules or, within a rule, is nearer to fitting."""

    rank: tuple[int, ...]
    found: str
    needed: str
    todo: str = ""


@dataclass(frozen=True)
class Choice:
    """The versions to install on all nodes, and why."""

    python: str
    torch: str
    build: str  # cpu, or cu and the digits of the CUDA version
    flash: str
    reasons: list[str] = field(default_factory=list)

    @property
    def cuda(self) -> str:
        """The version of CUDA, empty for the CPU."""
        return "" if self.build == "cpu" else dotted(int(self.build[2:]))


# --- Words ------------------------------------------------------------------------------------------------------------


def dotted(build: int) -> str:
    """124 as 12.4."""
    return f"{build // 10}.{build % 10}"


def minor_text(minor: Minor) -> str:
    """(3, 12) as 3.12."""
    return ".".join(map(str, minor))


def minor_of(version: str) -> Minor:
    """3.8.10 as (3, 8)."""
    major, minor = version_tuple(version)[:2]
    return major, minor


def build_words(build: int) -> str:
    """A build for a message."""
    return "the CPU" if build == CPU else f"CUDA {dotted(build)}"


def by_value(values: Iterable[tuple[str, str]]) -> str:
    """(node, value) pairs as "580.65.06 on node1, node2; 535.183.01 on node3"."""
    names: dict[str, list[str]] = {}
    for name, value in values:
        if name not in names.setdefault(value, []):
            names[value].append(name)
    return "; ".join(f"{value} on {listed(nodes)}" for value, nodes in sorted(names.items()))


def span(minors: tuple[Minor, Minor]) -> str:
    """A range for a message."""
    return f"{minor_text(minors[0])} to {minor_text(minors[1])}"


def known_builds() -> str:
    """All pairs of torch and CUDA, a line per release."""
    return "\n".join(
        f"  torch {minor_text(minor)}: {', '.join(map(dotted, one.builds))}" for minor, one in TORCH.items()
    )


# --- Candidates -------------------------------------------------------------------------------------------------------


def pythons(nodes: Mapping[str, Node], wishes: Wishes) -> list[Python]:
    """The interpreters to choose from, the preferred one first."""
    made = [node for node in nodes.values() if node.made and node.python]
    named = re.fullmatch(r"(?:.*python)?(3\.[0-9]+)(?:\.[0-9]+)?", wishes.python)
    if made:
        minor = minor_of(made[0].python)
        if named and minor_of(named[1]) != minor:
            seen = by_value((node.name, node.python) for node in made)
            raise Refusal(
                f"the environment in {wishes.directory} has Python {seen}, "
                f"and python_env_python is {wishes.python}. Needed: the same in both. Remove {wishes.directory}/env "
                "on all nodes to rebuild it, or set python_env_python to auto"
            )
        return [
            Python(minor_text(minor), minor, f"{wishes.directory}/env has it; to change it, remove that on all nodes")
        ]
    found = {minor_of(node.python) for node in nodes.values() if node.python}
    everywhere = len(found) == 1 and all(node.python for node in nodes.values())
    seen = by_value((node.name, node.python or "missing") for node in nodes.values())
    if wishes.python != AUTO:
        if everywhere and wishes.manager != "conda":
            return [Python(wishes.python, next(iter(found)), "as python_env_python says")]
        return [Python(wishes.python, minor_of(named[1]) if named else None, "as python_env_python says")]
    system = [Python("python3", next(iter(found)), "python3 of the nodes")] if everywhere else []
    if wishes.manager == "venv":
        if system:
            return system
        raise Refusal(
            f"python3 is {seen}. Needed: the same minor release of Python on all nodes, because venv uses the "
            "system's. Install the same one, or set python_env_manager to uv, which installs its own"
        )
    brought = Python(minor_text(BROUGHT_PYTHON), BROUGHT_PYTHON, f"{wishes.manager} brings it")
    return [brought] if wishes.manager == "conda" else [*system, brought]


def releases(wishes: Wishes) -> list[tuple[str, Torch | None]]:
    """The releases of torch to choose from."""
    if wishes.torch == AUTO:
        return [(one.newest, one) for one in TORCH.values()]
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", wishes.torch):
        raise Refusal(
            f"pytorch_version is {wishes.torch!r}. Needed: auto, or a release with all three numbers, such as 2.5.1"
        )
    release = TORCH.get(minor_of(wishes.torch))
    if release is None and wishes.cuda == AUTO:
        raise Refusal(
            f"no builds of torch {wishes.torch} are known. Needed: one of these, or pytorch_cuda, with which another "
            f"release is taken unchecked:\n{known_builds()}"
        )
    return [(wishes.torch, release)]


def builds(torch: str, release: Torch | None, nodes: Mapping[str, Node], wishes: Wishes) -> list[int]:
    """The builds of a torch release to choose from."""
    if wishes.cuda == "cpu" or (wishes.cuda == AUTO and not any(node.gpus for node in nodes.values())):
        return [CPU]
    if wishes.cuda == AUTO:
        return list(release.builds) if release else []
    named = re.fullmatch(r"([0-9]+)\.([0-9])", wishes.cuda)
    build = int(named[1] + named[2]) if named else -1
    if build >= 0 and (release is None or build in release.builds):
        return [build]
    return []


def flashes(wishes: Wishes) -> list[str]:
    """The releases of flash-attention to choose from."""
    return list(FLASH_ATTENTION) if wishes.flash == AUTO else [wishes.flash]


def candidates(nodes: Mapping[str, Node], wishes: Wishes) -> Iterator[Candidate]:
    """All combinations that match the settings, whether they fit the nodes or not."""
    for python, (torch, release), flash in itertools.product(pythons(nodes, wishes), releases(wishes), flashes(wishes)):
        for build in builds(torch, release, nodes, wishes):
            yield Candidate(python, torch, release, build, flash)


# --- Conflicts --------------------------------------------------------------------------------------------------------


def python_problem(one: Candidate, nodes: Mapping[str, Node], wishes: Wishes) -> Problem | None:
    """There must be a torch wheel for the interpreter."""
    if one.release is None or one.python.minor is None:
        return None
    oldest, newest = one.release.pythons
    if oldest <= one.python.minor <= newest:
        return None
    seen = by_value((node.name, node.python) for node in nodes.values() if node.python)
    return Problem(
        (1,),
        f"torch {one.torch} has no wheel for Python {minor_text(one.python.minor)} ({one.python.origin}"
        f"{f'; found: {seen}' if seen else ''})",
        f"Python {span(one.release.pythons)}",
        f"remove {wishes.directory}/env on all nodes, so that it is rebuilt"
        if any(node.made for node in nodes.values())
        else "",
    )


def driver_problem(one: Candidate, nodes: Mapping[str, Node], _wishes: Wishes) -> Problem | None:
    """The drivers must support the CUDA version of the build."""
    least = LEAST_DRIVER.get(one.build // 10)
    if one.build == CPU or least is None:
        return None
    old = [node for node in nodes.values() if node.gpus and node.driver and version_tuple(node.driver) < least]
    if not old:
        return None
    return Problem(
        (2, -one.build),
        f"the NVIDIA driver is too old for torch {one.torch} with {build_words(one.build)}: "
        f"{by_value((node.name, node.driver) for node in old)}",
        f"{'.'.join(map(str, least))} or newer",
        "install a newer driver (ansible-playbook site.yml --tags nvidia_driver)",
    )


def kernel_problem(one: Candidate, nodes: Mapping[str, Node], _wishes: Wishes) -> Problem | None:
    """The build must have kernels for the GPUs."""
    if one.build == CPU or one.release is None:
        return None
    archs = one.release.builds[one.build].split()
    without = [
        (node.name, f"{model} (compute capability {minor_text(capability)})")
        for node in nodes.values()
        for model, capability in node.devices
        if not has_kernels(archs, capability)
    ]
    if not without:
        return None
    return Problem(
        (3,),
        f"torch {one.torch} for {build_words(one.build)} has no kernels for {by_value(without)}",
        f"GPUs it is built for ({', '.join(archs)})",
        f"leave {listed(dict.fromkeys(name for name, _model in without))} out of the group",
    )


def flash_problem(one: Candidate, nodes: Mapping[str, Node], _wishes: Wishes) -> Problem | None:
    """flash-attention must run on the GPUs, and have a wheel for torch, CUDA, Python and glibc."""
    if not one.flash:
        return None
    if one.build == CPU:
        return Problem(
            (4,),
            "flash-attention runs only on GPUs, but torch is for the CPU",
            "GPUs on the nodes and a torch for CUDA",
            "set flash_attention_enabled to false",
        )
    old = [
        (node.name, f"{model} (compute capability {minor_text(capability)})")
        for node in nodes.values()
        for model, capability in node.devices
        if capability < FLASH_CAPABILITY
    ]
    if old:
        return Problem(
            (4,),
            f"FlashAttention 2 has no kernels for {by_value(old)}",
            f"compute capability {minor_text(FLASH_CAPABILITY)} or higher (Ampere)",
            "set flash_attention_enabled to false, and use torch.nn.functional.scaled_dot_product_attention in the job",
        )
    flash = FLASH_ATTENTION.get(one.flash)
    if flash is None or one.release is None:  # the role flash_attention asks the server
        return None
    old = [(node.name, node.glibc) for node in nodes.values() if node.glibc and minor_of(node.glibc) < flash.glibc]
    if old:
        return Problem(
            (5,),
            f"the wheels of flash-attention {one.flash} do not load with glibc {by_value(old)}",
            f"glibc {minor_text(flash.glibc)} or newer",
            "set flash_attention_build to true to build it there",
        )
    python = one.python.minor
    if (
        minor_of(one.torch) in flash.torches
        and one.build // 10 in flash.cudas
        and (python is None or flash.pythons[0] <= python <= flash.pythons[1])
    ):
        return None
    return Problem(
        (6,),
        f"flash-attention {one.flash} has no wheel for torch {one.torch} with {build_words(one.build)} and Python "
        f"{minor_text(python) if python else one.python.name}",
        f"torch {span((flash.torches[0], flash.torches[-1]))} for CUDA {' or '.join(map(str, flash.cudas))} on Python "
        f"{span(flash.pythons)}",
        "set flash_attention_build to true",
    )


RULES = (python_problem, driver_problem, kernel_problem, flash_problem)


def problem_of(one: Candidate, nodes: Mapping[str, Node], wishes: Wishes) -> Problem | None:
    """The first problem of a combination, None if it fits."""
    return next(filter(None, (rule(one, nodes, wishes) for rule in RULES)), None)


# --- The choice -------------------------------------------------------------------------------------------------------


def newness(one: Candidate) -> tuple[tuple[int, ...], ...]:
    """Sort key: by torch first, then flash-attention, then CUDA."""
    return version_tuple(one.torch), version_tuple(one.flash), (one.build,)


def best(fitting: list[Candidate]) -> Candidate:
    """The newest; of equal ones the first, which has the preferred interpreter."""
    return max(fitting, key=newness)


def choose(nodes: Mapping[str, Node], wishes: Wishes) -> Choice:
    """What to install on all nodes. Raises Refusal with what would fit."""
    without = [node.name for node in nodes.values() if node.gpus and not node.driver]
    if without and wishes.cuda == AUTO:
        raise Refusal(
            f"{listed(without)}: there are GPUs, but no NVIDIA driver is loaded. Needed: a driver, which determines "
            "the torch build. Install one (ansible-playbook site.yml --tags nvidia_driver), or set pytorch_cuda"
        )
    all_of_them = list(candidates(nodes, wishes))
    if not all_of_them:
        raise Refusal(no_such_pair(wishes))
    problems = [(one, problem_of(one, nodes, wishes)) for one in all_of_them]
    fitting = [one for one, problem in problems if problem is None]
    if fitting:
        chosen = best(fitting)
        return Choice(
            python=chosen.python.name,
            torch=chosen.torch,
            build="cpu" if chosen.build == CPU else f"cu{chosen.build}",
            flash=chosen.flash,
            reasons=reasons(chosen, all_of_them, nodes, wishes),
        )
    # report the combination that passed most rules, as it lacks least
    wrong = [(problem.rank, newness(one), problem) for one, problem in problems if problem]
    problem = max(wrong, key=lambda entry: entry[:2])[2]
    advice = ", or ".join(text for text in (other_settings(nodes, wishes), problem.todo) if text)
    raise Refusal(f"{problem.found}. Needed: {problem.needed}{f'. {advice[0].upper()}{advice[1:]}' if advice else ''}")


def no_such_pair(wishes: Wishes) -> str:
    """The message about a pair of torch and CUDA that does not exist."""
    if wishes.torch == AUTO:
        return f"no torch is known for CUDA {wishes.cuda}. Needed: one of these for pytorch_cuda:\n{known_builds()}"
    named = ", ".join(map(dotted, TORCH[minor_of(wishes.torch)].builds))
    other = [minor_text(minor) for minor, one in TORCH.items() if wishes.cuda in map(dotted, one.builds)]
    there = f" CUDA {wishes.cuda} is there for torch {', '.join(other)}." if other else ""
    return (
        f"there is no torch {wishes.torch} for CUDA {wishes.cuda}. torch {wishes.torch} is there for CUDA {named}."
        f"{there} Needed: an existing pair. Set pytorch_version or pytorch_cuda to one of these:\n{known_builds()}"
    )


def other_settings(nodes: Mapping[str, Node], wishes: Wishes) -> str:
    """Advice to change the fewest settings so that something fits, "" if no change helps."""
    settings = {
        "cuda": ("pytorch_cuda", lambda choice: choice.cuda or "cpu"),
        "torch": ("pytorch_version", lambda choice: choice.torch),
        "python": ("python_env_python", lambda choice: choice.python),
        "flash": ("flash_attention_version", lambda choice: choice.flash),
    }
    asked = [name for name in settings if getattr(wishes, name) not in (AUTO, "")]
    for count in range(1, len(asked) + 1):
        for names in itertools.combinations(asked, count):
            relaxed = replace(wishes, **dict.fromkeys(names, AUTO))
            try:
                fitting = [one for one in candidates(nodes, relaxed) if problem_of(one, nodes, relaxed) is None]
            except Refusal:
                continue
            if fitting:
                one = best(fitting)
                choice = Choice(one.python.name, one.torch, f"cu{one.build}" if one.build else "cpu", one.flash)
                return "set " + " and ".join(f"{settings[name][0]} to {settings[name][1](choice)}" for name in names)
    return ""


# --- Reasons ----------------------------------------------------------------------------------------------------------


def reasons(chosen: Candidate, all_of_them: list[Candidate], nodes: Mapping[str, Node], wishes: Wishes) -> list[str]:
    """The reasons of the choice, a line each for Python, torch, CUDA and flash-attention."""

    def why_not(others: Iterable[Candidate]) -> str:
        """The problem of the newest unfit one among combinations that were not chosen."""
        problems = ((one, problem_of(one, nodes, wishes)) for one in sorted(others, key=newness, reverse=True))
        return next((f"; {problem.found}" for _one, problem in problems if problem), "")

    python = chosen.python
    known = minor_text(python.minor) if python.minor else python.name
    preferred = [one for one in all_of_them if one.python == all_of_them[0].python != python]
    same_torch = [one for one in preferred if one.torch == chosen.torch and one.build == chosen.build]
    lines = [f"Python {known}: {python.origin}{why_not(same_torch)}"]

    newer = [one for one in all_of_them if version_tuple(one.torch) > version_tuple(chosen.torch)]
    newest = max((version_tuple(one.torch) for one in newer), default=())
    if wishes.torch != AUTO:
        lines.append(f"torch {chosen.torch}: as pytorch_version says")
    else:
        refused = [one for one in newer if version_tuple(one.torch) == newest and one.python == python]
        lines.append(f"torch {chosen.torch}: the newest that fits{why_not(refused)}")

    lines.append(build_reason(chosen, all_of_them, nodes, wishes, why_not))
    if chosen.flash:
        lines.append(
            f"flash-attention {chosen.flash}: "
            + ("the newest with a wheel for them" if wishes.flash == AUTO else "as flash_attention_version says")
        )
    return lines


def build_reason(
    chosen: Candidate,
    all_of_them: list[Candidate],
    nodes: Mapping[str, Node],
    wishes: Wishes,
    why_not: Callable[[Iterable[Candidate]], str],
) -> str:
    """Why this build of torch was chosen."""
    if wishes.cuda != AUTO:
        return f"{build_words(chosen.build)}: as pytorch_cuda says"
    if chosen.build == CPU:
        return "the CPU: no node has a GPU"
    drivers = by_value((node.name, node.driver) for node in nodes.values() if node.gpus)
    gpus = by_value(
        (node.name, f"{model} ({minor_text(capability)})")
        for node in nodes.values()
        for model, capability in node.devices
    )
    newer = [one for one in all_of_them if one.torch == chosen.torch and one.python == chosen.python]
    refused = [one for one in newer if one.build > chosen.build]
    return (
        f"{build_words(chosen.build)}: the newest build that the drivers run ({drivers}) and that has kernels for the "
        f"GPUs ({gpus or 'not told by the driver'}){why_not(refused)}"
    )


# --- Requirements for pip ---------------------------------------------------------------------------------------------


def requirements(torch: str, packages: list[str]) -> list[str]:
    """pip requirements: torch, its companion packages pinned to matching releases, and all others unchanged."""
    major, minor = minor_of(torch)
    companions = {"torchvision": f"0.{minor + 15}.*", "torchaudio": f"{major}.{minor}.*"}
    return [
        f"torch=={torch}",
        *(f"{name}=={companions[name]}" if name in companions else name for name in packages),
    ]

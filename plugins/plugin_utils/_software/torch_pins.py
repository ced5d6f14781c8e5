# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Determine which torch releases a project's requirements allow, before torch is chosen.

A release of torchvision, torchaudio or torchcodec belongs to one release of torch, so their versions restrict it, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.muster.training.plugins.plugin_utils._software.versions import version_tuple

if TYPE_CHECKING:
    from packaging.requirements import Requirement

PATCHES = range(10)  # patch releases of a companion package to try
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
X86 = "x86_64"


def torchvision_of(torch: str) -> list[str]:
    """Return the torchvision releases for a torch 2 release: 0.15 for 2.0, 0.28 for 2.13."""
    return [f"0.{version_tuple(torch)[1] + 15}.{patch}" for patch in PATCHES]


def torchaudio_of(torch: str) -> list[str]:
    """Return the torchaudio releases for a torch 2 release, which have the same numbers."""
    major, minor = version_tuple(torch)[:2]
    return [f"{major}.{minor}.{patch}" for patch in PATCHES]


# torchcodec's minor releases by minor release of torch 2
TORCHCODEC_MINORS = {4: (0,), 5: (1,), 6: (2,), 7: (3, 4, 5), 8: (6, 7), 9: (8, 9)}


def torchcodec_minors(torch: str) -> tuple[int, ...]:
    """Return the minor torchcodec releases for a torch 2 release.

    Since torch 2.10 they have the same numbers; before 2.4 there are none.
    """
    minor = version_tuple(torch)[1]
    return TORCHCODEC_MINORS.get(minor, (minor,) if minor >= 10 else ())


def torchcodec_of(torch: str) -> list[str]:
    """Return the torchcodec releases for a torch 2 release."""
    return [f"0.{minor}.{patch}" for minor in torchcodec_minors(torch) for patch in PATCHES]


# The releases of a package, any of which a requirement may allow, for a given torch release.
RELEASES: dict[str, Callable[[str], list[str]]] = {
    "torch": lambda torch: [torch],
    "torchvision": torchvision_of,
    "torchaudio": torchaudio_of,
    "torchcodec": torchcodec_of,
}


@dataclass(frozen=True)
class TorchPin:
    """A requirement that restricts the torch release."""

    source: str  # the file or setting that contains it
    text: str  # the requirement as written there
    package: str
    versions: str  # its version specifiers, without local version labels
    build: str = ""  # build such as cu118, if the requirement specifies one

    def allows(self, torch: str) -> bool:
        """Return whether a torch release satisfies the requirement."""
        from packaging.specifiers import SpecifierSet  # a requirement of ansible-core

        specifiers = SpecifierSet(self.versions)
        return any(specifiers.contains(release, prereleases=True) for release in RELEASES[self.package](torch))

    def __str__(self) -> str:
        return f"{self.source} requires {self.text}"


def applies(requirement: Requirement, machine: str) -> bool:
    """Return whether a requirement applies to nodes; one limited to some Python versions is evaluated later, by pip."""
    return requirement.marker is None or (
        "python" not in str(requirement.marker)
        and requirement.marker.evaluate({**LINUX, "platform_machine": machine, "extra": ""})
    )


def read_pins(requirements: Mapping[str, Iterable[str]], machine: str = X86) -> list[TorchPin]:
    """Return the pins in requirements. Each source name maps to a list of lines in pip's format.

    machine: the architecture of the nodes' processors.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    pins = []
    for source, lines in requirements.items():
        for line in lines:
            text = re.sub(r"(^|\s)#.*", "", line).partition(" --")[0].strip()
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue  # options and URLs; pip reports errors
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            if name in RELEASES and requirement.specifier and applies(requirement, machine):
                specifiers = str(requirement.specifier)
                build = re.search(r"==[^,]*\+(cpu|cu[0-9]+|rocm[0-9]+\.[0-9])(?![0-9.])", specifiers)
                versions = re.sub(r"\+[\w.]+", "", specifiers)
                pins.append(TorchPin(source, text, name, versions, build[1] if build else ""))
    return pins


def exact_releases(pins: Iterable[TorchPin]) -> list[str]:
    """Return the torch releases that the pins specify exactly."""
    return [
        version
        for pin in pins
        if pin.package == "torch"
        for version in re.findall(r"===?\s*([0-9]+\.[0-9]+\.[0-9]+)(?:,|$)", pin.versions)
    ]


def newest_allowed(newest: str, pins: Iterable[TorchPin]) -> str:
    """Return the newest torch release that all pins allow within the minor release of `newest`, or ""."""
    pins = list(pins)
    major, minor, patch = version_tuple(newest)[:3]
    known = [f"{major}.{minor}.{number}" for number in range(patch, -1, -1)]
    exact = [version for version in exact_releases(pins) if version_tuple(version)[:2] == (major, minor)]
    return next((version for version in [*known, *exact] if all(pin.allows(version) for pin in pins)), "")

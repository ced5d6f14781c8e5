# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which builds of torch there are, and what each needs of the driver. Pure. Private to this collection."""

from __future__ import annotations

import re
from typing import Any, Mapping

from ansible_collections.muster.training.plugins.module_utils._checks.software import LEAST_DRIVER, version_tuple

# Minor release of torch to the CUDA builds on torch's own index, download.pytorch.org/whl (as its pages list them).
BUILDS = {
    (2, 3): (118, 121),
    (2, 4): (118, 121, 124),
    (2, 5): (118, 121, 124),
    (2, 6): (118, 124, 126),
    (2, 7): (118, 126, 128),
    (2, 8): (126, 128, 129),
    (2, 9): (126, 128, 130),
    (2, 10): (126, 128, 130),
    (2, 11): (126, 128, 129, 130),
    (2, 12): (126, 130, 132),
    (2, 13): (126, 130, 132),
}
CPU = "cpu"


class NoSuchBuild(Exception):
    """What was asked for, what there is and what to do."""


def dotted(build: int) -> str:
    """124 as 12.4."""
    return f"{build // 10}.{build % 10}"


def known(versions: Mapping[tuple[int, int], tuple[int, ...]]) -> str:
    """All pairs, a line a release."""
    return "\n".join(
        f"  torch {major}.{minor}: {', '.join(map(dotted, builds))}" for (major, minor), builds in versions.items()
    )


def builds_of(version: str) -> tuple[int, ...]:
    """The CUDA builds of a release of torch. Raises NoSuchBuild for one that is not known."""
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+", version):
        raise NoSuchBuild(f"pytorch_version is {version!r}. Needed: a release with all three numbers, such as 2.5.1")
    major, minor, _patch = version_tuple(version)
    if (major, minor) not in BUILDS:
        raise NoSuchBuild(
            f"no builds of torch {version} are known. Needed: one of these, or pytorch_index_url with pytorch_cuda for "
            f"another:\n{known(BUILDS)}"
        )
    return BUILDS[major, minor]


def least_driver(build: int) -> str:
    """The oldest driver that runs a CUDA build."""
    return ".".join(map(str, LEAST_DRIVER[build // 10]))


def runs(driver: str, build: int) -> bool:
    """Whether a driver runs a CUDA build."""
    return version_tuple(driver) >= LEAST_DRIVER[build // 10]


def choose_build(version: str, cuda: str, nodes: Mapping[str, Mapping[str, Any]]) -> str:
    """The build to install on all nodes: cpu, or cu and the digits of the CUDA version.

    cuda: 12.4, cpu, or auto: the newest that all drivers run, and cpu where no node has a GPU.
    nodes: by their names {"gpus": number, "driver": version or None}.
    Raises NoSuchBuild with what there is instead.
    """
    builds = builds_of(version)
    drivers = {name: node["driver"] for name, node in nodes.items() if node["gpus"]}
    if cuda == CPU or (cuda == "auto" and not drivers):
        return CPU
    without = sorted(name for name, driver in drivers.items() if not driver)
    if without and cuda == "auto":
        raise NoSuchBuild(
            f"{', '.join(without)}: there are GPUs, but no NVIDIA driver is loaded. Needed: a driver, by which the "
            "build of torch is chosen. Install one (role nvidia_driver), or set pytorch_cuda"
        )
    if cuda == "auto":
        fitting = [build for build in builds if all(runs(driver, build) for driver in drivers.values())]
        if fitting:
            return f"cu{max(fitting)}"
        build = min(builds)
    else:
        named = {dotted(build): build for build in builds}
        if cuda not in named:
            other = [
                f"{major}.{minor}"
                for (major, minor), others in BUILDS.items()
                if cuda in [dotted(one) for one in others]
            ]
            there = f" CUDA {cuda} is there for torch {', '.join(other)}." if other else ""
            raise NoSuchBuild(
                f"there is no torch {version} for CUDA {cuda}. torch {version} is there for CUDA {', '.join(named)}."
                f"{there} Set pytorch_version or pytorch_cuda to a pair that there is:\n{known(BUILDS)}"
            )
        build = named[cuda]
    old = {name: driver for name, driver in drivers.items() if driver and not runs(driver, build)}
    if old:
        seen = ", ".join(f"{name} has {driver}" for name, driver in sorted(old.items()))
        able = [one for one in builds if all(runs(driver, one) for driver in old.values())]
        instead = f", or set pytorch_cuda to {dotted(max(able))}" if able else ""
        raise NoSuchBuild(
            f"the NVIDIA driver is too old for torch {version} with CUDA {dotted(build)}: {seen}. Needed: "
            f"{least_driver(build)} or newer. Install a newer driver (role nvidia_driver){instead}"
        )
    return f"cu{build}"


def requirements(version: str, packages: list[str]) -> list[str]:
    """torch, and of its companions the releases that were made for it; all others as they are."""
    major, minor, _patch = version_tuple(version)
    companions = {"torchvision": f"0.{minor + 15}.*", "torchaudio": f"{major}.{minor}.*"}
    return [
        f"torch=={version}",
        *(f"{name}=={companions[name]}" if name in companions else name for name in packages),
    ]

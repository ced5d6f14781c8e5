# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide what to do about a node's NVIDIA driver, from the node's facts. Pure. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.driver import (
    DRIVER_PACKAGE,
    FABRIC_MANAGER,
    KERNEL_PACKAGE,
    branch_of,
)
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import LEAST_DRIVER, version_tuple

NOTHING, REFUSE, REBOOT = "nothing", "refuse", "reboot"
LOAD, RELOAD, REBUILD = "load", "reload", "rebuild"  # actions on the module
INSTALL, REINSTALL, PURGE = "install", "reinstall", "purge"  # actions on packages


@dataclass(frozen=True)
class Wanted:
    """What the user requests. An empty text means "any"."""

    branch: str = ""  # such as 570
    least: str = ""  # oldest acceptable version, such as 550.54
    package: str = ""  # name with BRANCH in it; empty: the distribution's
    server: bool = False  # Ubuntu: the server branch
    open: bool = False  # the open kernel modules
    reboot: bool = False  # whether a reboot is allowed


@dataclass(frozen=True)
class Decision:
    """The next action, and its reason. Afterwards the node's facts are read again."""

    action: str
    reason: str
    packages: list[str] = field(default_factory=list)  # to install, or to remove if the action is purge
    kernels: list[str] = field(default_factory=list)  # to build the module for


def decide(facts: Mapping[str, Any], wanted: Wanted) -> Decision:
    """Decide from the parts gpus, driver and runs of a node's facts. Prefers the least disruptive action that helps."""
    decision = decide_freely(facts, wanted)
    runs = [run["run_id"] for run in facts["runs"]]
    if runs and decision.action not in (NOTHING, REFUSE):
        return Decision(
            REFUSE,
            f"needed is: {decision.action} ({decision.reason}), but the run {', '.join(runs)} is on. "
            "Stop it first (stop.yml), or wait for its end",
        )
    if decision.action == REBOOT and not wanted.reboot:
        return Decision(
            REFUSE,
            f"a reboot is needed: {decision.reason}. Set nvidia_driver_reboot to one or all, or reboot it yourself",
        )
    return decision


def decide_freely(facts: Mapping[str, Any], wanted: Wanted) -> Decision:
    """The decision if nobody uses the machine and reboots are allowed."""
    gpus, driver = facts["gpus"], facts["driver"]
    loaded, library = gpus["driver"]["loaded"] or "", gpus["driver"]["library"] or ""
    if not gpus["pci"] and not loaded:
        return Decision(NOTHING, "there is no NVIDIA GPU on the PCI bus")
    ours = [one for one in driver["packages"] if DRIVER_PACKAGE.match(one["name"])]
    there = [one for one in ours if one["status"] not in ("config-files", "not-installed")]
    branches = {branch_of(one["version"]) for one in there if is_core(one["name"])} - {None}
    works = gpus["smi"]["state"] == "ok"

    if not there and library:
        if works and not too_old(loaded, wanted):
            return Decision(NOTHING, f"driver {loaded} works; it did not come from packages, and is left as it is")
        return Decision(
            REFUSE,
            f"driver {loaded or library} did not come from packages of this system, and "
            f"{'is not the one that is asked for' if works else 'does not work'}. "
            "Remove it by what installed it (nvidia-uninstall), then run this again",
        )
    if len(branches) > 1:
        names = ", ".join(str(branch) for branch in sorted(branches, key=str))
        return purge(there, f"packages of several branches are installed: {names}")
    if not branches:
        return install(driver, wanted, "no driver is installed")

    branch = next(iter(branches))
    version = installed_version(there)
    if wanted.branch and str(branch) != wanted.branch:
        return replace(driver, there, wanted, f"branch {branch} is installed, and {wanted.branch} is asked for")
    if too_old(version, wanted):
        return replace(driver, there, wanted, f"driver {version} is installed, and {wanted.least} or newer is needed")
    broken = [one["name"] for one in there if one["status"] != "installed" or one["flag"] not in ("", "ok")]
    if broken:
        return Decision(REINSTALL, f"packages are half installed: {', '.join(broken)}", names_of(there))

    on_disk = driver["modules"][driver["kernel"]]
    lacking = [
        kernel for kernel in dict.fromkeys((driver["kernel"], driver["newest_kernel"])) if not driver["modules"][kernel]
    ]
    if lacking:
        reason = f"there is no module for the kernel {' and '.join(lacking)}"
        if not driver["has_dkms"]:
            return Decision(REINSTALL, f"{reason}, and dkms, which builds it, is not there", names_of(there))
        return Decision(REBUILD, reason, [f"linux-headers-{kernel}" for kernel in lacking], lacking)
    if library != on_disk:
        return Decision(
            REINSTALL, f"the library is {library or 'missing'}, and the module on the disk {on_disk}", names_of(there)
        )
    manager = next((one for one in driver["packages"] if FABRIC_MANAGER.match(one["name"]) and is_there(one)), None)
    if manager and upstream(manager["version"]) != on_disk:
        return Decision(
            REINSTALL,
            f"the fabric manager is {upstream(manager['version'])}, and the driver {on_disk}",
            [manager["name"]],
        )
    return running(gpus, on_disk)


def running(gpus: Mapping[str, Any], on_disk: str) -> Decision:
    """What to do about the running driver if all installed parts match."""
    loaded, state, said = gpus["driver"]["loaded"], gpus["smi"]["state"], gpus["smi"]["said"]
    users = [f"process {one['pid']} ({one['command'][:60]})" for one in gpus["processes"]]
    if not loaded:
        if gpus["nouveau"]:
            return Decision(RELOAD, "nouveau holds the GPU in place of the NVIDIA driver")
        return Decision(LOAD, f"driver {on_disk} is installed, and not loaded")
    if loaded != on_disk:
        reason = f"driver {loaded} is loaded, and {on_disk} is installed"
        if users:
            return Decision(REBOOT, f"{reason}; the loaded one is in use by {', '.join(users[:4])}")
        return Decision(RELOAD, reason)
    if state == "ok":
        return Decision(NOTHING, f"driver {loaded} works")
    if state == "hangs":
        return Decision(REBOOT, f"driver {loaded} is loaded and right, but nvidia-smi does not answer")
    if state == "gpu-lost":
        return Decision(REBOOT, f"a GPU is lost: {said}. Have it replaced if it is lost again")
    if state == "no-gpu":
        return Decision(
            REFUSE, f"driver {loaded} is loaded and finds no GPU that it drives: {said}. Try another branch"
        )
    if users:
        return Decision(REBOOT, f"nvidia-smi fails ({said}), and the driver is in use by {', '.join(users[:4])}")
    return Decision(RELOAD, f"nvidia-smi fails: {said or state}")


def is_there(package: Mapping[str, str]) -> bool:
    """Whether a package is installed, not just its configuration left."""
    return package["status"] not in ("config-files", "not-installed")


def is_core(name: str) -> bool:
    """Whether a package's version is the driver's: not so for tools such as nvidia-settings."""
    return name.startswith(
        ("nvidia-driver", "nvidia-dkms", "nvidia-kernel", "nvidia-utils", "libnvidia-", "nvidia-compute")
    )


def upstream(version: str) -> str:
    """The upstream version: 535.183.01 for 1:535.183.01-0ubuntu1."""
    return version.rpartition(":")[2].partition("-")[0].partition("+")[0]


def installed_version(packages: list[dict[str, str]]) -> str:
    """The driver version in the packages."""
    core = [one for one in packages if is_core(one["name"]) and branch_of(one["version"])]
    return upstream(max(core, key=lambda one: version_tuple(upstream(one["version"])))["version"])


def too_old(version: str, wanted: Wanted) -> bool:
    """Whether a version is older than the minimum."""
    return bool(wanted.least) and version_tuple(version) < version_tuple(wanted.least)


def names_of(packages: list[dict[str, str]]) -> list[str]:
    """Names of packages, sorted."""
    return sorted(one["name"] for one in packages)


def purge(packages: list[dict[str, str]], reason: str) -> Decision:
    """Remove the whole driver; the next decision says what to install."""
    return Decision(PURGE, reason, names_of(packages))


def replace(driver: Mapping[str, Any], there: list[dict[str, str]], wanted: Wanted, reason: str) -> Decision:
    """Remove the driver, if a replacement is available."""
    after = install(driver, wanted, reason)
    return after if after.action == REFUSE else purge(there, reason)


def package_name(system: str, branch: str, wanted: Wanted) -> str:
    """The package that installs a branch. Debian has one branch per release, in its section non-free."""
    if wanted.package:
        return wanted.package.replace("BRANCH", branch)
    if system == "debian":
        return "nvidia-driver"
    return f"nvidia-driver-{branch}{'-server' if wanted.server else ''}{'-open' if wanted.open else ''}"


def install(driver: Mapping[str, Any], wanted: Wanted, reason: str) -> Decision:
    """Install the requested branch, otherwise the newest one."""
    if driver["system"] not in ("debian", "ubuntu"):
        return Decision(
            REFUSE, f"{reason}, and the system is {driver['system'] or 'unknown'}. Install a driver by its own means"
        )
    fitting = {}
    for name, version in driver["available"].items():
        branch = str(branch_of(version) or "")
        if name == package_name(driver["system"], branch, wanted) and wanted.branch in ("", branch):
            fitting[name] = version
    new_enough = {name: version for name, version in fitting.items() if not too_old(upstream(version), wanted)}
    if new_enough:
        name = max(new_enough, key=lambda one: version_tuple(upstream(new_enough[one])))
        return Decision(INSTALL, reason, [name])
    there = (
        ", ".join(f"{name} ({upstream(version)})" for name, version in sorted(driver["available"].items())) or "none"
    )
    asked = package_name(driver["system"], wanted.branch or "NNN", wanted)
    least = f" of {wanted.least} or newer" if wanted.least else ""
    hint = (
        "Switch on the section non-free of its sources" if driver["system"] == "debian" else "Add a source that has it"
    )
    return Decision(
        REFUSE,
        f"{reason}, and the package sources have no {asked}{least}; they have: {there}. {hint} and run "
        "`apt-get update`, or set nvidia_driver_branch to one that there is",
    )


def to_hold(driver: Mapping[str, Any], kernel: bool) -> list[str]:
    """Installed packages to hold: the driver's, and the kernel's if wanted."""
    return sorted(
        one["name"]
        for one in driver["packages"]
        if one["status"] == "installed"
        and (
            DRIVER_PACKAGE.match(one["name"])
            or FABRIC_MANAGER.match(one["name"])
            or (kernel and KERNEL_PACKAGE.match(one["name"]))
        )
    )


def held(driver: Mapping[str, Any]) -> list[str]:
    """Packages that are held."""
    return sorted(one["name"] for one in driver["packages"] if one["wanted"] == "hold")


def foreign_removals(simulated: str) -> list[str]:
    """Packages that `apt-get --simulate` would remove and that are not the driver's."""
    names = re.findall(r"^(?:Remv|Purg) ([^\s:]+)", simulated, flags=re.MULTILINE)
    return sorted({name for name in names if not (DRIVER_PACKAGE.match(name) or FABRIC_MANAGER.match(name))})


def least_for(cuda: str, least: str) -> str:
    """The oldest acceptable driver: the requested one, or the one that a version of CUDA needs."""
    major = version_tuple(cuda)[:1]
    needed = LEAST_DRIVER.get(major[0]) if major else None
    if needed and needed > version_tuple(least):
        return ".".join(map(str, needed))
    return least


def as_data(decision: Decision) -> dict[str, Any]:
    """The decision for Ansible."""
    return asdict(decision)

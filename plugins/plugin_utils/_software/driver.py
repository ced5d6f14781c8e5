# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Decide the next action for a node's NVIDIA driver, from the node's facts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._facts.driver import (
    DRIVER_PACKAGE,
    FABRIC_MANAGER,
    KERNEL_PACKAGE,
)
from ansible_collections.muster.training.plugins.plugin_utils._plan.gpu_vendors import DEFAULT, VENDORS, vendor_of
from ansible_collections.muster.training.plugins.plugin_utils._software.versions import MIN_DRIVER, version_tuple

NOTHING, REFUSE, REBOOT = "nothing", "refuse", "reboot"
LOAD, RELOAD, REBUILD = "load", "reload", "rebuild"  # actions on the module
INSTALL, REINSTALL, PURGE = "install", "reinstall", "purge"  # actions on packages


@dataclass(frozen=True)
class DesiredDriver:
    """The requested driver. An empty string means "any"."""

    branch: str = ""  # driver branch, such as 570
    minimum_version: str = ""  # oldest acceptable version, such as 550.54
    package: str = ""  # name that contains BRANCH; empty: the distribution's
    server: bool = False  # Ubuntu: the server branch
    open: bool = False  # the open kernel modules
    reboot: bool = False  # whether a reboot is allowed


@dataclass(frozen=True)
class DriverDecision:
    """The next action, and the reason for it. Afterwards, the node's facts are read again."""

    action: str
    reason: str
    packages: list[str] = field(default_factory=list)  # packages to install, or to remove if the action is purge
    kernels: list[str] = field(default_factory=list)  # kernels to build the module for


def decide(facts: Mapping[str, Any], desired: DesiredDriver) -> DriverDecision:
    """Decide from the gpus, driver and runs parts of a node's facts. Prefer the least disruptive action that helps."""
    decision = decide_unrestricted(facts, desired)
    runs = [run["run_id"] for run in facts["runs"]]
    if runs and decision.action not in (NOTHING, REFUSE):
        return DriverDecision(
            REFUSE,
            f"{decision.action} is required ({decision.reason}), but the run {', '.join(runs)} is active. "
            "Stop it first (stop.yml), or wait until it ends",
        )
    if decision.action == REBOOT and not desired.reboot:
        return DriverDecision(
            REFUSE,
            f"a reboot is required: {decision.reason}. Set nvidia_driver_reboot to one or all, or reboot it yourself",
        )
    return decision


def decide_unrestricted(facts: Mapping[str, Any], desired: DesiredDriver) -> DriverDecision:  # noqa: C901
    """Decide for an idle machine on which reboots are allowed."""
    gpus, driver = facts["gpus"], facts["driver"]
    loaded, library = gpus["driver"]["loaded"] or "", gpus["driver"]["library"] or ""
    if not gpus["pci"] and not loaded:
        return DriverDecision(NOTHING, no_gpu_reason(gpus))
    driver_packages = [package for package in driver["packages"] if DRIVER_PACKAGE.match(package["name"])]
    present = [package for package in driver_packages if package["status"] not in ("config-files", "not-installed")]
    branches = {branch_of(package["version"]) for package in present if has_driver_version(package["name"])} - {None}
    is_working = gpus["smi"]["state"] == "ok"

    if not present and library:
        if is_working and not is_too_old(loaded, desired):
            return DriverDecision(
                NOTHING, f"driver {loaded} works; it was not installed from packages, and was left unchanged"
            )
        return DriverDecision(
            REFUSE,
            f"driver {loaded or library} was not installed from packages of this system, and "
            f"{f'is older than {desired.minimum_version}' if is_working else 'does not work'}. "
            "Remove it with its own installer (sudo nvidia-uninstall), then run this again",
        )
    if len(branches) > 1:
        names = ", ".join(str(branch) for branch in sorted(branches, key=str))
        return purge_packages(present, f"packages of several branches are installed: {names}")
    if not branches:
        return install_driver(driver, desired, "no driver is installed")

    branch = next(iter(branches))
    version = installed_version(present)
    if desired.branch and str(branch) != desired.branch:
        return replace_driver(
            driver, present, desired, f"branch {branch} is installed, but {desired.branch} is requested"
        )
    if is_too_old(version, desired):
        return replace_driver(
            driver,
            present,
            desired,
            f"driver {version} is installed, but {desired.minimum_version} or newer is required",
        )
    broken = [
        package["name"] for package in present if package["status"] != "installed" or package["flag"] not in ("", "ok")
    ]
    if broken:
        return DriverDecision(REINSTALL, f"packages are half-installed: {', '.join(broken)}", package_names(present))

    on_disk = driver["modules"][driver["kernel"]]
    kernels_without_module = [
        kernel for kernel in dict.fromkeys((driver["kernel"], driver["newest_kernel"])) if not driver["modules"][kernel]
    ]
    if kernels_without_module:
        kernels = f"kernel{'s' if len(kernels_without_module) > 1 else ''} {' and '.join(kernels_without_module)}"
        reason = f"the driver's kernel module is missing for {kernels}"
        if not driver["has_dkms"]:
            return DriverDecision(
                REINSTALL, f"{reason}, and dkms, which builds it, is not installed", package_names(present)
            )
        return DriverDecision(
            REBUILD, reason, [f"linux-headers-{kernel}" for kernel in kernels_without_module], kernels_without_module
        )
    if library != on_disk:
        return DriverDecision(
            REINSTALL,
            f"the driver's library is {library or 'missing'}, but its kernel module on disk is {on_disk}",
            package_names(present),
        )
    fabric_manager = next(
        (package for package in driver["packages"] if FABRIC_MANAGER.match(package["name"]) and is_installed(package)),
        None,
    )
    if fabric_manager and upstream_version(fabric_manager["version"]) != on_disk:
        return DriverDecision(
            REINSTALL,
            f"the fabric manager is {upstream_version(fabric_manager['version'])}, and the driver is {on_disk}",
            [fabric_manager["name"]],
        )
    return check_running_driver(gpus, on_disk)


def no_gpu_reason(gpus: Mapping[str, Any]) -> str:
    """Return why a node without NVIDIA GPUs needs no changes."""
    vendor = vendor_of(gpus)
    if vendor is VENDORS[DEFAULT]:
        return "no NVIDIA GPU on the PCI bus"
    return (
        f"the node has {vendor.title} GPUs, but this role installs only the NVIDIA driver; docs/arm_and_amd.md says "
        f"where to get {vendor.driver}"
    )


def check_running_driver(gpus: Mapping[str, Any], on_disk: str) -> DriverDecision:
    """Decide about the running driver when all installed parts match."""
    loaded, state, output = gpus["driver"]["loaded"], gpus["smi"]["state"], gpus["smi"]["output"]
    processes = [f"process {process['pid']} ({process['command'][:60]})" for process in gpus["processes"]]
    if not loaded:
        if gpus["nouveau"]:
            return DriverDecision(RELOAD, "nouveau holds the GPU instead of the NVIDIA driver")
        return DriverDecision(LOAD, f"driver {on_disk} is installed, but not loaded")
    if loaded != on_disk:
        reason = f"driver {loaded} is loaded, but {on_disk} is installed"
        if processes:
            return DriverDecision(REBOOT, f"{reason}; the loaded driver is in use by {', '.join(processes[:4])}")
        return DriverDecision(RELOAD, reason)
    if state == "ok":
        return DriverDecision(NOTHING, f"driver {loaded} works")
    if state == "hangs":
        return DriverDecision(REBOOT, f"driver {loaded} is loaded and matches, but nvidia-smi is not responding")
    if state == "gpu-lost":
        return DriverDecision(REBOOT, f"a GPU is lost: {output}. Have it replaced if it is lost again")
    if state == "no-gpu":
        return DriverDecision(
            REFUSE, f"driver {loaded} is loaded but supports none of the GPUs: {output}. Try another branch"
        )
    if processes:
        return DriverDecision(
            REBOOT, f"nvidia-smi failed ({output}), and the driver is in use by {', '.join(processes[:4])}"
        )
    return DriverDecision(RELOAD, f"nvidia-smi failed: {output or state}")


def is_installed(package: Mapping[str, str]) -> bool:
    """Return whether a package is installed, as opposed to only its configuration remaining."""
    return package["status"] not in ("config-files", "not-installed")


def has_driver_version(name: str) -> bool:
    """Return whether a package has the driver's version, which tools such as nvidia-settings do not."""
    return name.startswith(
        ("nvidia-driver", "nvidia-dkms", "nvidia-kernel", "nvidia-utils", "libnvidia-", "nvidia-compute")
    )


def upstream_version(version: str) -> str:
    """Return the upstream version: 535.183.01 for 1:535.183.01-0ubuntu1."""
    return version.rpartition(":")[2].partition("-")[0].partition("+")[0]


def installed_version(packages: list[dict[str, str]]) -> str:
    """Return the driver version according to the installed packages."""
    driver_packages = [
        package for package in packages if has_driver_version(package["name"]) and branch_of(package["version"])
    ]
    return upstream_version(
        max(driver_packages, key=lambda package: version_tuple(upstream_version(package["version"])))["version"]
    )


def is_too_old(version: str, desired: DesiredDriver) -> bool:
    """Return whether a version is older than the minimum."""
    return bool(desired.minimum_version) and version_tuple(version) < version_tuple(desired.minimum_version)


def package_names(packages: list[dict[str, str]]) -> list[str]:
    """Return the sorted package names."""
    return sorted(package["name"] for package in packages)


def purge_packages(packages: list[dict[str, str]], reason: str) -> DriverDecision:
    """Remove the entire driver; the next decision installs one."""
    return DriverDecision(PURGE, reason, package_names(packages))


def replace_driver(
    driver: Mapping[str, Any], present: list[dict[str, str]], desired: DesiredDriver, reason: str
) -> DriverDecision:
    """Remove the driver, if a replacement is available."""
    installation = install_driver(driver, desired, reason)
    return installation if installation.action == REFUSE else purge_packages(present, reason)


def package_name(system: str, branch: str, desired: DesiredDriver) -> str:
    """Return the package that installs a driver branch. Debian has one branch per release, in its non-free section."""
    if desired.package:
        return desired.package.replace("BRANCH", branch)
    if system == "debian":
        return "nvidia-driver"
    return f"nvidia-driver-{branch}{'-server' if desired.server else ''}{'-open' if desired.open else ''}"


def install_driver(driver: Mapping[str, Any], desired: DesiredDriver, reason: str) -> DriverDecision:
    """Install the requested driver branch, otherwise the newest one."""
    if driver["system"] not in ("debian", "ubuntu"):
        return DriverDecision(
            REFUSE, f"{reason}, and the system is {driver['system'] or 'unknown'}. Install a driver with its own tools"
        )
    matching = {}
    for name, version in driver["available"].items():
        branch = str(branch_of(version) or "")
        if name == package_name(driver["system"], branch, desired) and desired.branch in ("", branch):
            matching[name] = version
    new_enough = {
        name: version for name, version in matching.items() if not is_too_old(upstream_version(version), desired)
    }
    if new_enough:
        name = max(new_enough, key=lambda candidate: version_tuple(upstream_version(new_enough[candidate])))
        return DriverDecision(INSTALL, reason, [name])
    available = (
        ", ".join(f"{name} ({upstream_version(version)})" for name, version in sorted(driver["available"].items()))
        or "none"
    )
    requested = package_name(driver["system"], desired.branch or "NNN", desired)
    minimum = f" of {desired.minimum_version} or newer" if desired.minimum_version else ""
    hint = "Enable the non-free section of its sources" if driver["system"] == "debian" else "Add a source that has it"
    return DriverDecision(
        REFUSE,
        f"{reason}, and the package sources have no {requested}{minimum}; they have: {available}. {hint} and run "
        "this again, or set nvidia_driver_branch to an available one",
    )


def packages_to_hold(driver: Mapping[str, Any], kernel: bool) -> list[str]:
    """Return the installed packages to hold: the driver's, and also the kernel's if requested."""
    return sorted(
        package["name"]
        for package in driver["packages"]
        if package["status"] == "installed"
        and (
            DRIVER_PACKAGE.match(package["name"])
            or FABRIC_MANAGER.match(package["name"])
            or (kernel and KERNEL_PACKAGE.match(package["name"]))
        )
    )


def held_packages(driver: Mapping[str, Any]) -> list[str]:
    """Return the packages that are held."""
    return sorted(package["name"] for package in driver["packages"] if package["selection"] == "hold")


def foreign_removals(simulated: str) -> list[str]:
    """Return packages that `apt-get --simulate` would remove and that do not belong to the driver."""
    names = re.findall(r"^(?:Remv|Purg) ([^\s:]+)", simulated, flags=re.MULTILINE)
    return sorted({name for name in names if not (DRIVER_PACKAGE.match(name) or FABRIC_MANAGER.match(name))})


def minimum_driver(cuda: str, requested: str) -> str:
    """Return the oldest acceptable driver: the requested one, or the one required by a CUDA version."""
    major = version_tuple(cuda)[:1]
    required = MIN_DRIVER.get(major[0]) if major else None
    if required and required > version_tuple(requested):
        return ".".join(map(str, required))
    return requested


def decision_as_dict(decision: DriverDecision) -> dict[str, Any]:
    """Return the decision as a dictionary for Ansible."""
    return asdict(decision)


def branch_of(version: str) -> int | None:
    """Return the branch of a driver or package version: 535 for 535.183.01 and 1:535.183.01-0ubuntu1."""
    match = re.match(r"(?:[0-9]+:)?([0-9]{3,})(?:\.|$)", version)
    return int(match[1]) if match else None

"""Decisions and reasons for driver states observed on real machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import driver as node_driver
from ansible_collections.muster.training.plugins.module_utils._facts.commands import CommandOutput
from ansible_collections.muster.training.plugins.module_utils._facts.gpus import diagnose
from ansible_collections.muster.training.plugins.plugin_utils._software.driver import (
    DesiredDriver,
    DriverDecision,
    branch_of,
    decide,
    foreign_removals,
    held_packages,
    minimum_driver,
    packages_to_hold,
)

SMI = Path(__file__).parents[3] / "fixtures" / "nvidia_smi"
KERNEL, NEWER = "5.15.0-91-generic", "5.15.0-119-generic"
V535, V570 = "535.183.01", "570.211"
AVAILABLE = {
    "nvidia-driver-535": "535.183.01-0ubuntu0.22.04.1",
    "nvidia-driver-570": "570.211-0ubuntu0.22.04.1",
    "nvidia-driver-570-open": "570.211-0ubuntu0.22.04.1",
    "nvidia-driver-570-server": "570.195.03-0ubuntu0.22.04.1",
}
HOLDER = {"pid": 4711, "command": "python3 train.py", "user": "ubuntu", "orphan": False, "run": "", "memory_mib": 900}


def packages(
    version: str = V535, status: str = "installed", flag: str = "ok", expected: str = "install"
) -> list[dict[str, str]]:
    branch = version.partition(".")[0]
    names = [f"{name}-{branch}" for name in ("libnvidia-compute", "nvidia-dkms", "nvidia-driver", "nvidia-utils")]
    return [
        {"name": name, "version": f"{version}-0ubuntu0.22.04.1", "selection": expected, "status": status, "flag": flag}
        for name in names
    ]


def smi(file: str) -> dict[str, str]:
    """Parse a recorded output of nvidia-smi."""
    text = (SMI / file).read_text()
    state, output = diagnose(CommandOutput(0 if file.endswith(".csv") else 9, text))
    return {"state": state, "output": output}


def facts(  # noqa: PLR0913
    loaded: str | None = V535,
    module: str = V535,
    library: str | None = V535,
    *,
    said: str = "h100_535.csv",
    newest: str = KERNEL,
    newest_module: str | None = None,
    has: list[dict[str, str]] | None = None,
    **more: Any,
) -> dict[str, Any]:
    gpus = {
        "vendor": more.pop("vendor", "nvidia"),
        "pci": more.pop("pci", 8),
        "driver": {"loaded": loaded, "library": library, "on_disk": module or None},
        "smi": {"state": "hangs", "output": ""} if said == "hangs" else smi(said),
        "nouveau": more.pop("nouveau", False),
        "processes": more.pop("processes", []),
    }
    modules = {KERNEL: module}
    if newest != KERNEL:
        modules[newest] = module if newest_module is None else newest_module
    driver = {
        "system": more.pop("system", "ubuntu"),
        "kernel": KERNEL,
        "newest_kernel": newest,
        "modules": modules,
        "packages": packages() if has is None else has,
        "dkms": [],
        "has_dkms": more.pop("has_dkms", True),
        "available": more.pop("available", AVAILABLE),
    }
    runs = more.pop("runs", [])
    assert not more
    return {"gpus": gpus, "driver": driver, "runs": runs}


NO_DRIVER: dict[str, Any] = {"loaded": None, "module": "", "library": None, "said": "no_driver.txt", "has": []}
TABLE: list[tuple[str, dict[str, Any], DesiredDriver, str, str]] = [
    # description, facts, request, decision, and part of the reason
    ("healthy", {}, DesiredDriver(), "nothing", "driver 535.183.01 works"),
    (
        "healthy, the branch that is asked for",
        {},
        DesiredDriver(branch="535", minimum_version="535.54"),
        "nothing",
        "works",
    ),
    ("no GPU", {**NO_DRIVER, "pci": 0}, DesiredDriver(branch="570"), "nothing", "no NVIDIA GPU on the PCI bus"),
    ("AMD GPUs", {**NO_DRIVER, "pci": 0, "vendor": "amd"}, DesiredDriver(), "nothing", "the node has AMD GPUs"),
    (
        "an unattended upgrade while it was loaded",
        {"module": "535.216.01", "library": "535.216.01", "said": "mismatch.txt", "has": packages("535.216.01")},
        DesiredDriver(),
        "reload",
        "driver 535.183.01 is loaded, but 535.216.01 is installed",
    ),
    (
        "the same, in use",
        {
            "module": "535.216.01",
            "library": "535.216.01",
            "said": "mismatch_old.txt",
            "has": packages("535.216.01"),
            "processes": [HOLDER],
        },
        DesiredDriver(reboot=True),
        "reboot",
        "in use by process 4711 (python3 train.py)",
    ),
    (
        "the same, in use, and no reboot allowed",
        {
            "module": "535.216.01",
            "library": "535.216.01",
            "said": "mismatch.txt",
            "has": packages("535.216.01"),
            "processes": [HOLDER],
        },
        DesiredDriver(),
        "refuse",
        "a reboot is required: driver 535.183.01 is loaded, but 535.216.01 is installed",
    ),
    (
        "a kernel that came without the module, and is booted",
        {"loaded": None, "module": "", "said": "no_driver.txt"},
        DesiredDriver(),
        "rebuild",
        f"the driver's kernel module is missing for kernel {KERNEL}",
    ),
    (
        "the kernel of the next boot lacks the module",
        {"newest": NEWER, "newest_module": ""},
        DesiredDriver(),
        "rebuild",
        f"the driver's kernel module is missing for kernel {NEWER}",
    ),
    (
        "no module, and no dkms to build it",
        {"loaded": None, "module": "", "said": "no_driver.txt", "has_dkms": False},
        DesiredDriver(),
        "reinstall",
        "dkms, which builds it, is not installed",
    ),
    (
        "the library and the module have different versions",
        {"library": "535.161.07", "said": "mismatch.txt"},
        DesiredDriver(),
        "reinstall",
        "the driver's library is 535.161.07, but its kernel module on disk is 535.183.01",
    ),
    (
        "the library is gone",
        {"library": None, "said": "no_driver.txt"},
        DesiredDriver(),
        "reinstall",
        "the driver's library is missing",
    ),
    (
        "an installation was interrupted",
        {"has": packages(status="half-configured")},
        DesiredDriver(),
        "reinstall",
        "packages are half-installed: libnvidia-compute-535",
    ),
    (
        "a package needs to be installed again",
        {"has": packages(flag="reinstreq")},
        DesiredDriver(),
        "reinstall",
        "packages are half-installed",
    ),
    (
        "packages of two branches",
        {"has": [*packages(V535), *packages(V570)]},
        DesiredDriver(),
        "purge",
        "packages of several branches are installed: 535, 570",
    ),
    (
        "another branch is asked for",
        {},
        DesiredDriver(branch="570"),
        "purge",
        "branch 535 is installed, but 570 is requested",
    ),
    (
        "too old",
        {"loaded": "470.57.02", "module": "470.57.02", "library": "470.57.02", "has": packages("470.57.02")},
        DesiredDriver(minimum_version="525.60.13"),
        "purge",
        "driver 470.57.02 is installed, but 525.60.13 or newer is required",
    ),
    (
        "interrupted after the purge: the old module is loaded still",
        {"module": "", "library": None, "said": "no_driver.txt", "has": packages(status="config-files")},
        DesiredDriver(branch="570"),
        "install",
        "no driver is installed",
    ),
    ("fresh machine", NO_DRIVER, DesiredDriver(), "install", "no driver is installed"),
    (
        "fresh machine with nouveau",
        {**NO_DRIVER, "nouveau": True},
        DesiredDriver(branch="570"),
        "install",
        "no driver is installed",
    ),
    (
        "a branch that the sources have not",
        {},
        DesiredDriver(branch="550"),
        "refuse",
        "the package sources have no nvidia-driver-550; they have: nvidia-driver-535 (535.183.01), nvidia-driver-570",
    ),
    (
        "nothing new enough",
        NO_DRIVER,
        DesiredDriver(minimum_version="580"),
        "refuse",
        "have no nvidia-driver-NNN of 580 or newer",
    ),
    (
        "Debian without non-free",
        {**NO_DRIVER, "system": "debian", "available": {}},
        DesiredDriver(),
        "refuse",
        "they have: none. Enable the non-free section",
    ),
    (
        "another system",
        {**NO_DRIVER, "system": "fedora"},
        DesiredDriver(),
        "refuse",
        "the system is fedora. Install a driver with its own tools",
    ),
    (
        "by NVIDIA's installer, and it works",
        {"has": []},
        DesiredDriver(branch="570"),
        "nothing",
        "it was not installed from packages, and was left unchanged",
    ),
    (
        "by NVIDIA's installer, and it does not",
        {"has": [], "said": "mismatch.txt"},
        DesiredDriver(),
        "refuse",
        "was not installed from packages of this system, and does not work. Remove it with its own installer",
    ),
    (
        "by NVIDIA's installer, and too old",
        {"has": []},
        DesiredDriver(minimum_version="550.54"),
        "refuse",
        "is older than 550.54",
    ),
    (
        "installed, and not loaded",
        {"loaded": None, "said": "no_driver.txt"},
        DesiredDriver(),
        "load",
        "driver 535.183.01 is installed, but not loaded",
    ),
    (
        "installed, and nouveau was first",
        {"loaded": None, "said": "no_driver.txt", "nouveau": True},
        DesiredDriver(),
        "reload",
        "nouveau holds the GPU",
    ),
    (
        "the fabric manager is of another version",
        {
            "has": [
                *packages(),
                {
                    "name": "nvidia-fabricmanager-535",
                    "version": "535.161.07-1",
                    "selection": "install",
                    "status": "installed",
                    "flag": "ok",
                },
            ]
        },
        DesiredDriver(),
        "reinstall",
        "the fabric manager is 535.161.07, and the driver is 535.183.01",
    ),
    ("nvidia-smi hangs", {"said": "hangs"}, DesiredDriver(reboot=True), "reboot", "nvidia-smi is not responding"),
    ("nvidia-smi hangs, no reboot", {"said": "hangs"}, DesiredDriver(), "refuse", "a reboot is required"),
    (
        "a GPU is lost",
        {"said": "lost_535.txt"},
        DesiredDriver(reboot=True),
        "reboot",
        "a GPU is lost: Unable to determine",
    ),
    ("no device", {"said": "no_gpu.txt"}, DesiredDriver(), "refuse", "supports none of the GPUs"),
    (
        "fails for no reason",
        {"said": "no_driver.txt"},
        DesiredDriver(),
        "reload",
        "nvidia-smi failed: NVIDIA-SMI has failed",
    ),
    (
        "a run is on",
        {"runs": [{"run_id": "bert-1"}]},
        DesiredDriver(branch="570"),
        "refuse",
        "purge is required (branch 535 is installed, but 570 is requested), but the run bert-1 is active",
    ),
    ("a run is on, and all is well", {"runs": [{"run_id": "bert-1"}]}, DesiredDriver(), "nothing", "works"),
]


@pytest.mark.parametrize(
    "overrides, expected, action, reason", [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_each_driver_state_gets_its_decision_and_reason(
    overrides: dict[str, Any], expected: DesiredDriver, action: str, reason: str
) -> None:
    result = decide(facts(**overrides), expected)
    assert (result.action, reason in result.reason) == (action, True), result


def test_table_covers_every_decision() -> None:
    every = {"nothing", "load", "reload", "rebuild", "reinstall", "install", "purge", "reboot", "refuse"}
    assert {row[3] for row in TABLE} == every


@pytest.mark.parametrize(
    "expected, package",
    [
        (DesiredDriver(), "nvidia-driver-570"),
        (DesiredDriver(branch="535"), "nvidia-driver-535"),
        (DesiredDriver(branch="570", open=True), "nvidia-driver-570-open"),
        (DesiredDriver(server=True), "nvidia-driver-570-server"),
        (DesiredDriver(minimum_version="535.54", branch="535"), "nvidia-driver-535"),
        (DesiredDriver(package="nvidia-driver-BRANCH-open"), "nvidia-driver-570-open"),
    ],
)
def test_package_is_chosen_by_branch_and_variant(expected: DesiredDriver, package: str) -> None:
    assert decide(facts(**NO_DRIVER), expected) == DriverDecision("install", "no driver is installed", [package])


def test_debian_package_without_a_branch_in_its_name_is_matched_by_version() -> None:
    node_facts = facts(**NO_DRIVER, system="debian", available={"nvidia-driver": "535.183.01-1~deb12u1"})
    assert decide(node_facts, DesiredDriver(branch="535")).packages == ["nvidia-driver"]
    assert decide(node_facts, DesiredDriver(branch="570")).action == "refuse"


def test_purge_removes_all_driver_packages_and_nothing_else() -> None:
    kernel = {
        "name": f"linux-image-{KERNEL}",
        "version": "5.15.0-91.101",
        "selection": "install",
        "status": "installed",
        "flag": "ok",
    }
    result = decide(facts(has=[*packages(), kernel]), DesiredDriver(branch="570"))
    assert result.packages == ["libnvidia-compute-535", "nvidia-dkms-535", "nvidia-driver-535", "nvidia-utils-535"]


@pytest.mark.parametrize(
    "name", ["libxnvctrl0", "nvidia-container-toolkit", "libnvidia-container1", "nvidia-cuda-toolkit", "libnccl2"]
)
def test_packages_that_are_not_part_of_a_driver_are_unchanged(name: str) -> None:
    """libxnvctrl0 is installed with Open MPI, through hwloc: purging it would remove both."""
    assert not node_driver.DRIVER_PACKAGE.match(name)


def test_rebuild_needs_headers_of_the_kernels_that_lack_the_module() -> None:
    result = decide(facts(loaded=None, module="", said="no_driver.txt", newest=NEWER), DesiredDriver())
    assert result.kernels == [KERNEL, NEWER]
    assert result.packages == [f"linux-headers-{KERNEL}", f"linux-headers-{NEWER}"]


@pytest.mark.parametrize(
    "cuda, least, needed",
    [
        ("12.4", "", "525.60.13"),
        ("12.4", "550.54", "550.54"),
        ("", "550.54", "550.54"),
        ("13.0", "550.54", "580"),
        ("", "", ""),
    ],
)
def test_minimum_driver_version_follows_from_cuda(cuda: str, least: str, needed: str) -> None:
    assert minimum_driver(cuda, least) == needed


def test_only_installed_packages_are_held() -> None:
    kernel = {"name": f"linux-image-{KERNEL}", "version": "1", "selection": "hold", "status": "installed", "flag": "ok"}
    driver = facts(has=[*packages()[:1], *packages(V570, status="config-files"), kernel])["driver"]
    assert packages_to_hold(driver, kernel=False) == ["libnvidia-compute-535"]
    assert packages_to_hold(driver, kernel=True) == ["libnvidia-compute-535", f"linux-image-{KERNEL}"]
    assert held_packages(driver) == [f"linux-image-{KERNEL}"]


# --- Tool output ------------------------------------------------------------------------------------------------------


def test_dpkg_output_is_parsed_for_driver_and_kernel_packages() -> None:
    text = (
        "cuda-toolkit-12-4\t12.4.1-1\tinstall\tinstalled\tok\n"
        "libnvidia-container1\t1.16.2-1\tinstall\tinstalled\tok\n"
        "libnvidia-compute-535\t535.183.01-0ubuntu0.22.04.1\thold\tinstalled\tok\n"
        "linux-image-5.15.0-91-generic\t5.15.0-91.101\tinstall\tinstalled\tok\n"
        "nvidia-container-toolkit\t1.16.2-1\tinstall\tinstalled\tok\n"
        "nvidia-fabricmanager-535\t535.183.01-1\tinstall\tinstalled\tok\n"
        "nvidia-driver-470\t\tunknown\tnot-installed\tok\n"
    )
    result = node_driver.parse_packages(text)
    assert [item["name"] for item in result] == [
        "libnvidia-compute-535",
        "linux-image-5.15.0-91-generic",
        "nvidia-fabricmanager-535",
        "nvidia-driver-470",
    ]
    assert result[0] == {
        "name": "libnvidia-compute-535",
        "version": "535.183.01-0ubuntu0.22.04.1",
        "selection": "hold",
        "status": "installed",
        "flag": "ok",
    }


@pytest.mark.parametrize(
    "line, result",
    [
        (
            "nvidia/535.183.01, 5.15.0-91-generic, x86_64: installed",
            {"version": "535.183.01", "kernel": "5.15.0-91-generic", "state": "installed"},
        ),
        (
            "nvidia, 470.57.02, 5.4.0-100-generic, x86_64: installed",
            {"version": "470.57.02", "kernel": "5.4.0-100-generic", "state": "installed"},
        ),
        ("nvidia/570.211: added", {"version": "570.211", "kernel": "", "state": "added"}),
    ],
)
def test_dkms_status_is_parsed(line: str, result: dict[str, str]) -> None:
    assert node_driver.parse_dkms(f"zfs/2.1.5, 5.15.0-91-generic, x86_64: installed\n{line}\n") == [result]


def test_available_driver_packages_are_parsed() -> None:
    search = (
        "nvidia-driver-535 - NVIDIA driver metapackage\nnvidia-driver-535-open - open kernel modules\n"
        "nvidia-driver-binary - NVIDIA metapackage\n"
    )
    assert node_driver.parse_available(search) == ["nvidia-driver-535", "nvidia-driver-535-open"]
    recommended = (
        "nvidia-driver-535, (kernel modules provided by linux-modules-nvidia-535-generic)\nnvidia-driver-570-server\n"
    )
    assert node_driver.parse_available(recommended) == ["nvidia-driver-535", "nvidia-driver-570-server"]
    policy = (
        "nvidia-driver-535:\n  Installed: (none)\n  Candidate: 535.183.01-0ubuntu0.22.04.1\n  Version table:\n"
        "     535.183.01-0ubuntu0.22.04.1 500\n        500 http://archive jammy/restricted amd64 Packages\n"
        "nvidia-driver-570:\n  Installed: (none)\n  Candidate: (none)\n  Version table:\n"
    )
    assert node_driver.parse_policy(policy) == {"nvidia-driver-535": "535.183.01-0ubuntu0.22.04.1"}


def test_newest_installed_kernel_is_detected() -> None:
    images = [f"/boot/vmlinuz-{item}" for item in (KERNEL, NEWER, "5.4.0-200-generic")]
    assert node_driver.newest_kernel(KERNEL, images) == NEWER
    assert node_driver.newest_kernel(KERNEL, []) == KERNEL
    assert node_driver.newest_kernel("a", ["/boot/vmlinuz-6.1.0-9-amd64", "/boot/vmlinuz-6.1.0-10-cloud-amd64"]) == (
        "6.1.0-10-cloud-amd64"
    )


@pytest.mark.parametrize(
    "version, branch",
    [("535.183.01", 535), ("1:570.211-0ubuntu1", 570), ("580-1", None), ("12.4.1-1", None), ("510.47.03+x", 510)],
)
def test_branch_is_read_from_the_package_version(version: str, branch: int | None) -> None:
    assert branch_of(version) == branch


def test_other_packages_removed_along_with_the_driver_are_listed() -> None:
    simulated = """NOTE: This is only a simulation!
Reading package lists...
The following packages will be REMOVED:
  libnvidia-compute-570* my-research-tool* zzz*
Purg zzz:i386 [2.0]
Remv my-research-tool [1.0] [nvidia-utils-570:amd64 ]
Purg nvidia-driver-570 [570.211.01-0ubuntu1]
Purg libnvidia-compute-570:i386 [570.211.01-0ubuntu1]
Remv nvidia-fabricmanager-570 [570.211.01-1]
Inst libother [1.0] (2.0 Debian:12.5/stable [amd64])
Conf libother (2.0 Debian:12.5/stable [amd64])
"""
    assert foreign_removals(simulated) == ["my-research-tool", "zzz"]
    assert foreign_removals("Inst nvidia-driver-570 (570.211 local [all])\n") == []

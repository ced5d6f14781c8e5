"""Each state of a driver has its own repair: reloading the module, replacing packages, or a reboot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.drive import root_shell

CONVERGE = str(Path(__file__).parents[1] / "converge.yml")
VERSIONS = {"node1": "535.183.01", "node2": "570.211", "node3": "570.211"}


def packages(lab: Lab, node: str) -> list[str]:
    listed = root_shell(lab, node, "dpkg-query --show --showformat='${db:Status-Status} ${Package}\\n'").splitlines()
    assert listed
    return [line.split()[1] for line in listed if line.startswith("installed ") and "nvidia" in line]


def version(lab: Lab, node: str) -> str:
    output = root_shell(lab, node, "nvidia-smi --query-gpu=index,driver_version --format=csv")
    return output.splitlines()[1].split(", ")[3]


def run(lab: Lab, node: str, **more: Any) -> drive.Play:
    return drive.run(CONVERGE, lab.inventory, options=("--limit", node), **more)


def flat_output(play: drive.Play) -> str:
    return " ".join(play.output.split())


@pytest.mark.parametrize("node", VERSIONS)
def test_driver_and_module_have_the_expected_version(lab: Lab, node: str) -> None:
    assert version(lab, node) == VERSIONS[node]
    assert root_shell(lab, node, "cat /sys/module/nvidia/version") == VERSIONS[node]
    branch = VERSIONS[node].partition(".")[0]
    names = ["libnvidia-compute", "nvidia-dkms", "nvidia-driver", "nvidia-utils"]
    assert packages(lab, node) == [f"{name}-{branch}" for name in names]


def test_only_the_machine_whose_driver_was_in_use_was_rebooted(lab: Lab) -> None:
    assert {node: root_shell(lab, node, "wc -l < /srv/boots") for node in VERSIONS} == {
        "node1": "1",
        "node2": "2",
        "node3": "1",
    }


def test_machine_without_gpu_is_left_unchanged(lab: Lab) -> None:
    assert packages(lab, "node4") == []
    root_shell(lab, "node4", "test ! -e /etc/apt/apt.conf.d/52muster-nvidia-driver")


def test_driver_packages_are_held_against_upgrades(lab: Lab) -> None:
    held = root_shell(lab, "node1", "apt-mark showhold").split()
    assert held == ["libnvidia-compute-535", "nvidia-dkms-535", "nvidia-driver-535", "nvidia-utils-535"]
    root_shell(lab, "node1", "! apt-get install --yes nvidia-driver-570")
    config = root_shell(lab, "node1", "apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert '"libnvidia-"' in config and '"linux-image"' in config


def test_unknown_driver_branch_is_refused_without_changes(lab: Lab) -> None:
    play = run(lab, "node1", nvidia_driver_branch="999")
    assert play.rc == 2
    assert (
        "node1: branch 535 is installed, but 999 is requested, and the package sources have no nvidia-driver-999"
        in flat_output(play)
    )
    assert "nvidia-driver-535 (535.183.01), nvidia-driver-570 (570.211)" in flat_output(play)
    assert version(lab, "node1") == "535.183.01"


def test_purge_that_would_remove_another_package_is_refused(lab: Lab) -> None:
    control = (
        "Package: my-research-tool\\nVersion: 1\\nArchitecture: all\\nMaintainer: nobody\\nDescription: stand-in\\n"
    )
    depends = "Depends: libnvidia-compute-535\\n"
    root_shell(
        lab,
        "node1",
        f"mkdir -p /srv/tool/DEBIAN && printf '{control}{depends}' > /srv/tool/DEBIAN/control"
        " && dpkg-deb --build /srv/tool /srv/tool.deb && dpkg --install /srv/tool.deb",
    )
    before = root_shell(lab, "node1", "dpkg --list; apt-mark showhold")
    play = run(lab, "node1", nvidia_driver_branch="570")
    assert play.rc == 2
    assert "node1: branch 535 is installed, but 570 is requested. To purge the driver, apt would" in flat_output(play)
    assert "also remove my-research-tool, which is not part of it. Nothing was changed." in flat_output(play)
    assert root_shell(lab, "node1", "dpkg --list; apt-mark showhold") == before
    root_shell(lab, "node1", "dpkg --purge my-research-tool")


def test_node_with_active_run_is_left_unchanged(lab: Lab) -> None:
    directory = "/srv/run/bert-1/node0"  # contains the supervisor, as it does after a start
    root_shell(lab, "node1", f"mkdir -p {directory} && echo 'import time; time.sleep(300)' > {directory}/supervisor.py")
    text = f"python3 {directory}/supervisor.py {directory} bert-1 10.0.0.1"
    root_shell(lab, "node1", f"systemd-run --quiet --unit=run {text}")
    try:
        play = run(lab, "node1", nvidia_driver_branch="570")
    finally:
        root_shell(lab, "node1", "systemctl stop run")
    assert play.rc == 2
    assert (
        "node1: purge is required (branch 535 is installed, but 570 is requested), but the run bert-1 is active"
        in flat_output(play)
    )
    assert version(lab, "node1") == "535.183.01"


# at the start of the scenario, node3 has an interrupted purge; then it gets a driver of a different branch
@pytest.mark.thorough
def test_downgrade_completes_after_interrupted_purge(lab: Lab) -> None:
    play = drive.start(CONVERGE, lab.inventory, options=("--limit", "node3"), nvidia_driver_branch="535")
    drive.eventually("the driver is purged", lambda: "nvidia-driver-570" not in packages(lab, "node3"), timeout=120)
    play.stop.set()
    play.wait()
    assert root_shell(lab, "node3", "cat /sys/module/nvidia/version") == "570.211", "the old one is still loaded"

    rerun = run(lab, "node3", nvidia_driver_branch="535")
    assert rerun.rc == 0, rerun.output
    assert version(lab, "node3") == "535.183.01"
    assert root_shell(lab, "node3", "wc -l < /srv/boots") == "1"


def test_required_reboot_is_reported_and_performed_once_allowed(lab: Lab) -> None:
    root_shell(lab, "node1", "touch /srv/sys/in_use")
    play = run(lab, "node1", nvidia_driver_branch="570", nvidia_driver_reboot="never")
    assert play.rc == 2
    assert (
        "node1: the module cannot be reloaded while the machine is running (rmmod: ERROR: Module nvidia is in use)"
        in flat_output(play)
    )
    assert "Set nvidia_driver_reboot to one or all" in flat_output(play)

    play = run(lab, "node1", nvidia_driver_branch="570", nvidia_driver_reboot="all")
    assert play.rc == 0, play.output
    assert version(lab, "node1") == "570.211"
    assert root_shell(lab, "node1", "wc -l < /srv/boots") == "2"

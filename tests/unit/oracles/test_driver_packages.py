"""The driver's package names, checked against the apt index of this Debian release, including its non-free section."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.module_utils._facts.driver import DriverQuery
from ansible_collections.muster.training.plugins.plugin_utils._software.driver import (
    INSTALL,
    DesiredDriver,
    foreign_removals,
    install_driver,
)

pytestmark = pytest.mark.one_core  # apt does not depend on ansible-core

OS_RELEASE = Path("/etc/os-release").read_text()
DEBIAN = "\nID=debian\n" in f"\n{OS_RELEASE}"
RECOMMENDS = re.compile(r"'(APT::Install-Recommends=\w+)'")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an apt configuration with its own index, of the release that this machine runs."""
    if not DEBIAN:
        pytest.skip("only Debian has its driver in the section non-free")
    directory = tmp_path_factory.mktemp("apt")
    codename = next(line.partition("=")[2] for line in OS_RELEASE.splitlines() if line.startswith("VERSION_CODENAME="))
    (directory / "lists" / "partial").mkdir(parents=True)
    (directory / "cache" / "archives" / "partial").mkdir(parents=True)
    archive = f"deb [signed-by={KEYRING}] http://deb.debian.org/debian {codename} main contrib non-free"
    (directory / "sources.list").write_text(f"{archive} non-free-firmware\n")
    configuration = directory / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::sourcelist "{directory}/sources.list";\nDir::Etc::sourceparts "-";\n'
        f'Dir::State::lists "{directory}/lists";\nDir::Cache "{directory}/cache";\nAPT::Sandbox::User "root";\n'
        'APT::Install-Recommends "false";\n'
    )
    apt(configuration, "apt-get", "update", "--error-on=any")
    return configuration


def apt(configuration: Path, *argv: str) -> str:
    """Run a program of apt on the index; return its output."""
    environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C"}
    completed = subprocess.run(
        argv, capture_output=True, text=True, timeout=120, check=False, env=environment, stdin=subprocess.DEVNULL
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture
def driver(index: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the facts of a machine without a driver."""
    monkeypatch.setenv("APT_CONFIG", str(index))
    return {**DriverQuery().result(), "packages": []}


def test_driver_of_the_distribution_includes_the_programs_that_jobs_need(driver: dict[str, Any], index: Path) -> None:
    decision = install_driver(driver, DesiredDriver(), "no driver is installed")
    assert (decision.action, decision.packages) == (INSTALL, ["nvidia-driver"]), decision
    variables = yaml.safe_load(Path("roles/nvidia_driver/vars/main.yml").read_text())
    options = [option for option in RECOMMENDS.findall(variables["__nvidia_driver_apt"]) for option in ("-o", option)]
    simulated = apt(index, "apt-get", "--simulate", *options, "install", *decision.packages)
    installed = {line.split()[1] for line in simulated.splitlines() if line.startswith("Inst ")}
    assert {"nvidia-driver", "nvidia-kernel-dkms", "nvidia-smi", "libcuda1"} <= installed, installed


def test_all_packages_of_the_driver_are_recognized(index: Path) -> None:
    """Purging the driver must not be refused because of one of its own packages."""
    names = set()
    for block in apt(index, "apt-cache", "dumpavail").split("\n\n"):
        lines = block.splitlines()
        if "Source: nvidia-graphics-drivers" in lines:
            names.add(lines[0].removeprefix("Package: "))
    assert len(names) > 40, names
    removal = "".join(f"Remv {name} [535.261.03-1]\n" for name in sorted(names))
    assert foreign_removals(removal) == []

"""Missing system packages are named, with the command that installs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.one_core

SCRIPT = Path(__file__).resolve().parents[2] / "tests" / "system_packages"
NOBODY = 65534
# Like dpkg-query: samba was removed without its settings, podman and pdsh are unknown.
SOME_MISSING = 'case "$3" in podman|pdsh) return 1;; samba) printf config-files;; *) printf installed;; esac'
ALL_INSTALLED = "printf installed"


def system_packages(dpkg_query: str | None, user: int | None) -> subprocess.CompletedProcess[str]:
    """Run the script with no programs except these, which are functions that any user may run."""
    stubs = {"apt-get": 'echo "apt-get $*" >&2', **({"dpkg-query": dpkg_query} if dpkg_query else {})}
    return subprocess.run(
        [shutil.which("bash") or "bash", "-c", SCRIPT.read_text()],
        env={"PATH": "/nowhere", **{f"BASH_FUNC_{name}%%": f"() {{ {script}\n}}" for name, script in stubs.items()}},
        user=user,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def anybody() -> int | None:
    """Act as a user other than root."""
    return NOBODY if os.geteuid() == 0 else None


def test_message_without_root_has_the_install_command(anybody: int | None) -> None:
    run = system_packages(SOME_MISSING, anybody)
    assert run.returncode == 1
    assert run.stderr.splitlines() == [
        "These system packages are missing: podman samba pdsh. Install them, then try again:",
        "  sudo apt-get update && sudo apt-get install --no-install-recommends podman samba pdsh",
    ]


def test_message_without_dpkg_names_packages_and_targets_that_need_no_packages(anybody: int | None) -> None:
    run = system_packages(None, anybody)
    assert run.returncode == 1
    assert "whose names are known only for Debian and Ubuntu: podman crun " in run.stderr
    assert "'make demo', 'make lint' and 'make unit' need none of them" in run.stderr


def test_prints_nothing_when_nothing_is_missing(anybody: int | None) -> None:
    run = system_packages(ALL_INSTALLED, anybody)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can install packages")
def test_root_installs_only_missing_packages() -> None:
    run = system_packages(SOME_MISSING, None)
    assert (run.returncode, run.stdout) == (0, "Installing system packages: podman samba pdsh\n")
    assert run.stderr.splitlines() == [
        "apt-get update --quiet=2",
        "apt-get install --quiet=2 --yes --no-install-recommends podman samba pdsh",
    ]

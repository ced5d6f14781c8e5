"""The image of a node: a small Debian (or Ubuntu) with systemd and sshd, built once per recipe."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

from tests.lab.machine import STORE, LabError, apt_settings, podman, run

SUITES = ("bullseye", "bookworm", "trixie")
"""Supported releases besides this machine's own: Debian 11 (Python 3.9), 12 (3.11), 13 (3.13)."""

BASE = [
    *("systemd", "systemd-sysv", "libpam-systemd", "dbus", "openssh-server", "sudo", "python3", "python3-apt"),
    *("iproute2", "nftables", "procps", "ca-certificates"),
]
PACKAGES = [
    *BASE,
    # launchers for runs
    *("openmpi-bin", "pdsh"),
    # login shells for users
    *("fish", "tcsh", "zsh"),
]
CUSTOMISE = Path(__file__).with_name("customize.sh")
REPOSITORY = "localhost/muster-lab"


def own_suite() -> str:
    """Return this machine's own release, so that hosts can run its programs; bookworm if it is not Debian or Ubuntu."""
    release = platform.freedesktop_os_release()
    return release["VERSION_CODENAME"] if release["ID"] in ("debian", "ubuntu") else "bookworm"


def tag(suite: str) -> str:
    """Return the name of a release's image, which depends on the recipe."""
    recipe = "\n".join([suite, *PACKAGES, CUSTOMISE.read_text()])
    return f"{REPOSITORY}:{suite}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"


def ensure(suite: str) -> str:
    """Return the image's name, building the image first if this machine does not have it yet.

    MUSTER_LAB_MIRROR replaces Debian's own archive.
    """
    if suite not in (*SUITES, own_suite()):
        raise LabError(f"Unknown release {suite!r}: test hosts are made of {', '.join(SUITES)}.")
    name = tag(suite)
    if name in _present():
        return name
    print(f"Building the image of a {suite} host (once, about a minute).", flush=True)
    options = [f"--aptopt={line}" for line in apt_settings()]
    mirror = [os.environ["MUSTER_LAB_MIRROR"]] if "MUSTER_LAB_MIRROR" in os.environ else []
    scratch = STORE / "build"
    clear: list[str | Path] = ["rm", "--recursive", "--force", "--one-file-system", scratch]
    run(clear)  # left behind by a killed build
    scratch.mkdir(parents=True)
    tree = scratch / "root.tar"
    shape = ["--variant=minbase", f"--include={','.join(PACKAGES)}", f"--customize-hook={CUSTOMISE}"]
    build: list[str | Path] = ["mmdebstrap", *shape, "--skip=output/dev", *options, suite, tree, *mirror]
    run(["env", f"TMPDIR={scratch}", *build], timeout=900)
    podman("import", "--change", 'CMD ["/sbin/init"]', tree, name, timeout=300)
    run(clear)
    for old in _present():
        if old.startswith(f"{REPOSITORY}:{suite}-") and old != name:
            podman("rmi", old, check=False)  # refused while a container is using it
    return name


def _present() -> list[str]:
    return podman("images", "--format", "{{.Repository}}:{{.Tag}}").split()

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Query the NVIDIA driver installed on a node: packages, modules per kernel, available packages.

gpus.py reads the loaded driver.
"""

from __future__ import annotations

import glob
import os
import re
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any

TIMEOUT = 30.0  # seconds; apt-cache takes 1 to 3 on a machine with many sources
# Packages of the driver: its kernel module, libraries and programs, but not CUDA or the container toolkit. Not
# libxnvctrl0 either: it belongs to no branch, and removing it would remove Open MPI's hwloc.
DRIVER_PACKAGE = re.compile(
    r"(nvidia-(driver|dkms|kernel|utils|compute|headless|firmware|settings|open|modprobe|persistenced|smi|alternative"
    r"|legacy|tesla|egl|vdpau|vulkan|suspend|powerd|detect|cuda-mps|opencl|libopencl|driver-.*)|libnvidia-(?!container)"
    r"|xserver-xorg-video-nvidia|linux-(modules|objects|signatures)-nvidia|libcuda1|libcudadebugger1|cuda-drivers"
    r"|libnvcuvid|libnvoptix|lib(gl|egl).*-nvidia|firmware-nvidia)"
)
FABRIC_MANAGER = re.compile(r"nvidia-fabric-?manager(-[0-9]+)?\Z")
KERNEL_PACKAGE = re.compile(r"linux-(image|headers|modules|generic|virtual|aws|gcp|azure|oracle)\b")


def parse_packages(text: str) -> list[dict[str, str]]:
    """Parse `dpkg-query --show` with tab-separated name, version, desired state, state and error flag."""
    packages = []
    for line in text.splitlines():
        name, version, selection, status, flag = (line.split("\t") + [""] * 5)[:5]
        if DRIVER_PACKAGE.match(name) or FABRIC_MANAGER.match(name) or KERNEL_PACKAGE.match(name):
            packages.append({"name": name, "version": version, "selection": selection, "status": status, "flag": flag})
    return packages


def parse_dkms(text: str) -> list[dict[str, str]]:
    """Return the modules in the output of `dkms status`: "nvidia/535.183.01, 5.15.0-91-generic, x86_64: installed".

    Older versions of dkms print "nvidia, 535.183.01, ...".
    """
    modules = []
    for line in text.splitlines():
        match = re.match(r"nvidia[^/,]*[/,] ?([^,:]+)(?:, ([^,]+), [^:]+)?: (\w+)", line.strip())
        if match:
            modules.append({"version": match[1].strip(), "kernel": match[2] or "", "state": match[3]})
    return modules


def parse_available(text: str) -> list[str]:
    """Parse `apt-cache search --names-only` or `ubuntu-drivers list`: names of packages that install a driver."""
    names = re.findall(r"^(nvidia-driver(?:-[0-9]{3,}(?:-server)?(?:-open)?)?)(?=[ ,]|$)", text, re.MULTILINE)
    return sorted(dict.fromkeys(names))


def parse_policy(text: str) -> dict[str, str]:
    """Parse `apt-cache policy`: the version that would be installed, by package name."""
    candidates = {}
    for block in re.split(r"^(?=\S)", text, flags=re.MULTILINE):
        match = re.match(r"(\S+):\n(?:.*\n)*?  Candidate: (\S+)", block)
        if match and match[2] != "(none)":
            candidates[match[1]] = match[2]
    return candidates


def kernel_key(name: str) -> list[Any]:
    """Return a sort key that orders kernels like a boot menu: 5.15.0-100 after 5.15.0-91."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in re.findall(r"[0-9]+|[a-z]+", name)]


def newest_kernel(running: str, images: list[str]) -> str:
    """Return the kernel for the next boot, based on the images in /boot; without images, return the running kernel."""
    kernels = [os.path.basename(path)[len("vmlinuz-") :] for path in images]
    return max(kernels, key=kernel_key) if kernels else running


class DriverQuery:
    """A query for the installed driver, started on creation."""

    def __init__(self) -> None:
        self.deadline = time.monotonic() + TIMEOUT
        self.running = os.uname().release
        self.newest = newest_kernel(self.running, glob.glob("/boot/vmlinuz-[0-9]*"))
        environment = {
            **os.environ,
            "LC_ALL": "C",
            "PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin",
        }
        show = "${Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\t${db:Status-Eflag}\\n"
        argv_by_name = {
            "packages": ["dpkg-query", "--show", f"--showformat={show}"],
            "dkms": ["dkms", "status"],
            "available": ["apt-cache", "search", "--names-only", "^nvidia-driver(-[0-9]+(-server)?(-open)?)?$"],
            "recommended": ["ubuntu-drivers", "list"],
            **{
                f"module {kernel}": ["modinfo", "-k", kernel, "-F", "version", "nvidia"]
                for kernel in sorted({self.running, self.newest})
            },
        }
        self.commands = {name: Command(argv, env=environment) for name, argv in argv_by_name.items()}
        self.environment = environment

    def result(self) -> dict[str, Any]:
        """Return system, kernels, modules ({kernel: version}), packages, dkms, available ({package: version})."""
        outputs = {name: command.output(self.deadline) for name, command in self.commands.items()}
        texts = {name: output.text if output.code == 0 else "" for name, output in outputs.items()}
        names = parse_available(texts["recommended"]) or parse_available(texts["available"])
        policy = Command(["apt-cache", "policy", *names], env=self.environment).output(self.deadline) if names else None
        system = {}
        for line in read_lines("/etc/os-release"):
            key, _equals, value = line.partition("=")
            system[key] = value.strip().strip('"')
        return {
            "system": system.get("ID", ""),
            "system_version": system.get("VERSION_ID", ""),
            "kernel": self.running,
            "newest_kernel": self.newest,
            "modules": {kernel: texts[f"module {kernel}"].strip() for kernel in (self.running, self.newest)},
            "packages": parse_packages(texts["packages"]),
            "dkms": parse_dkms(texts["dkms"]),
            "has_dkms": not outputs["dkms"].code and outputs["dkms"].code is not None,
            "available": parse_policy(policy.text) if policy else {},
        }


def read_lines(path: str) -> list[str]:
    """Return the lines of a small file, or [] if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(65536).splitlines()
    except OSError:
        return []

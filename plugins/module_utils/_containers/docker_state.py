# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Docker's state on this machine: settings, whether they are readable, running containers and GPUs. Needs root."""

from __future__ import annotations

import glob
import json
import os
import subprocess

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

SETTINGS = "/etc/docker/daemon.json"


def read_settings(path: str) -> tuple[Data, str]:
    """Return the settings in a daemon.json file, and an error message."""
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        return {}, ""
    try:
        settings = json.loads(text or "{}")
    except ValueError as error:
        return {}, f"{path} is not valid JSON ({error})"
    if not isinstance(settings, dict):
        return {}, f"{path} is not a JSON object"
    return settings, ""


def run(*argv: str) -> str:
    """Run a command and return its output. Raise OSError or one of subprocess's errors if it fails or hangs."""
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


def list_running() -> tuple[list[str], str]:
    """Return the names of running containers, and why they cannot be listed; there are no names without an engine."""
    try:
        return run("docker", "ps", "--format", "{{.Names}}").split(), ""
    except FileNotFoundError:
        return [], ""
    except subprocess.TimeoutExpired:
        error = "`docker ps` did not respond within 60 s"
    except subprocess.CalledProcessError as exception:
        error = f"`docker ps` failed ({exception.stderr.strip()[-300:] or f'code {exception.returncode}'})"
    except OSError as exception:
        error = f"docker cannot be run ({exception.strerror})"
    try:
        state = run("systemctl", "show", "--property=ActiveState", "--value", "docker.service").strip()
    except (OSError, subprocess.SubprocessError):
        return [], f"{error}, and systemd does not report whether the engine is running"
    pids = shim_pids()
    if state in ("inactive", "failed") and not pids:
        return [], ""
    alive = f", and containers are still alive (containerd-shim, process {', '.join(pids)})" if pids else ""
    return [], f"{error}, docker.service is {state}{alive}"


def shim_pids() -> list[str]:
    """Return the processes that keep Docker's containers running; they survive when the engine is killed."""
    pids = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as stream:
                arguments = stream.read().split(b"\0")
        except OSError:  # the process has ended
            continue
        if os.path.basename(arguments[0]).startswith(b"containerd-shim") and b"moby" in arguments:
            pids.append(path.split("/")[2])
    return pids


def has_nvidia() -> bool:
    """Return whether the machine has an NVIDIA GPU: a 3D or display controller with NVIDIA's PCI vendor number."""
    for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
        with open(path, encoding="ascii") as vendor, open(os.path.join(os.path.dirname(path), "class")) as kind:
            if vendor.read().strip() == "0x10de" and kind.read().startswith("0x03"):
                return True
    return False


def state() -> Data:
    """Return the complete state."""
    settings, settings_error = read_settings(SETTINGS)
    names, list_error = list_running()
    return {
        "settings": settings,
        "settings_error": settings_error,
        "running": names,
        "containers_error": list_error,
        "nvidia": has_nvidia(),
    }

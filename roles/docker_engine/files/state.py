"""What is true of Docker on this machine, as JSON: its settings, whether they can be read, running containers, GPUs."""

from __future__ import annotations

import glob
import json
import os
import subprocess


def read_settings(path: str) -> tuple[dict[str, object], str]:
    """Return the settings of a daemon.json, and what is wrong with it."""
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
    except FileNotFoundError:
        return {}, ""
    try:
        found = json.loads(text or "{}")
    except ValueError as problem:
        return {}, f"{path} is no JSON ({problem})"
    if not isinstance(found, dict):
        return {}, f"{path} holds no object"
    return found, ""


def running() -> list[str]:
    """Return the names of running containers, none where there is no engine."""
    try:
        done = subprocess.run(
            ["docker", "ps", "--format", "{{.Names}}"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def has_nvidia() -> bool:
    """Whether there is a GPU of NVIDIA's: a 3D or display controller of its PCI vendor number."""
    for path in glob.glob("/sys/bus/pci/devices/*/vendor"):
        with open(path, encoding="ascii") as vendor, open(os.path.join(os.path.dirname(path), "class")) as kind:
            if vendor.read().strip() == "0x10de" and kind.read().startswith("0x03"):
                return True
    return False


SETTINGS, FAULT = read_settings("/etc/docker/daemon.json")
print(json.dumps({"settings": SETTINGS, "fault": FAULT, "running": running(), "nvidia": has_nvidia()}))

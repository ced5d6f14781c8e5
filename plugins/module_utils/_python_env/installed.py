# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read an environment's state: interpreters, packages, and the record of each layer."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess

from ansible_collections.muster.training.plugins.module_utils._files.text import read
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths, normalize_name

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def find_python(name: str) -> tuple[str, str]:
    """Return the path and version of a system interpreter, by name, path or version; both empty if missing."""
    for candidate in (name, f"python{name}"):
        path = shutil.which(candidate)
        if path:
            completed = subprocess.run([path, "-c", VERSION], capture_output=True, text=True, check=False)
            if completed.returncode == 0:
                return path, completed.stdout.strip()
    return "", ""


def environment_version(paths: EnvironmentPaths) -> str:
    """Return the version of the environment's interpreter, or an empty string if it does not start."""
    return find_python(paths.python)[1] if os.path.exists(paths.python) else ""


def installed_packages(paths: EnvironmentPaths) -> dict[str, str]:
    """Return the versions of the packages in the environment, by name."""
    versions = {}
    for path in glob.glob(os.path.join(paths.environment, "lib", "python3*", "site-packages", "*.dist-info")):
        name, _dash, version = os.path.basename(path)[: -len(".dist-info")].rpartition("-")
        versions[normalize_name(name)] = version
    return versions


def read_record(paths: EnvironmentPaths, layer: str) -> Data:
    """Return a layer's record on this node: its lock's key, the packages that it needs, and those that it installed
    itself.
    """
    text = read(paths.installed(layer))
    record: Data = json.loads(text) if text.startswith("{") else {"key": text, "needs": None, "put": []}
    return record


def installed_layers(paths: EnvironmentPaths) -> list[str]:
    """Return the layers installed on this node."""
    return sorted(name for name in os.listdir(paths.installed("")) if "." not in name) if paths.has_records() else []


def distribution_names(lock: Data) -> set[str]:
    """Return the names of all distributions in a lock, including source trees."""
    return {package["name"] for package in lock["packages"]} | set(lock.get("trees", []))


def unneeded_packages(paths: EnvironmentPaths, lock: Data) -> list[str]:
    """Return the packages that a lock's layer installed on this node and that no layer needs any longer."""
    other_needs = [read_record(paths, layer)["needs"] for layer in installed_layers(paths) if layer != lock["layer"]]
    if None in other_needs:  # installed before such records were kept
        return []
    needed = distribution_names(lock).union(*other_needs)
    return sorted((set(read_record(paths, lock["layer"])["put"]) - needed) & set(installed_packages(paths)))


def missing_packages(paths: EnvironmentPaths, lock: Data) -> list[str]:
    """Return the packages in a lock that are missing from the environment."""
    present = installed_packages(paths)
    names = [package["name"] for package in lock["packages"] if present.get(package["name"]) != package["version"]]
    if not environment_version(paths):
        names.append("the environment")
    elif read_record(paths, lock["layer"])["key"] != lock["key"]:
        names += [*lock["editable"], lock["layer"]]
    return names

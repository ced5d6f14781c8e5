# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is present: interpreters, packages, and what was installed for each layer.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess

from ansible_collections.muster.training.plugins.module_utils._python_env.paths import Place, normal, read

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def find_python(name: str) -> tuple[str, str]:
    """Path and version of a system interpreter, by name, path or version; both empty if there is none."""
    for candidate in (name, f"python{name}"):
        path = shutil.which(candidate)
        if path:
            done = subprocess.run([path, "-c", VERSION], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return path, done.stdout.strip()
    return "", ""


def version_in(place: Place) -> str:
    """The version of the environment's interpreter, empty if none starts."""
    return find_python(place.python)[1] if os.path.exists(place.python) else ""


def packages_in(place: Place) -> dict[str, str]:
    """Names and versions of the packages in the environment."""
    found = {}
    for path in glob.glob(os.path.join(place.environment, "lib", "python3*", "site-packages", "*.dist-info")):
        name, _dash, version = os.path.basename(path)[: -len(".dist-info")].rpartition("-")
        found[normal(name)] = version
    return found


def record_of(place: Place, layer: str) -> Data:
    """The record of a layer on this node: its lock's key, all packages it needs, and those it installed itself."""
    text = read(place.installed(layer))
    record: Data = json.loads(text) if text.startswith("{") else {"key": text, "needs": None, "put": []}
    return record


def layers_in(place: Place) -> list[str]:
    """The layers that were installed here."""
    return sorted(name for name in os.listdir(place.installed("")) if "." not in name) if place.has_records() else []


def names_in(lock: Data) -> set[str]:
    """The names of all distributions in a lock, including source trees."""
    return {one["name"] for one in lock["packages"]} | set(lock.get("trees", []))


def unneeded_in(place: Place, lock: Data) -> list[str]:
    """Packages that a lock's layer has installed here, and that no layer needs any longer."""
    others = [record_of(place, layer)["needs"] for layer in layers_in(place) if layer != lock["layer"]]
    if None in others:  # installed before such records were kept
        return []
    needed = names_in(lock).union(*others)
    return sorted((set(record_of(place, lock["layer"])["put"]) - needed) & set(packages_in(place)))


def missing_in(place: Place, lock: Data) -> list[str]:
    """Packages that are in a lock but not in the environment."""
    here = packages_in(place)
    names = [one["name"] for one in lock["packages"] if here.get(one["name"]) != one["version"]]
    if not version_in(place):
        names.append("the environment")
    elif record_of(place, lock["layer"])["key"] != lock["key"]:
        names += [*lock["editable"], lock["layer"]]
    return names

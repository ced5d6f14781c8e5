# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is present: interpreters, packages, and what was installed for which layer.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess

from ansible_collections.muster.training.plugins.module_utils._python_layer.place import Place, normal, read

TYPE_CHECKING = False  # typing itself would cost more than all we import
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def find_python(name: str) -> tuple[str, str]:
    """Path and version of an interpreter of this system, by name, path or version; both empty if there is none."""
    for candidate in (name, f"python{name}"):
        path = shutil.which(candidate)
        if path:
            done = subprocess.run([path, "-c", VERSION], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return path, done.stdout.strip()
    return "", ""


def version_in(place: Place) -> str:
    """The version of the environment's interpreter, empty if there is none that starts."""
    return find_python(place.python)[1] if os.path.exists(place.python) else ""


def packages_in(place: Place) -> dict[str, str]:
    """Names and versions of what is installed in the environment."""
    found = {}
    for path in glob.glob(os.path.join(place.environment, "lib", "python3*", "site-packages", "*.dist-info")):
        name, _dash, version = os.path.basename(path)[: -len(".dist-info")].rpartition("-")
        found[normal(name)] = version
    return found


def record_of(place: Place, layer: str) -> Data:
    """What was installed here for a layer: the key of its lock, all that it needs, and what it has put there itself."""
    text = read(place.installed(layer))
    record: Data = json.loads(text) if text.startswith("{") else {"key": text, "needs": None, "put": []}
    return record


def layers_in(place: Place) -> list[str]:
    """The layers that were installed here."""
    return sorted(name for name in os.listdir(place.installed("")) if "." not in name) if place.has_records() else []


def names_in(lock: Data) -> set[str]:
    """The names of all distributions of a lock, those of source trees too."""
    return {one["name"] for one in lock["packages"]} | set(lock.get("trees", []))


def unneeded_in(place: Place, lock: Data) -> list[str]:
    """What the layer of a lock has installed here, and neither it nor another layer needs now."""
    others = [record_of(place, layer)["needs"] for layer in layers_in(place) if layer != lock["layer"]]
    if None in others:  # installed before such records were kept
        return []
    needed = names_in(lock).union(*others)
    return sorted((set(record_of(place, lock["layer"])["put"]) - needed) & set(packages_in(place)))


def missing_in(place: Place, lock: Data) -> list[str]:
    """What a lock has and the environment has not."""
    here = packages_in(place)
    names = [one["name"] for one in lock["packages"] if here.get(one["name"]) != one["version"]]
    if not version_in(place):
        names.append("the environment")
    elif record_of(place, lock["layer"])["key"] != lock["key"]:
        names += [*lock["editable"], lock["layer"]]
    return names

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install a lock's packages on each node.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import urllib.parse
import urllib.request

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import Fault, say
from ansible_collections.muster.training.plugins.module_utils._python_env.commands import run
from ansible_collections.muster.training.plugins.module_utils._python_env.environment import (
    make_environment,
    uv_variables,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.installed import (
    find_python,
    layers_in,
    missing_in,
    names_in,
    packages_in,
    record_of,
    unneeded_in,
    version_in,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.installers import (
    download,
    pip_words,
    put_tools,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import Place, normal, write

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


def check(given: Data) -> Data:
    """Which parts of a lock are missing on this node; the lock is empty if the first node has not solved it yet."""
    place = Place(given)
    lock = given["lock"]
    path, version = find_python(given["python"])
    here = version_in(place)
    if not path and not here and given["manager"] == "venv":
        raise Fault(
            f"there is no interpreter {given['python']}. Needed: a system Python for a venv environment. "
            "Install it, correct python_env_python, or set python_env_manager to uv, which brings its own"
        )
    root = place.root
    while not os.path.isdir(root):
        root = os.path.dirname(root)
    missing = missing_in(place, lock) if lock else []
    free = shutil.disk_usage(root).free
    if (missing or not lock) and free < given["space"] * 1e9:
        raise Fault(
            f"{root} has {free / 1e9:.1f} GB free. Needed: {given['space']} GB for packages. "
            "Make room, or set python_env_directory to a larger disk"
        )
    if lock and lock["python"].split(".")[:2] != (here or version or lock["python"]).split(".")[:2]:
        raise Fault(
            f"Python is {here or version} here, but {lock['python']} on the first node. Needed: the version "
            "that packages were chosen for. Install it, or set python_env_manager to uv, python_env_python to it"
        )
    return {
        "missing": missing,
        "unneeded": unneeded_in(place, lock) if lock and here else [],
        "layers": [layer for layer in layers_in(place) if record_of(place, layer)["put"]],
        "python": here,
        "changed": False,
    }


def fetch(place: Place, given: Data, lock: Data) -> None:
    """Get a lock's missing files from the first node."""
    files = {one["file"]: one for one in lock["files"]}  # a tool may also be installed as a package
    wanted = [one for name, one in files.items() if not os.path.exists(os.path.join(place.store, name))]
    if not wanted:
        return
    os.makedirs(place.store, exist_ok=True)
    urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))  # no proxy to a peer
    say(f"Getting {len(wanted)} files from {given['from']}")

    def one_file(one: Data) -> None:
        url = f"{given['url']}/{urllib.parse.quote(one['file'])}"
        try:
            download(url, os.path.join(place.store, one["file"]), one["sha256"], "the lock of the first node")
        except OSError as problem:
            raise Fault(
                f"{given['from']} does not give {one['file']} ({given['url'].rpartition('/')[0]}: {problem}). Needed: "
                "open traffic between the nodes. Check the firewall between them "
                "(ansible-playbook site.yml --tags firewall), then run this again"
            ) from None

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(one_file, wanted))


def install(given: Data) -> Data:
    """Install a lock on this node."""
    place = Place(given)
    lock = given["lock"]
    missing = missing_in(place, lock)
    if not missing:
        return {"changed": False}
    if given["url"]:
        fetch(place, given, lock)
    put_tools(place, lock["files"])
    make_environment(place, given, [one for one in lock["files"] if one["kind"] not in ("wheel", "build")])
    here = packages_in(place)
    unneeded = unneeded_in(place, lock)
    put = (set(record_of(place, lock["layer"])["put"]) & set(here)) | (names_in(lock) - set(here))
    needed = {one["name"] for one in lock["packages"] if here.get(one["name"]) != one["version"]}
    wheels = [
        one["file"] for one in lock["files"] if one["kind"] == "wheel" and normal(one["file"].split("-")[0]) in needed
    ]
    if given["manager"] == "uv":
        words = [place.uv, "pip", "install", "--no-config", "--offline", "--python", place.python]
        uninstall = [place.uv, "pip", "uninstall", "--no-config", "--python", place.python]
        variables = uv_variables(place)
    else:
        words = [*pip_words(place), "install"]
        uninstall = [*pip_words(place), "uninstall", "--yes"]
        variables = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
        variables = {
            key: value for key, value in variables.items() if not key.startswith("PIP_") or key == "PIP_CONFIG_FILE"
        }
    words += ["--no-index", "--find-links", place.store, "--no-deps"]
    if unneeded:
        say(f"Removing {', '.join(unneeded)}")
        run([*uninstall, *unneeded], env=variables)
    if wheels:
        say(f"Installing {len(wheels)} packages")
    # A pip running from its wheel considers itself installed, and would not install the same version.
    own = [file for file in wheels if file.startswith("pip-") and given["manager"] != "uv" and "pip" not in here]
    for files, more in ((own, ["--ignore-installed"]), ([file for file in wheels if file not in own], [])):
        if files:
            run([*words, *more, *(os.path.join(place.store, file) for file in files)], env=variables)
    for path in lock["editable"]:
        say(f"Installing {path} as editable")
        run([*words, "--editable", path], env=variables)
    left = [name for name in missing_in(place, {**lock, "editable": []}) if name not in (lock["layer"],)]
    if left:
        raise Fault(
            f"these were installed but are missing: {', '.join(left)}. Run this again; else remove {place.root}"
        )
    record = {"key": lock["key"], "needs": sorted(names_in(lock)), "put": sorted(put & names_in(lock))}
    record["project"] = lock.get("project", "")  # so that a launch can report a later change
    write(place.installed(lock["layer"]), json.dumps(record))
    if given["url"]:  # a copy; the first node keeps the original for nodes added later
        for name in {one["file"] for one in lock["files"]}:
            os.unlink(os.path.join(place.store, name))
    answer = {"changed": True, "installed": missing, "removed": unneeded}
    if unneeded and not given["url"]:  # reported once, by the first node
        answer["notice"] = f"{', '.join(unneeded)} removed from all nodes, since nothing requires it any more"
    return answer

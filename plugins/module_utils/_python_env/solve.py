# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Solve a layer on the first node: make its lock and get the wheels in it.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import urllib.parse

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import Fault, ProgramFault, say
from ansible_collections.muster.training.plugins.module_utils._python_env.commands import asked_of, run
from ansible_collections.muster.training.plugins.module_utils._python_env.environment import make_environment
from ansible_collections.muster.training.plugins.module_utils._python_env.installed import version_in
from ansible_collections.muster.training.plugins.module_utils._python_env.installers import (
    get,
    get_tools,
    pip_words,
    put_tools,
    stored,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import Place, normal, read, write

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

UNSOLVED = (
    "Needed: packages that pip finds for this Python, in compatible versions. Correct what it names below, in "
    "requirements.txt, pyproject.toml or python_env_requirements"
)


def source_words(given: Data) -> list[str]:
    """pip's options for package sources, in addition to its own configuration."""
    words = ["--index-url", given["index_url"]] if given["index_url"] else []
    words += [word for url in given["extra_index_urls"] for word in ("--extra-index-url", url)]
    return words + [word for url in given["find_links"] for word in ("--find-links", url)]


def earlier_locks(place: Place, given: Data) -> list[Data]:
    """The locks of earlier layers, whose packages must not change."""
    locks = [json.loads(read(path)) for path in sorted(glob.glob(place.lock("*")))]
    return sorted((one for one in locks if one["order"] < given["order"]), key=lambda one: one["order"])


def build_files(path: str) -> list[str]:
    """The files of a source tree that define its build and requirements."""
    names = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
    return [os.path.join(path.partition("[")[0], name) for name in names]


def key_of(place: Place, given: Data) -> str:
    """All inputs of a lock, as one text."""
    names = [*given["files"], *(name for path in given["editable"] for name in build_files(path))]
    parts = [
        given[name] for name in ("manager", "python_asked", "requirements", "editable", "pip_version", "uv_version")
    ]
    parts += [given[name] for name in ("index_url", "extra_index_urls", "find_links", "environment")]
    parts += [given[name] for name in ("conda_installer_url", "conda_packages", "conda_channels")]
    if given["project"]:
        parts.append(given["project"]["digest"])
    parts += [[name, read(name)] for name in names] + [one["packages"] for one in earlier_locks(place, given)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def check_sources(given: Data) -> None:
    """Requested files and trees must exist."""
    for path in given["files"]:
        if not os.path.isfile(path):
            raise Fault(
                f"there is no file {path}. Needed: the requirements file on this node. "
                "Copy the code first (ansible-playbook site.yml --tags code), or correct python_env_requirements_files"
            )
    for path in given["editable"]:
        if not any(os.path.isfile(name) for name in build_files(path)[:3]):
            raise Fault(
                f"{path.partition('[')[0]} has no pyproject.toml and no setup.py. Needed: a source tree that can be "
                "installed. Copy the code first (ansible-playbook site.yml --tags code), or correct python_env_editable"
            )


def fetched(place: Place, requirement: str) -> str:
    """Download the wheel of a requirement with a URL, and return its path: pip would download it twice."""
    name, at, url = requirement.partition(" @ ")
    address, _hash, digest = url.partition("#sha256=")
    file = urllib.parse.unquote(address.rpartition("/")[2])
    if not at or not file.endswith(".whl"):
        return requirement
    path = os.path.join(place.store, file)
    if not os.path.exists(path):
        say(f"Getting {file}")
        get(address, path, digest, "#sha256=... after the address; for flash-attention, flash_attention_wheel_sha256")
    return path


def project_files(place: Place, given: Data) -> list[str]:
    """Write the project's requirements file, and the files that it includes, as on the controller."""
    shutil.rmtree(place.project, ignore_errors=True)
    if not given["project"]:
        return []
    os.makedirs(place.project, 0o700)  # URLs in it may hold credentials
    for name, text in given["project"]["texts"].items():
        write(os.path.join(place.project, name), text)
    return [os.path.join(place.project, given["project"]["main"])]


def check_torch(given: Data, earlier: dict[str, Data]) -> None:
    """Raise Fault if the project requires a torch other than the one already installed, and name the setting."""
    here = earlier.get("torch", {}).get("version", "")
    for name, text in given["project"].get("texts", {}).items():
        wanted = re.search(r"(?m)^\s*torch\s*==\s*([\w.]+(?:\+\w+)?)", text)
        if here and wanted and wanted[1] not in (here, here.partition("+")[0]):
            raise Fault(
                f"{name} wants torch {wanted[1]}, but torch {here} was installed before it. Needed: the same. Set "
                f"pytorch_version to {wanted[1].partition('+')[0]}, or take torch out of {name}"
            )


def solution(place: Place, given: Data, constraints: str) -> list[Data]:
    """The packages that pip would install, with their dependencies."""
    report = os.path.join(place.root, "report.json")
    words = [*pip_words(place), "install", "--dry-run", "--ignore-installed", "--report", report]
    words += [*source_words(given), *given["options"]]
    files = [*project_files(place, given), *given["files"]]
    words += [word for path in files for word in ("--requirement", path)]
    if constraints:
        words += ["--constraint", constraints]
    say("Resolving what to install")
    wanted = [fetched(place, one) for one in given["requirements"]]
    try:
        run([*words, *wanted, *given["editable"]], env={**os.environ, **given["environment"]})
    except ProgramFault as fault:
        raise ProgramFault(f"{fault}. {UNSOLVED}") from None
    return list(json.loads(read(report))["install"])


def pinned(one: Data) -> str:
    """The requirement that reproduces exactly this package."""
    info, name = one["download_info"], one["metadata"]["name"]
    if "vcs_info" in info:
        return f"{name} @ {info['vcs_info']['vcs']}+{info['url']}@{info['vcs_info']['commit_id']}"
    return f"{name} @ {info['url']}" if one["is_direct"] else f"{name}=={one['metadata']['version']}"


def stored_name(place: Place, one: Data) -> str:
    """The store's wheel that was requested by path, whose file name may give a wrong version; "" if none was."""
    path = urllib.parse.unquote(one["download_info"]["url"][len("file://") :])
    return os.path.basename(path) if one["is_direct"] and os.path.dirname(path) == place.store else ""


def wheels_in(directory: str) -> dict[tuple[str, str], str]:
    """The wheels in a directory, by name and version."""
    found = {}
    for path in glob.glob(os.path.join(directory, "*.whl")):
        name, version = os.path.basename(path).split("-")[:2]
        found[normal(name), version] = os.path.basename(path)
    return found


def gather(place: Place, given: Data, pins: list[str]) -> dict[tuple[str, str], str]:
    """Get wheels into the store: downloaded, or built if none is available."""
    if pins:
        new = os.path.join(place.store, "new")
        shutil.rmtree(new, ignore_errors=True)
        say(f"Getting {len(pins)} packages")
        words = [*pip_words(place), "wheel", "--no-deps", "--wheel-dir", new, *source_words(given), *given["options"]]
        run([*words, *pins], env={**os.environ, **given["environment"]})
        for name in os.listdir(new):
            os.replace(os.path.join(new, name), os.path.join(place.store, name))
    return wheels_in(place.store)


def build_requirements(place: Place, given: Data) -> list[str]:
    """The build requirements of the editable trees."""
    wanted: list[str] = []
    for path in given["editable"]:
        text = "import sys, json; sys.path.insert(0, sys.argv[1]); from pip._vendor import tomli\n"
        text += "print(json.dumps(tomli.load(open(sys.argv[2], 'rb')).get('build-system', {}).get('requires', [])))"
        project = build_files(path)[0]
        if os.path.exists(project):
            words = [place.python, "-c", text, os.path.join(place.tools, "pip"), project]
            wanted += json.loads(asked_of(words))
        wanted += ["setuptools>=64", "wheel"]
    return sorted(set(wanted))


def look(given: Data) -> Data:
    """The lock of a layer; empty if there is none yet for the current request."""
    place = Place(given)
    lock = json.loads(read(place.lock(given["layer"])) or "{}")
    there = all(os.path.exists(os.path.join(place.store, one["file"])) for one in lock.get("files", []))
    stands = lock.get("key") == key_of(place, given) and there and version_in(place)
    return {"lock": lock if stands else {}, "changed": False}


def solve(given: Data) -> Data:
    """Make the lock of a layer."""
    place = Place(given)
    check_sources(given)
    key = key_of(place, given)
    base = json.loads(read(place.lock("base")) or "{}")
    files = get_tools(place, given)
    put_tools(place, files)
    # the lock of the layer that made an existing environment lists its files
    files += make_environment(
        place, given, [one for one in base.get("files", []) if one["kind"] not in ("tool", "wheel")]
    )

    earlier = {one["name"]: one for lock in earlier_locks(place, given) for one in lock["packages"]}
    constraints = ""
    if earlier:
        constraints = os.path.join(place.root, "constraints.txt")
        write(constraints, "".join(f"{one['name']}=={one['version']}\n" for one in earlier.values()))
        given = {**given, "find_links": [*given["find_links"], place.store]}
    check_torch(given, earlier)
    wanted = given["requirements"] or given["files"] or given["editable"] or given["project"]
    solved = solution(place, given, constraints) if wanted else []
    chosen = [one for one in solved if "dir_info" not in one["download_info"]]
    have = wheels_in(place.store)
    identities = {(normal(one["metadata"]["name"]), one["metadata"]["version"]): one for one in chosen}
    local = {identity: stored_name(place, one) for identity, one in identities.items()}
    pins = [
        pinned(one)
        for identity, one in identities.items()
        if not local[identity] and (one["is_direct"] or identity not in have)
    ]
    have = gather(place, given, pins)
    packages = []
    for identity, one in identities.items():
        file = local[identity] or have[identity]
        packages.append({"name": identity[0], "version": one["metadata"]["version"]})
        files.append(stored(place, "wheel", file))
    if given["editable"]:
        build = os.path.join(place.store, "new")
        shutil.rmtree(build, ignore_errors=True)
        run([*pip_words(place), "wheel", "--wheel-dir", build, *source_words(given), *build_requirements(place, given)])
        for name in os.listdir(build):
            os.replace(os.path.join(build, name), os.path.join(place.store, name))
            files.append(stored(place, "build", name))
    lock = {
        "layer": given["layer"],
        "order": given["order"],
        "key": key,
        "python": version_in(place),
        "project": given["project"].get("digest", ""),
        "packages": sorted(packages, key=lambda one: str(one["name"])),
        "editable": given["editable"],
        "trees": sorted(normal(one["metadata"]["name"]) for one in solved if "dir_info" in one["download_info"]),
        "files": sorted(files, key=lambda one: str(one["file"])),
    }
    write(place.lock(given["layer"]), json.dumps(lock, indent=1))
    return {"lock": lock}

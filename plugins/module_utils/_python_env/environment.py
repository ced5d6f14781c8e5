# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The environment itself, made by uv, by venv or by conda.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import os
import shutil
import tarfile

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import Fault, say
from ansible_collections.muster.training.plugins.module_utils._python_env.commands import asked_of, run
from ansible_collections.muster.training.plugins.module_utils._python_env.installed import find_python, version_in
from ansible_collections.muster.training.plugins.module_utils._python_env.installers import get, stored
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import Place, read, sha256_of, write

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


def make_environment(place: Place, given: Data, files: list[Data]) -> list[Data]:
    """Make the environment, unless it exists. Returns the files that other nodes need to make theirs."""
    manager = read(os.path.join(place.environment, ".muster"))
    if version_in(place) and manager == given["manager"]:
        return [one for one in files if one["kind"] != "tool"]
    if version_in(place) and not manager:
        raise Fault(
            f"{place.environment} is an environment that somebody else made. Needed: an unused path. "
            "Set python_env_directory to another directory, or remove it"
        )
    if os.path.exists(place.environment):
        say(f"Removing {place.environment}: made by {manager or 'another manager'}, or its interpreter does not start")
        shutil.rmtree(place.environment)
    say(f"Making {place.environment} with {given['manager']}")
    made = {"uv": uv_environment, "venv": venv_environment, "conda": conda_environment}[given["manager"]](
        place, given, [one for one in files if one["kind"] != "tool"]
    )
    write(os.path.join(place.environment, ".muster"), given["manager"])
    return made


def uv_environment(place: Place, given: Data, files: list[Data]) -> list[Data]:
    """Make an environment with uv; if the system lacks the interpreter, uv downloads it, once for all nodes."""
    for one in files:
        if not os.path.isdir(os.path.join(place.pythons, one["name"])):
            with tarfile.open(os.path.join(place.store, one["file"])) as archive:
                archive.extractall(place.pythons)
    system = find_python(given["python"])[0]
    words = [place.uv, "venv", "--quiet", "--no-config", "--python", system or given["python"], place.environment]
    run(words, env=uv_variables(place))
    base = os.path.realpath(place.python)
    if files or not base.startswith(place.pythons + "/"):
        return files
    name = os.path.relpath(base, place.pythons).split(os.sep, maxsplit=1)[0]
    with tarfile.open(os.path.join(place.store, f"{name}.tar"), "w") as archive:
        archive.add(os.path.join(place.pythons, name), name)
    return [stored(place, "python", f"{name}.tar", name=name)]


def uv_variables(place: Place) -> dict[str, str]:
    """uv's environment variables: its cache is next to the environment, so that files are linked, not copied."""
    ours = {
        "UV_CACHE_DIR": os.path.join(place.root, "cache"),
        "UV_PYTHON_INSTALL_DIR": place.pythons,
        "UV_NO_PROGRESS": "1",
        # flash-attention's wheels are renamed after the build
        "UV_SKIP_WHEEL_FILENAME_CHECK": "1",
    }
    return {**os.environ, **ours}


def venv_environment(place: Place, given: Data, _files: list[Data]) -> list[Data]:
    """Make an environment with Python's venv; without pip, so that it works without ensurepip."""
    path, _version = find_python(given["python"])
    run([path, "-m", "venv", "--without-pip", place.environment])
    return []


def get_conda_installer(given: Data, path: str) -> None:
    """Get conda's installer, and verify its known hash."""
    url, digest = given["conda_installer_url"], given["conda_installer_sha256"]
    if not digest:
        raise Fault(
            f"the hash of {url} is not given. Needed: its sha256 in python_env_conda_installer_sha256. Its publisher "
            "lists it next to the file (for Miniforge, the same address with .sha256 appended)"
        )
    if os.path.exists(path) and sha256_of(path) != digest:
        os.unlink(path)
    if not os.path.exists(path):
        say(f"Getting {url}")
        get(url, path, digest, "python_env_conda_installer_sha256")


def conda_environment(place: Place, given: Data, files: list[Data]) -> list[Data]:
    """Make an environment with conda: the first node queries the channels, the others take its packages."""
    program = os.path.join(place.conda, "bin", "conda")
    name = given["conda_installer_url"].rpartition("/")[2]
    installer = os.path.join(place.store, name)
    if not os.path.exists(program):
        get_conda_installer(given, installer)
        shutil.rmtree(place.conda, ignore_errors=True)  # left by an interrupted installation
        run(["bash", installer, "-b", "-p", place.conda])
    if given["conda_accept_terms"]:
        run([program, "tos", "accept"])
    if given["conda_init"]:
        run([program, "init", "--quiet"])
    packages = [one for one in files if one["kind"] == "conda-package"]
    if packages:
        paths = [os.path.join(place.store, one["file"]) for one in packages]
        explicit = os.path.join(place.root, "conda-packages.txt")
        write(explicit, "\n".join(["@EXPLICIT", *paths, ""]))
        run([program, "create", "--yes", "--quiet", "--offline", "--prefix", place.environment, "--file", explicit])
        return files
    wanted = [f"python={given['python']}", *given["conda_packages"]]
    channels = [word for channel in given["conda_channels"] for word in ("--channel", channel)]
    run([program, "create", "--yes", "--quiet", "--prefix", place.environment, *channels, *wanted])
    listing = asked_of([program, "list", "--explicit", "--prefix", place.environment])
    made = [stored(place, "conda-installer", name)]
    for line in listing.splitlines():
        if "://" in line:
            file = line.partition("#")[0].rpartition("/")[2]
            shutil.copy2(os.path.join(place.conda, "pkgs", file), os.path.join(place.store, file))
            made.append(stored(place, "conda-package", file))
    return made

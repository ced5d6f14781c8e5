# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install the packages in a lock on each node."""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import urllib.parse
import urllib.request

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, print_line
from ansible_collections.muster.training.plugins.module_utils._files.text import write
from ansible_collections.muster.training.plugins.module_utils._python_env.commands import run
from ansible_collections.muster.training.plugins.module_utils._python_env.environment import (
    make_environment,
    uv_variables,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.installed import (
    distribution_names,
    environment_version,
    find_python,
    installed_layers,
    installed_packages,
    missing_packages,
    read_record,
    unneeded_packages,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.installers import (
    download,
    pip_command,
    unpack_tools,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths, normalize_name
from ansible_collections.muster.training.plugins.module_utils._python_env.sharing import share_files

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

MAX_NAMED = 5  # number of removed packages that a message names


def check(request: Data) -> Data:
    """Return the missing parts of a lock on this node; the lock is empty until the first node has solved it."""
    paths = EnvironmentPaths(request)
    lock = request["lock"]
    path, version = find_python(request["python"])
    installed_version = environment_version(paths)
    if not path and not installed_version and request["manager"] == "venv":
        raise StepError(
            f"there is no interpreter {request['python']} on this node, but a venv environment needs one. Install "
            "it, correct python_env_python, or set python_env_manager to uv, which downloads its own"
        )
    root = paths.root
    while not os.path.isdir(root):
        root = os.path.dirname(root)
    missing = missing_packages(paths, lock) if lock else []
    free = shutil.disk_usage(root).free
    if (missing or not lock) and free < request["min_free_gb"] * 1e9:
        raise StepError(
            f"{root} has {free / 1e9:.1f} GB free, but the packages need {request['min_free_gb']} GB. Free some space, "
            "or set python_env_directory to a directory on a larger disk"
        )
    if lock and lock["python"].split(".")[:2] != (installed_version or version or lock["python"]).split(".")[:2]:
        raise StepError(
            f"Python is {installed_version or version} here, but the packages were chosen for {lock['python']}, "
            "the version on the first node. Install that version, or let uv install it: set "
            f"python_env_manager to uv and python_env_python to {'.'.join(lock['python'].split('.')[:2])}"
        )
    return {
        "missing": missing,
        "unneeded": unneeded_packages(paths, lock) if lock and installed_version else [],
        "layers": [layer for layer in installed_layers(paths) if read_record(paths, layer)["put"]],
        "python": installed_version,
        "changed": False,
    }


def describe_packages(names: list[str]) -> str:
    """Return a short list of packages for a message."""
    if len(names) <= MAX_NAMED:
        return ", ".join(names)
    return f"{len(names)} packages ({', '.join(names[:MAX_NAMED])}, ...)"


def fetch_files(paths: EnvironmentPaths, request: Data, lock: Data) -> None:
    """Download a lock's missing files from the first node."""
    files = {file["file"]: file for file in lock["files"]}  # a tool may also be installed as a package
    missing = [entry for name, entry in files.items() if not os.path.exists(os.path.join(paths.store, name))]
    if not missing:
        return
    os.makedirs(paths.store, exist_ok=True)
    urllib.request.install_opener(
        urllib.request.build_opener(urllib.request.ProxyHandler({}))
    )  # no proxy between nodes
    print_line(f"Downloading {len(missing)} files from {request['from']}")

    def fetch_file(file: Data) -> None:
        url = f"{request['url']}/{urllib.parse.quote(file['file'])}"
        try:
            download(url, os.path.join(paths.store, file["file"]), file["sha256"], "the lock of the first node")
        except OSError as problem:
            raise StepError(
                f"cannot download {file['file']} from {request['from']} ({request['url'].rpartition('/')[0]}: "
                f"{problem}). Open the firewall between the nodes (ansible-playbook site.yml --tags firewall), "
                "then run this again"
            ) from None

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(fetch_file, missing))


def install(request: Data) -> Data:  # noqa: C901
    """Install a lock on this node."""
    paths = EnvironmentPaths(request)
    lock = request["lock"]
    missing = missing_packages(paths, lock)
    if not missing:
        return {"changed": False}
    if request["url"]:
        fetch_files(paths, request, lock)
    unpack_tools(paths, lock["files"])
    make_environment(paths, request, [entry for entry in lock["files"] if entry["kind"] not in ("wheel", "build")])
    present = installed_packages(paths)
    unneeded = unneeded_packages(paths, lock)
    managed = (set(read_record(paths, lock["layer"])["put"]) & set(present)) | (distribution_names(lock) - set(present))
    needed = {package["name"] for package in lock["packages"] if present.get(package["name"]) != package["version"]}
    wheels = [
        entry["file"]
        for entry in lock["files"]
        if entry["kind"] == "wheel" and normalize_name(entry["file"].split("-")[0]) in needed
    ]
    if request["manager"] == "uv":
        argv = [paths.uv, "pip", "install", "--no-config", "--offline", "--python", paths.python]
        uninstall = [paths.uv, "pip", "uninstall", "--no-config", "--python", paths.python]
        variables = uv_variables(paths)
    else:
        argv = [*pip_command(paths), "install"]
        uninstall = [*pip_command(paths), "uninstall", "--yes"]
        variables = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
        variables = {
            key: value for key, value in variables.items() if not key.startswith("PIP_") or key == "PIP_CONFIG_FILE"
        }
    argv += ["--no-index", "--find-links", paths.store, "--no-deps"]
    if unneeded:
        print_line(f"Removing {describe_packages(unneeded)}")
        run([*uninstall, *unneeded], env=variables)
    if wheels:
        print_line(f"Installing {len(wheels)} packages")
    # A pip that runs from its wheel considers itself installed, and would not install the same version.
    own_pip = [
        file for file in wheels if file.startswith("pip-") and request["manager"] != "uv" and "pip" not in present
    ]
    for files, options in ((own_pip, ["--ignore-installed"]), ([file for file in wheels if file not in own_pip], [])):
        if files:
            run([*argv, *options, *(os.path.join(paths.store, file) for file in files)], env=variables)
    for path in lock["editable"]:
        print_line(f"Installing {path} as editable")
        run([*argv, "--editable", path], env=variables)
    still_missing = [name for name in missing_packages(paths, {**lock, "editable": []}) if name not in (lock["layer"],)]
    if still_missing:
        raise StepError(
            f"still missing after installation: {', '.join(still_missing)}. Run this again; if that does not "
            f"help, remove {paths.environment}"
        )
    saved = share_files(paths, needed)
    if saved:
        print_line(f"{saved / 1e9:.1f} GB shared with other environments on this node")
    record = {
        "key": lock["key"],
        "needs": sorted(distribution_names(lock)),
        "put": sorted(managed & distribution_names(lock)),
    }
    record["project"] = lock.get("project", "")  # allows a launch to report a later change
    record["project_name"] = lock.get("project_name", "")
    write(paths.installed(lock["layer"]), json.dumps(record))
    if request["url"]:  # a copy; the first node keeps the original for nodes that are added later
        for name in {entry["file"] for entry in lock["files"]}:
            os.unlink(os.path.join(paths.store, name))
    reply = {"changed": True, "installed": missing, "removed": unneeded}
    if unneeded and not request["url"]:  # reported once, by the first node
        reply["notice"] = f"{describe_packages(unneeded)} removed from all nodes (no longer required by any package)"
    return reply

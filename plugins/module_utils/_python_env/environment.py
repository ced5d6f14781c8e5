# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Create the environment with uv, venv or conda."""

from __future__ import annotations

import os
import shutil
import tarfile

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, print_line
from ansible_collections.muster.training.plugins.module_utils._files.text import read, write
from ansible_collections.muster.training.plugins.module_utils._python_env.commands import read_output, run
from ansible_collections.muster.training.plugins.module_utils._python_env.installed import (
    environment_version,
    find_python,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.installers import (
    download_external,
    lock_entry,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths, sha256_of

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


def make_environment(paths: EnvironmentPaths, request: Data, files: list[Data]) -> list[Data]:
    """Create the environment unless it exists; return the files that other nodes need to create theirs."""
    manager = read(os.path.join(paths.environment, ".muster"))
    if environment_version(paths) and manager == request["manager"]:
        return [file for file in files if file["kind"] != "tool"]
    if environment_version(paths) and not manager:
        raise StepError(
            f"{paths.environment} is an environment that this role did not create. Set python_env_directory to another "
            "directory, or remove that environment"
        )
    if os.path.exists(paths.environment):
        print_line(
            f"Removing {paths.environment}: it was created by {manager or 'another manager'}, or its Python does "
            "not start"
        )
        shutil.rmtree(paths.environment)
    print_line(f"Creating {paths.environment} with {request['manager']}")
    created = {"uv": make_with_uv, "venv": make_with_venv, "conda": make_with_conda}[request["manager"]](
        paths, request, [file for file in files if file["kind"] != "tool"]
    )
    write(os.path.join(paths.environment, ".muster"), request["manager"])
    return created


def make_with_uv(paths: EnvironmentPaths, request: Data, files: list[Data]) -> list[Data]:
    """Create an environment with uv, which downloads a missing interpreter, once for all nodes."""
    for file in files:
        if not os.path.isdir(os.path.join(paths.pythons, file["name"])):
            with tarfile.open(os.path.join(paths.store, file["file"])) as archive:
                archive.extractall(paths.pythons)
    system = find_python(request["python"])[0]
    argv = [paths.uv, "venv", "--quiet", "--no-config", "--python", system or request["python"], paths.environment]
    run(argv, env=uv_variables(paths))
    base = os.path.realpath(paths.python)
    if files or not base.startswith(paths.pythons + "/"):
        return files
    name = os.path.relpath(base, paths.pythons).split(os.sep, maxsplit=1)[0]
    with tarfile.open(os.path.join(paths.store, f"{name}.tar"), "w") as archive:
        archive.add(os.path.join(paths.pythons, name), name)
    return [lock_entry(paths, "python", f"{name}.tar", name=name)]


def uv_variables(paths: EnvironmentPaths) -> dict[str, str]:
    """Return uv's environment variables; its cache is next to the environment, so that files are linked, not copied."""
    settings = {
        "UV_CACHE_DIR": os.path.join(paths.root, "cache"),
        "UV_LINK_MODE": "hardlink",
        "UV_PYTHON_INSTALL_DIR": paths.pythons,
        "UV_NO_PROGRESS": "1",
        # flash-attention's wheels are renamed after the build
        "UV_SKIP_WHEEL_FILENAME_CHECK": "1",
    }
    return {**os.environ, **settings}


def make_with_venv(paths: EnvironmentPaths, request: Data, _files: list[Data]) -> list[Data]:
    """Create an environment with venv, without pip, so that ensurepip is not needed."""
    path, _version = find_python(request["python"])
    run([path, "-m", "venv", "--without-pip", paths.environment])
    return []


def get_conda_installer(request: Data, path: str) -> None:
    """Download conda's installer and verify its hash."""
    url, digest = request["conda_installer_url"], request["conda_installer_sha256"]
    if not digest:
        raise StepError(
            f"the hash of {url} is not set. Set python_env_conda_installer_sha256 to its sha256, which its publisher "
            "lists next to the file (for Miniforge, the same address with .sha256 appended)"
        )
    if os.path.exists(path) and sha256_of(path) != digest:
        os.unlink(path)
    if not os.path.exists(path):
        print_line(f"Downloading {url}")
        download_external(url, path, digest, "python_env_conda_installer_sha256")


def make_with_conda(paths: EnvironmentPaths, request: Data, files: list[Data]) -> list[Data]:
    """Create an environment with conda: the first node queries the channels, the others use its packages."""
    program = os.path.join(paths.conda, "bin", "conda")
    name = request["conda_installer_url"].rpartition("/")[2]
    installer = os.path.join(paths.store, name)
    if not os.path.exists(program):
        get_conda_installer(request, installer)
        shutil.rmtree(paths.conda, ignore_errors=True)  # left behind by an interrupted installation
        run(["bash", installer, "-b", "-p", paths.conda])
    if request["conda_accept_terms"]:
        run([program, "tos", "accept"])
    if request["conda_init"]:
        run([program, "init", "--quiet"])
    packages = [package for package in files if package["kind"] == "conda-package"]
    if packages:
        package_paths = [os.path.join(paths.store, package["file"]) for package in packages]
        explicit = os.path.join(paths.root, "conda-packages.txt")
        write(explicit, "\n".join(["@EXPLICIT", *package_paths, ""]))
        run([program, "create", "--yes", "--quiet", "--offline", "--prefix", paths.environment, "--file", explicit])
        return files
    specs = [f"python={request['python']}", *request["conda_packages"]]
    channels = [argument for channel in request["conda_channels"] for argument in ("--channel", channel)]
    run([program, "create", "--yes", "--quiet", "--prefix", paths.environment, *channels, *specs])
    listing = read_output([program, "list", "--explicit", "--prefix", paths.environment])
    created = [lock_entry(paths, "conda-installer", name)]
    for line in listing.splitlines():
        if "://" in line:
            file = line.partition("#")[0].rpartition("/")[2]
            shutil.copy2(os.path.join(paths.conda, "pkgs", file), os.path.join(paths.store, file))
            created.append(lock_entry(paths, "conda-package", file))
    return created

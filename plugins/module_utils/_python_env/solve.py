# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Solve a layer on the first node: create its lock and collect its wheels."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import shutil
import urllib.parse

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    ProgramError,
    StepError,
    print_line,
)
from ansible_collections.muster.training.plugins.module_utils._files.text import read, write
from ansible_collections.muster.training.plugins.module_utils._python_env.commands import read_output, run
from ansible_collections.muster.training.plugins.module_utils._python_env.environment import make_environment
from ansible_collections.muster.training.plugins.module_utils._python_env.installed import environment_version
from ansible_collections.muster.training.plugins.module_utils._python_env.installers import (
    download_external,
    get_tools,
    lock_entry,
    pip_command,
    unpack_tools,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths, normalize_name
from ansible_collections.muster.training.plugins.module_utils._python_env.sharing import adopt_wheels
from ansible_collections.muster.training.plugins.module_utils._python_env.torch_companions import (
    PARTIAL_COMPANIONS,
    companion_pins,
    unavailable_advice,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

UNSOLVED_ADVICE = (
    "The packages cannot be resolved for this Python. In requirements.txt, pyproject.toml or "
    "python_env_requirements, correct the ones that pip names below"
)


def source_options(request: Data) -> list[str]:
    """Return pip's options for package sources, in addition to its own configuration."""
    options = ["--index-url", request["index_url"]] if request["index_url"] else []
    options += [option for url in request["extra_index_urls"] for option in ("--extra-index-url", url)]
    return options + [word for url in request["find_links"] for word in ("--find-links", url)]


def earlier_locks(paths: EnvironmentPaths, request: Data) -> list[Data]:
    """Return the locks of earlier layers, whose packages must not change."""
    locks = [json.loads(read(path)) for path in sorted(glob.glob(paths.lock("*")))]
    return sorted((lock for lock in locks if lock["order"] < request["order"]), key=lambda lock: lock["order"])


def build_files(path: str) -> list[str]:
    """Return the files of a source tree that define its build and requirements."""
    names = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
    return [os.path.join(path.partition("[")[0], name) for name in names]


def earlier_packages(paths: EnvironmentPaths, request: Data) -> dict[str, Data]:
    """Return the packages of earlier layers, by name."""
    return {package["name"]: package for lock in earlier_locks(paths, request) for package in lock["packages"]}


def torch_index_url(request: Data, earlier: dict[str, Data]) -> str:
    """Return the index that torch was installed from, or "" if torch is missing or its index is unknown.

    If the role pytorch, which chooses the build, has not run in this play, the URL in the request still contains BUILD;
    the build of the installed version replaces it.
    """
    url = str(request["torch_index_url"])
    if "torch" not in earlier:
        return ""
    build = str(earlier["torch"]["version"]).partition("+")[2]
    return url.replace("BUILD", build) if build or "BUILD" not in url else ""


def lock_key(paths: EnvironmentPaths, request: Data) -> str:
    """Return a hash of all inputs to a lock."""
    names = [*request["files"], *(name for path in request["editable"] for name in build_files(path))]
    parts = [
        request[name]
        for name in ("manager", "requested_python", "requirements", "editable", "pip_version", "uv_version")
    ]
    parts += [request[name] for name in ("index_url", "extra_index_urls", "find_links", "environment")]
    parts += [request[name] for name in ("conda_installer_url", "conda_packages", "conda_channels")]
    if request["project"]:
        parts.append(request["project"]["digest"])
    torch_index = torch_index_url(request, earlier_packages(paths, request))
    if torch_index:
        parts.append(torch_index)
    parts += [[name, read(name)] for name in names] + [lock["packages"] for lock in earlier_locks(paths, request)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def check_sources(request: Data) -> None:
    """Raise StepError if a requirements file or source tree is missing."""
    for path in request["files"]:
        if not os.path.isfile(path):
            raise StepError(
                f"there is no requirements file {path} on this node. Copy the code first (ansible-playbook "
                "site.yml --tags code), or correct python_env_requirements_files"
            )
    for path in request["editable"]:
        if not any(os.path.isfile(name) for name in build_files(path)[:3]):
            raise StepError(
                f"{path.partition('[')[0]} has neither pyproject.toml nor setup.py, so it cannot be installed. "
                "Copy the code first (ansible-playbook site.yml --tags code), or correct python_env_editable"
            )


def fetch_wheel(paths: EnvironmentPaths, requirement: str) -> str:
    """Download the wheel for a requirement with a URL, and return its path, because pip would download it twice."""
    name, at, url = requirement.partition(" @ ")
    address, _hash, digest = url.partition("#sha256=")
    file = urllib.parse.unquote(address.rpartition("/")[2])
    if not at or not file.endswith(".whl"):
        return requirement
    path = os.path.join(paths.store, file)
    if not os.path.exists(path):
        print_line(f"Getting {file}")
        download_external(
            address, path, digest, "#sha256=... after the address; for flash-attention, flash_attention_wheel_sha256"
        )
    return path


def project_files(paths: EnvironmentPaths, request: Data) -> list[str]:
    """Write the project's requirements file and the files that it includes, as they are on the controller."""
    shutil.rmtree(paths.project, ignore_errors=True)
    if not request["project"]:
        return []
    os.makedirs(paths.project, 0o700)  # its URLs may contain credentials
    for name, text in request["project"]["texts"].items():
        write(os.path.join(paths.project, name), text)
    return [os.path.join(paths.project, request["project"]["main"])]


def check_torch(request: Data, earlier: dict[str, Data]) -> None:
    """Raise StepError, with the setting to change, if the project requires a torch version other than the installed
    one.
    """
    installed = earlier.get("torch", {}).get("version", "")
    texts = {**request["project"].get("texts", {}), **{path: read(path) for path in request["files"]}}
    for name, text in texts.items():
        # pip decides about the other lines: a line with a marker may not apply here, and 2.5 or 2.5.* allow 2.5.1
        match = re.search(r"(?m)^\s*torch\s*==\s*(\d+\.\d+\.\d+(?:\+\w+)?)\s*(?:#.*)?$", text)
        if installed and match and match[1] not in (installed, installed.partition("+")[0]):
            raise StepError(
                f"{name} requires torch {match[1]}, but torch {installed} was installed before it. Set "
                f"pytorch_version to {match[1].partition('+')[0]}, or remove torch from {name}"
            )


def resolve(paths: EnvironmentPaths, request: Data, constraints: str) -> list[Data]:
    """Return the packages that pip would install, with their dependencies."""
    report = os.path.join(paths.root, "report.json")
    argv = [*pip_command(paths), "install", "--dry-run", "--ignore-installed", "--report", report]
    argv += [*source_options(request), *request["options"]]
    files = [*project_files(paths, request), *request["files"]]
    argv += [option for path in files for option in ("--requirement", path)]
    if constraints:
        argv += ["--constraint", constraints]
    print_line("Resolving dependencies")
    requirements = [fetch_wheel(paths, requirement) for requirement in request["requirements"]]
    try:
        run([*argv, *requirements, *request["editable"]], env={**os.environ, **request["environment"]})
    except ProgramError as error:
        raise ProgramError(f"{error}. {UNSOLVED_ADVICE}") from None
    return list(json.loads(read(report))["install"])


def pin_package(package: Data) -> str:
    """Return the requirement that reproduces exactly this package."""
    info, name = package["download_info"], package["metadata"]["name"]
    if "vcs_info" in info:
        return f"{name} @ {info['vcs_info']['vcs']}+{info['url']}@{info['vcs_info']['commit_id']}"
    return f"{name} @ {info['url']}" if package["is_direct"] else f"{name}=={package['metadata']['version']}"


def sha256_in(package: Data) -> str:
    """Return the hash of the file that pip would download, if it is a wheel and the index provides its hash."""
    info = package["download_info"]
    is_wheel = urllib.parse.urlsplit(info["url"]).path.endswith(".whl")
    return str(info.get("archive_info", {}).get("hashes", {}).get("sha256", "")) if is_wheel else ""


def stored_name(paths: EnvironmentPaths, package: Data) -> str:
    """Return the name of the wheel in the store if it was requested by path, since its file name may have a wrong
    version.
    """
    path = urllib.parse.unquote(package["download_info"]["url"][len("file://") :])
    return os.path.basename(path) if package["is_direct"] and os.path.dirname(path) == paths.store else ""


def wheels_in(directory: str) -> dict[tuple[str, str], str]:
    """Return the wheels in a directory, by name and version."""
    wheels = {}
    for path in glob.glob(os.path.join(directory, "*.whl")):
        name, version = os.path.basename(path).split("-")[:2]
        wheels[normalize_name(name), version] = os.path.basename(path)
    return wheels


def torch_builds(paths: EnvironmentPaths, request: Data, resolved: list[Data], earlier: dict[str, Data]) -> list[str]:
    """Download packages built against torch from torch's own index; return requirements that pin these builds."""
    pins = companion_pins(resolved, earlier)
    builds = get_companions(paths, request, pins) if pins else []
    for pin in companion_pins(resolved, earlier, PARTIAL_COMPANIONS):
        with contextlib.suppress(ProgramError):  # torch's index lacks this release
            builds += get_companions(paths, request, [pin])
    return builds


def get_companions(paths: EnvironmentPaths, request: Data, pins: list[str]) -> list[str]:
    """Download these packages from torch's own index; return requirements that pin these builds. Raise ProgramError."""
    torch_request = {
        **request,
        "index_url": request["torch_index_url"],
        "extra_index_urls": [],
        "options": ["--only-binary", ":all:"],
    }
    try:
        gathered = download_wheels(paths, torch_request, pins)
    except ProgramError as error:
        raise ProgramError(f"{error}. {unavailable_advice(pins, request['torch_index_url'])}") from None
    names = {pin.partition("==")[0]: pin.partition("==")[2] for pin in pins}
    return [f"{name}=={version}" for name, version in sorted(gathered) if name in names]


def compiler_advice(paths: EnvironmentPaths) -> str:
    """Return advice on installing the missing build dependencies on this node, or an empty string."""
    query = "import sysconfig; print(sysconfig.get_paths()['include'])"
    header = os.path.join(read_output([paths.python, "-c", query]).strip(), "Python.h")
    missing = [
        *(["a compiler"] if not shutil.which("cc") else []),
        *(["Python's headers"] if not os.path.exists(header) else []),
    ]
    if not missing:
        return ""
    return (
        f". This node lacks {' and '.join(missing)}, which packages without a wheel need. Install them: "
        "ansible-playbook site.yml --tags base_packages -e '{base_packages_extra: [build-essential, "
        "python3-dev]}'"
    )


def gather_wheels(paths: EnvironmentPaths, request: Data, pins: list[str]) -> dict[tuple[str, str], str]:
    """Download wheels into the store, or build those that are not available; return all wheels in it."""
    download_wheels(paths, request, pins)
    return wheels_in(paths.store)


def download_wheels(paths: EnvironmentPaths, request: Data, pins: list[str]) -> dict[tuple[str, str], str]:
    """Download wheels into the store, or build those that are not available; return these by name and version."""
    gathered: dict[tuple[str, str], str] = {}
    if pins:
        new = os.path.join(paths.store, "new")
        shutil.rmtree(new, ignore_errors=True)
        print_line(f"Downloading {len(pins)} packages")
        argv = [
            *pip_command(paths),
            "wheel",
            "--no-deps",
            "--wheel-dir",
            new,
            *source_options(request),
            *request["options"],
        ]
        try:
            run([*argv, *pins], env={**os.environ, **request["environment"]})
        except ProgramError as error:
            raise ProgramError(f"{error}{compiler_advice(paths)}") from None
        gathered = wheels_in(new)
        for name in os.listdir(new):
            os.replace(os.path.join(new, name), os.path.join(paths.store, name))
    return gathered


def build_requirements(paths: EnvironmentPaths, request: Data) -> list[str]:
    """Return the build requirements of the editable trees."""
    requirements: list[str] = []
    for path in request["editable"]:
        text = "import sys, json; sys.path.insert(0, sys.argv[1]); from pip._vendor import tomli\n"
        text += "print(json.dumps(tomli.load(open(sys.argv[2], 'rb')).get('build-system', {}).get('requires', [])))"
        project = build_files(path)[0]
        if os.path.exists(project):
            argv = [paths.python, "-c", text, os.path.join(paths.tools, "pip"), project]
            requirements += json.loads(read_output(argv))
        requirements += ["setuptools>=64", "wheel"]
    return sorted(set(requirements))


def read_lock(request: Data) -> Data:
    """Return a layer's lock, which is empty if the layer has not been solved for the current request."""
    paths = EnvironmentPaths(request)
    lock = json.loads(read(paths.lock(request["layer"])) or "{}")
    files_exist = all(os.path.exists(os.path.join(paths.store, file["file"])) for file in lock.get("files", []))
    is_current = lock.get("key") == lock_key(paths, request) and files_exist and environment_version(paths)
    return {"lock": lock if is_current else {}, "changed": False}


def solve(request: Data) -> Data:
    """Create the lock of a layer."""
    paths = EnvironmentPaths(request)
    check_sources(request)
    key = lock_key(paths, request)
    base = json.loads(read(paths.lock("base")) or "{}")
    files = get_tools(paths, request)
    unpack_tools(paths, files)
    # the base layer, which created an existing environment, records its files
    files += make_environment(
        paths, request, [package for package in base.get("files", []) if package["kind"] not in ("tool", "wheel")]
    )

    earlier = earlier_packages(paths, request)
    constraints = ""
    if earlier:
        constraints = os.path.join(paths.root, "constraints.txt")
        write(constraints, "".join(f"{package['name']}=={package['version']}\n" for package in earlier.values()))
        request = {**request, "find_links": [*request["find_links"], paths.store]}
    check_torch(request, earlier)
    has_request = request["requirements"] or request["files"] or request["editable"] or request["project"]
    resolved = resolve(paths, request, constraints) if has_request else []
    request = {**request, "torch_index_url": torch_index_url(request, earlier)}
    builds = torch_builds(paths, request, resolved, earlier) if request["torch_index_url"] else []
    if builds:
        write(constraints, read(constraints) + "".join(f"{build}\n" for build in builds))
        resolved = resolve(paths, request, constraints)
    chosen = [package for package in resolved if "dir_info" not in package["download_info"]]
    # their wheels are in the store, in the build for this torch version
    names = {build.partition("==")[0] for build in builds}
    others = [package for package in chosen if normalize_name(package["metadata"]["name"]) not in names]
    adopt_wheels(paths, (sha256_in(package) for package in others))
    wheels = wheels_in(paths.store)
    identities = {
        (normalize_name(package["metadata"]["name"]), package["metadata"]["version"]): package for package in chosen
    }
    local = {identity: stored_name(paths, package) for identity, package in identities.items()}
    pins = [
        pin_package(package)
        for identity, package in identities.items()
        if not local[identity] and (package["is_direct"] or identity not in wheels)
    ]
    wheels = gather_wheels(paths, request, pins)
    packages = []
    for identity, package in identities.items():
        file = local[identity] or wheels[identity]
        packages.append({"name": identity[0], "version": package["metadata"]["version"]})
        files.append(lock_entry(paths, "wheel", file))
    if request["editable"]:
        build = os.path.join(paths.store, "new")
        shutil.rmtree(build, ignore_errors=True)
        run(
            [
                *pip_command(paths),
                "wheel",
                "--wheel-dir",
                build,
                *source_options(request),
                *build_requirements(paths, request),
            ]
        )
        for name in os.listdir(build):
            os.replace(os.path.join(build, name), os.path.join(paths.store, name))
            files.append(lock_entry(paths, "build", name))
    lock = {
        "layer": request["layer"],
        "order": request["order"],
        "key": key,
        "python": environment_version(paths),
        "project": request["project"].get("digest", ""),
        "project_name": request["project_name"],
        "packages": sorted(packages, key=lambda package: str(package["name"])),
        "editable": request["editable"],
        "trees": sorted(
            normalize_name(package["metadata"]["name"])
            for package in resolved
            if "dir_info" in package["download_info"]
        ),
        "files": sorted(files, key=lambda file: str(file["file"])),
    }
    write(paths.lock(request["layer"]), json.dumps(lock, indent=1))
    return {"lock": lock}

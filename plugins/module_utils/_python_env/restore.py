# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Restore a layer from the lock of an earlier run on the first node: the same files, or an error that names them."""

from __future__ import annotations

import json
import os
import shutil
import urllib.parse

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import (
    ProgramError,
    StepError,
    print_line,
)
from ansible_collections.muster.training.plugins.module_utils._files.name_list import format_names
from ansible_collections.muster.training.plugins.module_utils._files.text import read, write
from ansible_collections.muster.training.plugins.module_utils._python_env.commands import run
from ansible_collections.muster.training.plugins.module_utils._python_env.environment import make_environment
from ansible_collections.muster.training.plugins.module_utils._python_env.installers import (
    download_external,
    find_wheel,
    pip_command,
    pip_setting,
    unpack_tools,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import (
    WHEEL_KINDS,
    EnvironmentPaths,
    sha256_of,
    wheel_release,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.sharing import adopt_wheels
from ansible_collections.muster.training.plugins.module_utils._python_env.solve import source_options

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

MAX_NAMED = 10  # files that a message names


def restore(request: Data) -> Data:
    """Download a lock's files, create the environment, and write the lock, which compare and install then use."""
    paths, lock = EnvironmentPaths(request), request["lock"]
    os.makedirs(paths.store, exist_ok=True)
    wheels = [entry for entry in lock["files"] if entry["kind"] in WHEEL_KINDS]
    adopt_wheels(paths, [entry["sha256"] for entry in wheels])
    for entry in missing_files(paths, [entry for entry in wheels if entry["kind"] == "tool"]):
        get_tool(paths, request, entry)
    unpack_tools(paths, [entry for entry in wheels if entry["kind"] == "tool"])
    # an interpreter archive from another node contains different times: each first node packs its own
    base = json.loads(read(paths.lock("base")) or "{}").get("files", [])
    interpreters = [entry for entry in base if entry["kind"] == "python"]
    created = make_environment(paths, {**request, "requirements": []}, interpreters)
    download_locked(paths, request, missing_files(paths, wheels))
    unavailable = missing_files(paths, wheels)
    if unavailable:
        raise StepError(unavailable_message(unavailable))
    files = [*wheels, *(entry for entry in created if entry["kind"] == "python")]
    restored = {**lock, "files": sorted(files, key=lambda entry: str(entry["file"]))}
    write(paths.lock(request["layer"]), json.dumps(restored, indent=1))
    return {"lock": restored, "changed": False}


def missing_files(paths: EnvironmentPaths, entries: list[Data]) -> list[Data]:
    """Return the entries whose file is not in the store with the recorded content."""
    missing = []
    for entry in {entry["file"]: entry for entry in entries}.values():
        path = os.path.join(paths.store, os.path.basename(entry["file"]))
        if not os.path.isfile(path) or sha256_of(path) != entry["sha256"]:
            missing.append(entry)
    return missing


def get_tool(paths: EnvironmentPaths, request: Data, entry: Data) -> None:
    """Download an installer: pip or uv, of the recorded release."""
    name, version = release_of(entry)
    index = request["index_url"] or pip_setting("index-url") or "https://pypi.org/simple"
    url, _digest = find_wheel(index, name, version)
    file = urllib.parse.unquote(url.rpartition("/")[2])
    print_line(f"Downloading {file}")
    download_external(url, os.path.join(paths.store, file), entry["sha256"], "the lock of the run to repeat")


def release_of(entry: Data) -> tuple[str, str]:
    """Return the normalized name and version of a wheel in a lock. Raise StepError if its name lacks either."""
    try:
        return wheel_release(entry["file"])
    except ValueError as error:
        raise StepError(f"the lock of the run to repeat is damaged: {error}") from None


def requirement_of(entry: Data) -> str:
    """Return a requirement that matches exactly one file."""
    name, version = release_of(entry)
    return f"{name}=={version} --hash=sha256:{entry['sha256']}"


def download_locked(paths: EnvironmentPaths, request: Data, entries: list[Data]) -> None:
    """Download files into the store: all at once, or one by one if some are unavailable."""
    if not entries:
        return
    print_line(f"Downloading {len(entries)} packages")
    if not download(paths, request, entries):
        for entry in entries:
            download(paths, request, [entry])


def download(paths: EnvironmentPaths, request: Data, entries: list[Data]) -> bool:
    """Download files with the recorded hashes; return whether pip has found them all."""
    new, requirements = os.path.join(paths.store, "new"), os.path.join(paths.root, "restored.txt")
    shutil.rmtree(new, ignore_errors=True)
    write(requirements, "".join(f"{requirement_of(entry)}\n" for entry in entries))
    builds = {release_of(entry)[1].partition("+")[2] for entry in entries}
    torch = [request["torch_index_url"].replace("BUILD", build) for build in sorted(builds) if build]
    sources = source_options({**request, "extra_index_urls": [*request["extra_index_urls"], *filter(None, torch)]})
    argv = [*pip_command(paths), "download", "--no-deps", "--only-binary", ":all:", "--require-hashes", "--dest", new]
    try:
        run(
            [*argv, *sources, *request["options"], "--requirement", requirements],
            env={**os.environ, **request["environment"]},
        )
    except ProgramError:
        return False
    finally:
        os.unlink(requirements)
    for name in os.listdir(new):
        os.replace(os.path.join(new, name), os.path.join(paths.store, name))
    return True


def unavailable_message(entries: list[Data]) -> str:
    """Return a message about files in a lock that cannot be restored, with a remedy."""
    text = format_names((entry["file"] for entry in entries), MAX_NAMED)
    return (
        f"no package index has these files with the recorded content: {text}. They may have been built on a node, or "
        "removed by their publisher. Set python_env_index_url or python_env_find_links to a source that has them, or "
        "add --allow-differences to run in the existing environment"
    )

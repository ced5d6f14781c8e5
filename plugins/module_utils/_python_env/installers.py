# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Install pip and uv from their wheels, and download files from external servers."""

from __future__ import annotations

import glob
import hashlib
import html
import os
import re
import shutil
import urllib.parse
import zipfile

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, print_line
from ansible_collections.muster.training.plugins.module_utils._files.text import read, write
from ansible_collections.muster.training.plugins.module_utils._python_env.credentials import open_url
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import (
    CHUNK,
    EnvironmentPaths,
    sha256_of,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


def pip_setting(name: str) -> str:
    """Return the value of a pip setting on this machine, from pip's configuration files and environment variables."""
    setting = ""
    for path in ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"):
        for line in read(os.path.expanduser(path)).splitlines():
            key, equals, value = line.partition("=")
            if equals and key.strip() == name:
                setting = value.strip()
    return os.environ.get("PIP_" + name.replace("-", "_").upper(), setting)


def find_wheel(index: str, name: str, version: str) -> tuple[str, str]:
    """Return the URL and hash of a compatible wheel on a simple index."""
    page_url = f"{index.rstrip('/')}/{name}/"
    machine = os.uname().machine
    try:
        with open_url(page_url) as response:
            page = response.read().decode()
    except OSError as problem:
        raise StepError(
            f"cannot read the package index {page_url} ({problem}). Set python_env_index_url to one that this machine "
            "can reach, or fix its internet access"
        ) from None
    matches = []
    for link in re.findall(r'href="([^"]+)"', page):
        url, _hash, digest = urllib.parse.urljoin(page_url, html.unescape(link)).partition("#sha256=")
        file = urllib.parse.unquote(url.rpartition("/")[2])
        if re.match(rf"{name}-{re.escape(version)}-.*-(any|manylinux.*_{machine}.*)\.whl\Z", file):
            matches.append((url, digest))
    if not matches:
        raise StepError(f"{page_url} has no {name} {version} wheel for {machine}. Correct python_env_{name}_version")
    return matches[0]


def download(url: str, path: str, digest: str, setting: str) -> None:
    """Download a file; refuse a wrong hash and, when running as root, a missing one.

    setting: where the user can set the hash.
    """
    if not digest and os.geteuid() == 0:
        raise StepError(
            f"the hash of {url} is unknown, and root would execute its content. Set its sha256 ({setting}), as "
            "its publisher lists it, or use a non-root user's environment (python_env_user)"
        )
    actual = hashlib.sha256()
    with open_url(url) as response, open(path + ".part", "wb") as file:
        for piece in iter(lambda: response.read(CHUNK), b""):
            actual.update(piece)
            file.write(piece)
    if digest and actual.hexdigest() != digest:
        os.unlink(path + ".part")
        raise StepError(
            f"{url} has the hash sha256:{actual.hexdigest()} instead of sha256:{digest} ({setting}). Compare both "
            "with the publisher's hash"
        )
    os.replace(path + ".part", path)


def download_external(url: str, path: str, digest: str, setting: str) -> None:
    """Download from an external server. Raise StepError if it does not respond."""
    try:
        download(url, path, digest, setting)
    except OSError as problem:
        raise StepError(
            f"cannot download {url} ({problem}). Correct the address, or fix this node's internet access (proxy, "
            "firewall)"
        ) from None


def lock_entry(paths: EnvironmentPaths, kind: str, file: str, **more: str) -> Data:
    """Return a lock's entry for a file in the store."""
    return {"kind": kind, "file": file, "sha256": sha256_of(os.path.join(paths.store, file)), **more}


def get_tools(paths: EnvironmentPaths, request: Data) -> list[Data]:
    """Download the installers as wheels: pip, and uv if the environment uses it; return their lock entries."""
    os.makedirs(paths.store, exist_ok=True)
    entries = []
    for name in ["pip", *(["uv"] if request["manager"] == "uv" else [])]:
        version = request[f"{name}_version"]
        wheels = glob.glob(os.path.join(paths.store, f"{name}-{version}-*.whl"))
        if not wheels:
            index = request["index_url"] or pip_setting("index-url") or "https://pypi.org/simple"
            url, digest = find_wheel(index, name, version)
            file = urllib.parse.unquote(url.rpartition("/")[2])
            print_line(f"Downloading {file}")
            download_external(
                url, os.path.join(paths.store, file), digest, "#sha256=... after its address on the index"
            )
            wheels = [os.path.join(paths.store, file)]
        entries.append(lock_entry(paths, "tool", os.path.basename(wheels[0])))
    return entries


def unpack_tools(paths: EnvironmentPaths, entries: list[Data]) -> None:
    """Unpack the tools from their wheels."""
    for entry in entries:
        if entry["kind"] != "tool":
            continue
        name = entry["file"].partition("-")[0]
        mark = os.path.join(paths.tools, f"{name}.from")
        if read(mark) == entry["file"]:
            continue
        with zipfile.ZipFile(os.path.join(paths.store, entry["file"])) as wheel:
            if name == "uv":
                inside = next(member for member in wheel.namelist() if member.endswith("/scripts/uv"))
                os.makedirs(paths.tools, exist_ok=True)
                with open(paths.uv + ".new", "wb") as file:
                    file.write(wheel.read(inside))
                os.chmod(paths.uv + ".new", 0o755)
                os.replace(paths.uv + ".new", paths.uv)
            else:
                shutil.rmtree(os.path.join(paths.tools, name), ignore_errors=True)
                wheel.extractall(os.path.join(paths.tools, name))
        write(mark, entry["file"])


def pip_command(paths: EnvironmentPaths) -> list[str]:
    """Return the command that starts pip for the environment."""
    return [paths.python, os.path.join(paths.tools, "pip", "pip")]

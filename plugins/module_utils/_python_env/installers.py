# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tools needed first, pip and uv, from their wheels; and downloads from external servers.

Private to this collection. Runs on the node as the owner of the environment, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import glob
import hashlib
import html
import os
import re
import shutil
import urllib.parse
import zipfile

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import Fault, say
from ansible_collections.muster.training.plugins.module_utils._python_env.credentials import opened
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import (
    CHUNK,
    Place,
    read,
    sha256_of,
    write,
)

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


def pip_setting(name: str) -> str:
    """pip's value for a setting on this machine, from its files and environment."""
    found = ""
    for path in ("/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"):
        for line in read(os.path.expanduser(path)).splitlines():
            key, equals, value = line.partition("=")
            if equals and key.strip() == name:
                found = value.strip()
    return os.environ.get("PIP_" + name.replace("-", "_").upper(), found)


def wheel_on_index(index: str, name: str, version: str) -> tuple[str, str]:
    """The URL and hash of a compatible wheel, from a simple index."""
    page_url = f"{index.rstrip('/')}/{name}/"
    machine = os.uname().machine
    try:
        with opened(page_url) as answer:
            page = answer.read().decode()
    except OSError as problem:
        raise Fault(
            f"{page_url} cannot be read ({problem}). Needed: a package index. Set python_env_index_url to one that "
            "this machine can reach, or fix its internet access"
        ) from None
    fitting = []
    for link in re.findall(r'href="([^"]+)"', page):
        url, _hash, digest = urllib.parse.urljoin(page_url, html.unescape(link)).partition("#sha256=")
        file = urllib.parse.unquote(url.rpartition("/")[2])
        if re.match(rf"{name}-{re.escape(version)}-.*-(any|manylinux.*_{machine}.*)\.whl\Z", file):
            fitting.append((url, digest))
    if not fitting:
        raise Fault(f"{page_url} has no wheel of {name} {version} for {machine}. Set python_env_{name}_version")
    return fitting[0]


def download(url: str, path: str, digest: str, setting: str) -> None:
    """Download a file, and refuse a wrong hash; as root, also refuse one without a known hash.

    setting: where the user can give the hash.
    """
    if not digest and os.geteuid() == 0:
        raise Fault(
            f"the hash of {url} is not known, and root would run what is in it. Needed: its sha256 ({setting}), from "
            "its publisher, or an environment of a user who is not root (python_env_user)"
        )
    found = hashlib.sha256()
    with opened(url) as answer, open(path + ".part", "wb") as file:
        for piece in iter(lambda: answer.read(CHUNK), b""):
            found.update(piece)
            file.write(piece)
    if digest and found.hexdigest() != digest:
        os.unlink(path + ".part")
        raise Fault(
            f"{url} has the hash sha256:{found.hexdigest()}. Needed: sha256:{digest} ({setting}). Compare both with "
            "its publisher's"
        )
    os.replace(path + ".part", path)


def get(url: str, path: str, digest: str, setting: str) -> None:
    """Download from an external server. Raises Fault if it does not answer."""
    try:
        download(url, path, digest, setting)
    except OSError as problem:
        raise Fault(
            f"{url} cannot be downloaded ({problem}). Needed: a server that this node reaches. Correct the address, or "
            "the node's internet access (proxy, firewall)"
        ) from None


def stored(place: Place, kind: str, file: str, **more: str) -> Data:
    """A lock's entry for a file in the store."""
    return {"kind": kind, "file": file, "sha256": sha256_of(os.path.join(place.store, file)), **more}


def get_tools(place: Place, given: Data) -> list[Data]:
    """Get the installers: pip, and uv if wanted. As wheels, so that nothing is needed from the system."""
    os.makedirs(place.store, exist_ok=True)
    entries = []
    for name in ["pip", *(["uv"] if given["manager"] == "uv" else [])]:
        version = given[f"{name}_version"]
        found = glob.glob(os.path.join(place.store, f"{name}-{version}-*.whl"))
        if not found:
            index = given["index_url"] or pip_setting("index-url") or "https://pypi.org/simple"
            url, digest = wheel_on_index(index, name, version)
            file = urllib.parse.unquote(url.rpartition("/")[2])
            say(f"Getting {file}")
            get(url, os.path.join(place.store, file), digest, "#sha256=... after its address on the index")
            found = [os.path.join(place.store, file)]
        entries.append(stored(place, "tool", os.path.basename(found[0])))
    return entries


def put_tools(place: Place, entries: list[Data]) -> None:
    """Unpack the tools from their wheels, ready to run."""
    for entry in entries:
        if entry["kind"] != "tool":
            continue
        name = entry["file"].partition("-")[0]
        mark = os.path.join(place.tools, f"{name}.from")
        if read(mark) == entry["file"]:
            continue
        with zipfile.ZipFile(os.path.join(place.store, entry["file"])) as wheel:
            if name == "uv":
                inside = next(one for one in wheel.namelist() if one.endswith("/scripts/uv"))
                os.makedirs(place.tools, exist_ok=True)
                with open(place.uv + ".new", "wb") as file:
                    file.write(wheel.read(inside))
                os.chmod(place.uv + ".new", 0o755)
                os.replace(place.uv + ".new", place.uv)
            else:
                shutil.rmtree(os.path.join(place.tools, name), ignore_errors=True)
                wheel.extractall(os.path.join(place.tools, name))
        write(mark, entry["file"])


def pip_words(place: Place) -> list[str]:
    """The words of a pip command for the environment."""
    return [place.python, os.path.join(place.tools, "pip", "pip")]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names a machine uses for itself and others: its hosts file, what else writes it, and its resolver's answers.

Private to this collection. Runs on the node, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import base64
import glob
import os
import re
import socket
import stat

from ansible_collections.muster.training.plugins.module_utils._hosts_file.block import BEGIN, END

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

HOSTS = "/etc/hosts"
CLOUD_CONFIG = "/etc/cloud/cloud.cfg"
CLOUD_OURS = "/etc/cloud/cloud.cfg.d/99_muster_hosts_file.cfg"
# User data from the provider or the user overrides cloud.cfg.d.
CLOUD_USER_DATA = "/var/lib/cloud/instance"
WANTED = re.compile(r"^manage_etc_hosts: *.?([Tt]rue|template|localhost)", re.MULTILINE)


def read(path: str) -> str:
    """The text of a file, empty if it does not exist: files come and go during a boot. Raises other OSErrors."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def encoded(text: str) -> str:
    """The text in Base64: JSON cannot hold a comment that is not UTF-8."""
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()


def is_sound(path: str) -> bool:
    """Whether a file exists, is owned by root, readable by all, and writable only by root."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == 0 and stat.S_IMODE(found.st_mode) == 0o644


def block_of(hosts: str) -> str:
    """The cluster's block in the text of a hosts file."""
    found = re.search(rf"^{re.escape(BEGIN)}\n(.*?)^{re.escape(END)}$", hosts, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def answers(name: str) -> list[tuple[str, list[str]]]:
    """The resolver's answer for a name, query by query; an answer is a list of addresses or names.

    Gloo, torchrun and MPI use these queries.
    """
    said = []
    for question, ask in (
        ("gethostbyname", lambda: [socket.gethostbyname(name)]),
        ("getaddrinfo", lambda: sorted({str(found[4][0]) for found in socket.getaddrinfo(name, None)})),
        ("getfqdn", lambda: [socket.getfqdn(name)]),
    ):
        try:
            said.append((question, ask()))
        except OSError as error:
            said.append((question, [f"nothing ({error})"]))
    return said


def differences(block: str) -> list[str]:
    """A line for each answer of the resolver that contradicts the block."""
    found = []
    canonical: dict[str, str] = {}
    for address, *names in (line.split() for line in block.splitlines() if line and not line.startswith("#")):
        # getfqdn() takes the address's first line, and the first name with a dot on it.
        full = canonical.setdefault(address, next((name for name in names if "." in name), names[0]))
        for name in names:
            for question, said in answers(name):
                wanted = full if question == "getfqdn" else address
                if said != [wanted] and not (question == "gethostbyname" and ":" in address):  # it supports only IPv4
                    found.append(f"{question}({name}) says {', '.join(said)}, the block {wanted}")
    return found


def cloud_init() -> Data:
    """Whether cloud-init is present, and may write the hosts file at the next boot: {"present", "wanted", ...}."""
    texts = [read(path) for path in glob.glob(f"{CLOUD_USER_DATA}/**/*cloud-config.txt", recursive=True)]
    wanted = any(WANTED.search(text) for text in texts)
    return {
        "present": os.path.exists(CLOUD_CONFIG),
        "wanted": wanted,
        "config": encoded(read(CLOUD_CONFIG)) if wanted else "",
        "ours": encoded(read(CLOUD_OURS)) if is_sound(CLOUD_OURS) else "",
    }


def look() -> Data:
    """Everything the role needs to know."""
    hosts = read(HOSTS)
    return {
        "hostname": os.uname().nodename,
        "hosts": encoded(hosts),
        "sound": is_sound(HOSTS),
        "cloud_init": cloud_init(),
        "differences": differences(block_of(hosts)),
    }

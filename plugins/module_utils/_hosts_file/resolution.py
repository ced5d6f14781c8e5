# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names that a machine uses for itself and others: its hosts file, other programs that write it, and its resolver's
replies.
"""

from __future__ import annotations

import base64
import glob
import os
import re
import socket
import stat

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

HOSTS = "/etc/hosts"
# Mark the cluster's block in this file.
BEGIN = "# BEGIN muster: the nodes of the cluster"
END = "# END muster"
CLOUD_CONFIG = "/etc/cloud/cloud.cfg"
CLOUD_MUSTER_CONFIG = "/etc/cloud/cloud.cfg.d/99_muster_hosts_file.cfg"
# User data, from the provider or the user, which overrides cloud.cfg.d.
CLOUD_USER_DATA = "/var/lib/cloud/instance"
MANAGES_HOSTS = re.compile(r"^manage_etc_hosts: *.?([Tt]rue|template|localhost)", re.MULTILINE)


def read(path: str) -> str:
    """Return the text of a file, or "" if it is missing, as it may be during a boot. Raise other OSErrors."""
    try:
        with open(path, "rb") as stream:
            return stream.read().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def encode(text: str) -> str:
    """Return the text in Base64: JSON cannot represent a comment that is not UTF-8."""
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()


def is_sound(path: str) -> bool:
    """Return whether a file exists, is owned by root, readable by all, and writable only by root."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == 0 and stat.S_IMODE(status.st_mode) == 0o644


def block_of(hosts: str) -> str:
    """Return the cluster's block in the text of a hosts file."""
    match = re.search(rf"^{re.escape(BEGIN)}\n(.*?)^{re.escape(END)}$", hosts, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else ""


def query_resolver(name: str) -> list[tuple[str, list[str]]]:
    """Return the resolver's reply for a name from each function that Gloo, torchrun and MPI use.

    A reply is a list of addresses or names.
    """
    replies = []
    for function, query in (
        ("gethostbyname", lambda: [socket.gethostbyname(name)]),
        ("getaddrinfo", lambda: sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)})),
        ("getfqdn", lambda: [socket.getfqdn(name)]),
    ):
        try:
            replies.append((function, query()))
        except OSError as error:
            replies.append((function, [f"nothing ({error})"]))
    return replies


def differences(block: str) -> list[str]:
    """Return a message for each resolver reply that contradicts the block."""
    lines = []
    canonical: dict[str, str] = {}
    for address, *names in (line.split() for line in block.splitlines() if line and not line.startswith("#")):
        # getfqdn() uses the address's first line, and the first name with a dot on it.
        full = canonical.setdefault(address, next((name for name in names if "." in name), names[0]))
        for name in names:
            for function, reply in query_resolver(name):
                expected = full if function == "getfqdn" else address
                if reply != [expected] and not (
                    function == "gethostbyname" and ":" in address
                ):  # this method supports only IPv4
                    lines.append(f"{function}({name}) returns {', '.join(reply)}, expected {expected}")
    return lines


def cloud_init() -> Data:
    """Return whether cloud-init is present, and may write the hosts file at the next boot ("manages_hosts")."""
    texts = [read(path) for path in glob.glob(f"{CLOUD_USER_DATA}/**/*cloud-config.txt", recursive=True)]
    manages_hosts = any(MANAGES_HOSTS.search(text) for text in texts)
    return {
        "present": os.path.exists(CLOUD_CONFIG),
        "manages_hosts": manages_hosts,
        "config": encode(read(CLOUD_CONFIG)) if manages_hosts else "",
        "override": encode(read(CLOUD_MUSTER_CONFIG)) if is_sound(CLOUD_MUSTER_CONFIG) else "",
    }


def read_state() -> Data:
    """Return the complete state, for the role hosts_file."""
    hosts = read(HOSTS)
    return {
        "hostname": os.uname().nodename,
        "hosts": encode(hosts),
        "permissions_ok": is_sound(HOSTS),
        "cloud_init": cloud_init(),
        "differences": differences(block_of(hosts)),
    }

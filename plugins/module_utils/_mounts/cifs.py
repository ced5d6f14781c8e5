# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Network drives such as Paperspace's, mounted with the kernel's CIFS client.

The failures were observed with cifs-utils 7.0, Linux 6.1 and Samba 4.17.
"""

from __future__ import annotations

import re
from typing import Mapping

from ansible_collections.muster.training.plugins.module_utils._mounts.driver import (
    DesiredMount,
    KnownFailure,
    MountDriver,
    UnitContent,
    common_options,
    merge_options,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import format_options

ECHO_INTERVAL = 5
"""Seconds between echo requests. After three missed requests, the server is considered lost, and waiting calls fail
after one to five reconnects of 20 s each (39 to 106 s in total; an interval of 2 s was no faster). The kernel's
default of 60 would let a job hang for minutes.
"""
MAX_PASSWORD_BYTES = 512
"""mount.cifs refuses longer passwords: Converted password too long."""
SHARE = re.compile(r"//[^/\s,]+(/[^/,\x00-\x1f\x7f]+)+")
CREDENTIALS = ("username", "password", "domain")
RESERVED_OPTIONS = {
    **dict.fromkeys(("user", "username", "pass", "password", "password2"), "credentials"),
    **dict.fromkeys(("dom", "domain", "workgroup", "cred", "credentials"), "credentials"),
    **dict.fromkeys(("ro", "rw"), "read_only"),
}
"""mount.cifs options that have their own setting, by name."""


def share_of(source: str) -> str:
    r"""Return a source in the kernel's form, `//ADDRESS/SHARE`; Windows and Paperspace write `\\ADDRESS\SHARE`.

    YAML in double quotes turns the first two backslashes into one.
    """
    text = source.strip().replace("\\", "/").rstrip("/")
    return f"//{text.lstrip('/')}" if text.startswith("/") else text


def credential_problems(credentials: Mapping[str, str]) -> list[str]:
    """Return the problems with credentials, without showing a password."""
    problems = []
    unknown_keys = sorted(set(credentials) - set(CREDENTIALS))
    if unknown_keys:
        problems.append(
            f"the credentials contain {', '.join(unknown_keys)}, but only {', '.join(CREDENTIALS)} are allowed"
        )
    if credentials and "username" not in credentials:
        problems.append("the credentials lack a username: set the drive's user, or omit credentials for guest access")
    for name, value in credentials.items():
        if re.search(r"[\n\r\0]", value):
            problems.append(
                f"{name} has a line break, but mount.cifs reads only one line; check whether the vault or file it "
                "comes from ends with a line break"
            )
        elif name != "password" and re.search(r"[,%/\\\t]", value):
            problems.append(
                f"{name} is {value!r}, which mount.cifs would cut at a comma, percent sign, slash, backslash or tab; "
                "set only the user's name here, and its domain in domain"
            )
    size = len(credentials.get("password", "").encode("utf-8"))
    if size > MAX_PASSWORD_BYTES:
        problems.append(f"password is {size} bytes long, but mount.cifs accepts at most {MAX_PASSWORD_BYTES}")
    return problems


class Cifs(MountDriver):
    """A file server share, the same on all nodes."""

    name = "cifs"
    program = "mount.cifs"
    role = "cifs_share"
    filesystem = "cifs"
    kernel_pattern = "(?i)cifs"
    # The kernel's log is more precise than the error it returns, so log messages come first.
    causes = (
        KnownFailure(
            r"cifs filesystem not supported|mount error\(19\)|unknown filesystem type '?cifs",
            "this node's kernel cannot mount CIFS: the module is missing",
            (
                "run sudo modprobe cifs; if the module is missing, install the kernel's modules (on Ubuntu, "
                "linux-modules-extra-$(uname -r)) and reboot the node; in a container, the host's kernel must "
                "have it"
            ),
        ),
        KnownFailure(
            r"could not resolve address for (\S+?):",
            "this node cannot resolve the server's name {1}",
            "correct the source, or use the server's address in it",
        ),
        KnownFailure(
            "STATUS_(PASSWORD_EXPIRED|PASSWORD_MUST_CHANGE|ACCOUNT_DISABLED|ACCOUNT_LOCKED_OUT|ACCOUNT_EXPIRED"
            "|ACCOUNT_RESTRICTION|INVALID_LOGON_HOURS|INVALID_WORKSTATION)",
            "the server rejects this user ({1})",
            "correct the user's account on the server, then run this again",
        ),
        KnownFailure(
            "STATUS_(?:LOGON_FAILURE|WRONG_PASSWORD|NO_SUCH_USER)",
            "the server does not accept this username and password",
            (
                "correct the username and password, and the domain if the server has one; Paperspace shows them in "
                "the console next to the shared drive"
            ),
        ),
        KnownFailure(
            r"BAD_NETWORK_NAME|server share (\S+) deleted|Remote address changed",
            "the server has no share with this name, or it was removed",
            "correct the source: on Paperspace, it is the drive's mount point in the console, not its ID",
        ),
        KnownFailure(
            "STATUS_(?:NETWORK_)?ACCESS_DENIED",
            "this user may log in to the server, but not access this share",
            "grant this user access on the server, or use another user",
        ),
        KnownFailure(
            "unknown parameter '([^']+)'",
            "this node's kernel does not recognize the option {1}",
            "remove {1} from the options; `man mount.cifs` lists the valid ones",
        ),
        KnownFailure(
            r"unknown vers= option specified: (\S+)",
            "SMB has no version {1}",
            "remove vers from the options: the newest version that both sides support is used",
        ),
        KnownFailure(
            r"bad option (\S+)",
            "mount.cifs rejects the option {1}",
            "correct it; `man mount.cifs` describes the valid values",
        ),
        KnownFailure(
            "Encryption is not supported|doesn't support encryption",
            "the option seal requires encryption, which this server does not support with this version of SMB",
            "remove vers, enable encryption on the server, or remove seal",
        ),
        KnownFailure(
            r"Dialect not supported|mount error\(95\)",
            "the server does not support this version of SMB",
            (
                "remove vers from the options: the newest version that both sides support, at least 2.1, is used. A "
                "server that supports only SMB 1 needs vers: '1.0'"
            ),
        ),
        KnownFailure(
            r"mount error\(13\)",
            "the server rejects this user",
            "correct the username and password, and check on the server whether this user may access the share",
        ),
        KnownFailure(
            r"mount error\(111\)|return code = -111|connection refused",
            "the server is reachable, but nothing is listening on its SMB port",
            "start the file server; if its port is not 445, set the port option",
        ),
        KnownFailure(
            r"mount error\((?:113|101)\)|return code = -(?:113|101)\b|no route to host|network is unreachable",
            "this node cannot reach the server",
            "check that it is running, that its address is correct, and that this node is in its private network and "
            "region",
        ),
        KnownFailure(
            r"mount error\((?:112|115|110|104|103|11)\)|host is down|timed out|temporarily unavailable"
            "|no reply within|not mounted within",
            "the server is not responding",
            (
                "check that it is running, that this node is in its private network and region, and that no firewall "
                "between them drops traffic to port 445"
            ),
        ),
        KnownFailure(
            r"mount error\(2\)",
            "the server has no share with this name, or the share has no such directory",
            "correct the source",
        ),
        KnownFailure(
            r"(?:it is not writable|cannot be removed): (?:permission denied|read-only file system)",
            "this user may read the share, but not write to it",
            "grant the user write access on the server, or set read_only: true",
        ),
        KnownFailure(
            r"no space left|quota exceeded",
            "the drive is full",
            "remove files from the drive, or enlarge it",
        ),
        KnownFailure(
            r"mount error\(22\)",
            "the kernel rejects an option",
            "run `journalctl --dmesg --grep=cifs` on this node to see which one, then correct it",
        ),
    )

    def problems(self, mount: DesiredMount) -> list[str]:
        """Return the reasons for refusing a mount."""
        problems = [*super().problems(mount), *credential_problems(mount.credentials)]
        if not SHARE.fullmatch(share_of(mount.source)):
            problems.append(
                f"the source is {mount.source}: write //ADDRESS/SHARE without commas, or \\\\ADDRESS\\SHARE as "
                "Paperspace shows it"
            )
        for name in mount.options:
            if name in RESERVED_OPTIONS:
                problems.append(f"the option {name} is set by the mount's {RESERVED_OPTIONS[name]}")
            elif not re.fullmatch("[a-z][a-z0-9_]*", name):
                problems.append(f"{name!r} is not an option: `man mount.cifs` lists the valid names")
        problems += [
            f"{name} is {mount.options[name]}. Use a four-digit octal number in quotes, such as '0755'"
            for name in ("file_mode", "dir_mode")
            if not re.fullmatch("0[0-7]{3}", str(mount.options.get(name, "0755")))
        ]
        kerberos = str(mount.options.get("sec", "")).startswith("krb5")
        if "username" in mount.credentials and "password" not in mount.credentials and not kerberos:
            problems.append(
                "the credentials lack a password: set the user's password, or omit credentials for guest access"
            )
        version = str(mount.options.get("vers", ""))
        if mount.options.get("seal") and re.match(r"[12](\.|$)", version):
            problems.append(f"seal needs SMB 3 or newer, but vers is {version}: remove vers to use the newest version")
        return problems

    def credential_text(self, credentials: Mapping[str, str]) -> str:
        """Return the file that mount.cifs reads; a value is all text after the =, including spaces and quotes."""
        if not credentials:
            return ""
        return "".join(f"{name}={credentials[name]}\n" for name in CREDENTIALS if name in credentials)

    def parts(self, mount: DesiredMount, credentials_file: str) -> UnitContent:
        """Return the unit's content. The SMB version is negotiated."""
        defaults = {
            **common_options(mount),
            "file_mode": "0755",
            "dir_mode": "0755",
            "echo_interval": ECHO_INTERVAL,
        }
        login = {"credentials": credentials_file} if credentials_file else {"guest": True}
        return UnitContent(
            what=share_of(mount.source),
            fs_type="cifs",
            options=tuple(format_options(merge_options(defaults, mount.options, login))),
        )

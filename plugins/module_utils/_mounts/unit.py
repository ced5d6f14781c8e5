# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A systemd mount unit: its name and text, and its environment file."""

from __future__ import annotations

import hashlib
import posixpath
import re

from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import MARK

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Iterable, Mapping

SECRETS = "/etc/muster/mounts"  # private to root


def unit_name(path: str) -> str:
    """Return the unit name of a mount point, as `systemd-escape --path --suffix=mount` forms it."""
    path = posixpath.normpath("/" + path.strip("/"))
    if path == "/":
        return "-.mount"
    escaped = []
    for position, byte in enumerate(path[1:].encode("utf-8")):
        character = chr(byte)
        if character == "/":
            escaped.append("-")
        elif re.match(r"[A-Za-z0-9:_.]", character) and not (position == 0 and character == "."):
            escaped.append(character)
        else:
            escaped.append(f"\\x{byte:02x}")
    return "".join(escaped) + ".mount"


def credentials_path(path: str) -> str:
    """Return the path of a mount point's credentials, unique and without characters to escape."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", path.strip("/"))[:60]
    return f"{SECRETS}/{readable}-{hashlib.sha256(path.encode()).hexdigest()[:8]}.credentials"


def escape_specifiers(text: str) -> str:
    """Escape a value for a line in a unit, where % starts a specifier."""
    return text.replace("%", "%%")


def mount_unit(  # noqa: PLR0913
    path: str,
    what: str,
    fs_type: str,
    options: Iterable[str],
    timeout: int,
    environment_file: str = "",
    description: str = "",
) -> str:
    """Return the text of the unit; `options` are those of `mount -o`, in order.

    With nofail in the options, no part of a boot waits for the mount; remote-fs.target only wants it, so its failure
    does not affect other units. LazyUnmount lets the machine shut down while the server is unavailable.
    """
    value = escape_specifiers
    lines = [
        MARK,
        "[Unit]",
        f"Description={value(description or what)}",
        "Documentation=https://www.freedesktop.org/software/systemd/man/systemd.mount.html",
        "After=network-online.target",
        "Wants=network-online.target",
        "",
        "[Mount]",
        f"What={value(what)}",
        f"Where={value(path)}",
        f"Type={fs_type}",
        f"Options={value(','.join(options))}",
        *([f"EnvironmentFile={value(environment_file)}"] if environment_file else []),
        f"TimeoutSec={timeout}",
        "LazyUnmount=true",
        "",
        "[Install]",
        "WantedBy=remote-fs.target",
        "",
    ]
    return "\n".join(lines)


def environment_text(variables: Mapping[str, str]) -> str:
    """Return a file for EnvironmentFile=. In double quotes, all characters are literal except \\ " $ and `."""
    lines = []
    for name, value in variables.items():
        quoted = re.sub(r'([\\"$`])', r"\\\1", value)
        lines.append(f'{name}="{quoted}"\n')
    return "".join(lines)


def format_options(options: Mapping[str, object]) -> list[str]:
    """Return options as NAME or NAME=VALUE: true gives the bare name; false and None are omitted."""
    options_list = []
    for name, value in options.items():
        if value is True:
            options_list.append(name)
        elif value is not False and value is not None:
            options_list.append(f"{name}={value}")
    return options_list

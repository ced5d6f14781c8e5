# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove files that a node's image must not contain: credentials, the node's identity, runs. Needs root.

Homes are accessed with their users' rights, so that a link in a home cannot reach other files.
"""

from __future__ import annotations

import functools
import glob
import os
import pwd

from ansible_collections.muster.training.plugins.module_utils._files.bounded import remove_entry
from ansible_collections.muster.training.plugins.module_utils._files.user_files import run_as_user

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Sequence

# Patterns below /. sshd rejects all logins if its file of revoked keys is missing, so our sshd settings are removed
# with it.
SYSTEM = (
    "etc/ssh/ssh_host_*",
    "etc/ssh/muster_*",
    "etc/ssh/ssh_known_hosts",
    "etc/ssh/sshd_config.d/*muster*",
    "etc/ssh/ssh_config.d/*muster*",
    "etc/muster/mounts/*",
    "var/lib/dbus/machine-id",
    "var/lib/systemd/random-seed",
    "var/lib/cloud/instance",
    "var/lib/cloud/instances/*",
    "var/lib/muster/*",
)
MACHINE_ID = "etc/machine-id"  # if it is empty, the next boot fills it in: man 5 machine-id
UNITS = "etc/systemd/system"
SECRETS = "/etc/muster/mounts/"
# Patterns below a home directory. authorized_keys is kept, except for the mesh's lines.
HOME = (
    ".ssh/[!a]*",
    ".ssh/a[!u]*",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    ".s3cfg",
    ".boto",
    ".passwd-s3fs",
    ".aws",
    ".azure",
    ".kaggle",
    ".kube",
    ".paperspace",
    ".huggingface/token",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".config/gcloud",
    ".config/gh",
    ".config/rclone",
    ".config/wandb",
    ".docker/config.json",
    ".muster",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".lesshst",
)
MESH_MARK = " muster-ssh-mesh"

IDENTITY_UNIT = "etc/systemd/system/muster_new_identity.service"
IDENTITY_TEXT = """\
# Separate host keys for each machine that is created from an image of this machine.
[Unit]
Description=Create missing SSH host keys
Before=ssh.service ssh.socket sshd.service
ConditionPathExists=!/etc/ssh/ssh_host_ed25519_key

[Service]
Type=oneshot
ExecStart=/usr/bin/ssh-keygen -A

[Install]
WantedBy=multi-user.target
"""


def login_users() -> list[pwd.struct_passwd]:
    """Return root and all users with a login and a home directory: on Debian, users start at 1000, and `nobody` is
    65534.
    """
    return [
        user
        for user in pwd.getpwall()
        if (user.pw_uid == 0 or 1000 <= user.pw_uid < 65534) and os.path.isdir(user.pw_dir)
    ]


def glob_below(directory: str, patterns: Sequence[str]) -> list[str]:
    """Return existing paths, including hidden ones, in pattern order."""
    paths: list[str] = []
    for pattern in patterns:
        paths += sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))
    return paths


def clean_home(home: str, extra_patterns: Sequence[str], check: bool) -> dict[str, Any]:
    """Clean a home directory with its user's privileges; return the removed paths."""
    paths = glob_below(home, [*HOME, *extra_patterns])
    for path in [] if check else paths:
        remove_entry(path)
    keys = os.path.join(home, ".ssh", "authorized_keys")
    lines = read_lines(keys)
    remaining_lines = [line for line in lines if not line.rstrip().endswith(MESH_MARK)]
    if len(remaining_lines) < len(lines):
        paths.append(f"{keys} (only the mesh's keys)")
        if not check:
            with open(keys, "w", encoding="utf-8", errors="surrogateescape") as stream:
                stream.writelines(remaining_lines)
    return {"paths": paths}


def read_lines(path: str) -> list[str]:
    """Return the lines of a file with their line endings, or [] if it does not exist."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as stream:
            return stream.readlines()
    except FileNotFoundError:
        return []


def mount_units(root: str) -> list[str]:
    """Return our mount units that use credentials, as they would fail without them."""
    units = sorted(glob.glob(os.path.join(glob.escape(root), UNITS, "*.mount")))
    return [unit for unit in units if any(SECRETS in line for line in read_lines(unit))]


def reset_identity(root: str, check: bool) -> list[str]:
    """Make machines created from the image generate their own name and host keys; return the changed paths."""
    changed = []
    machine_id = os.path.join(root, MACHINE_ID)
    if os.path.exists(machine_id) and os.path.getsize(machine_id):
        changed.append(machine_id)
        if not check:
            with open(machine_id, "w", encoding="ascii"):
                pass
    unit = os.path.join(root, IDENTITY_UNIT)
    if "".join(read_lines(unit)) != IDENTITY_TEXT:
        changed.append(unit)
        if not check:
            with open(unit, "w", encoding="ascii") as stream:
                stream.write(IDENTITY_TEXT)
            wants = os.path.join(root, UNITS, "multi-user.target.wants")
            os.makedirs(wants, exist_ok=True)
            link = os.path.join(wants, os.path.basename(unit))
            if not os.path.lexists(link):
                os.symlink("/" + IDENTITY_UNIT, link)
    return changed


def clean(root: str, users: Sequence[pwd.struct_passwd], extra_patterns: Sequence[str], check: bool) -> list[str]:
    """Clean the machine; return the paths that are, or would be, removed or emptied.

    Args:
        extra_patterns: additional patterns below homes.
    """
    changed: list[str] = []
    for user in users:
        result = run_as_user(user, functools.partial(clean_home, user.pw_dir, list(extra_patterns), check))
        changed += result["paths"]
    paths = mount_units(root) + glob_below(root, SYSTEM)
    for path in [] if check else paths:
        remove_entry(path)
    return changed + paths + reset_identity(root, check)

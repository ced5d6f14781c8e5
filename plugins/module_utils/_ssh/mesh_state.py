# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of a node's sshd and its user's key, for the role ssh_mesh. Needs root."""

from __future__ import annotations

import glob
import os
import pwd
import re
import subprocess
import time

from ansible_collections.muster.training.plugins.module_utils._facts import ssh
from ansible_collections.muster.training.plugins.module_utils._files import file_state, user_files
from ansible_collections.muster.training.plugins.module_utils._files.text import read
from ansible_collections.muster.training.plugins.module_utils._ssh import login_user, sshd

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]


# seconds to connect, and in total: a first login may wait for a directory service or a home directory
LOGIN = (10, 60.0)


def has_current_settings(paths: list[str]) -> bool:
    """Return whether sshd has read its files since they last changed; an interrupted run may not have reloaded it."""
    output = subprocess.run(
        ["systemctl", "show", "ssh", "--property=StateChangeTimestampMonotonic"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    microseconds = output.strip().partition("=")[2]
    if not microseconds.isdigit() or microseconds == "0":
        return True
    started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + int(microseconds) / 1e6
    return all(os.stat(path).st_mtime <= started for path in paths if os.path.exists(path))


def configuration_errors(settings: dict[str, str], main_file: str, revoked_file: str) -> list[str]:
    """Return the settings that prevent sshd from joining the mesh, as messages."""
    errors = []
    if not re.search(r"(?mi)^\s*Include\s.*/etc/ssh/sshd_config\.d/\*\.conf", main_file):
        errors.append(
            "sshd does not read /etc/ssh/sshd_config.d. Add the line `Include /etc/ssh/sshd_config.d/*.conf` at the "
            "top of /etc/ssh/sshd_config"
        )
    if settings.get("pubkeyauthentication") == "no":
        errors.append("sshd does not accept keys. Set PubkeyAuthentication to yes in /etc/ssh/sshd_config")
    paths = settings.get("authorizedkeysfile", "").replace("%h/", "").split()
    if ".ssh/authorized_keys" not in paths:
        errors.append(
            f"sshd does not read .ssh/authorized_keys, since AuthorizedKeysFile is {' '.join(paths) or 'none'}. "
            "Correct AuthorizedKeysFile in /etc/ssh/sshd_config"
        )
    revoked = settings.get("revokedkeys", "none")
    if revoked not in ("none", revoked_file):
        errors.append(
            f"sshd already uses {revoked} as its list of revoked keys, and supports only one list. Remove "
            "RevokedKeys from sshd's configuration (grep -r RevokedKeys /etc/ssh shows where it is), after which sshd "
            "accepts the keys in that list again, or set ssh_mesh_enabled to false"
        )
    return errors


def public_key(user: str, path: str) -> tuple[str, str]:
    """Return the public key for a user's private key, and why it is not available. Read with the user's privileges."""
    argv = ["runuser", f"--user={user}", "--", "ssh-keygen", "-y", "-P", "", "-f", path]
    completed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd="/")
    return (
        (completed.stdout.strip(), "")
        if completed.returncode == 0
        else ("", completed.stderr.strip() or "ssh-keygen failed")
    )


def try_logins(user: str, names: list[str]) -> dict[str, str]:
    """Log in to each of these nodes with the user's privileges; return "" or ssh's message, by name."""
    return user_files.run_as_user(user_files.get_user(user), lambda: ssh.SshQuery(names, *LOGIN).result())


def is_closed(home: str, key: str, uid: int) -> bool:
    """Return whether only the user can write to the home directory and only the user can enter the key directories."""
    try:
        statuses = [os.stat(path) for path in (home, f"{home}/.ssh", os.path.dirname(key))]
    except OSError:
        return False
    return (
        all(status.st_uid == uid for status in statuses)
        and not statuses[0].st_mode & 0o022
        and all(status.st_mode & 0o7777 == 0o700 for status in statuses[1:])
    )


def state(options: Data) -> Data:
    """Return the node's complete state.

    Args:
        options: user ("": the login user), key (the user's, below the home), host_key, our files: sshd_file,
            client_file, revoked_file, verification_file, mark (the end of our lines in files that others also write),
            log_in (a node to log in to if an earlier run has verified this, "": none).
    """
    user = options["user"] or login_user.login_user()
    setting_list, message = sshd.read_settings()
    settings = dict(setting_list)
    host_key, sshd_file = options["host_key"], options["sshd_file"]
    main_file = read("/etc/ssh/sshd_config")
    other_files = [main_file, *(read(path) for path in glob.glob("/etc/ssh/sshd_config.d/*.conf") if path != sshd_file)]
    public = read(f"{host_key}.pub").strip()
    revoked_file = options["revoked_file"]
    errors = (
        configuration_errors(settings, main_file, revoked_file)
        if settings
        else [f"cannot read sshd's settings (`sshd -T`): {message}"]
    )
    if not public:
        errors.append(
            f"the host key {host_key}.pub is missing. Create it with `sudo ssh-keygen -A` or, if {host_key} exists, "
            f"`sudo ssh-keygen -y -f {host_key} | sudo tee {host_key}.pub`, or set ssh_mesh_host_key"
        )
    try:
        entry = pwd.getpwnam(user)
        home, group, uid = entry.pw_dir, entry.pw_gid, entry.pw_uid
    except KeyError:
        home, group, uid = "", 0, -1
        errors.append(f"there is no user {user}. Create the same user on all nodes, or set ssh_mesh_user")
    key = f"{home}/{options['key']}"
    has_key = bool(home) and os.path.lexists(key)
    user_key, key_error = public_key(user, key) if has_key else ("", "missing")
    verification = read(options["verification_file"]).strip()
    local_files = [f"{host_key}-cert.pub", revoked_file, f"{key}-cert.pub", options["client_file"], sshd_file]
    shared = ["/etc/ssh/ssh_known_hosts", f"{home}/.ssh/authorized_keys"]
    return {
        "user": user,
        "home": home,
        "group": group,
        "has_key": has_key,
        "user_key": user_key,
        "unusable": key_error,
        "host_key": public,
        # from the other files: the default port is used only if none of them has a Port line
        "ports": [int(port) for text in other_files for port in re.findall(r"(?mi)^\s*Port\s+(\d+)", text)] or [22],
        "has_port_line": any(re.search(r"(?mi)^\s*Port\s+\d+", text) for text in other_files),
        # if systemd is listening on behalf of sshd (Ubuntu >= 22.10), a new port must be set on its socket
        "socket": subprocess.run(["systemctl", "is-active", "--quiet", "ssh.socket"], check=False).returncode == 0,
        "up_to_date": has_current_settings([sshd_file, f"{host_key}-cert.pub"]),
        "verification": verification,
        "closed": is_closed(home, key, uid),
        "files": {**file_state.read_files(local_files), **file_state.read_files(shared, options["mark"])},
        "logins": try_logins(user, [options["log_in"]]) if options["log_in"] and verification and user_key else {},
        "errors": errors,
    }

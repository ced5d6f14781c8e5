# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role ssh_mesh must know about a node, its sshd and its user's key. Private to this collection. Runs on the
node as root, standard library only, Python >= 3.8."""

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


LOGIN = (10, 60.0)  # seconds to connect, and in all: a first login may wait for a directory service, or a home


def has_current_settings(paths: list[str]) -> bool:
    """Whether sshd has read its files since their last change: an interrupted run may not have reloaded it."""
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
    """What keeps sshd from joining the mesh."""
    errors = []
    if not re.search(r"(?mi)^\s*Include\s.*/etc/ssh/sshd_config\.d/\*\.conf", main_file):
        errors.append(
            "sshd reads no file of /etc/ssh/sshd_config.d. Needed: the line `Include /etc/ssh/sshd_config.d/*.conf` "
            "at the top of /etc/ssh/sshd_config. Add it"
        )
    if settings.get("pubkeyauthentication") == "no":
        errors.append("sshd takes no keys. Needed: PubkeyAuthentication yes. Correct /etc/ssh/sshd_config")
    paths = settings.get("authorizedkeysfile", "").replace("%h/", "").split()
    if ".ssh/authorized_keys" not in paths:
        errors.append(
            f"sshd reads authorized keys from {' '.join(paths) or 'nowhere'}. Needed: .ssh/authorized_keys as well. "
            "Correct AuthorizedKeysFile in /etc/ssh/sshd_config"
        )
    revoked = settings.get("revokedkeys", "none")
    if revoked not in ("none", revoked_file):
        errors.append(
            f"sshd has the list of revoked keys {revoked}, and takes one only. Needed: no RevokedKeys in "
            "/etc/ssh/sshd_config. Remove the line, or set ssh_mesh_enabled to false"
        )
    return errors


def public_key(user: str, path: str) -> tuple[str, str]:
    """The public key of a user's private key, and why it is not available. Read with the user's rights."""
    argv = ["runuser", f"--user={user}", "--", "ssh-keygen", "-y", "-P", "", "-f", path]
    completed = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd="/")
    return (completed.stdout.strip(), "") if completed.returncode == 0 else ("", completed.stderr.strip() or "ssh-keygen fails")


def try_logins(user: str, names: list[str]) -> dict[str, str]:
    """Log in at each of these nodes with the user's rights; "" or ssh's message by name."""
    return user_files.run_as_user(user_files.get_user(user), lambda: ssh.SshQuery(names, *LOGIN).result())


def is_closed(home: str, key: str, uid: int) -> bool:
    """Whether only the user can write in the home, and only the user can enter the directories of keys."""
    try:
        statuses = [os.stat(path) for path in (home, f"{home}/.ssh", os.path.dirname(key))]
    except OSError:
        return False
    return (
        all(status.st_uid == uid for status in statuses)
        and not statuses[0].st_mode & 0o022
        and all(one.st_mode & 0o7777 == 0o700 for one in statuses[1:])
    )


def state(options: Data) -> Data:
    """The node's complete state.

    Args:
        asked: user ("": the one who logged in), key (the user's, below the home), host_key, our files: sshd_file,
        client_file, revoked_file, proof_file, mark (the end of our lines in files that others write, too), log_in (a
        node at which to log in where an earlier run has proved that, "": none).
    """
    user = options["user"] or login_user.login_user()
    setting_list, message = sshd.read_settings()
    settings = dict(setting_list)
    host_key, sshd_file = options["host_key"], options["sshd_file"]
    main_file = read("/etc/ssh/sshd_config")
    other_files = [main_file, *(read(path) for path in glob.glob("/etc/ssh/sshd_config.d/*.conf") if path != sshd_file)]
    public = read(f"{host_key}.pub").strip()
    revoked_file = options["revoked_file"]
    errors = configuration_errors(settings, main_file, revoked_file) if settings else [f"sshd does not tell its settings: {message}"]
    if not public:
        errors.append(f"there is no host key {host_key}.pub. Make it: sudo ssh-keygen -A, or set ssh_mesh_host_key")
    try:
        entry = pwd.getpwnam(user)
        home, group, uid = entry.pw_dir, entry.pw_gid, entry.pw_uid
    except KeyError:
        home, group, uid = "", 0, -1
        errors.append(f"there is no user {user}. Needed: the same user on all nodes. Make it, or set ssh_mesh_user")
    key = f"{home}/{options['key']}"
    has_key = bool(home) and os.path.lexists(key)
    user_key, key_error = public_key(user, key) if has_key else ("", "there is none")
    verification = read(options["proof_file"]).strip()
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
        # Not from our own file: the default port counts only if no other file has a Port line.
        "ports": [int(port) for text in other_files for port in re.findall(r"(?mi)^\s*Port\s+(\d+)", text)] or [22],
        "has_port_line": any(re.search(r"(?mi)^\s*Port\s+\d+", text) for text in other_files),
        # If systemd listens for sshd (Ubuntu >= 22.10), a new port must be set on its socket.
        "socket": subprocess.run(["systemctl", "is-active", "--quiet", "ssh.socket"], check=False).returncode == 0,
        "up_to_date": has_current_settings([sshd_file, f"{host_key}-cert.pub"]),
        "proof": verification,
        "closed": is_closed(home, key, uid),
        "files": {**file_state.read_files(local_files), **file_state.read_files(shared, options["mark"])},
        "logins": try_logins(user, [options["log_in"]]) if options["log_in"] and verification and user_key else {},
        "faults": errors,
    }

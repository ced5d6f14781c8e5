"""Tell, as JSON, what the role must know of a node and its sshd.

Runs as root, with the arguments USER HOST_KEY OUR_FILE OUR_LIST.
"""

from __future__ import annotations

import glob
import json
import os
import pwd
import re
import subprocess
import sys
import time
from typing import Any


def read(path: str) -> str:
    """The text of a file, empty where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def sshd_settings() -> tuple[dict[str, str], str]:
    """What sshd takes its settings to be, and what it says where it cannot."""
    try:
        done = subprocess.run(["/usr/sbin/sshd", "-T"], capture_output=True, text=True, check=False)
    except OSError as error:
        return {}, str(error)
    words = (line.partition(" ") for line in done.stdout.splitlines())
    return {name: value for name, _space, value in words}, done.stderr.strip()


def read_since_changed(paths: list[str]) -> bool:
    """Whether sshd has read its files since they were changed last, which an interrupted run may not have had it do."""
    said = subprocess.run(
        ["systemctl", "show", "ssh", "--property=StateChangeTimestampMonotonic"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    microseconds = said.strip().partition("=")[2]
    if not microseconds.isdigit() or microseconds == "0":
        return True
    started = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC) + int(microseconds) / 1e6
    return all(os.stat(path).st_mtime <= started for path in paths if os.path.exists(path))


def faults_of(settings: dict[str, str], main_file: str, own_list: str) -> list[str]:
    """What keeps sshd from taking part."""
    faults = []
    if not re.search(r"(?mi)^\s*Include\s.*/etc/ssh/sshd_config\.d/\*\.conf", main_file):
        faults.append(
            "sshd reads no file of /etc/ssh/sshd_config.d. Needed: the line `Include /etc/ssh/sshd_config.d/*.conf` "
            "at the top of /etc/ssh/sshd_config. Add it"
        )
    if settings.get("pubkeyauthentication") == "no":
        faults.append("sshd takes no keys. Needed: PubkeyAuthentication yes. Correct /etc/ssh/sshd_config")
    places = settings.get("authorizedkeysfile", "").replace("%h/", "").split()
    if ".ssh/authorized_keys" not in places:
        faults.append(
            f"sshd reads authorized keys from {' '.join(places) or 'nowhere'}. Needed: .ssh/authorized_keys as well. "
            "Correct AuthorizedKeysFile in /etc/ssh/sshd_config"
        )
    revoked = settings.get("revokedkeys", "none")
    if revoked not in ("none", own_list):
        faults.append(
            f"sshd has the list of revoked keys {revoked}, and takes one only. Needed: no RevokedKeys in "
            "/etc/ssh/sshd_config. Remove the line, or set ssh_mesh_enabled to false"
        )
    return faults


def state(user: str, host_key: str, own_file: str, own_list: str) -> dict[str, Any]:
    """All there is to know."""
    settings, said = sshd_settings()
    main_file = read("/etc/ssh/sshd_config")
    others = [main_file, *(read(path) for path in glob.glob("/etc/ssh/sshd_config.d/*.conf") if path != own_file)]
    public = read(f"{host_key}.pub").strip()
    faults = faults_of(settings, main_file, own_list) if settings else [f"sshd does not tell its settings: {said}"]
    if not public:
        faults.append(f"there is no host key {host_key}.pub. Make it: sudo ssh-keygen -A, or set ssh_mesh_host_key")
    try:
        entry = pwd.getpwnam(user)
        home, group = entry.pw_dir, entry.pw_gid
    except KeyError:
        home, group = "", 0
        faults.append(f"there is no user {user}. Needed: the same user on all nodes. Make it, or set ssh_mesh_user")
    return {
        "user": user,
        "home": home,
        "group": group,
        "host_key": public,
        # Of our own file none: the default port counts only where no file has a line Port.
        "ports": [int(port) for text in others for port in re.findall(r"(?mi)^\s*Port\s+(\d+)", text)] or [22],
        "has_port_line": any(re.search(r"(?mi)^\s*Port\s+\d+", text) for text in others),
        # Where systemd listens in sshd's place (Ubuntu from 22.10 on), a new port reaches sshd by its socket.
        "socket": subprocess.run(["systemctl", "is-active", "--quiet", "ssh.socket"], check=False).returncode == 0,
        "up_to_date": read_since_changed([own_file, f"{host_key}-cert.pub"]),
        "faults": faults,
    }


if __name__ == "__main__":
    print(json.dumps(state(*sys.argv[1:])))

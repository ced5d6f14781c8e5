# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node state that the role firewall compares with the desired rules. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ansible_collections.muster.training.plugins.module_utils._files import file_state, root_path
from ansible_collections.muster.training.plugins.module_utils._ssh import sshd

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict, Sequence

    Data = Dict[str, Any]

STATE_DIRECTORY = "/etc/muster"  # as in plugins/module_utils/_firewall/firewall.py


def is_root_only(path: str) -> bool:
    """Return whether a file or directory exists and can be changed only by root."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return status.st_uid == 0 and not status.st_mode & 0o022


def read_rules(program: str, files: Sequence[str] = ()) -> Data:
    """Return the rules reported by the role's program, or {} if it is missing or fails; applying the rules shows why.

    files: those of the role, whose modules root would run, too.
    """
    directory = os.path.dirname(program)
    paths = {program, directory, STATE_DIRECTORY}
    for path in files:
        while path.startswith(f"{directory}/"):
            paths.add(path)
            path = os.path.dirname(path)
    if root_path.root_only_error(directory) or not all(map(is_root_only, paths)):
        return {}
    completed = subprocess.run([sys.executable, "-I", program, "state"], capture_output=True, text=True, check=False)
    try:
        reply: Data = json.loads(completed.stdout)
    except ValueError:  # the program has failed, or its output is incomplete
        return {}
    return reply


def state(options: Data) -> Data:
    """Return the node's complete state.

    Args:
        options: program (path of the role's program), files (paths of its files, including the program).
    """
    settings, message = sshd.read_settings()
    return {
        "ssh_ports": [int(value) for name, value in settings if name == "port" and value.isdigit()],
        "sshd_output": message,
        "nftables": os.path.exists("/usr/sbin/nft"),
        "rules": read_rules(options["program"], options["files"]),
        "files": file_state.read_files(options["files"]),
    }

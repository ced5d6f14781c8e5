# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the role firewall must know about a node.

Private to this collection. Runs on the node as root, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ansible_collections.muster.training.plugins.module_utils._files import file_state
from ansible_collections.muster.training.plugins.module_utils._ssh import sshd

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Dict

    Data = Dict[str, Any]

KEPT_IN = "/etc/muster"  # as in roles/firewall/files/firewall.py


def is_roots(path: str) -> bool:
    """Whether a file or directory is there, and nobody but root can change it."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return found.st_uid == 0 and not found.st_mode & 0o022


def rules(program: str) -> Data:
    """What the role's program says of the rules; nothing without it, and where it fails: trying them tells why."""
    if not all(map(is_roots, (os.path.dirname(program), program, KEPT_IN))):
        return {}
    done = subprocess.run([sys.executable, "-I", program, "state"], capture_output=True, text=True, check=False)
    try:
        said: Data = json.loads(done.stdout)
    except ValueError:  # it has failed, or is not whole
        return {}
    return said


def state(asked: Data) -> Data:
    """The node's complete state.

    Args:
        asked: program (path of the role's program), files (paths of its files, that one among them).
    """
    settings, said = sshd.settings()
    return {
        "ssh_ports": [int(value) for name, value in settings if name == "port" and value.isdigit()],
        "sshd_says": said,
        "nftables": os.path.exists("/usr/sbin/nft"),
        "rules": rules(asked["program"]),
        "files": file_state.as_they_are(asked["files"]),
    }

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What roles must know about a node before they change it, read in one call. Private to this collection.

Runs on the node as root, standard library only, Python >= 3.8. Only what is asked for is imported.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Data = Dict[str, Any]


class Unreadable(Exception):
    """What was found, what is needed and what to do."""


def base_packages(asked: Data) -> Data:
    """The state of package management, limits and kernel settings, once other programs have ended their work."""
    from ansible_collections.muster.training.plugins.module_utils import _machine_state

    try:
        return _machine_state.state(asked)
    except _machine_state.Fault as fault:
        raise Unreadable(f"{fault}.") from None


def nvidia_driver(_asked: Data) -> Data:
    """The parts of a node's facts that decide about its driver. Without a GPU nobody asks for packages."""
    from ansible_collections.muster.training.plugins.module_utils import _node_driver, _node_gpus
    from ansible_collections.muster.training.plugins.module_utils._run.alive import supervisors

    gpus = _node_gpus.GpuQuestion().answer()
    needed = gpus["pci"] or gpus["driver"]["loaded"]
    driver = _node_driver.DriverQuestion().answer() if needed else {"system": "", "packages": []}
    return {"runs": supervisors(), "gpus": gpus, "driver": driver}


def hosts_file(_asked: Data) -> Data:
    """How the machine resolves its own name and the other nodes'."""
    from ansible_collections.muster.training.plugins.module_utils import _hosts_file

    try:
        return _hosts_file.look()
    except OSError as error:
        raise Unreadable(f"{error.filename} cannot be read: {error.strerror}. See whether its disk is well") from None


def firewall(asked: Data) -> Data:
    """The ports of sshd, and the state of the firewall."""
    from ansible_collections.muster.training.plugins.module_utils import _node_firewall

    return _node_firewall.state(asked)


def ssh_mesh(asked: Data) -> Data:
    """The state of sshd, and of the user's key and files."""
    from ansible_collections.muster.training.plugins.module_utils import _ssh_mesh_node, _user_files

    try:
        return _ssh_mesh_node.state(asked)
    except _user_files.UserFileError as error:
        raise Unreadable(f"{error}.") from None


def ssh_logins(asked: Data) -> Data:
    """Whether a user can log in from this node at others."""
    from ansible_collections.muster.training.plugins.module_utils import _ssh_mesh_node, _user_files

    try:
        return _ssh_mesh_node.logins(asked["user"], asked["names"])
    except _user_files.UserFileError as error:
        raise Unreadable(f"{error}.") from None


READERS: dict[str, Callable[[Data], Data]] = {
    reader.__name__: reader for reader in (base_packages, nvidia_driver, hosts_file, firewall, ssh_mesh, ssh_logins)
}


def main(request: Data) -> Data:
    """Answer one request: by the name of a reader, what it is asked.

    One that cannot be read is an error where it is all that is asked for. Of several it is left out: whoever needs it
    asks for it alone, and says why.
    """
    if os.geteuid() != 0:
        return {"error": "this needs root. Set become: true"}
    answer: Data = {}
    for name, asked in request.items():
        try:
            answer[name] = READERS[name](asked)
        except Exception as error:
            if len(request) > 1:
                continue
            if isinstance(error, Unreadable):
                return {"error": str(error)}
            raise
    return answer

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
    from ansible_collections.muster.training.plugins.module_utils._apt import state

    try:
        return state.state(asked)
    except state.Fault as fault:
        raise Unreadable(f"{fault}.") from None


def nvidia_driver(_asked: Data) -> Data:
    """The parts of a node's facts that decide about its driver. Without a GPU nobody asks for packages."""
    from ansible_collections.muster.training.plugins.module_utils._facts import driver as node_driver
    from ansible_collections.muster.training.plugins.module_utils._facts import gpus as node_gpus
    from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import supervisors

    gpus = node_gpus.GpuQuestion().answer()
    needed = gpus["pci"] or gpus["driver"]["loaded"]
    driver = node_driver.DriverQuestion().answer() if needed else {"system": "", "packages": []}
    return {"runs": supervisors(), "gpus": gpus, "driver": driver}


def hosts_file(_asked: Data) -> Data:
    """How the machine resolves its own name and the other nodes'."""
    from ansible_collections.muster.training.plugins.module_utils._hosts_file import resolution

    try:
        return resolution.look()
    except OSError as error:
        raise Unreadable(f"{error.filename} cannot be read: {error.strerror}. See whether its disk is well") from None


def firewall(asked: Data) -> Data:
    """The ports of sshd, and the state of the firewall."""
    from ansible_collections.muster.training.plugins.module_utils._facts import firewall as node_firewall

    return node_firewall.state(asked)


def ssh_mesh(asked: Data) -> Data:
    """The state of sshd, and of the user's key and files."""
    from ansible_collections.muster.training.plugins.module_utils._files import user_files
    from ansible_collections.muster.training.plugins.module_utils._ssh import mesh_state

    try:
        return mesh_state.state(asked)
    except user_files.UserFileError as error:
        raise Unreadable(f"{error}.") from None


def ssh_logins(asked: Data) -> Data:
    """Whether a user can log in from this node at others."""
    from ansible_collections.muster.training.plugins.module_utils._files import user_files
    from ansible_collections.muster.training.plugins.module_utils._ssh import mesh_state

    try:
        return mesh_state.logins(asked["user"], asked["names"])
    except user_files.UserFileError as error:
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

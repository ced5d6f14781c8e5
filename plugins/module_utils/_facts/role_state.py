# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node state that roles compare with the desired state, read in one call. Needs root.

Only the requested states are imported.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would cost more than all other imports
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Data = Dict[str, Any]


class StateReadError(Exception):
    """A state cannot be read; the message explains why, with a remedy."""


def base_packages(options: Data) -> Data:
    """Return the state of package management, limits and kernel settings, once other programs have finished."""
    from ansible_collections.muster.training.plugins.module_utils._apt import state

    try:
        return state.state(options)
    except state.AptStateError as error:
        raise StateReadError(f"{error}.") from None


def nvidia_driver(_options: Data) -> Data:
    """Return the facts for choosing a driver; without a GPU, the packages are not read."""
    from ansible_collections.muster.training.plugins.module_utils._facts import driver as node_driver
    from ansible_collections.muster.training.plugins.module_utils._facts import gpu_vendors
    from ansible_collections.muster.training.plugins.module_utils._facts import gpus as node_gpus
    from ansible_collections.muster.training.plugins.module_utils._run.running_supervisors import find_supervisors

    gpus = node_gpus.GpuQuery().result()
    needed = gpus["pci"] or gpus["driver"]["loaded"]
    if not needed:
        gpus["vendor"] = gpu_vendors.find_vendor()
    driver = node_driver.DriverQuery().result() if needed else {"system": "", "packages": []}
    return {"runs": find_supervisors(), "gpus": gpus, "driver": driver}


def hosts_file(_options: Data) -> Data:
    """Return how the machine resolves its own name and the names of the other nodes."""
    from ansible_collections.muster.training.plugins.module_utils._hosts_file import resolution

    try:
        return resolution.read_state()
    except OSError as error:
        raise StateReadError(
            f"cannot read {error.filename}: {error.strerror}. Check the disk, for example with `sudo dmesg`"
        ) from None


def firewall(options: Data) -> Data:
    """Return the ports of sshd, and the state of the firewall."""
    from ansible_collections.muster.training.plugins.module_utils._facts import firewall as node_firewall

    return node_firewall.state(options)


def ssh_mesh(options: Data) -> Data:
    """Return the state of sshd and of the user's key and files."""
    from ansible_collections.muster.training.plugins.module_utils._files import user_files
    from ansible_collections.muster.training.plugins.module_utils._ssh import mesh_state

    try:
        return mesh_state.state(options)
    except user_files.UserFileError as error:
        raise StateReadError(f"{error}.") from None


def ssh_logins(options: Data) -> Data:
    """Return whether a user can log in from this node to other nodes."""
    from ansible_collections.muster.training.plugins.module_utils._files import user_files
    from ansible_collections.muster.training.plugins.module_utils._ssh import mesh_state

    try:
        return mesh_state.try_logins(options["user"], options["names"])
    except user_files.UserFileError as error:
        raise StateReadError(f"{error}.") from None


def slurm(options: Data) -> Data:
    """Return the inputs for Slurm's configuration, and the state of its packages, files, key and services."""
    from ansible_collections.muster.training.plugins.module_utils._slurm import node_state

    return node_state.state(options)


READERS: dict[str, Callable[[Data], Data]] = {
    reader.__name__: reader
    for reader in (base_packages, nvidia_driver, hosts_file, firewall, ssh_mesh, ssh_logins, slurm)
}


def main(request: Data) -> Data:
    """Return the requested states, by name.

    Args:
        request: options of each state, by name (see READERS).

    If only one state is requested and cannot be read, that is an error. Of several, those that cannot be read are
    omitted: the role that needs such a state requests it alone, and reports the error.
    """
    if os.geteuid() != 0:
        return {"error": "this needs root. Set become: true"}
    states: Data = {}
    for name, options in request.items():
        try:
            states[name] = READERS[name](options)
        except Exception as error:
            if len(request) > 1:
                continue
            if isinstance(error, StateReadError):
                return {"error": str(error)}
            raise
    return states

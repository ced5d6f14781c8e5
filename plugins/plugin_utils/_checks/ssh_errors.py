# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a node cannot be reached, from the messages of ssh and sudo, and what to do. Pure. Private to this collection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error

ID = "unreachable"


@dataclass(frozen=True)
class Trouble:
    """One kind of trouble: the pattern of its message, and the parts of a finding, filled from the pattern's groups.

    found and needed are the same for all nodes with this trouble, so that their findings merge into one; todo may name
    the first node.
    """

    words: str
    found: str
    needed: str
    todo: str


MACHINE_ON = "a machine that is on, in a network this machine can reach"
LOGIN = "a user on the node, and the SSH key or password of that user"
ROOT = "a user who can become root with sudo"
SUDO_PASSWORD = "passwordless sudo, or the same sudo password on all nodes"
# The first match counts: ssh prints the reason first and its consequences last.
TROUBLES = (
    Trouble(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED.*ssh-keygen -f \"?(?P<file>[^\"\s]+)\"? -R \"?(?P<host>[^\"\s]+)",
        "its host key is not the one that this machine has recorded",
        "the recorded key: a different one means the machine was reinstalled, or another machine answers",
        "if the machine was reinstalled, remove the old key, for each node: ssh-keygen -f {file} -R '{host}'",
    ),
    Trouble(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S+ has changed",
        "its host key is not the one that this machine has recorded",
        "the recorded key: a different one means the machine was reinstalled, or another machine answers",
        "if the machine was reinstalled, remove the old key from known_hosts: ssh-keygen -R ADDRESS",
    ),
    Trouble(
        r"host key is known for \S+ and you have requested strict checking|Host key verification failed"
        r"|Host Key checking is enabled",
        "its host key is not known to this machine",
        "an accepted host key",
        "if the machines are new, accept their keys: run this again with "
        "--ssh-extra-args='-o StrictHostKeyChecking=accept-new'",
    ),
    Trouble(
        r"(Identity file|no such identity:) (?P<key>\S+?)( not accessible)?: (?P<why>[A-Z][a-z ]+[a-z])"
        r".*Permission denied \(",
        "this machine cannot read the key file {key}: {why}",
        LOGIN,
        "correct ansible_ssh_private_key_file in the inventory, or --private-key",
    ),
    Trouble(
        r"Permissions \d+ for '(?P<key>[^']+)' are too open",
        "ssh ignores the key file {key}: other users can read it",
        LOGIN,
        "chmod 600 {key}",
    ),
    Trouble(
        r"Too many authentication failures",
        "ssh offered too many keys and the node closed the login: Too many authentication failures",
        LOGIN,
        "select one key: set ansible_ssh_private_key_file, and ansible_ssh_common_args: -o IdentitiesOnly=yes",
    ),
    Trouble(
        r"(?P<user>[^\s@]+)@(?P<host>\S+): Permission denied \((?P<methods>[^)]*)\)",
        "it refuses the login of {user}: Permission denied ({methods})",
        LOGIN,
        "correct ansible_user or ansible_ssh_private_key_file in the inventory; to test them: ssh -i KEY_FILE "
        "{user}@{host}",
    ),
    Trouble(
        r"[Ii]ncorrect (username/)?password:?( |$)(?!attempt)",
        "it rejects the login password",
        LOGIN,
        "correct ansible_user, or run this again with --ask-pass and the right password",
    ),
    Trouble(
        r"This account is currently not available",
        "its user is not allowed to log in: This account is currently not available",
        LOGIN,
        "correct ansible_user in the inventory",
    ),
    Trouble(
        r"sudo: a (terminal|password) is required|Missing \S+ password",
        "sudo asks for a password",
        SUDO_PASSWORD,
        "run this again with --ask-become-pass",
    ),
    Trouble(
        r"Incorrect \S+ password|incorrect password attempt|no password was provided",
        "sudo rejects the password",
        SUDO_PASSWORD,
        "run this again with --ask-become-pass and the right password",
    ),
    Trouble(
        r"(?P<user>\S+) is not in the sudoers file|user (?P<other>\S+) is not allowed to execute",
        "sudo rejects user {user}: not in the sudoers file",
        ROOT,
        "correct ansible_user in the inventory, or let {user} use sudo on the node: usermod -aG sudo {user}",
    ),
    Trouble(
        r"sudo: (command )?not found|sudo: No such file",
        "sudo is not installed",
        ROOT,
        "log in as root (ansible_user: root in the inventory), or install sudo on the node: apt-get install sudo",
    ),
    Trouble(
        r"Could not resolve hostname (?P<host>\S+): Temporary failure",
        "its name cannot be resolved at the moment: Temporary failure in name resolution",
        "a name server that answers this machine",
        "check this machine's network: getent hosts {host}",
    ),
    Trouble(
        r"Could not resolve hostname (?P<host>\S+): (?P<why>[^.]+)",
        "its name is not known to this machine: {why}",
        "the node's address, or a name this machine can resolve",
        "set ansible_host in the inventory to the node's address; it is now {host}",
    ),
    Trouble(
        r"(?P<why>No route to host|Network is unreachable)",
        "it cannot be reached: {why}",
        MACHINE_ON,
        "check that the machine is on, that its address in the inventory is correct, and that this machine is in its "
        "network (VPN)",
    ),
    Trouble(
        r"(port (?P<port>\d+): )?Connection refused",
        "nothing listens on its port {port}: Connection refused",
        "an SSH server on the node",
        "if the machine has just started, wait a minute; otherwise set ansible_port to the port of its SSH server",
    ),
    Trouble(
        r"timed out|no answer within|Timeout|did not answer",
        "it did not answer in time",
        MACHINE_ON,
        "check that the machine is on, and that the firewall of its provider allows SSH from this machine",
    ),
    Trouble(
        r"kex_exchange_identification|Connection (closed|reset) by",
        "it closes the connection before login",
        "an SSH server on the node that accepts connections from this machine",
        "check that ansible_port is the port of its SSH server; the server's log says more: journalctl -u ssh",
    ),
)
OTHER = Trouble(
    "",
    "the node does not answer: {words}",
    "a node reachable by SSH, with Python 3.8 or newer",
    "run this again with -vvv to see details, or leave the node out with -e nodes=NAME,NAME",
)


def shortened(message: str) -> str:
    """ssh's message, without Ansible's text around it."""
    return re.sub(
        r"^Task failed: |.*Make sure this host can be reached over ssh: |^Failed to connect to the host via ssh: ",
        "",
        " ".join(message.split()),
    )


def known_trouble(words: str) -> Trouble | None:
    """The trouble that a message describes, with its texts filled in; None if it is not about connections."""
    for trouble in TROUBLES:
        match = re.search(trouble.words, words)
        if match:
            said = {name: value or "" for name, value in match.groupdict().items()}
            said["user"] = said.get("user") or said.get("other", "")
            said["port"] = said.get("port") or "22"
            return Trouble(
                trouble.words,
                trouble.found.format(**said),
                trouble.needed,
                trouble.todo.format(**said),
            )
    return None


def trouble_of(name: str, message: str) -> Trouble:
    """The trouble of a node's message, always with something to do."""
    words = shortened(message)
    words = words[len(name) + 2 :] if words.startswith(f"{name}: ") else words
    words = words.strip() or "no reason given"
    other = Trouble("", OTHER.found.format(words=words), OTHER.needed, OTHER.todo)
    return known_trouble(words) or other


def connection_findings(unreached: Mapping[str, str]) -> list[Finding]:
    """One finding for each trouble, with all nodes that have it; unreached: the connection's message by node name."""
    nodes: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], Trouble] = {}
    for name, message in unreached.items():
        trouble = trouble_of(name, message)
        key = (trouble.found, trouble.needed)
        first.setdefault(key, trouble)
        nodes.setdefault(key, []).append(name)
    return [error(ID, names, first[key].found, first[key].needed, first[key].todo) for key, names in nodes.items()]

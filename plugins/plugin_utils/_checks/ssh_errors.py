# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Recognize why a node cannot be reached from the messages of ssh and sudo, and suggest a remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ansible_collections.muster.training.plugins.plugin_utils._checks.findings import Finding, error

CHECK_ID = "unreachable"


@dataclass(frozen=True)
class ConnectionFailure:
    """A known connection failure: its message's pattern, and a finding's texts, filled in from the pattern's groups.

    problem and requirement are the same for all nodes with this failure, so that their findings merge into one; remedy
    may name the first node.
    """

    pattern: str
    problem: str
    requirement: str
    remedy: str


NETWORK_REQUIREMENT = "a running machine, in a network that this machine can reach"
LOGIN_REQUIREMENT = "a user on the node, and that user's SSH key or password"
ROOT_REQUIREMENT = "a user who can become root with sudo"
PASSWORD_REQUIREMENT = "passwordless sudo, or the same sudo password on all nodes"
# The first match is used: ssh prints the reason first and its consequences last.
KNOWN_FAILURES = (
    ConnectionFailure(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED.*ssh-keygen -f \"?(?P<file>[^\"\s]+)\"? -R \"?(?P<host>[^\"\s]+)",
        "its host key differs from the one that this machine has recorded",
        (
            "the recorded key: a different key means that the machine was reinstalled, or that another machine is "
            "responding"
        ),
        "if the machine was reinstalled, remove the old key for each node: ssh-keygen -f {file} -R '{host}'",
    ),
    ConnectionFailure(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for \S+ has changed",
        "its host key differs from the one that this machine has recorded",
        (
            "the recorded key: a different key means that the machine was reinstalled, or that another machine is "
            "responding"
        ),
        "if the machine was reinstalled, remove the old key from known_hosts: ssh-keygen -R ADDRESS",
    ),
    ConnectionFailure(
        r"host key is known for \S+ and you have requested strict checking|Host key verification failed"
        r"|Host Key checking is enabled",
        "its host key is not known to this machine",
        "an accepted host key",
        "if the machines are new, accept their keys: run this command again with "
        "--ssh-extra-args='-o StrictHostKeyChecking=accept-new'",
    ),
    ConnectionFailure(
        r"(Identity file|no such identity:) (?P<key>\S+?)( not accessible)?: (?P<reason>[A-Z][a-z ]+[a-z])"
        r".*Permission denied \(",
        "this machine cannot read the key file {key}: {reason}",
        LOGIN_REQUIREMENT,
        "correct ansible_ssh_private_key_file in the inventory, or --private-key",
    ),
    ConnectionFailure(
        r"Permissions \d+ for '(?P<key>[^']+)' are too open",
        "ssh ignores the key file {key}: other users can read it",
        LOGIN_REQUIREMENT,
        "chmod 600 {key}",
    ),
    ConnectionFailure(
        r"Too many authentication failures",
        "ssh offered too many keys and the node closed the connection: Too many authentication failures",
        LOGIN_REQUIREMENT,
        "select one key: set ansible_ssh_private_key_file, and ansible_ssh_common_args: -o IdentitiesOnly=yes",
    ),
    ConnectionFailure(
        r"(?P<user>[^\s@]+)@(?P<host>\S+): Permission denied \((?P<methods>[^)]*)\)",
        "it rejects the login of {user}: Permission denied ({methods})",
        LOGIN_REQUIREMENT,
        (
            "correct ansible_user or ansible_ssh_private_key_file in the inventory; test them with ssh -i KEY_FILE "
            "{user}@{host}"
        ),
    ),
    ConnectionFailure(
        r"[Ii]ncorrect (username/)?password:?( |$)(?!attempt)",
        "it rejects the login password",
        LOGIN_REQUIREMENT,
        "correct ansible_user, or run this command again with --ask-pass and the right password",
    ),
    ConnectionFailure(
        r"This account is currently not available",
        "its user is not allowed to log in: This account is currently not available",
        LOGIN_REQUIREMENT,
        "correct ansible_user in the inventory",
    ),
    ConnectionFailure(
        r"sudo: a (terminal|password) is required|Missing \S+ password",
        "sudo asks for a password",
        PASSWORD_REQUIREMENT,
        "run this command again with --ask-become-pass",
    ),
    ConnectionFailure(
        r"Incorrect \S+ password|incorrect password attempt|no password was provided",
        "sudo rejects the password",
        PASSWORD_REQUIREMENT,
        "run this command again with --ask-become-pass and the right password",
    ),
    ConnectionFailure(
        r"(?P<user>\S+) is not in the sudoers file|user (?P<denied>\S+) is not allowed to execute",
        "sudo rejects user {user}: not in the sudoers file",
        ROOT_REQUIREMENT,
        "correct ansible_user in the inventory, or allow {user} to use sudo on the node: as root, run usermod -aG "
        "sudo {user}",
    ),
    ConnectionFailure(
        r"sudo: (command )?not found|sudo: No such file",
        "sudo is not installed",
        ROOT_REQUIREMENT,
        "log in as root (ansible_user: root in the inventory), or install sudo on the node: as root, run apt-get "
        "install sudo",
    ),
    ConnectionFailure(
        r"Could not resolve hostname (?P<host>\S+): Temporary failure",
        "its name cannot be resolved at the moment: Temporary failure in name resolution",
        "a name server that this machine can query",
        "check this machine's network: getent hosts {host}",
    ),
    ConnectionFailure(
        r"Could not resolve hostname (?P<host>\S+): (?P<reason>[^.]+)",
        "this machine cannot resolve its name: {reason}",
        "the node's address, or a name that this machine can resolve",
        "set ansible_host in the inventory to the node's address; it is currently {host}",
    ),
    ConnectionFailure(
        r"(?P<reason>No route to host|Network is unreachable)",
        "it cannot be reached: {reason}",
        NETWORK_REQUIREMENT,
        "check that the machine is running, that its address in the inventory is correct, and that this machine is in "
        "its network (VPN)",
    ),
    ConnectionFailure(
        r"(port (?P<port>\d+): )?Connection refused",
        "nothing is listening on its port {port}: Connection refused",
        "an SSH server on the node",
        "if the machine has just started, wait a minute; otherwise set ansible_port to the port of its SSH server",
    ),
    ConnectionFailure(
        r"timed out|no (?:answer|reply) within|Timeout|did not (?:answer|respond)",
        "it did not respond in time",
        NETWORK_REQUIREMENT,
        "check that the machine is running, and that its provider's firewall allows SSH from this machine",
    ),
    ConnectionFailure(
        r"kex_exchange_identification|Connection (closed|reset) by",
        "it closes the connection before login",
        "an SSH server on the node that accepts connections from this machine",
        "check that ansible_port is the port of its SSH server; see the server's log: journalctl -u ssh",
    ),
)
UNKNOWN_FAILURE = ConnectionFailure(
    "",
    "no usable reply from the node: {message}",
    "a node reachable by SSH, with Python 3.8 or newer",
    "run this command again with -vvv to see details, or exclude the node with -e nodes=NAME,NAME",
)


def strip_wrapper(message: str) -> str:
    """Strip the text that Ansible puts around an ssh message."""
    return re.sub(
        r"^Task failed: |.*Make sure this host can be reached over ssh: |^Failed to connect to the host via ssh: ",
        "",
        " ".join(message.split()),
    )


def match_failure(message: str) -> ConnectionFailure | None:
    """Return the failure that a message describes, with its texts filled in, or None if it is about something else."""
    for failure in KNOWN_FAILURES:
        match = re.search(failure.pattern, message)
        if match:
            values = {name: value or "" for name, value in match.groupdict().items()}
            values["user"] = values.get("user") or values.get("denied", "")
            values["port"] = values.get("port") or "22"
            return ConnectionFailure(
                failure.pattern,
                failure.problem.format(**values),
                failure.requirement,
                failure.remedy.format(**values),
            )
    return None


def classify_failure(name: str, message: str) -> ConnectionFailure:
    """Return the failure that a node's message describes; an unknown failure comes with general advice."""
    text = strip_wrapper(message)
    text = text[len(name) + 2 :] if text.startswith(f"{name}: ") else text
    text = text.strip() or "no reason given"
    unknown = ConnectionFailure(
        "", UNKNOWN_FAILURE.problem.format(message=text), UNKNOWN_FAILURE.requirement, UNKNOWN_FAILURE.remedy
    )
    return match_failure(text) or unknown


def connection_findings(unreached: Mapping[str, str]) -> list[Finding]:
    """Return one finding per failure, listing all nodes affected by it; unreached: the error message by node name."""
    nodes: dict[tuple[str, str], list[str]] = {}
    first: dict[tuple[str, str], ConnectionFailure] = {}
    for name, message in unreached.items():
        failure = classify_failure(name, message)
        key = (failure.problem, failure.requirement)
        first.setdefault(key, failure)
        nodes.setdefault(key, []).append(name)
    return [
        error(CHECK_ID, names, problem=first[key].problem, requirement=first[key].requirement, remedy=first[key].remedy)
        for key, names in nodes.items()
    ]

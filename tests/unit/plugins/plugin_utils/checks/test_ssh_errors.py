# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of ssh and sudo about an unusable node are classified and reported once. The wording is OpenSSH 9.2's."""

from __future__ import annotations

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._checks.ssh_errors import (
    connection_findings,
    match_failure,
    strip_wrapper,
)

CHANGED = """@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r
Someone could be eavesdropping on you right now (man-in-the-middle attack)!\r
It is also possible that a host key has just been changed.\r
The fingerprint for the ED25519 key sent by the remote host is
SHA256:BYKa0XklvKrZtVQnn73JkJoFPiR4Q/m7sIpXiohtTrs.\r
Please contact your system administrator.\r
Add correct host key in /home/me/.ssh/known_hosts to get rid of this message.\r
Offending ED25519 key in /home/me/.ssh/known_hosts:1\r
  remove with:\r
  ssh-keygen -f "/home/me/.ssh/known_hosts" -R "10.0.0.9"\r
Host key for 10.0.0.9 has changed and you have requested strict checking.\r
Host key verification failed.\r
"""
UNKNOWN = """No ED25519 host key is known for 10.0.0.9 and you have requested strict checking.\r
Host key verification failed.\r
"""
NO_KEY = """Warning: Identity file /home/me/none not accessible: No such file or directory.
muster@10.0.0.9: Permission denied (publickey,password).\r
"""
NO_IDENTITY = """no such identity: /home/me/none: No such file or directory\r
muster@10.0.0.9: Permission denied (publickey,password).\r
"""
MANY_KEYS = """Received disconnect from 10.0.0.9 port 22:2: Too many authentication failures\r
Disconnected from 10.0.0.9 port 22\r
"""
BANNER = """Connection timed out during banner exchange\r
Connection to 10.0.0.9 port 2299 timed out\r
"""
RESET = """kex_exchange_identification: read: Connection reset by peer\r
Connection reset by 10.0.0.9 port 2299\r
"""
UNEXPECTED_REPLY = "unexpected reply from the node (exit code 1): "
MESSAGES = [
    (CHANGED, "its host key differs from the one", "ssh-keygen -f /home/me/.ssh/known_hosts -R '10.0.0.9'"),
    (UNKNOWN, "its host key is not known", "StrictHostKeyChecking=accept-new"),
    (NO_IDENTITY, "cannot read the key file /home/me/none: No such file or directory", "ansible_ssh_private_key_file"),
    (NO_KEY, "cannot read the key file /home/me/none: No such file or directory", "ansible_ssh_private_key_file"),
    (
        "me@10.0.0.9: Permission denied (publickey,password).\r\n",
        "rejects the login of me: Permission denied",
        "ssh -i",
    ),
    (MANY_KEYS, "Too many authentication failures", "IdentitiesOnly=yes"),
    ("ssh: connect to host 10.0.0.9 port 2222: Connection refused\r\n", "its port 2222: Conn", "ansible_port"),
    ("ssh: Could not resolve hostname no-such: Name or service not known\r\n", "Name or service", "ansible_host"),
    ("ssh: Could not resolve hostname a: Temporary failure in name resolution\r\n", "cannot be resolved", "getent"),
    ("ssh: connect to host 10.0.0.9 port 22: No route to host\r\n", "No route to host", "machine is running"),
    ("ssh: connect to host 10.0.0.9 port 22: Connection timed out\r\n", "not respond in time", "firewall"),
    (BANNER, "not respond in time", "firewall"),
    (RESET, "closes the connection", "journalctl -u ssh"),
    (UNEXPECTED_REPLY + "This account is currently not available.", "not allowed to log in", "ansible_user"),
    (UNEXPECTED_REPLY + "sudo: a password is required", "sudo asks for a password", "--ask-become-pass"),
    ("Missing sudo password", "sudo asks for a password", "--ask-become-pass"),
    ("Incorrect sudo password", "sudo rejects the password", "the right password"),
    (UNEXPECTED_REPLY + "sudo: 1 incorrect password attempt", "sudo rejects the password", "the right password"),
    (UNEXPECTED_REPLY + "me is not in the sudoers file.", "sudo rejects user me", "usermod -aG sudo me"),
    (UNEXPECTED_REPLY + "/bin/sh: 1: sudo: not found", "sudo is not installed", "ansible_user: root"),
]
WRAPPED = (
    "",
    "Task failed: Failed to connect to the host via ssh: ",
    'Task failed: Data could not be sent to remote host "10.0.0.9". Make sure this host can be reached over ssh: ',
)


@pytest.mark.parametrize("before", WRAPPED)
@pytest.mark.parametrize(("expected_text", "result", "todo"), MESSAGES)
def test_each_connection_problem_has_its_own_finding_and_remedy(
    expected_text: str, result: str, todo: str, before: str
) -> None:
    (finding,) = connection_findings({"node1": before + expected_text})
    assert result in finding.problem and todo in finding.remedy, finding
    assert "{" not in finding.problem + finding.requirement + finding.remedy
    first = [
        kind
        for kind in MESSAGES
        if (output := match_failure(strip_wrapper(expected_text))) and kind[1] in output.problem
    ]
    assert len({kind[1] for kind in first}) == 1, "two kinds have the same words"


def test_same_problem_on_many_nodes_is_one_finding() -> None:
    unreached = {f"node{n}": f"me@10.0.0.{n}: Permission denied (publickey)." for n in range(64)}
    (finding,) = connection_findings(unreached)
    assert finding.nodes == tuple(unreached)
    assert finding.remedy.endswith("ssh -i KEY_FILE me@10.0.0.0")


def test_unknown_messages_are_shown_and_merged_without_node_names() -> None:
    output = "no Python interpreter on this node (not found); install python3 there"
    (finding,) = connection_findings({name: f"{name}: {output}" for name in ("a", "b")})
    assert finding.nodes == ("a", "b") and output in finding.problem

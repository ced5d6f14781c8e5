# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Test whether a node can reach its peers over SSH, as some launchers do."""

from __future__ import annotations

import threading
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

CONNECT_TIMEOUT = 5  # seconds
TIMEOUT = 10.0  # seconds allowed for one peer
MAX_PARALLEL = 4  # sshd randomly drops connections once ten are unauthenticated (MaxStartups 10:30:100)
TRIES = 3


def peers_after(node: str, names: list[str]) -> list[str]:
    """Return the other names, starting after this node's, so that not all nodes begin with the same peer."""
    return [name for name in sorted(names, key=lambda name: (name < node, name)) if name != node]


class SshQuery:
    """Tests logins with `ssh NAME true` without prompting; tests for all names start on creation, in this order.

    connect_timeout: seconds to connect. timeout: seconds per name.
    """

    def __init__(self, names: list[str], connect_timeout: int = CONNECT_TIMEOUT, timeout: float = TIMEOUT) -> None:
        self.waiting, self.connect_timeout, self.timeout = names[::-1], connect_timeout, timeout
        self.outcomes: dict[str, str] = {}
        self.workers = [threading.Thread(target=self.work) for _worker in range(min(MAX_PARALLEL, len(self.waiting)))]
        for worker in self.workers:
            worker.start()

    def work(self) -> None:
        """Try peers one by one."""
        while self.waiting:
            try:
                name = self.waiting.pop()
            except IndexError:  # another thread was faster
                return
            for attempt in range(TRIES):
                self.outcomes[name] = try_peer(name, self.connect_timeout, self.timeout)
                if "kex_exchange_identification" not in self.outcomes[name]:
                    break
                time.sleep(0.2 * (attempt + 1))  # rejected because of MaxStartups, whose queue soon drains

    def result(self) -> dict[str, str]:
        """Return {name: "" or ssh's message}."""
        for worker in self.workers:
            worker.join()
        return self.outcomes


def try_peer(name: str, connect_timeout: int, timeout: float) -> str:
    """Return "" if logging in to a peer works without a prompt, or the end of ssh's output otherwise."""
    options = [f"ConnectTimeout={connect_timeout}", "BatchMode=yes", "ForwardX11=no", "ClearAllForwardings=yes"]
    command = Command(["ssh", *(word for option in options for word in ("-o", option)), name, "true"])
    output = command.output(time.monotonic() + timeout)
    if output.code == 0:
        return ""
    if output.hangs:
        return f"no reply within {timeout:.0f} s"
    return " ".join(output.text.split())[-300:] or f"ssh exited with code {output.code}"

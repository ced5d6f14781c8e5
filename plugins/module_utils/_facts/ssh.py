# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a node can reach its peers by ssh, as some launchers do. Private to this collection.

Runs on the node, standard library only, Python >= 3.8.
"""

from __future__ import annotations

import threading
import time

from ansible_collections.muster.training.plugins.module_utils._facts.commands import Command

CONNECT_TIMEOUT = 5  # seconds
TIMEOUT = 10.0  # seconds for one peer
AT_A_TIME = 4  # sshd randomly drops connections once ten are unauthenticated (MaxStartups 10:30:100)
TRIES = 3


def peers_after(own: str, names: list[str]) -> list[str]:
    """The other names, those after this node's first, so that not all nodes begin with the same one."""
    return [name for name in sorted(names, key=lambda name: (name < own, name)) if name != own]


class SshQuestion:
    """Whether `ssh NAME true` works without a prompt, tried with all names on creation, in this order.

    connect: seconds for a connection. seconds: for one name.
    """

    def __init__(self, names: list[str], connect: int = CONNECT_TIMEOUT, seconds: float = TIMEOUT) -> None:
        self.waiting, self.connect, self.seconds = names[::-1], connect, seconds
        self.outcomes: dict[str, str] = {}
        self.workers = [threading.Thread(target=self.work) for _worker in range(min(AT_A_TIME, len(self.waiting)))]
        for worker in self.workers:
            worker.start()

    def work(self) -> None:
        """Try peers one after another."""
        while self.waiting:
            try:
                name = self.waiting.pop()
            except IndexError:  # another thread was faster
                return
            for again in range(TRIES):
                self.outcomes[name] = try_peer(name, self.connect, self.seconds)
                if "kex_exchange_identification" not in self.outcomes[name]:
                    break
                time.sleep(0.2 * (again + 1))  # refused by MaxStartups, whose queue soon empties

    def answer(self) -> dict[str, str]:
        """Return {name: "" or ssh's message}."""
        for worker in self.workers:
            worker.join()
        return self.outcomes


def try_peer(name: str, connect: int, seconds: float) -> str:
    """Return "" if a login to a peer works without a prompt, else the end of ssh's output."""
    options = [f"ConnectTimeout={connect}", "BatchMode=yes", "ForwardX11=no", "ClearAllForwardings=yes"]
    command = Command(["ssh", *(word for option in options for word in ("-o", option)), name, "true"])
    output = command.output(time.monotonic() + seconds)
    if output.code == 0:
        return ""
    if output.hangs:
        return f"no answer within {seconds:.0f} s"
    return " ".join(output.text.split())[-300:] or f"ssh ended with {output.code}"

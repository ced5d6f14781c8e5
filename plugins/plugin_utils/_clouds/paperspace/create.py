# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make a thing at Paperspace, and never a duplicate when the answer is lost. Private to this collection."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import Noted, There
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import ClusterRecord
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    own_drives,
    own_machines,
    own_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostAnswerError,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_account

#: Seconds for which a new thing may be missing in a list; later, it was not made.
SEEN_AFTER = 60.0
LOOK_AGAIN = 5.0


class ClusterError(Exception):
    """The cluster is not in the wanted state. str() is for a person: what exists now, and what to do."""


@dataclasses.dataclass
class Work:
    """A command's context. say: shows a line to the waiting user. clock: seconds since 1970."""

    cluster: str
    client: Client
    record: ClusterRecord
    network_id: str = ""
    say: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    @property
    def noted(self) -> Noted:
        """What the record adds to what exists."""
        return self.record.noted()


def look(work: Work, wait: bool = True) -> There:
    """What exists, once the outcome of every request is known, including an earlier command's.

    wait: for things requested less than a minute ago that are not listed yet.
    """
    began = work.clock()
    while True:
        there = read_account(work.client)
        now = work.clock()
        unseen = []
        for entry in work.record.content["entries"]:
            if entry["what"] == "template":
                continue  # listed only once it is complete; its maker searches for it
            found = find(work, there, entry["what"], entry["name"])
            if found and not entry["id"]:
                work.say(f"found {entry['what']} {entry['name']} ({found}), requested earlier without an answer")
                work.record.made(entry["what"], entry["name"], found)
            elif not found and now - entry["asked"][-1] < SEEN_AFTER and now - began < SEEN_AFTER:
                unseen.append(entry["name"])
        if not unseen or not wait:
            return there
        work.sleep(LOOK_AGAIN)


def find(work: Work, there: There, what: str, name: str) -> str:
    """The id of a thing of the cluster, "" if it does not exist."""
    network = own_network(work.cluster, there["networks"], work.network_id)
    things: list[Mapping[str, Any]] = {
        "network": [network] if network else [],
        "machine": own_machines(work.cluster, network, there),
        "drive": own_drives(work.cluster, network, there),
        "script": there["scripts"],
    }[what]  # type: ignore[assignment]
    return next((str(thing["id"]) for thing in things if thing["name"] == name), "")


def make(work: Work, what: str, name: str, ask: Callable[[], str]) -> str:
    """Make a thing and return its id. ask: sends the request and returns the id in its answer.

    If the answer is lost, the thing is searched for; if it is not found within a minute, it is requested once more.
    Raises PaperspaceError.
    """
    while True:
        work.record.intend(what, name, work.clock())
        try:
            made = ask()
        except LostAnswerError as error:
            found = find(work, look(work), what, name)
            if found:
                return found
            if f"{what} {name}" in work.noted["asked_twice"]:
                raise error.cause from None
        except PaperspaceError as error:
            if error.refused:
                work.record.forget(what, name)
            raise
        else:
            work.record.made(what, name, made)
            work.say(f"made {what} {name} ({made})")
            return made

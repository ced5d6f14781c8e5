# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Discover and create resources at Paperspace, without duplicates when a reply is lost."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.muster.training.plugins.plugin_utils._clouds.documents import AccountResources, JournalNotes
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import ClusterJournal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import (
    find_drives,
    find_machines,
    find_network,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    LostReplyError,
    PaperspaceError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.resources import read_account

#: Seconds for which a new resource may be missing in a list; after that, it was not created.
LISTING_TIMEOUT = 60.0
POLL_INTERVAL = 5.0


class PaperspaceClusterError(Exception):
    """The cluster is not in the desired state. str() says what exists now and what to do."""


@dataclasses.dataclass
class PaperspaceContext:
    """What every step of a command needs. show: prints a line for the waiting user. clock: seconds since 1970."""

    cluster: str
    client: Client
    journal: ClusterJournal
    network_id: str = ""
    show: Callable[[str], None] = print
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time

    @property
    def notes(self) -> JournalNotes:
        """What the journal adds to the account's state."""
        return self.journal.notes()


def discover(context: PaperspaceContext, wait: bool = True) -> AccountResources:
    """Return what exists, once the outcome of every request is known, including an earlier command's.

    wait: for resources requested less than a minute ago that are not listed yet.
    """
    started = context.clock()
    while True:
        resources = read_account(context.client)
        now = context.clock()
        unlisted = []
        for entry in context.journal.content["entries"]:
            if entry["what"] == "template":
                continue  # listed only once it is complete; image.py searches for it
            resource_id = find_resource_id(context, resources, entry["what"], entry["name"])
            if resource_id and not entry["id"]:
                context.show(
                    f"found {entry['what']} {entry['name']} ({resource_id}), requested earlier; its reply was lost"
                )
                context.journal.record_created(entry["what"], entry["name"], resource_id)
            elif not resource_id and now - entry["asked"][-1] < LISTING_TIMEOUT and now - started < LISTING_TIMEOUT:
                unlisted.append(entry["name"])
        if not unlisted or not wait:
            return resources
        context.sleep(POLL_INTERVAL)


def find_resource_id(context: PaperspaceContext, resources: AccountResources, what: str, name: str) -> str:
    """Return the id of a resource of the cluster, or "" if it does not exist."""
    network = find_network(context.cluster, resources["networks"], context.network_id)
    candidates: list[Mapping[str, Any]] = {
        "network": [network] if network else [],
        "machine": find_machines(context.cluster, network, resources),
        "drive": find_drives(context.cluster, network, resources),
        "script": resources["scripts"],
    }[what]  # type: ignore[assignment]
    return next((str(candidate["id"]) for candidate in candidates if candidate["name"] == name), "")


def create_resource(context: PaperspaceContext, what: str, name: str, send_request: Callable[[], str]) -> str:
    """Create a resource and return its id. send_request: returns the id in the reply.

    If the reply is lost, search for the resource; if it is not found within a minute, request it once more.
    Raise PaperspaceError if that fails too.
    """
    while True:
        context.journal.record_request(what, name, context.clock())
        try:
            resource_id = send_request()
        except LostReplyError as error:
            existing_id = find_resource_id(context, discover(context), what, name)
            if existing_id:
                return existing_id
            if f"{what} {name}" in context.notes["repeated"]:
                raise error.cause from None
        except PaperspaceError as error:
            if error.refused:
                context.journal.forget(what, name)
            raise
        else:
            context.journal.record_created(what, name, resource_id)
            context.show(f"created {what} {name} ({resource_id})")
            return resource_id

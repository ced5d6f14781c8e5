# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Determine whether the ranks have saved after a notice that ends the run, which then need not wait any longer.

The nodes list their checkpoints when the notice arrives, and repeatedly after that. No clocks are compared.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import (
    agree_on_checkpoint,
    is_listed_checkpoint,
    share_stores,
)
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    CHECKPOINT_READ_TIMEOUT,
    SAVE_WATCH_INTERVAL,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.hub_preparation import (
    MAX_LISTED,
    describe_step,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.node_preparation import CHECK

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Sequence

    from ansible_collections.muster.training.plugins.module_utils._checkpoints.documents import Checkpoint
    from ansible_collections.muster.training.plugins.module_utils._run.documents import Data, Plan
    from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation.hub_preparation import Sender


class SaveWatch:
    """The checkpoints of all nodes, as they change after a notice."""

    def __init__(self, plan: Plan, send: Sender) -> None:
        self.plan = plan
        self.send = send
        self.names = [node["name"] for node in plan["nodes"]]
        self.number = ""  # number of the current round; "" if there is no notice
        self.rounds = 0
        self.due = 0.0
        self.asked: list[int] = []
        self.listings: dict[int, list[Checkpoint]] = {}
        self.stores: dict[int, str] = {}  # stores of the nodes that have replied so far
        # by name: whether it was complete when the notice arrived, and when it was saved
        self.baseline: dict[str, tuple[bool, float]] | None = None
        self.last: tuple[str, float, int] | None = None  # the newer checkpoint of the last round
        self.has_saved = False

    def forget(self) -> None:
        """Forget the notice that ended an attempt."""
        rounds = self.rounds
        self.__dict__.update(vars(SaveWatch(self.plan, self.send)))
        self.rounds = rounds  # late replies must not be counted

    def step(self, members: Sequence[int], world_size: int, now: float) -> str:
        """Ask again if that is due; return the checkpoint that is newer than the notice, once it is complete."""
        if self.has_saved or not str(self.plan.get("checkpoints", "")).startswith("/"):
            return ""
        text = ""
        if self.number and all(member in self.stores for member in self.asked if member in members):
            text = self.judge(world_size)
            self.number = ""
        is_late = now >= self.due + CHECKPOINT_READ_TIMEOUT  # a reply was lost when its connection broke
        if (not self.number or is_late) and now >= self.due and not self.has_saved:
            self.due = now + SAVE_WATCH_INTERVAL
            self.rounds += 1
            self.number = f"save {self.rounds}"
            self.asked, self.listings, self.stores = list(members), {}, {}
            for member in members:
                self.send(member, {"kind": CHECK, "number": self.number, "list_only": True})
        return text

    def take(self, member: int, reply: Data) -> None:
        """Handle a node's reply; replies to other requests are ignored."""
        if not self.number or reply.get("number") != self.number or member not in self.asked:
            return
        checkpoint = reply.get("checkpoint")
        if checkpoint is None:
            self.stores[member] = str(reply.get("store", ""))
        elif is_listed_checkpoint(checkpoint) and len(self.listings.get(member, ())) < MAX_LISTED:
            self.listings.setdefault(member, []).append(checkpoint)

    def judge(self, world_size: int) -> str:
        """Return the checkpoint that is newer than the notice, if it has not changed since the last round."""
        listings = {self.names[member]: self.listings.get(member, []) for member in self.asked}
        stores = {self.names[member]: self.stores.get(member, "") for member in self.asked}
        shared = share_stores(listings, stores)
        if self.baseline is None:
            entries = [checkpoint for listing in shared.values() for checkpoint in listing]
            self.baseline = {entry["name"]: (entry["complete"], entry["saved"]) for entry in entries}
            return ""
        newest = agree_on_checkpoint(shared, list(shared), world_size).checkpoint
        if newest is None or not self.is_newer(newest):
            self.last = None
            return ""
        current = (newest["name"], newest["saved"], newest["size"])
        self.has_saved, self.last = current == self.last, current
        return describe_step(newest) if self.has_saved else ""

    def is_newer(self, checkpoint: Checkpoint) -> bool:
        """Return whether the job began to save a checkpoint after the notice."""
        if self.baseline is None or checkpoint["name"] not in self.baseline:
            return self.baseline is not None
        was_complete, saved = self.baseline[checkpoint["name"]]
        return was_complete and checkpoint["saved"] > saved

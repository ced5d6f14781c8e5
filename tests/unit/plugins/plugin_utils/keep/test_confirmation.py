# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keep confirms a loss before it creates a machine: the run's or the provider's list may be incomplete once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._keep.confirmation import (
    CONFIRM_INTERVAL,
    CONFIRM_TIME,
    Need,
    confirm,
)
from ansible_collections.muster.training.plugins.plugin_utils._keep.keeper import read_notes
from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import (
    Confirm,
    MissingNode,
    Prepare,
    Rent,
    Situation,
    Watch,
)
from tests.unit.plugins.plugin_utils.keep.test_keeper import World, break_one, lose_one
from tests.unit.plugins.plugin_utils.keep.test_planner import LOST, NOW

NEED = Need(3, frozenset({"gpu2"}), NOW)


@pytest.mark.parametrize(
    ("need", "now", "expected"),
    [
        (None, NOW, (Confirm(), NEED)),
        (NEED, NOW + CONFIRM_TIME - 1, (Confirm(), NEED)),
        (NEED, NOW + CONFIRM_TIME, (Rent(3), NEED)),
        (NEED._replace(nnodes=4), NOW + 60, (Confirm(), NEED._replace(since=NOW + 60))),
        (NEED._replace(missing=frozenset({"gpu1"})), NOW + 60, (Confirm(), NEED._replace(since=NOW + 60))),
        (NEED, NOW - 3600, (Confirm(), NEED._replace(since=NOW - 3600))),
    ],
    ids=["first", "too early", "confirmed", "a different number", "another node", "clock set back"],
)
def test_machines_are_created_once_the_loss_is_confirmed(need: Need | None, now: float, expected: Any) -> None:
    assert confirm(Rent(3), LOST, need, now) == expected


def test_node_that_comes_and_goes_does_not_delay_the_replacement_of_another() -> None:
    both = LOST._replace(missing=(*LOST.missing, MissingNode("gpu1")))
    need = None
    for number, situation in enumerate((LOST, both) * 2):
        action, need = confirm(Rent(3), situation, need, NOW + number * CONFIRM_TIME / 3)
    assert action == Rent(3)


@pytest.mark.parametrize("action", [Watch(), Prepare(("gpu4",))])
def test_other_actions_need_no_confirmation_and_cancel_a_pending_one(action: Watch | Prepare) -> None:
    assert confirm(action, LOST, NEED, NOW + 60) == (action, None)


def lost_machines(world: World) -> dict[str, bool]:
    """Return the machines of lost nodes in the notes, and whether each must not be used again."""
    notes = read_notes(world.record)
    return notes["lost"] if notes else {}


class IncompleteWorld(World):
    """A cluster whose lists are incomplete in some observations."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.change: Callable[[int, Situation], Situation] = lambda number, situation: situation
        self.pauses: list[float] = []

    def observe(self) -> Situation:
        situation = super().observe()
        return self.change(self.observations, situation)

    def pause(self, seconds: float) -> bool:
        self.now += seconds
        self.pauses.append(seconds)
        return self.observations > 12


def test_node_that_is_missing_from_a_single_observation_is_not_replaced(tmp_path: Path) -> None:
    world = IncompleteWorld(tmp_path)
    missing = (MissingNode("bert-1"),)
    world.change = lambda number, at: at._replace(missing=missing, unreachable={"bert-1"}) if number == 3 else at
    world.keep()
    assert world.account.count - 1 == world.created
    assert [text for text in world.messages if text.startswith("bert-1 lost: checking for 30 s")]
    assert world.pauses[2] == CONFIRM_INTERVAL and set(world.pauses) == {CONFIRM_INTERVAL, 20.0}


def test_lost_node_is_replaced_after_the_need_was_confirmed(tmp_path: Path) -> None:
    world = IncompleteWorld(tmp_path)
    lose_one(world)
    world.keep()
    assert world.lost() == [] and world.account.count - 1 == world.created + 1
    assert sum(world.pauses[: world.pauses.index(0.0)]) == CONFIRM_TIME


def test_unlisted_machine_that_was_prepared_is_not_replaced(tmp_path: Path) -> None:
    """The provider's list lacks the new machine once, after it was created and before it joins."""
    world = IncompleteWorld(tmp_path)
    lose_one(world)
    unlisted: list[str] = []

    def change(_number: int, at: Situation) -> Situation:
        if not world.prepared or unlisted:
            return at
        unlisted.append("bert-1")
        return at._replace(machines=tuple(name for name in at.machines if name != "bert-1"))

    world.change = change
    world.keep()
    assert unlisted and world.lost() == []
    assert world.account.count - 1 == world.created + 1 and len(world.joins) == 1


def test_broken_machine_missing_once_from_the_list_is_not_used_again(tmp_path: Path) -> None:
    world = IncompleteWorld(tmp_path)
    break_one(world)
    world.keep()
    assert lost_machines(world) == {"bert-1": True}
    world.observations, world.change = 0, lambda number, at: at._replace(machines=()) if number == 2 else at
    world.keep()
    assert lost_machines(world) == {"bert-1": True}
    world.observations, world.change = 0, lambda number, at: at._replace(machines=())
    world.keep()
    assert lost_machines(world) == {}

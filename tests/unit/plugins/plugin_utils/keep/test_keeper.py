# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keep with the provisioning engine: killed at every request and step, and restarted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.engine.provision import provision
from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError, ClusterError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.journal import read_journal
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._keep import keeper as keep_module
from ansible_collections.muster.training.plugins.plugin_utils._keep.keeper import Clock, Keeper, read_notes, write_notes
from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import (
    ACTIVE,
    ENDED,
    MissingNode,
    Notes,
    Situation,
)
from tests.support.minimal_cloud import Account, MinimalCloud, Request

HORIZON = 120  # polls the run, which by then has ended


class Killed(BaseException):
    """End of keep, as if by a signal that cannot be caught."""


class World:
    """A cluster at the minimal provider, and a run on it. Machines are identified by their IDs at the provider."""

    def __init__(self, directory: Path, size: int = 3, budget: float | None = 10.0) -> None:
        self.directory, self.budget = directory, budget
        self.record, self.clusters = directory / "record", directory / "clusters"
        self.record.mkdir()
        self.clusters.mkdir()
        self.now = 1_800_000_000.0
        self.account = Account()
        self.broken: set[str] = set()
        self.hanging: set[str] = set()
        self.prepared: set[str] = set()
        self.joins: list[str] = []
        self.messages: list[str] = []
        self.ticks, self.kill_at = 0, 0
        self.observations = 0
        self.rents = True
        self.static: tuple[str, ...] = ()
        provision(self.cloud(), Request(nnodes=size))
        self.created = len(self.ids())
        self.members = {name: self.ids()[name] for name in sorted(self.ids())}  # id by name
        self.account.cut = lambda change, executed: self.tick()

    def cloud(self) -> MinimalCloud:
        journal = read_journal(self.clusters, "bert", "minimal")
        return MinimalCloud("bert", self.account, journal, "", self.messages.append, self.sleep, lambda: self.now)

    def ids(self) -> dict[str, str]:
        """Return the IDs of the machines, by name."""
        machines = [item for item in self.account.resources.values() if item["kind"] == "machine"]
        return {item["name"]: item["id"] for item in machines}

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def tick(self) -> None:
        """Count a point at which keep may be killed."""
        self.ticks += 1
        if self.ticks == self.kill_at:
            raise Killed

    def take_away(self, name: str) -> None:
        del self.account.resources[self.members[name]]

    def lost(self) -> list[str]:
        alive = set(self.ids().values()) - self.broken - self.hanging
        return [name for name, machine in self.members.items() if machine not in alive]

    # - operations of keep

    def observe(self) -> Situation:
        self.observations += 1
        ids = self.ids()
        lost = self.lost()
        return Situation(
            state=ENDED if self.observations > HORIZON else ACTIVE,
            nodes=tuple(self.members),
            missing=tuple(MissingNode(name, self.members[name] in self.broken) for name in lost),
            unreachable=[name for name in lost if ids.get(name) in {None, *self.hanging}],
            machines=(*ids, *self.static),
            rents=self.rents,
            has_budget=self.budget is not None,
        )

    def rent(self, nnodes: int) -> str:
        self.tick()
        try:
            provision(self.cloud(), Request(nnodes=nnodes, max_usd_per_hour=self.budget))
        except (PlanRefusedError, ClusterError, CloudError) as error:
            return str(error)
        self.tick()
        return ""

    def prepare(self, names: tuple[str, ...]) -> str:
        self.tick()
        for name in names:
            if self.ids().get(name, name) in self.hanging:
                return f"{name} is not responding"
            self.prepared.add(self.ids().get(name, name))
            self.tick()
        return ""

    def join(self, name: str) -> str:
        self.tick()
        machine, lost = self.ids().get(name, name), self.lost()
        if machine in self.members.values() and machine not in self.broken:
            return ""  # the run has already taken it
        if machine not in self.prepared:
            return f"{name} is not set up"
        old = name if name in lost else lost[0]
        entries = [(name, machine) if entry[0] == old else entry for entry in self.members.items()]
        self.members = dict(entries)
        self.joins.append(machine)
        self.tick()
        return ""

    # - keep

    def pause(self, seconds: float) -> bool:
        self.now += seconds
        return self.observations > HORIZON or not self.lost()

    def keep(self, kill_at: int = 0) -> bool:
        """Run keep until the run is complete, or it is killed; return whether it was killed."""
        self.ticks, self.kill_at = 0, kill_at
        steps = Keeper(self.record, self, Clock(lambda: self.now, self.pause, 20.0), self.messages.append)
        try:
            steps.run()
        except Killed:
            return True
        return False


Loss = Callable[[World], None]


def lose_one(world: World) -> None:
    world.take_away("bert-1")


def lose_first_and_last(world: World) -> None:
    world.take_away("bert-0")
    world.take_away("bert-2")


def hang_one(world: World) -> None:
    world.hanging.add(world.members["bert-1"])


def break_one(world: World) -> None:
    world.broken.add(world.members["bert-1"])


def lose_all_kinds(world: World) -> None:
    lose_one(world)
    world.hanging.add(world.members["bert-2"])


LOSSES = {
    "one": (lose_one, 1), "two": (lose_first_and_last, 2), "hangs": (hang_one, 1), "broken": (break_one, 1),
    "both": (lose_all_kinds, 2),
}  # fmt: skip


def write_notes_in(world: World, record: Path, notes: Notes) -> None:
    """Write keep's notes, with points before and after at which keep may be killed."""
    world.tick()
    write_notes(record, notes)
    world.tick()


@pytest.mark.parametrize("name", LOSSES)
def test_keep_completes_after_being_killed_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It may be killed at each request to the provider, before and after each step, and before and after each of keep's
    notes.
    """
    lose, new_machines = LOSSES[name]
    point, killed = 0, True
    while killed:
        point += 1
        directory = tmp_path / str(point)
        directory.mkdir()
        world = World(directory)
        with monkeypatch.context() as patch:
            patch.setattr(keep_module, "write_notes", partial(write_notes_in, world))
            lose(world)
            killed = world.keep(point)
            world.keep()
        assert world.lost() == [], point
        assert world.account.count - 1 - world.created == new_machines, f"killed at {point}: too many were rented"
        assert len(world.joins) == len(set(world.joins)), point
        assert not set(world.members.values()) & (world.broken | world.hanging), point
    assert point > 8


def test_keep_survives_repeated_kills(tmp_path: Path) -> None:
    world = World(tmp_path)
    lose_first_and_last(world)
    starts = 0
    while world.keep(3 + starts // 4):
        starts += 1
        world.observations = 0  # the run continues
        assert starts < HORIZON
    assert world.lost() == [] and world.account.count - 1 - world.created == 2 and starts > 2


def test_budget_is_never_exceeded(tmp_path: Path) -> None:
    world = World(tmp_path, budget=3.0)
    hang_one(world)
    assert not world.keep()
    assert world.lost() == ["bert-1"] and world.account.count - 1 == world.created
    assert any("3" in text and "later" in text for text in world.messages)


def test_no_machine_is_created_without_a_budget(tmp_path: Path) -> None:
    world = World(tmp_path, budget=None)
    lose_one(world)
    world.keep()
    assert world.account.count - 1 == world.created and len(world.ids()) == 2
    texts = [text for text in world.messages if "max_usd_per_hour" in text]
    assert len(texts) == 1, "the user is told once"


def test_shortage_does_not_affect_the_machines_of_the_run(tmp_path: Path) -> None:
    world = World(tmp_path)
    lose_one(world)
    world.account.full = ("small",)
    world.keep()
    assert sorted(world.ids()) == ["bert-0", "bert-2"]
    world.account.full, world.observations = (), 0
    world.keep()
    assert world.lost() == []


def test_static_inventory_uses_the_machine_added_by_the_user(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.rents = False
    lose_one(world)
    world.keep()
    assert [text for text in world.messages if "bert-1 is missing: add a machine" in text]
    world.static, world.observations = ("desk",), 0
    with contextlib.suppress(KeyError):
        world.keep()
    assert world.joins == ["desk"]


def test_damaged_notes_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "keep.json").write_text('{"machines": -1}')
    assert read_notes(tmp_path) is None
    (tmp_path / "keep.json").write_text(
        '{"machines": 2, "prepared": [], "rented": 0, "joined": 0, "lost": {}, "failures": {"rent": 3}}'
    )
    assert read_notes(tmp_path) is None

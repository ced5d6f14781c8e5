# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""keep's next action in each situation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._keep.planner import (
    ACTIVE,
    ENDED,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_FAILURES,
    UNKNOWN,
    Action,
    End,
    Join,
    MissingNode,
    Notes,
    Prepare,
    Rent,
    Situation,
    Watch,
    find_candidates,
    first_notes,
    next_action,
    notes_after_failure,
    notes_after_observation,
    notes_after_recovery,
    notes_after_success,
)

NODES = ("gpu1", "gpu2", "gpu3")
NOW = 1_000_000.0


def situation(**changes: Any) -> Situation:
    """Return a run of three nodes without a loss, with overrides."""
    usual: dict[str, Any] = {
        "state": ACTIVE, "nodes": NODES, "missing": (), "unreachable": (), "machines": NODES, "rents": True,
        "has_budget": True,
    }  # fmt: skip
    return Situation(**{**usual, **changes})


LOST = situation(missing=(MissingNode("gpu2"),), unreachable=("gpu2",))


def notes(**changes: Any) -> Notes:
    """Return the notes of a keep that has just started, with overrides."""
    return {**first_notes(3), **changes}  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("changes", "noted", "expected"),
    [
        ({"state": ENDED, "missing": (MissingNode("gpu2"),)}, {}, End()),
        ({"missing": ()}, {}, Watch()),
        ({}, {}, Rent(3)),
        ({"machines": (*NODES, "gpu4")}, {}, Prepare(("gpu4",))),
        ({"machines": (*NODES, "gpu4")}, {"prepared": ["gpu4"]}, Join("gpu4")),
        ({"machines": (*NODES, "gpu4"), "rents": False, "has_budget": False}, {}, Prepare(("gpu4",))),
        ({"unreachable": ()}, {}, Prepare(("gpu2",))),
        ({"unreachable": (), "missing": (MissingNode("gpu2", broken=True),)}, {}, Rent(3)),
        ({}, {"rented": 1}, Rent(4)),
        ({"machines": (*NODES, "gpu4", "gpu5")}, {}, Prepare(("gpu4",))),
    ],
    ids=[
        *("ended", "complete", "rents", "sets up", "joins", "static inventory", "returned", "broken", "one more"),
        "not more than missing",
    ],
)
def test_next_action_is_chosen(changes: dict[str, Any], noted: dict[str, Any], expected: Action) -> None:
    at = LOST._replace(**changes)
    assert next_action(at, notes_after_observation(notes(**noted), at), NOW) == expected


@pytest.mark.parametrize(
    ("changes", "noted", "text"),
    [
        ({"state": UNKNOWN}, {}, "no node of the run is responding"),
        ({"rents": False}, {}, "gpu2 is missing: add a machine to the group in the inventory"),
        ({"has_budget": False}, {}, "restart keep with -e max_usd_per_hour=AMOUNT"),
        ({}, {"rented": 2}, "machines were created for gpu2, but cannot be used"),
    ],
)
def test_user_sees_what_keep_is_waiting_for(changes: dict[str, Any], noted: dict[str, Any], text: str) -> None:
    action = next_action(LOST._replace(**changes), notes(**noted), NOW)
    assert isinstance(action, Watch) and text in action.text


def test_failed_step_is_retried_with_increasing_delays() -> None:
    noted, pauses = notes(), []
    for _number in range(6):
        noted = notes_after_failure(noted, Rent(3), NOW)
        pauses.append(noted["failures"]["rent"]["next"] - NOW)
        assert next_action(LOST, noted, NOW) == Watch()
        assert next_action(LOST, noted, NOW + pauses[-1]) == Rent(3)
    assert pauses == [FIRST_PAUSE, 120.0, 240.0, 480.0, LONGEST_PAUSE, LONGEST_PAUSE]
    assert notes_after_success(noted, Rent(3), NOW)["failures"]["rent"]["count"] == 0


def test_machine_that_cannot_be_set_up_is_replaced_by_another() -> None:
    present, noted = LOST._replace(machines=(*NODES, "gpu4")), notes()
    for _number in range(MAX_FAILURES):
        assert find_candidates(present, noted) == ["gpu4"]
        noted = notes_after_failure(noted, Prepare(("gpu4",)), NOW)
    assert find_candidates(present, noted) == []
    assert isinstance(next_action(present, noted, NOW), Rent)


def test_machine_that_cannot_join_is_set_up_again() -> None:
    noted = notes_after_failure(notes(prepared=["gpu4"]), Join("gpu4"), NOW)
    present = LOST._replace(machines=(*NODES, "gpu4"))
    assert next_action(present, noted, NOW) == Prepare(("gpu4",))


def test_complete_run_resets_the_notes_and_keeps_the_cluster_size() -> None:
    noted = notes(rented=2, joined=1, prepared=["gpu5"])
    complete = situation(machines=(*NODES, "gpu4"))
    assert notes_after_recovery(noted, complete) == notes(machines=4, prepared=["gpu5"])
    assert notes_after_recovery(noted, LOST) == noted
    assert notes_after_recovery(noted, complete._replace(state=UNKNOWN)) == noted


NAMES = ("gpu1", "gpu2", "gpu3", "gpu4", "gpu5")


SITUATIONS = st.builds(
    Situation,
    state=st.sampled_from([ACTIVE, ENDED, UNKNOWN]),
    nodes=st.just(NODES),
    missing=st.lists(
        st.builds(MissingNode, st.sampled_from(NODES), st.booleans()), unique_by=lambda node: node.name
    ).map(tuple),
    unreachable=st.sets(st.sampled_from(NODES)),
    machines=st.lists(st.sampled_from(NAMES), unique=True).map(tuple),
    rents=st.booleans(),
    has_budget=st.booleans(),
)


@given(SITUATIONS, st.sets(st.sampled_from(NAMES)), st.integers(0, 4), st.integers(0, 3))
def test_every_action_is_safe(at: Situation, prepared: set[str], rented: int, joined: int) -> None:
    """Nothing is rented without a budget or need, no working node is touched, and no broken machine is used again."""
    noted = notes_after_observation(notes(prepared=sorted(prepared), rented=rented, joined=joined), at)
    action = next_action(at, noted, NOW)
    missing = at.missing
    working = set(NODES) - {node.name for node in missing}
    broken = {node.name for node in missing if node.broken}
    names = {Prepare: lambda: action.names, Join: lambda: (action.name,)}.get(type(action), tuple)()  # type: ignore[union-attr]
    assert not set(names) & (working | broken) and set(names) <= set(at.machines)
    assert isinstance(action, End) == (at.state == ENDED)
    if isinstance(action, Rent):
        assert at.state == ACTIVE and missing and at.rents and at.has_budget
        assert action.nnodes <= noted["machines"] + len(missing) + noted["joined"]
    if isinstance(action, Join):
        assert action.name in noted["prepared"]
    if at.state != ACTIVE or not missing:
        assert not names and not isinstance(action, Rent)


def test_all_losses_are_repaired_or_explained_without_cloud_faults() -> None:
    """Each way to lose up to two of three machines: taken away, hanging, broken or back again."""
    for fates in itertools.product(("well", "taken", "hangs", "broken", "back"), repeat=3):
        lost = [name for name, fate in zip(NODES, fates, strict=True) if fate != "well"]
        if 0 < len(lost) < 3:
            check_recovery(dict(zip(NODES, fates, strict=True)))


def check_recovery(fates: dict[str, str]) -> None:
    nodes, noted, now, created = dict.fromkeys(NODES), notes(), NOW, 0
    machines = [name for name, fate in fates.items() if fate != "taken"]
    members = {name for name, fate in fates.items() if fate == "well"}
    lost = [name for name in nodes if name not in members]
    for _number in range(60):
        missing = tuple(MissingNode(name, fates[name] == "broken") for name in lost)
        away = [name for name in lost if fates[name] in ("taken", "hangs")]
        at = situation(nodes=(*members, *lost), missing=missing, unreachable=away, machines=tuple(machines))
        noted = notes_after_observation(noted, at)
        action = next_action(at, noted, now)
        hangs = isinstance(action, Prepare) and any(fates.get(name) == "hangs" for name in action.names)
        if isinstance(action, Rent):
            new = [f"new{created + number}" for number in range(max(0, action.nnodes - len(machines)))]
            created, machines = created + len(new), [*machines, *new]
        elif isinstance(action, Join):
            members.add(action.name)
            lost.remove(action.name if action.name in lost else lost[0])
        noted = notes_after_failure(noted, action, now) if hangs else notes_after_success(noted, action, now)
        now += FIRST_PAUSE
        if not lost:
            break
    assert not lost, fates
    assert created == sum(fate in ("taken", "hangs", "broken") for fate in fates.values()), fates

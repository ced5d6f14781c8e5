# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Put the result of a search into the arguments of a launch. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import FILE, FitError, State
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import HOLE, filled, has_hole
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import Files

MOST_NAMES = 8


class Taken(NamedTuple):
    """Arguments with the batch in their holes; nnodes: node count of the search, which may differ from the launch's."""

    args: str | list[str]
    batch: int
    nnodes: int


def taken(runs: Path, name: str, program: str, args: Sequence[str]) -> Taken:
    """The launch's arguments, or if it has none the search's, filled with the batch that the search found.

    runs: directory of the records; program: the launched script or module. Raises FitError.
    """
    state = state_of(runs, name)
    result = state["result"]
    if result is None:
        raise FitError(
            f"{name} is an unfinished search, after {len(state['history'])} launches: continue it with the command "
            "that started it"
        )
    if not result:
        raise FitError(f"{name} is a search that found no batch: make the model smaller and search again")
    if clean(program, 4096) != state["program"]:
        raise FitError(
            f"{name} is a search with {state['program']}, and this run starts {clean(program, 200) or 'nothing'}: "
            "search with that, or leave fitted out"
        )
    own = state["job"]["args"]
    if args and not has_hole(args):
        words = own if isinstance(own, str) else " ".join(map(str, own))
        raise FitError(
            f"launch_args has no {HOLE}: write it where the script takes its batch, or leave launch_args out to have "
            f"those of {name}, which are {words}"
        )
    return Taken(filled(args or own, result), result, state["nnodes"])


def state_of(runs: Path, name: str) -> State:
    """The state of a search. Raises FitError if there is none of this name."""
    if not SAFE_RUN_ID.match(name):
        raise FitError(f"fitted is {ascii(name)[:80]}, and no search has such a name")
    known: Any = Files(runs / name).document(FILE)
    if isinstance(known, dict) and State.__annotations__.keys() <= known.keys():
        return known  # type: ignore[return-value]
    others = sorted(path.parent.name for path in runs.glob(f"*/{FILE}"))
    there = f"there are {', '.join(others[-MOST_NAMES:])}" if others else "there is none at all"
    raise FitError(
        f"fitted is {name}, and {runs} has no search for a batch of this name ({there}): ansible-playbook fit.yml "
        "-e run_id=NAME makes one"
    )

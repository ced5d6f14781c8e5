# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fill in a launch's arguments with the batch size that a search found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.fit import (
    STATE_FILE,
    SearchState,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.fit.template import (
    PLACEHOLDER,
    fill_batch_size,
    has_placeholder,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.resumable import ExperimentError
from ansible_collections.muster.training.plugins.plugin_utils._plan.job import SAFE_RUN_ID
from ansible_collections.muster.training.plugins.plugin_utils._record.coerce import clean_text
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles

MAX_NAMES = 8


class FittedArguments(NamedTuple):
    """Arguments with the batch size filled in; nnodes: the search's node count, which may differ from the launch's."""

    args: str | list[str]
    batch: int
    nnodes: int


def apply_fit(runs: Path, name: str, program: str, args: Sequence[str]) -> FittedArguments:
    """Fill in the batch size that the search found, in the launch's arguments or, if it has none, the search's.

    Args:
        runs: directory of the records.
        program: the launched script or module.

    Raises:
        ExperimentError: the result does not apply to this launch.
    """
    state = read_search(runs, name)
    result = state["result"]
    if result is None:
        raise ExperimentError(
            f"{name} is an unfinished search, after {len(state['history'])} launches: continue it with the command "
            "that started it"
        )
    if not result:
        raise ExperimentError(f"{name} is a search that found no batch size: make the model smaller and search again")
    if clean_text(program, 4096) != state["program"]:
        raise ExperimentError(
            f"{name} is a search with {state['program']}, but this run starts {clean_text(program, 200) or 'nothing'}: "
            "run a search with the same program, or omit fitted"
        )
    search_args = state["job"]["args"]
    if args and not has_placeholder(args):
        args_text = search_args if isinstance(search_args, str) else " ".join(map(str, search_args))
        raise ExperimentError(
            f"launch_args does not contain {PLACEHOLDER}: put it where the script takes its batch size, or omit "
            f"launch_args to use those of {name}, which are {args_text}"
        )
    return FittedArguments(fill_batch_size(args or search_args, result), result, state["nnodes"])


def read_search(runs: Path, name: str) -> SearchState:
    """Read a search's state. Raise ExperimentError if it does not exist."""
    if not SAFE_RUN_ID.match(name):
        raise ExperimentError(f"fitted is {ascii(name)[:80]}, which is not a valid search name")
    document: Any = RecordFiles(runs / name).read_json(STATE_FILE)
    if isinstance(document, dict) and SearchState.__annotations__.keys() <= document.keys():
        return document  # type: ignore[return-value]
    searches = sorted(path.parent.name for path in runs.glob(f"*/{STATE_FILE}"))
    hint = f"it has {', '.join(searches[-MAX_NAMES:])}" if searches else "it contains no searches"
    raise ExperimentError(
        f"fitted is {name}, but {runs} has no search with this name ({hint}): run ansible-playbook fit.yml -e "
        "run_id=NAME first"
    )

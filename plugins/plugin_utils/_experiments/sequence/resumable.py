# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A sequence of launches whose state is in a JSON file, so that the same command resumes it after an interruption."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.fingerprint import salted_hash
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.launches import PlaybookResult
from ansible_collections.muster.training.plugins.plugin_utils._record.reader import RecordFiles
from ansible_collections.muster.training.plugins.plugin_utils._report.writer import write_file

State = TypeVar("State", bound=Mapping[str, Any])

# Variables of a launch that the sequence waits for: a single attempt on exactly its nodes, regardless of the project's
# settings.
SINGLE_ATTEMPT: dict[str, Any] = {
    "launch_max_restarts": 0,
    "launch_restarts": 0,
    "launch_restart_min_nodes": "",
    "launch_restart_wait": "",
    "launch_debug_rank": "",
    "launch_spares": 0,
    "launch_detach": False,
}


class ExperimentError(Exception):
    """The experiment cannot continue. The message contains the reason and a remedy."""


class PlaybookRunner(Protocol):
    """Runs playbooks: AnsiblePlaybookRunner, or a test double."""

    @property
    def interrupted(self) -> bool: ...
    def launch(self, run_id: str, variables: Mapping[str, Any], timeout: float) -> PlaybookResult: ...
    def stop(self, run_id: str) -> PlaybookResult: ...
    def play(self, name: str, log: str, variables: Mapping[str, Any]) -> PlaybookResult: ...


class StateFile(Generic[State]):
    """A JSON file that contains a TypedDict with the key `version`."""

    def __init__(self, path: Path, state_type: type[State], version: int) -> None:
        self.path, self.state_type, self.version = path, state_type, version

    def read(self) -> State | None:
        """Return the state, or None if the file does not exist. Raise ExperimentError for a different version."""
        document: Any = RecordFiles(self.path.parent).read_json(self.path.name)
        if document is None:
            return None
        if (
            not isinstance(document, dict)
            or self.state_type.__annotations__.keys() - document.keys()
            or document["version"] != self.version
        ):
            raise ExperimentError(
                f"{self.path} was written by a different version: choose another name with -e run_id=NAME"
            )
        return document  # type: ignore[return-value]

    def write(self, state: State) -> None:
        """Write the state, and create the directory if it does not exist."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(self.path, json.dumps(state, indent=1, allow_nan=False) + "\n")


class ResumableSequence(Generic[State]):
    """The functionality shared by all sequences: state, interruptions and failed launches.

    directory: where the state is written; runs: directory of its launches' records; common: the settings that all
    launches share, stored only as a hash.
    """

    kind: ClassVar[str]  # name used in messages, such as "search"

    def __init__(
        self, directory: Path, runs: Path, runner: PlaybookRunner, display: Callable[[str], None], common: str = ""
    ) -> None:
        self.directory, self.runs, self.runner, self.display = directory, runs, runner, display
        self.common = common
        self.file: StateFile[State] = self.state_file(directory)

    @classmethod
    def state_file(cls, directory: Path) -> StateFile[State]:
        """Return the file in this directory that contains the sequence's state."""
        raise NotImplementedError

    def seal(self) -> tuple[str, str]:
        """Return a new salt, and a hash, computed with the salt, of the settings that all launches share."""
        salt = secrets.token_hex(16)
        return salt, salted_hash(salt, self.common)

    def stop_interrupted(self, run_ids: Iterable[str]) -> None:
        """Stop the runs that were in progress when the sequence was interrupted."""
        for run_id in run_ids:
            self.display(f"{run_id} was still running when the {self.kind} was interrupted: stopping it")
            self.runner.stop(run_id)

    def check_interrupted(self, run_id: str) -> None:
        """Raise ExperimentError if the last launch was interrupted."""
        if self.runner.interrupted:
            raise ExperimentError(
                f"interrupted: {run_id} was stopped on all nodes; run the same command again to resume"
            )

    def launch_log(self, run_id: str) -> Path:
        """Return the path of the file with a launch's output."""
        return self.directory / "launches" / f"{run_id}.log"

    def read_result(self, run_id: str, launch_result: PlaybookResult) -> dict[str, Any]:
        """Return a launch's result.json. Raise ExperimentError if the launch was rejected."""
        result: Any = RecordFiles(self.runs / run_id).read_json("result.json")
        if isinstance(result, dict):
            return result
        reason = launch_result.failures[-1] if launch_result.failures else f"see {self.launch_log(run_id)}"
        raise ExperimentError(f"{run_id} could not be launched: {reason}")

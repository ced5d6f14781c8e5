# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The service that copies the checkpoints of all runs on this node."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.copier import CheckpointCopier
from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.local import (
    STATUS,
    LocalCheckpoint,
    LocalRun,
    checkpoint_directory,
    find_checkpoints,
    find_runs,
    has_directory_per_run,
    is_alive,
    is_complete,
    read_checkpoint,
    read_status,
    remove_checkpoint,
    select_checkpoints,
    write_json,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoint_service.manifest import (
    find_entry,
    is_copied,
    remove_entry,
)
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, print_line
from ansible_collections.muster.training.plugins.module_utils._files.content import format_size
from ansible_collections.muster.training.plugins.module_utils._s3_client.s3 import (
    FileChangedError,
    create_client,
    explain,
    s3_errors,
)

MAX_RETRY_DELAY = 120.0  # seconds between attempts while S3 is failing


class CopyFailure(NamedTuple):
    """The reason why a run's checkpoints cannot be copied, and the time of the next attempt."""

    text: str
    delay: float  # seconds between attempts
    due: float  # monotonic time of the next attempt


class CheckpointService:
    """Copies the checkpoints of all runs, and writes the progress to each run's directory."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.manifests: dict[str, dict[str, Any]] = {}
        self.failures: dict[str, CopyFailure] = {}  # failed copies for each run directory
        self.warned: set[str] = set()

    def log(self, run: LocalRun, text: str) -> None:
        """Write to the journal, and to the run's events, which users can watch."""
        print_line(f"{run.run_id} node{run.node_rank}: {text}")
        path = os.path.join(run.directory, "events.jsonl")
        if is_alive(run) and os.path.exists(path):
            record = {"time": time.time(), "event": "checkpoints", "text": f"{run.node}: {text}"}
            with contextlib.suppress(OSError), open(path, "a", encoding="utf-8") as stream:  # the disk may be full
                stream.write(json.dumps(record) + "\n")

    def write_status(
        self, run: LocalRun, alive: bool, selected: list[LocalCheckpoint], pending: list[LocalCheckpoint]
    ) -> None:
        """Write the progress to a file."""
        failure = self.failures.get(run.directory)
        write_json(
            os.path.join(run.directory, STATUS),
            {
                "alive": alive,
                "copied": [
                    f"{checkpoint.name} ({format_size(checkpoint.size)})"
                    for checkpoint in selected
                    if checkpoint not in pending
                ],
                "pending": [checkpoint.name for checkpoint in pending],
                "seen": describe_versions(selected),
                "problem": failure.text if failure else "",
                "to": f"s3://{self.settings['bucket']}/{self.settings['prefix']}{run.run_id}/node{run.node_rank}",
            },
        )

    def check_disk_space(self, run: LocalRun, directory: str) -> None:
        """Warn once if the disk is filling up."""
        free = shutil.disk_usage(directory).free
        if free >= self.settings["free_gib"] * 2**30:
            self.warned.discard(run.directory)
        elif run.directory not in self.warned:
            self.warned.add(run.directory)
            hint = "" if self.settings["keep_local"] else ", or set checkpoints_keep_local to remove copied checkpoints"
            self.log(
                run,
                f"WARNING: {directory} has {format_size(free)} free, less than {self.settings['free_gib']:g} GiB. "
                f"Runs fail when they cannot save a checkpoint. Free some space{hint}",
            )

    def prune(self, run: LocalRun, checkpoints: list[LocalCheckpoint]) -> None:
        """If configured, remove all but the newest checkpoints from this disk once S3 has all their files.

        A checkpoint that was lost in S3 is copied again.
        """
        keep, manifest = self.settings["keep_local"], self.manifests[run.directory]
        copied = [
            (checkpoint, entry) for checkpoint in checkpoints for entry in [find_entry(manifest, checkpoint)] if entry
        ]
        for checkpoint, entry in copied[keep:] if keep else []:
            missing = self.create_copier(run).find_missing_object(entry)
            if missing:
                self.manifests[run.directory] = remove_entry(self.manifests[run.directory], entry)
                self.log(
                    run,
                    (
                        f"WARNING: {checkpoint.name} was copied, but {missing} is now missing or incomplete in S3. "
                        f"{checkpoint.path} was kept and will be copied again. Check the bucket's lifecycle rules, "
                        "and who else deletes objects from it"
                    ),
                )
                continue
            current = read_checkpoint(checkpoint.path, checkpoint.name, self.settings["marker"])
            if current is not None and current.files != checkpoint.files:
                continue  # the checkpoint has changed and will be copied again
            try:
                with contextlib.suppress(FileNotFoundError):  # the run itself may remove it
                    remove_checkpoint(checkpoint, self.settings["marker"])
            except OSError as error:
                if checkpoint.path not in self.warned:
                    self.warned.add(checkpoint.path)
                    self.log(
                        run,
                        f"WARNING: {checkpoint.path} is in S3, but cannot be removed from this disk "
                        f"({error.strerror}). Give the service's user write access, or remove it yourself",
                    )
                continue
            self.log(run, f"{checkpoint.name} is in S3 and was removed from this disk")

    def copy_next(self, run: LocalRun) -> bool:
        """Copy one checkpoint of a run; return whether another could be copied now."""
        settings, alive = self.settings, is_alive(run)
        directory = checkpoint_directory(run, settings)
        checkpoints = find_checkpoints(directory, settings)
        selected = select_checkpoints(
            checkpoints, settings["patterns"] + ([] if alive else settings["patterns_at_end"])
        )
        last_status = read_status(run)
        if (
            not alive
            and last_status.get("alive") is False
            and not last_status["pending"]
            and last_status["seen"] == describe_versions(selected)
        ):
            return False
        if os.path.isdir(directory):
            self.check_disk_space(run, directory)
        if selected and run.directory not in self.manifests:
            self.manifests[run.directory] = self.create_copier(run).manifest()
        manifest = self.manifests.get(run.directory, {"checkpoints": []})
        pending = [checkpoint for checkpoint in selected if not is_copied(manifest, checkpoint)]
        self.write_status(run, alive, selected, pending)
        ready = [checkpoint for checkpoint in pending if is_complete(checkpoint, settings, time.time())]
        if not ready:
            return False
        started, current = time.monotonic(), ready[0]
        try:
            manifest = self.manifests[run.directory] = self.create_copier(run).copy(current, manifest)
        except FileChangedError:
            return False  # the copy is retried later
        duration = time.monotonic() - started
        self.log(run, f"checkpoint {current.name} ({format_size(current.size)}) was copied to S3 in {duration:.1f} s")
        self.prune(run, checkpoints)
        pending = [checkpoint for checkpoint in selected if not is_copied(self.manifests[run.directory], checkpoint)]
        self.write_status(run, alive, selected, pending)
        return len(ready) > 1

    def create_copier(self, run: LocalRun) -> CheckpointCopier:
        """Return a copier with fresh credentials."""
        return CheckpointCopier(
            self.settings, run, create_client(self.settings["region"], self.settings["endpoint_url"])
        )

    def copy_with_backoff(self, run: LocalRun) -> bool:
        """Copy one checkpoint of a run unless a retry is pending; return whether another could be copied now."""
        failure = self.failures.get(run.directory)
        if failure and time.monotonic() < failure.due:
            return False
        try:
            again = self.copy_next(run)
        except s3_errors() + (StepError, OSError) as error:
            text = str(error) if isinstance(error, StepError) else explain(error, self.settings["bucket"])
            if not failure or text != failure.text:
                self.log(run, f"checkpoints are not being copied to S3: {text}. Retrying")
            delay = min(MAX_RETRY_DELAY, failure.delay * 2) if failure else self.settings["interval"]
            self.failures[run.directory] = CopyFailure(text, delay, time.monotonic() + delay)
            self.write_problem(run, text)
            return False
        if self.failures.pop(run.directory, None):
            self.log(run, "checkpoints are being copied to S3 again")
            self.write_problem(run, "")
        return again

    def serve(self) -> None:
        """Copy forever. A failing run does not delay others."""
        while True:
            runs, again = find_runs(self.settings), False
            for run in runs if has_directory_per_run(self.settings) else runs[:1]:
                again = self.copy_with_backoff(run) or again
            if not again:
                time.sleep(self.settings["interval"])

    @staticmethod
    def write_problem(run: LocalRun, text: str) -> None:
        """Record a problem, or that it has been resolved, for the waiting process."""
        with contextlib.suppress(OSError):
            path = os.path.join(run.directory, STATUS)
            write_json(path, {**read_status(run), "problem": text})


def describe_versions(checkpoints: list[LocalCheckpoint]) -> list[str]:
    """Return the names and versions of checkpoints, to detect changes."""
    return [f"{checkpoint.name}@{checkpoint.stamp}" for checkpoint in checkpoints]

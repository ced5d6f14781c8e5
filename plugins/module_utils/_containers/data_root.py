# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Move Docker's data to another directory, and restore the previous state if that fails. Needs root."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import time

from ansible_collections.muster.training.plugins.module_utils._files import root_path
from ansible_collections.muster.training.plugins.module_utils._files.walk import raise_error

SETTINGS = "/etc/docker/daemon.json"
RECORD = "/var/lib/muster/docker_data_root.json"
UNITS = ["docker.service", "docker.socket"]
START_TIMEOUT = 60.0  # seconds within which the engine must respond


class DataRootError(Exception):
    """The data cannot be moved; the message explains why, with a remedy."""


class OldDataError(Exception):
    """The data was moved, but the old data could not be deleted; the message explains why, with a remedy."""


def run(*command: str) -> str:
    """Run a command and return its output. Raise DataRootError if it fails."""
    try:
        completed = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise DataRootError(f"{command[0]} cannot be run: {error.strerror}") from error
    if completed.returncode != 0:
        raise DataRootError(f"{' '.join(command)[:200]}: {(completed.stderr or completed.stdout).strip()[-500:]}")
    return completed.stdout


def list_contents() -> dict[str, list[str]]:
    """Return the engine's contents, by kind: images by digest and name, containers by id and name, volumes."""
    commands = {
        "images": ("image", "ls", "--all", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}"),
        "containers": ("ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Names}}"),
        "volumes": ("volume", "ls", "--format", "{{.Driver}} {{.Name}}"),
    }
    return {kind: sorted(run("docker", *arguments).splitlines()) for kind, arguments in commands.items()}


def describe_missing(before: dict[str, list[str]], after: dict[str, list[str]]) -> str:
    """Describe which of the previous contents are missing; return "" if none are."""
    parts = []
    for kind, names in before.items():
        lost = [name for name in names if name not in after[kind]]
        if lost:
            parts.append(f"{len(lost)} of {len(names)} {kind} (such as {lost[0]})")
    return " and ".join(parts)


def first_difference(source: str, target: str) -> str:
    """Return the first path in a tree that differs from its copy, or ""."""
    for current, names, files in os.walk(source, onerror=raise_error):
        for name in (*names, *files):
            path = os.path.join(current, name)
            copy = os.path.join(target, os.path.relpath(path, source))
            try:
                source_status, copy_status = os.lstat(path), os.lstat(copy)
            except FileNotFoundError:
                return path
            kind = stat.S_IFMT(source_status.st_mode)
            is_file = kind == stat.S_IFREG
            if kind != stat.S_IFMT(copy_status.st_mode) or (is_file and source_status.st_size != copy_status.st_size):
                return path
    return ""


def check_store() -> None:
    """Raise DataRootError if the images are not below data-root."""
    if "io.containerd.snapshotter" in run("docker", "info", "--format", "{{json .DriverStatus}}"):
        raise DataRootError(
            "the engine keeps its images and containers in containerd's store, which does not move with data-root. "
            "Give containerd another directory instead (`root` in /etc/containerd/config.toml), or set "
            '{"features": {"containerd-snapshotter": false}} in docker_engine_settings, after which images must be '
            "pulled again"
        )


def data_root() -> str:
    """Return the running engine's data directory."""
    return run("docker", "info", "--format", "{{.DockerRootDir}}").strip()


def start_engine() -> None:
    """Start the engine and wait until it responds."""
    with contextlib.suppress(DataRootError):  # resets systemd's start limit after too many failures
        run("systemctl", "reset-failed", *UNITS)
    run("systemctl", "start", *reversed(UNITS))
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            data_root()
            return
        except DataRootError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def settings_text() -> str | None:
    """Return the text of the engine's settings file, or None if the file does not exist."""
    try:
        with open(SETTINGS, encoding="utf-8") as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def read_settings() -> dict[str, object]:
    """Return the engine's settings."""
    try:
        with open(SETTINGS, encoding="utf-8") as stream:
            settings = json.loads(stream.read() or "{}")
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DataRootError(
            f"{SETTINGS} is not valid JSON ({error}). Correct it, so that data-root can be added"
        ) from error
    if not isinstance(settings, dict):
        raise DataRootError(f"{SETTINGS} is not a JSON object. Correct it, so that data-root can be added")
    return settings


def write_text(path: str, text: str) -> None:
    """Write a file atomically."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(f"{path}.new", path)


def size_of(path: str) -> int:
    """Return a tree's disk usage in bytes, counting hard links once."""
    return int(run("du", "--summarize", "--block-size=1", "--one-file-system", path).split()[0])


def check_target(source: str, target: str, spare: int) -> None:
    """Raise DataRootError if the data cannot be moved to the target."""
    if not os.path.isabs(target) or os.path.normpath(target) != target:
        raise DataRootError(
            f"docker_data_root_path is {target}. Use an absolute path without .. and without a trailing /"
        )
    real_source, real_target = os.path.realpath(source), os.path.realpath(target)
    if f"{real_target}/".startswith(f"{real_source}/") or f"{real_source}/".startswith(f"{real_target}/"):
        raise DataRootError(f"{target} overlaps the current data in {source}. Choose a separate directory")
    if os.path.lexists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise DataRootError(f"{target} is not empty. Choose an empty directory, or one that does not exist yet")
    reason = root_path.root_only_error(target)
    if reason:
        raise DataRootError(
            f"{reason}, and the engine, which runs as root, would trust the contents of {target}. Choose a "
            "directory for which every directory on the path can be changed only by root"
        )
    parent = target
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    disk = os.statvfs(parent)
    free, needed = disk.f_bavail * disk.f_frsize, size_of(source) + spare
    if free < needed:
        raise DataRootError(
            f"the disk that holds {target} has {free / 2**30:.1f} GiB free, but the data in {source} and a "
            f"reserve of {spare / 2**30:.0f} GiB need {needed / 2**30:.1f} GiB. Use a larger disk, or remove "
            "images with `docker image prune`"
        )


def move(source: str, target: str) -> None:
    """Move the data; if a step fails, restore the previous state and raise DataRootError."""
    before, settings, old_text = list_contents(), read_settings(), settings_text()
    existed = os.path.isdir(target)
    try:
        run("systemctl", "stop", *reversed(UNITS))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        run("cp", "--archive", "--no-target-directory", source, target)
        differing_path = first_difference(source, target)
        if differing_path:
            raise DataRootError(f"{differing_path} is missing or differs in the copy")
        if old_text is not None:
            write_text(f"{SETTINGS}.before-data-root", old_text)
        write_text(SETTINGS, json.dumps({**settings, "data-root": target}, indent=4, sort_keys=True) + "\n")
        start_engine()
        if os.path.realpath(data_root()) != os.path.realpath(target):
            raise DataRootError(f"the engine is using the data in {data_root()}, although {SETTINGS} sets {target}")
        lost = describe_missing(before, list_contents())
        if lost:
            raise DataRootError(f"the engine cannot find {lost} in the copy")
        write_text(RECORD, json.dumps({"from": source, "to": target}) + "\n")
    except (DataRootError, OSError) as error:
        raise DataRootError(f"{error}. {undo(old_text, source, target, existed)}") from error


def undo(old_text: str | None, source: str, target: str, existed: bool) -> str:
    """Restore the previous state; return a message about the outcome."""
    copy_stays = f"The copy in {target} was not removed"
    try:
        run("systemctl", "stop", *reversed(UNITS))
        stopped = ""
    except DataRootError as error:  # the engine may have no unit, be stopped, or keep running
        stopped = f" ({error})"
    try:
        if settings_text() != old_text:
            if old_text is None:
                os.unlink(SETTINGS)
            else:
                write_text(SETTINGS, old_text)
    except OSError as error:
        remedy = f"Remove {SETTINGS}" if old_text is None else f"Copy {SETTINGS}.before-data-root to {SETTINGS}"
        return (
            f"The previous settings cannot be restored ({error}), so the engine was not started{stopped}. "
            f"{copy_stays}. {remedy}, run `sudo systemctl restart docker`, then remove the copy"
        )
    try:
        start_engine()
        root = data_root()
    except DataRootError as error:
        return (
            f"The previous settings have been restored, but the engine does not start: {error}. {copy_stays}. Check "
            "`journalctl -u docker`"
        )
    if os.path.realpath(root) != os.path.realpath(source):
        return (
            f"The previous settings have been restored, but the engine uses the data in {root}{stopped} instead of "
            f"{source}. {copy_stays}. Run `sudo systemctl restart docker`, then remove the copy"
        )
    try:
        shutil.rmtree(target)
    except OSError as error:
        # a mount point cannot be removed, and does not need to be
        if os.path.lexists(target) and not (existed and is_empty(target)):
            return (
                f"The engine is running with its previous data again, but the copy in {target} cannot be removed "
                f"({error}). Remove it before the next attempt"
            )
    if existed:
        os.makedirs(target, exist_ok=True)
    return "The engine is running with its previous data again, and the copy was removed"


def is_empty(directory: str) -> bool:
    """Return whether a directory is readable and empty."""
    try:
        return not os.listdir(directory)
    except OSError:
        return False


def delete_old(target: str) -> bool:
    """Delete the old data left by a move to `target`; return whether there was any. Raise OldDataError."""
    try:
        with open(RECORD, encoding="utf-8") as stream:
            record = json.load(stream)
    except (OSError, ValueError):
        return False
    if record["to"] != target or not os.path.isdir(record["from"]):
        return False
    try:
        shutil.rmtree(record["from"])
    except OSError as error:
        raise OldDataError(
            f"Docker's data is in {target}, but the old data in {record['from']} could not be deleted: "
            f"{error.strerror or error}. Delete it: sudo rm -r {record['from']}"
        ) from error
    return True


def ensure(path: str, spare_gib: int, delete: bool, check: bool) -> tuple[bool, str]:
    """Ensure that the data is in `path`; return whether that is a change, even in check mode, and the former directory.

    Args:
        path: an absolute directory, empty or not existing yet.
        spare_gib: GiB to keep free on its disk.
        delete: whether to remove the old data once the engine runs with the new data.

    Raise DataRootError or OSError if it cannot be moved; everything is then restored, or the message says what is not.
    Raise OldDataError if it was moved, but the old data could not be deleted.
    """
    source = data_root()
    if os.path.realpath(source) == os.path.realpath(path):
        return delete and not check and delete_old(path), source
    containers = run("docker", "ps", "--format", "{{.Names}}").split()
    if containers:
        raise DataRootError(
            f"these containers are running: {', '.join(containers)}. Stop them while the data is being moved"
        )
    check_store()
    check_target(source, path, spare_gib * 2**30)
    read_settings()
    if not check:
        move(source, path)
        if delete:
            delete_old(path)
    return True, source

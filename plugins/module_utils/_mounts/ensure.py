# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring a mount to the desired state and verify it.

The order makes every interruption harmless: a mount is unmounted before its files change, so an active mount was made
with the current files. A mount that fails the verification is unmounted; its unit stays enabled, so the next boot or
call tries again.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files.root_path import parent_error
from ansible_collections.muster.training.plugins.module_utils._mounts import probe as mount_probe
from ansible_collections.muster.training.plugins.module_utils._mounts import systemd
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import (
    DesiredMount,
    MountDriver,
    MountError,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import (
    SECRETS,
    credentials_path,
    mount_unit,
    unit_name,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import MARK, PROBE, UNITS

STEP_ERRORS = {
    "stat": "cannot access it",
    "list": "cannot list it",
    "write": "it is not writable",
    "read": "a written file cannot be read",
    "remove": "a written file cannot be removed",
}
JOURNAL_TIMEOUT = 2.0  # seconds allowed for the journal to record a program's messages


@dataclass(frozen=True)
class MountFiles:
    """The paths and contents of a mount's files; the credentials' content is empty if there is no credentials file."""

    unit: str
    unit_file: str
    unit_text: str
    credentials_file: str
    credentials_text: str


def desired_files(kind: MountDriver, mount: DesiredMount) -> MountFiles:
    """Return a mount's desired files."""
    credentials_text = kind.credential_text(mount.credentials)
    credentials_file = credentials_path(mount.path)
    parts = kind.parts(mount, credentials_file if credentials_text else "")
    unit = unit_name(mount.path)
    text = mount_unit(
        mount.path,
        parts.what,
        parts.fs_type,
        parts.options,
        mount.timeout,
        parts.environment_file,
        f"{mount.source} by {kind.name}",
    )
    return MountFiles(unit, f"{UNITS}/{unit}", text, credentials_file, credentials_text)


def validate(kind: MountDriver, mount: DesiredMount) -> None:
    """Raise a MountError that lists all problems with the requested mount."""
    problems = kind.problems(mount)
    path = mount.path
    if not path.startswith("/") or os.path.normpath(path) != path or path in ("/", "//"):
        problems.insert(0, f"the mount point is {path!r}: use an absolute path without ., .. or double slashes")
    else:
        problems += [
            describe_unsafe_path(directory) for directory in (path, *kind.directories(mount)) if parent_error(directory)
        ]
    if not 5 <= mount.timeout <= 300:
        problems.append(f"timeout is {mount.timeout}, but must be between 5 and 300 seconds")
    if problems:
        raise MountError(f"{path}: " + "; ".join(problems))


def describe_unsafe_path(path: str) -> str:
    """Return the message for a path that a user other than root could replace while root is mounting there."""
    return (
        f"root must not use {path}: {parent_error(path)}. Choose a path that only root can change, such as "
        f"/mnt/data; a link to it may be anywhere (ln -s /mnt/data {path})"
    )


def changed_files(files: MountFiles) -> list[str]:
    """Return the names of files that differ from the desired ones: unit, credentials."""
    changed = []
    if systemd.read_text(files.unit_file) != files.unit_text:
        changed.append("unit")
    if files.credentials_text:
        exists = os.path.exists(files.credentials_file)
        same = exists and systemd.is_private(files.credentials_file)
        if not same or systemd.read_text(files.credentials_file) != files.credentials_text:
            changed.append("credentials")
    elif os.path.exists(files.credentials_file):
        changed.append("credentials")
    return changed


def write_files(files: MountFiles) -> None:
    """Write a mount's files."""
    if files.credentials_text:
        systemd.make_private([SECRETS])
        os.chmod(SECRETS, 0o700)
        systemd.write(files.credentials_file, files.credentials_text, 0o600)
    elif os.path.exists(files.credentials_file):
        os.unlink(files.credentials_file)
    systemd.write(files.unit_file, files.unit_text, 0o644)


def difference(files: MountFiles, changed: list[str], keep_unit: bool) -> list[dict[str, str]]:
    """Return the output for --diff; for credentials, report only that they change."""
    diffs = []
    if "unit" in changed or not keep_unit:
        diffs.append(
            {
                "before_header": files.unit_file,
                "after_header": files.unit_file,
                "before": systemd.read_text(files.unit_file),
                "after": files.unit_text if keep_unit else "",
            }
        )
    if "credentials" in changed:
        before = "(hidden, before)\n" if os.path.exists(files.credentials_file) else ""
        after = "(hidden, after)\n" if keep_unit and files.credentials_text else ""
        diffs.append(
            {
                "before_header": files.credentials_file,
                "after_header": files.credentials_file,
                "before": before,
                "after": after,
            }
        )
    return diffs


def validate_mount_point(mount: DesiredMount, is_mounted: bool, is_managed: bool) -> None:
    """Raise MountError if a path cannot be a mount point."""
    path = mount.path
    if is_mounted and not is_managed:
        existing = mount_probe.mounted_at(path) or {"source": "", "type": ""}
        raise MountError(
            f"{path}: {existing['source']} ({existing['type']}) is already mounted there, but not by this collection. "
            f"Unmount it (sudo umount {path}; remove its line in /etc/fstab or its unit), or choose another path"
        )
    if is_mounted:
        return
    status = mount_probe.inspect_path(path)
    if status.get("hangs"):
        raise MountError(f"{path}: a parent directory is not responding. Choose a path in a local directory")
    if status["exists"] and status["real"] != path:
        raise MountError(f"{path} resolves to {status['real']} through a link. Use {status['real']}")
    if status["exists"] and not status["is_directory"]:
        raise MountError(f"{path} is not a directory. Choose another path")
    if status["entries"]:
        raise MountError(
            f"{path} is not empty (it contains {status['entries'][0]!r}), and its contents would be hidden. Move "
            "them, or choose another path"
        )


def explain(kind: MountDriver, mount: DesiredMount, error: str, messages: str) -> str:
    """Return the message for a failed mount: error, cause and remedy."""
    diagnosis = kind.diagnose(messages) or kind.diagnose(error)
    head = f"{mount.path} ({mount.source} with {kind.name}): {error}."
    if diagnosis:
        return f"{head} Cause: {diagnosis[0]}. To do: {diagnosis[1]}"
    lines = [line.strip() for line in messages.splitlines() if line.strip()]
    last = " / ".join(lines[-4:]) or "nothing"
    return f"{head} Cause: unknown; the journal says: {last[-800:]}. To do: run journalctl -u '{unit_name(mount.path)}'"


def read_failure_messages(kind: MountDriver, unit: str, since: float) -> str:
    """Return the messages of a failed mount, once a cause is known or JOURNAL_TIMEOUT has passed.

    The program logs the reason just before it ends; on a busy machine, it reaches the journal later.
    """
    deadline = time.monotonic() + JOURNAL_TIMEOUT
    while True:
        messages = systemd.read_journal(unit, kind, since)
        if kind.diagnose(messages) or time.monotonic() > deadline:
            return messages
        time.sleep(0.1)


def start_mount(kind: MountDriver, mount: DesiredMount, unit: str) -> dict[str, Any]:
    """Start a unit and verify its mount; if that fails, unmount and raise MountError with the cause."""
    started_at, deadline = time.time(), time.monotonic() + mount.timeout
    started = systemd.call("systemctl", "start", "--", unit, seconds=mount.timeout)
    if started.code != 0:
        # a program that logs a reason does so soon after its mount ends
        error = "it cannot be mounted" if not started.hangs else f"it was not mounted within {mount.timeout} s"
    else:
        result = verify_mount(kind, mount, deadline - time.monotonic())
        if "listing" in result:
            if mount_probe.mounted_at(mount.path):
                return result
            error = "the mount ended immediately"
        else:
            error = f"{STEP_ERRORS[result['step']]}: {result['error']}"
    messages = f"{started.text}\n{read_failure_messages(kind, unit, started_at)}"
    systemd.force_unmount(mount.path, unit)
    messages += systemd.read_journal(unit, kind, started_at)
    raise MountError(explain(kind, mount, error, messages))


def verify_mount(kind: MountDriver, mount: DesiredMount, seconds: float) -> dict[str, Any]:
    """Access a mount as the user who will use it; fail if nothing is mounted, because the underlying directory would
    pass the check.
    """
    probe = f"{PROBE}{socket.gethostname()}-{os.getpid()}" if kind.may_probe(mount) else ""
    if not mount_probe.mounted_at(mount.path):
        return {"step": "stat", "errno": 0, "error": "the mount ended immediately"}
    return mount_probe.verify_access(mount.path, mount.uid, mount.gid, probe, seconds)


def ensure_mounted(kind: MountDriver, mount: DesiredMount, check_mode: bool) -> dict[str, Any]:
    """Ensure that the path is mounted, now and after each boot."""
    validate(kind, mount)
    files = desired_files(kind, mount)
    path, unit = mount.path, files.unit
    is_mounted = mount_probe.mounted_at(path) is not None
    missing = systemd.missing_requirement(kind)
    if missing and not check_mode:
        raise MountError(f"{path}: {missing}")
    state = {"UnitFileState": ""} if missing else systemd.unit_state(unit)
    is_managed = MARK in systemd.read_text(files.unit_file)
    access: dict[str, Any] = {}
    broken = False
    if is_mounted:
        access = verify_mount(kind, mount, mount_probe.INSPECT_TIMEOUT)
        # unmount mounts that are not ours only if their program has died; a hanging program may recover
        broken = mount_probe.is_broken(access) if is_managed else mount_probe.is_orphaned(access)
    if not broken:
        validate_mount_point(mount, is_mounted, is_managed)
    changed = changed_files(files)
    result: dict[str, Any] = {
        "changed": bool(changed) or not is_mounted or broken or state.get("UnitFileState") != "enabled",
        "diff": difference(files, changed, True),
        "unit": unit,
    }
    if check_mode:
        return {**result, "listing": access.get("listing"), "probe": access.get("probe", False)}
    if broken:
        systemd.force_unmount(path, unit)
        validate_mount_point(mount, False, is_managed)
    elif is_mounted and changed:
        systemd.unmount(path)
    if changed:
        write_files(files)
    systemd.make_private(kind.directories(mount))
    enabled = state.get("UnitFileState") == "enabled"
    if not enabled:
        systemd.call_checked("systemctl", "--quiet", "--no-reload", "enable", "--", unit)
    if changed or not enabled or state.get("NeedDaemonReload") == "yes":
        systemd.call_checked("systemctl", "daemon-reload")
    if changed or broken or not is_mounted:
        os.makedirs(path, exist_ok=True)
        access = start_mount(kind, mount, unit)
    elif "listing" not in access:
        messages = systemd.read_journal(unit, kind, time.time() - 60)
        raise MountError(explain(kind, mount, f"{STEP_ERRORS[access['step']]}: {access['error']}", messages))
    return {**result, "listing": access["listing"], "probe": access["probe"]}


def ensure_unmounted(kind: MountDriver, mount: DesiredMount, check_mode: bool, absent: bool) -> dict[str, Any]:
    """Ensure that nothing is mounted, now or after a boot; `absent` also removes the unit and credentials, but never
    data.
    """
    path, unit = mount.path, unit_name(mount.path)
    files = MountFiles(unit, f"{UNITS}/{unit}", "", credentials_path(path), "")
    has_unit = MARK in systemd.read_text(files.unit_file)
    has_secrets = os.path.exists(files.credentials_file)
    is_mounted = mount_probe.mounted_at(path) is not None
    enabled = has_unit and systemd.unit_state(unit).get("UnitFileState") == "enabled"
    removed = ["unit"] * (absent and has_unit) + ["credentials"] * (absent and has_secrets)
    if is_mounted and not has_unit:
        validate_mount_point(mount, True, False)
    result: dict[str, Any] = {
        "changed": is_mounted or enabled or bool(removed),
        "diff": difference(files, removed, False) if removed else [],
        "unit": unit,
        "listing": None,
        "probe": False,
    }
    if check_mode or not result["changed"]:
        return result
    if is_mounted:
        if mount_probe.is_broken(
            mount_probe.verify_access(path, mount.uid, mount.gid, "", mount_probe.INSPECT_TIMEOUT)
        ):
            systemd.force_unmount(path, unit)
            if mount_probe.mounted_at(path):
                raise MountError(
                    f"{path} is not responding, and is still mounted after `umount --lazy {path}`, so its unit "
                    "and credentials were kept. Try that with sudo on the node to see its error, or reboot the "
                    "node, then run this again"
                )
        else:
            systemd.unmount(path)
    if enabled:
        systemd.call_checked("systemctl", "--quiet", "--no-reload", "disable", "--", unit)
    if "unit" in removed:
        os.unlink(files.unit_file)
    if "credentials" in removed:
        os.unlink(files.credentials_file)
    if enabled or removed:
        systemd.call_checked("systemctl", "daemon-reload")
    if removed:
        systemd.call("systemctl", "reset-failed", "--", unit)
    return result

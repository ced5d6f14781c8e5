# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bring one mount into the desired state, and prove it. Private to this collection.

Runs on the node, standard library only, Python >= 3.8.

The order makes every interruption harmless: a mount is unmounted before its files change, so an active mount was made
with the current files. A mount that cannot be proved to work is unmounted; its unit stays enabled, so the next boot or
call tries again.
"""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._files.root_path import parent_fault
from ansible_collections.muster.training.plugins.module_utils._mounts import probe as mount_probe
from ansible_collections.muster.training.plugins.module_utils._mounts import systemd
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import Kind, MountError, Wanted
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import (
    SECRETS,
    credentials_path,
    mount_unit,
    unit_name,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import MARK, PROBE, UNITS

STEPS = {
    "stat": "it cannot be looked at",
    "list": "it cannot be listed",
    "write": "nothing can be written there",
    "read": "what was written there cannot be read",
    "remove": "what was written there cannot be removed",
}
LATEST_WORDS = 2.0  # seconds for a busy journal to record a program's messages


@dataclass(frozen=True)
class Files:
    """The paths and contents of a mount's files. The credentials' content is "" if there is no file."""

    unit: str
    unit_file: str
    unit_text: str
    credentials_file: str
    credentials_text: str


def wanted_files(kind: Kind, wanted: Wanted) -> Files:
    """Return the desired files of a mount."""
    credentials_text = kind.credential_text(wanted.credentials)
    credentials_file = credentials_path(wanted.path)
    parts = kind.parts(wanted, credentials_file if credentials_text else "")
    unit = unit_name(wanted.path)
    text = mount_unit(
        wanted.path,
        parts.what,
        parts.fs_type,
        parts.options,
        wanted.timeout,
        parts.environment_file,
        f"{wanted.source} by {kind.name}",
    )
    return Files(unit, f"{UNITS}/{unit}", text, credentials_file, credentials_text)


def refuse(kind: Kind, wanted: Wanted) -> None:
    """Raise MountError with all problems of the requested mount."""
    problems = kind.problems(wanted)
    path = wanted.path
    if not path.startswith("/") or os.path.normpath(path) != path or path in ("/", "//"):
        problems.insert(0, f"the mount point is {path!r}. Needed: an absolute path without . and .. and double slashes")
    else:
        problems += [unsafe(place) for place in (path, *kind.directories(wanted)) if parent_fault(place)]
    if not 5 <= wanted.timeout <= 300:
        problems.append(f"timeout is {wanted.timeout}. Needed: 5 to 300 seconds")
    if problems:
        raise MountError(f"{path}: " + "; ".join(problems))


def unsafe(path: str) -> str:
    """Return the message for a path that someone other than root could replace while root mounts there."""
    return (
        f"root must not use {path}: {parent_fault(path)}. Needed: a place that only root can change, such as "
        f"/mnt/data, not one in a home. Choose another one; a link to it may lie anywhere (ln -s /mnt/data {path})"
    )


def changed_files(files: Files) -> list[str]:
    """Return which files differ from the desired ones: unit, credentials."""
    changed = []
    if systemd.read_text(files.unit_file) != files.unit_text:
        changed.append("unit")
    if files.credentials_text:
        is_there = os.path.exists(files.credentials_file)
        same = is_there and systemd.is_private(files.credentials_file)
        if not same or systemd.read_text(files.credentials_file) != files.credentials_text:
            changed.append("credentials")
    elif os.path.exists(files.credentials_file):
        changed.append("credentials")
    return changed


def write_files(files: Files) -> None:
    """Write the files of a mount."""
    if files.credentials_text:
        systemd.make_private([SECRETS])
        os.chmod(SECRETS, 0o700)
        systemd.write(files.credentials_file, files.credentials_text, 0o600)
    elif os.path.exists(files.credentials_file):
        os.unlink(files.credentials_file)
    systemd.write(files.unit_file, files.unit_text, 0o644)


def difference(files: Files, changed: list[str], wanted_unit: bool) -> list[dict[str, str]]:
    """Return what --diff shows; for credentials, only that they change."""
    shown = []
    if "unit" in changed or not wanted_unit:
        shown.append(
            {
                "before_header": files.unit_file,
                "after_header": files.unit_file,
                "before": systemd.read_text(files.unit_file),
                "after": files.unit_text if wanted_unit else "",
            }
        )
    if "credentials" in changed:
        before = "(hidden, as they are)\n" if os.path.exists(files.credentials_file) else ""
        after = "(hidden, as they are to be)\n" if wanted_unit and files.credentials_text else ""
        shown.append(
            {
                "before_header": files.credentials_file,
                "after_header": files.credentials_file,
                "before": before,
                "after": after,
            }
        )
    return shown


def refuse_mount_point(wanted: Wanted, mounted: bool, ours: bool) -> None:
    """Raise MountError if a path cannot be a mount point."""
    path = wanted.path
    if mounted and not ours:
        found = mount_probe.mounted_at(path) or {"source": "", "type": ""}
        raise MountError(
            f"{path}: {found['source']} ({found['type']}) is mounted there already, and not by this collection. "
            f"Needed: a mount point of its own. Take it down (umount {path}; remove its line in /etc/fstab or its "
            "unit), or choose another path"
        )
    if mounted:
        return
    there = mount_probe.look(path)
    if there.get("hangs"):
        raise MountError(f"{path}: a directory on the way to it does not answer. Needed: a local directory above it")
    if there["exists"] and there["real"] != path:
        raise MountError(
            f"{path} leads by a link to {there['real']}. Needed: a path without links. Use {there['real']}"
        )
    if there["exists"] and not there["is_directory"]:
        raise MountError(f"{path} is no directory. Needed: an empty directory, or none. Choose another path")
    if there["entries"]:
        raise MountError(
            f"{path} is not empty (there is {there['entries'][0]!r}), and what lies there would be hidden. Needed: an "
            "empty directory, or none. Move it away, or choose another path"
        )


def explain(kind: Kind, wanted: Wanted, found: str, said: str) -> str:
    """Return the message for a failed mount: what was found, its cause, what to do."""
    known = kind.diagnose(said) or kind.diagnose(found)
    head = f"{wanted.path} ({wanted.source} by {kind.name}): {found}."
    if known:
        return f"{head} Cause: {known[0]}. To do: {known[1]}"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = " / ".join(lines[-4:]) or "nothing"
    return f"{head} Cause: not known; the journal says: {last[-800:]}. To do: journalctl -u '{unit_name(wanted.path)}'"


def last_words(kind: Kind, unit: str, since: float) -> str:
    """Return the messages of a failed mount, once a cause is known or LATEST_WORDS have passed.

    The program logs the reason just before it ends; on a busy machine, the journal records it later.
    """
    deadline = time.monotonic() + LATEST_WORDS
    while True:
        said = systemd.journal(unit, kind, since)
        if kind.diagnose(said) or time.monotonic() > deadline:
            return said
        time.sleep(0.1)


def bring_up(kind: Kind, wanted: Wanted, unit: str) -> dict[str, Any]:
    """Start a unit and prove its mount; if that fails, unmount and raise MountError with the cause."""
    begun, deadline = time.time(), time.monotonic() + wanted.timeout
    started = systemd.call("systemctl", "start", "--", unit, seconds=wanted.timeout)
    if started.code != 0:
        # a program that gives a reason does so soon after its mount ends
        found = "it cannot be mounted" if not started.hangs else f"it was not mounted within {wanted.timeout} s"
    else:
        answer = proof_of(kind, wanted, deadline - time.monotonic())
        if "listing" in answer:
            if mount_probe.mounted_at(wanted.path):
                return answer
            found = "the mount went away again"
        else:
            found = f"{STEPS[answer['step']]}: {answer['error']}"
    said = f"{started.text}\n{last_words(kind, unit, begun)}"
    systemd.take_down(wanted.path, unit)
    said += systemd.journal(unit, kind, begun)
    raise MountError(explain(kind, wanted, found, said))


def proof_of(kind: Kind, wanted: Wanted, seconds: float) -> dict[str, Any]:
    """Prove a mount as its user; reading the local directory underneath while nothing is mounted is no proof."""
    probe = f"{PROBE}{socket.gethostname()}-{os.getpid()}" if kind.may_probe(wanted) else ""
    if not mount_probe.mounted_at(wanted.path):
        return {"step": "stat", "errno": 0, "error": "the mount went away again"}
    return mount_probe.prove(wanted.path, wanted.uid, wanted.gid, probe, seconds)


def mounted(kind: Kind, wanted: Wanted, check_mode: bool) -> dict[str, Any]:
    """Ensure that it is mounted, now and after each boot."""
    refuse(kind, wanted)
    files = wanted_files(kind, wanted)
    path, unit = wanted.path, files.unit
    is_mounted = mount_probe.mounted_at(path) is not None
    lacks = systemd.lacking(kind)
    if lacks and not check_mode:
        raise MountError(f"{path}: {lacks}")
    state = {"UnitFileState": ""} if lacks else systemd.unit_state(unit)
    ours = MARK in systemd.read_text(files.unit_file)
    answer: dict[str, Any] = {}
    broken = False
    if is_mounted:
        answer = proof_of(kind, wanted, mount_probe.LOOK)
        # take down others' mounts only if their program has died; one that hangs may recover
        broken = mount_probe.is_broken(answer) if ours else mount_probe.is_orphaned(answer)
    if not broken:
        refuse_mount_point(wanted, is_mounted, ours)
    changed = changed_files(files)
    result: dict[str, Any] = {
        "changed": bool(changed) or not is_mounted or broken or state.get("UnitFileState") != "enabled",
        "diff": difference(files, changed, True),
        "unit": unit,
    }
    if check_mode:
        return {**result, "listing": answer.get("listing"), "probe": answer.get("probe", False)}
    if broken:
        systemd.take_down(path, unit)
        refuse_mount_point(wanted, False, ours)
    elif is_mounted and changed:
        systemd.unmount(path)
    if changed:
        write_files(files)
    systemd.make_private(kind.directories(wanted))
    enabled = state.get("UnitFileState") == "enabled"
    if not enabled:
        systemd.must("systemctl", "--quiet", "--no-reload", "enable", "--", unit)
    if changed or not enabled or state.get("NeedDaemonReload") == "yes":
        systemd.must("systemctl", "daemon-reload")
    if changed or broken or not is_mounted:
        os.makedirs(path, exist_ok=True)
        answer = bring_up(kind, wanted, unit)
    elif "listing" not in answer:
        said = systemd.journal(unit, kind, time.time() - 60)
        raise MountError(explain(kind, wanted, f"{STEPS[answer['step']]}: {answer['error']}", said))
    return {**result, "listing": answer["listing"], "probe": answer["probe"]}


def unmounted(kind: Kind, wanted: Wanted, check_mode: bool, absent: bool) -> dict[str, Any]:
    """Ensure that it is not mounted, now or after a boot; `absent` also removes unit and credentials. Data stay."""
    path, unit = wanted.path, unit_name(wanted.path)
    files = Files(unit, f"{UNITS}/{unit}", "", credentials_path(path), "")
    has_unit = MARK in systemd.read_text(files.unit_file)
    has_secrets = os.path.exists(files.credentials_file)
    is_mounted = mount_probe.mounted_at(path) is not None
    enabled = has_unit and systemd.unit_state(unit).get("UnitFileState") == "enabled"
    gone = ["unit"] * (absent and has_unit) + ["credentials"] * (absent and has_secrets)
    if is_mounted and not has_unit:
        refuse_mount_point(wanted, True, False)
    result: dict[str, Any] = {
        "changed": is_mounted or enabled or bool(gone),
        "diff": difference(files, gone, False) if gone else [],
        "unit": unit,
        "listing": None,
        "probe": False,
    }
    if check_mode or not result["changed"]:
        return result
    if is_mounted:
        if mount_probe.is_broken(mount_probe.prove(path, wanted.uid, wanted.gid, "", mount_probe.LOOK)):
            systemd.take_down(path, unit)
            if mount_probe.mounted_at(path):
                raise MountError(
                    f"{path} does not answer, and is still mounted after `umount --lazy {path}`. Needed: nothing "
                    "mounted there, before its unit and credentials may go. Try that command on the node and see what "
                    "it says, or reboot the node, then run this again"
                )
        else:
            systemd.unmount(path)
    if enabled:
        systemd.must("systemctl", "--quiet", "--no-reload", "disable", "--", unit)
    if "unit" in gone:
        os.unlink(files.unit_file)
    if "credentials" in gone:
        os.unlink(files.credentials_file)
    if enabled or gone:
        systemd.must("systemctl", "daemon-reload")
    if gone:
        systemd.call("systemctl", "reset-failed", "--", unit)
    return result

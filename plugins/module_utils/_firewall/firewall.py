# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Firewall rules that accept all traffic between a cluster's nodes, tested before they are kept.

    firewall.py try SECONDS   read the desired rules from standard input; activate them, and roll back after SECONDS
    firewall.py confirm       keep the rules on trial
    firewall.py state         print as JSON the kept rules, and whether they are active, also at boot
    firewall.py rollback      restore the previous rules
    firewall.py apply         activate the kept rules (at boot, and after nftables has loaded its own rules); first roll
    back a trial that a reboot interrupted

The rules are a JSON object: nodes (addresses), ssh_ports, ssh_from (networks; empty means all), open (port, protocol,
from), close (whether to reject everything else).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator

from ansible_collections.muster.training.plugins.module_utils._detached.result_line import StepError, print_line
from ansible_collections.muster.training.plugins.module_utils._firewall.rules import (
    Rules,
    format_iptables_lines,
    plan_commands,
    replace_block,
)

KEPT_FILE = Path("/etc/muster/firewall.json")
STATE_DIRECTORY = Path("/var/lib/muster_firewall")  # on disk, since a trial's changes also survive a reboot
TRIED_FILE = STATE_DIRECTORY / "tried.json"  # exists from the start of a trial until it is confirmed or rolled back
SAVED_FILE = STATE_DIRECTORY / "ufw.json"  # ufw's files as they were before the trial
BOOT_UNIT = "muster_firewall.service"
ROLLBACK_TIMER = "muster_firewall_rollback.timer"
UFW_FILES = {4: Path("/etc/ufw/before.rules"), 6: Path("/etc/ufw/before6.rules")}
UFW_DEFAULTS = Path("/etc/default/ufw")


def run(*arguments: str, stdin: str = "") -> str:
    """Return the output of a command. Raise StepError with its output if it fails."""
    try:
        completed = subprocess.run(arguments, input=stdin, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise StepError(f"{arguments[0]} is not installed on this node. Install nftables or ufw") from error
    if completed.returncode:
        raise StepError(f"`{' '.join(arguments)}` failed: {(completed.stderr or completed.stdout).strip()}")
    return completed.stdout


def write(path: Path, text: str) -> None:
    """Write a file atomically, keeping its permissions, and sync it to disk in case of a power failure."""
    path.parent.mkdir(exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    if path.exists():
        shutil.copystat(path, new)
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Sync a directory to disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def exclusive_lock() -> Iterator[None]:
    """Hold the lock that prevents other modifying calls of this program."""
    STATE_DIRECTORY.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (STATE_DIRECTORY / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def read_ruleset() -> list[dict[str, Any]]:
    """Return all active rules."""
    ruleset: list[dict[str, Any]] = json.loads(run("nft", "--json", "list", "ruleset"))["nftables"]
    return ruleset


def is_ufw_active() -> bool:
    """Return whether ufw manages this machine's firewall."""
    return shutil.which("ufw") is not None and "Status: active" in run("ufw", "status")


def desired_ufw_files(rules: Rules) -> dict[Path, str]:
    """Return the desired contents of ufw's files."""
    texts = {
        path: replace_block(path.read_text(), format_iptables_lines(rules, version))
        for version, path in UFW_FILES.items()
        if path.exists()
    }
    defaults = UFW_DEFAULTS.read_text()
    if rules["close"]:
        defaults = re.sub(r"(?m)^DEFAULT_INPUT_POLICY=.*$", 'DEFAULT_INPUT_POLICY="DROP"', defaults)
    return {**texts, UFW_DEFAULTS: defaults}


def changed_files(texts: dict[Path, str]) -> dict[Path, str]:
    """Return the entries whose text differs from the file on disk."""
    return {path: text for path, text in texts.items() if path.read_text() != text}


def write_ufw(texts: dict[Path, str]) -> None:
    """Write ufw's files and reload it."""
    for path, text in texts.items():
        write(path, text)
    run("ufw", "reload")


def activate(rules: Rules) -> None:
    """Activate these rules, using ufw if it is active and nftables otherwise."""
    if is_ufw_active():
        texts = changed_files(desired_ufw_files(rules))
        if texts:
            write_ufw(texts)
    else:
        commands = plan_commands(read_ruleset(), rules)
        if commands:
            run("nft", "--file", "-", stdin=commands)


def is_active(rules: Rules) -> bool:
    """Return whether these rules are active."""
    if is_ufw_active():
        return not changed_files(desired_ufw_files(rules))
    return not plan_commands(read_ruleset(), rules)


def read_kept_rules() -> Rules:
    """Return the kept rules, or rules that change nothing if there are none."""
    if KEPT_FILE.exists():
        rules: Rules = json.loads(KEPT_FILE.read_text())
        return rules
    return {"nodes": [], "ssh_ports": [], "ssh_from": [], "open": [], "close": False}


def try_rules(rules_text: str, seconds: int) -> str:
    """Activate the rules in a text for this many seconds; return a description of the changes."""
    desired: Rules = json.loads(rules_text)
    rollback()  # end an earlier unconfirmed trial first: its changes are not the state to restore
    in_force = is_active(desired)  # raises StepError before any change if they cannot be activated
    if in_force and KEPT_FILE.exists() and KEPT_FILE.read_text() == rules_text:
        return "unchanged"
    saved = {str(path): path.read_text() for path in (*UFW_FILES.values(), UFW_DEFAULTS) if path.exists()}
    write(SAVED_FILE, json.dumps(saved))
    write(TRIED_FILE, rules_text)
    subprocess.run(["systemctl", "stop", ROLLBACK_TIMER], capture_output=True, check=False)
    timer_command = [
        "systemd-run",
        "--collect",
        f"--unit={ROLLBACK_TIMER}",
        f"--on-active={seconds}",
        "--timer-property=AccuracySec=100ms",
    ]
    run(*timer_command, sys.executable, os.path.abspath(sys.argv[0]), "rollback")
    run("systemctl", "--quiet", "enable", BOOT_UNIT)  # rolls back if a reboot removes the timer
    try:
        activate(desired)
    except StepError:
        rollback()
        raise
    return "applied"


def confirm() -> str:
    """Keep the rules on trial."""
    if not TRIED_FILE.exists():
        raise StepError("the rules were rolled back before they were confirmed. Increase firewall_rollback_after")
    run("systemctl", "stop", ROLLBACK_TIMER)
    write(KEPT_FILE, TRIED_FILE.read_text())
    end_trial()
    return "confirmed"


def rollback() -> str:
    """Restore the rules from before the trial."""
    if not TRIED_FILE.exists():
        return "no rules are waiting for confirmation"
    saved = {Path(path): text for path, text in json.loads(SAVED_FILE.read_text()).items()}
    changed = changed_files({path: text for path, text in saved.items() if path.exists()})
    if changed:
        write_ufw(changed)
    if not is_ufw_active():
        activate(read_kept_rules())
    end_trial()
    return "rolled back"


def end_trial() -> None:
    """Record that no rules are waiting for confirmation."""
    TRIED_FILE.unlink()
    sync_directory(STATE_DIRECTORY)


def apply() -> str:
    """Activate the kept rules, or those of a trial that is still active."""
    if TRIED_FILE.exists():
        timer_active = (
            subprocess.run(["systemctl", "--quiet", "is-active", ROLLBACK_TIMER], check=False).returncode == 0
        )
        if not timer_active:
            return rollback()
        activate(json.loads(TRIED_FILE.read_text()))
    elif KEPT_FILE.exists():
        activate(read_kept_rules())
    return "applied"


def is_active_at_boot() -> bool:
    """Return whether systemd activates the kept rules at each boot, including the current one."""
    commands = (["systemctl", "--quiet", word, BOOT_UNIT] for word in ("is-enabled", "is-active"))
    return all(subprocess.run(command, capture_output=True, check=False).returncode == 0 for command in commands)


def state() -> str:
    """Return as JSON: the kept rules, whether they are active with none on trial, and whether they are activated at
    boot.
    """
    has_kept = KEPT_FILE.exists()
    in_force = has_kept and not TRIED_FILE.exists() and is_active(read_kept_rules())
    return json.dumps(
        {"saved": KEPT_FILE.read_text() if has_kept else "", "active": in_force, "at_boot": is_active_at_boot()}
    )


def main(arguments: list[str]) -> int:
    """Run the command in the first argument; return the exit status."""
    try:
        with exclusive_lock():
            if arguments[:1] == ["try"]:
                print_line(try_rules(sys.stdin.read(), int(arguments[1])))
                if is_active_at_boot():
                    print_line("at boot")
            else:
                print_line({"confirm": confirm, "rollback": rollback, "apply": apply, "state": state}[arguments[0]]())
    except StepError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power off an unused rented machine to save costs.

    idle_watch.py check              check for use, then warn or power off if due; called by the timer, as root
    idle_watch.py status             show signs of use and when the machine will power off; changes nothing
    idle_watch.py stay 8h            stay on for this long in any case; 0m cancels it

Settings: /etc/muster/idle_watch.json, {"after": "30m", "ttl": "24h"}; "off" disables one of them. It may also have a
"user" whose runs keep the machine on, as those of root and of administrators do. Times are counted from boot, so a
wrong date powers nothing off, and the state does not outlast the boot.
"""

from __future__ import annotations

import contextlib
import grp
import json
import os
import pwd
import re
import subprocess
import sys
import time
from typing import Any, Callable, Collection, NamedTuple, Sequence

SETTINGS = "/etc/muster/idle_watch.json"
STATE = "/run/muster_idle_watch.json"  # owned by root, in memory
PROGRAM = "/usr/local/lib/muster/idle_watch.py"
WARNING_SECONDS = 15 * 60.0  # seconds between the warning and power-off
BOOT_GRACE_SECONDS = 20 * 60.0  # seconds after boot during which the machine is not powered off
GPU_IN_USE = 5.0  # percent
AMD_DEVICE = "/dev/kfd"
AMD_PROGRAMS = ("/opt/rocm/bin/amd-smi", "/usr/bin/amd-smi")  # ROCm adds itself to PATH only for login shells
COMMAND_TIMEOUT = 60.0  # seconds; a broken driver makes nvidia-smi hang forever
ROOT = 0
ADMINISTRATORS = ("sudo", "admin", "wheel")  # groups whose members could keep the machine on in any case
PACKAGE_MANAGERS = ("apt", "apt-get", "aptitude", "dpkg", "dpkg-deb")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SSH_SESSION = re.compile(rb"sshd(?:-session)?: ([^\s@]+)@")  # the title that sshd gives a session's process


class IdleSettings(NamedTuple):
    """Limits: `after` in seconds without use, `ttl` in seconds since boot; None means off. `user` is who runs the
    jobs.
    """

    after: float | None
    ttl: float | None
    user: str = ""


class IdleState(NamedTuple):
    """State between checks, in seconds since boot; None means unset."""

    idle_since: float | None = None
    warned_at: float | None = None
    stay_until: float | None = None


class RunningProcess(NamedTuple):
    """A process, with comm, cmdline and environ from /proc. `uid` is its user's UID, even for a setuid program."""

    uid: int
    comm: bytes
    cmdline: bytes
    environ: bytes


class UsageSigns(NamedTuple):
    """Signs of use. `work` prevents power-off altogether; `people` prevent it only until the ttl."""

    work: Sequence[str] = ()
    people: Sequence[str] = ()


class PowerDecision(NamedTuple):
    """The action ("nothing", "warn" or "power-off"), the expected time of power-off (None: never), and the reason."""

    action: str
    state: IdleState
    due: float | None
    reason: str


# --- Decisions --------------------------------------------------------------------------------------------------------


def parse_duration(text: object) -> float | None:
    """Return a duration such as 30m, 24h or 2d in seconds, or None for off. Raise ValueError."""
    value = str(text).strip().lower()
    if value in ("off", "false", "no", "none"):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", value)
    if not match:
        raise ValueError(f"{value!r} is not a duration. Use a number with a unit, such as 30m, 24h or 2d, or off")
    return float(match[1]) * UNITS[match[2]]


def format_duration(duration: float) -> str:
    """Format a duration in whole minutes or hours: 90 min, 26 h."""
    minutes = max(0, round(duration / 60))
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def decide(settings: IdleSettings, state: IdleState, signs: UsageSigns, now: float) -> PowerDecision:
    """Return the action that is due on a machine.

    It is powered off only after a warning that is at least 15 minutes old, and never during work.

    Args:
        now: Seconds since boot.
    """
    if state.stay_until is not None and now >= state.stay_until:
        state = IdleState()
    work = list(signs.work)
    if now < BOOT_GRACE_SECONDS:
        work.append(f"it booted {format_duration(now)} ago")
    if state.stay_until is not None:
        work.append(f"a user has asked it to stay on for another {format_duration(state.stay_until - now)}")
    if work:
        return PowerDecision("nothing", IdleState(stay_until=state.stay_until), None, "; ".join(work))
    idle_since = None if signs.people else (now if state.idle_since is None else state.idle_since)
    limits = []
    if settings.ttl is not None:
        limits.append((settings.ttl, f"it has been on for {format_duration(settings.ttl)}"))
    if settings.after is not None and idle_since is not None:
        limits.append((idle_since + settings.after, f"it has been unused for {format_duration(settings.after)}"))
    if not limits:
        return PowerDecision(
            "nothing", IdleState(idle_since), None, "; ".join(signs.people) or "both limits are disabled"
        )
    due, reason = min(limits)
    if now < due - WARNING_SECONDS:
        return PowerDecision("nothing", IdleState(idle_since), due, "; ".join(signs.people) or "nobody uses it")
    if state.warned_at is None:
        return PowerDecision("warn", IdleState(idle_since, now), max(due, now + WARNING_SECONDS), reason)
    due = max(due, state.warned_at + WARNING_SECONDS)
    return PowerDecision("power-off" if now >= due else "nothing", IdleState(idle_since, state.warned_at), due, reason)


def gpu_signs(utilization: str, processes: str) -> list[str]:
    """Return signs of work from nvidia-smi.

    Args:
        utilization: One line per GPU with its utilization in percent.
        processes: One line per process on a GPU, with its pid.
    """
    signs = []
    utilizations = [float(line) for line in utilization.split("\n") if re.fullmatch(r"\s*\d+(\.\d+)?\s*", line)]
    if utilizations and max(utilizations) > GPU_IN_USE:
        signs.append(f"a GPU is in use ({max(utilizations):.0f} %)")
    pids = [line.strip() for line in processes.split("\n") if line.strip().isdigit()]
    if pids:
        signs.append(f"processes are using a GPU ({', '.join(pids[:5])})")
    return signs


def amd_signs(usage: str, processes: str) -> list[str]:
    """Return signs of work from the JSON of amd-smi: `metric --usage` and `process`."""
    utilizations = re.findall(r'"gfx_activity":\s*(?:\{\s*"value":\s*)?(\d{1,3}(?:\.\d+)?)', usage)
    pids = re.findall(r'"pid":\s*(\d{1,10})\b', processes)
    return gpu_signs("\n".join(utilizations), "\n".join(dict.fromkeys(pids)))


def unit_signs(unit_list: str) -> list[str]:
    """Return a sign of work for each muster unit in the output of `systemctl list-units`."""
    names = [line.split()[0] for line in unit_list.splitlines() if line.split()]
    return [f"{name} runs" for name in names if re.fullmatch(r"muster-\S+\.(service|scope)", name)]


def process_signs(processes: Sequence[RunningProcess], run_users: Collection[int]) -> UsageSigns:
    """Return signs of use found in the machine's processes.

    Anyone can choose a process's name and environment, so work counts only if its user is authorized.

    Args:
        run_users: UIDs of users whose runs keep the machine on.
    """
    runs = sum(
        process.uid in run_users and b"\0MUSTER_RUN_DIRECTORY=" in b"\0" + process.environ for process in processes
    )
    names = {process.comm.decode("utf-8", "replace").strip() for process in processes if process.uid == ROOT}
    managers = sorted(names & set(PACKAGE_MANAGERS))
    sessions = sum(SSH_SESSION.match(process.cmdline) is not None for process in processes)
    work = [f"{runs} process{'es' * (runs > 1)} of a run"] * (runs > 0) + [f"{name} runs" for name in managers]
    return UsageSigns(work, [f"{sessions} SSH session{'s' * (sessions > 1)}"] * (sessions > 0))


# --- Input and output -------------------------------------------------------------------------------------------------

CommandRunner = Callable[[Sequence[str], str], str]


def run(argv: Sequence[str], text: str = "") -> str:
    """Return the output of a program. Raise OSError or subprocess.SubprocessError."""
    return subprocess.run(
        argv, input=text, stdout=subprocess.PIPE, check=True, timeout=COMMAND_TIMEOUT, text=True
    ).stdout


def read_processes(proc: str) -> list[RunningProcess]:
    """Return all readable processes except this one."""
    processes = []
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != os.getpid():
            parts = {}
            for part in ("status", "comm", "cmdline", "environ"):
                parts[part] = b""
                # the process may have ended
                with contextlib.suppress(OSError), open(os.path.join(proc, name, part), "rb") as stream:
                    parts[part] = stream.read()
            uid = re.search(rb"^Uid:\s*(\d+)", parts.pop("status"), re.MULTILINE)
            if uid:
                processes.append(RunningProcess(int(uid[1]), **parts))
    return processes


def find_run_users(user: str, uids: Collection[int]) -> set[int]:
    """Return the UIDs among these that belong to root, administrators, or this user.

    Queries each UID, because account directories such as LDAP do not list all accounts.
    """
    names = {user}
    groups = set()
    for group in ADMINISTRATORS:
        with contextlib.suppress(KeyError):
            entry = grp.getgrnam(group)
            groups.add(entry.gr_gid)
            names.update(entry.gr_mem)
    users = {ROOT}
    for uid in set(uids):
        with contextlib.suppress(KeyError):  # a process in a container, or one that belongs to a removed account
            account = pwd.getpwuid(uid)
            if account.pw_name in names or account.pw_gid in groups:
                users.add(uid)
    return users


def read_usage(run: CommandRunner, user: str, proc: str = "/proc") -> UsageSigns:
    """Return the current signs of use on this machine. user: who runs the jobs, apart from administrators, or ""."""
    processes = read_processes(proc)
    process_usage = process_signs(processes, find_run_users(user, {process.uid for process in processes}))
    work, people = list(process_usage.work), list(process_usage.people)
    listing = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating,reloading"]
    try:
        work += unit_signs(run([*listing, "muster-*"], ""))
    except (OSError, subprocess.SubprocessError) as error:
        people.append(f"systemctl is not responding ({type(error).__name__})")
    for program, read_signs in GPU_READERS.items():
        try:
            work += read_signs(run)
        except FileNotFoundError:
            pass  # no GPU
        except (OSError, subprocess.SubprocessError) as error:
            # There may be work that was not detected. The TTL still applies, in case the driver is broken.
            if "No devices were found" not in str(getattr(error, "stdout", "")):
                people.append(f"{program} is not responding ({type(error).__name__})")
    return UsageSigns(work, people)


def read_nvidia_signs(run: CommandRunner) -> list[str]:
    """Return the signs of work on NVIDIA GPUs."""
    query = ["nvidia-smi", "--format=csv,noheader,nounits"]
    return gpu_signs(run([*query, "--query-gpu=utilization.gpu"], ""), run([*query, "--query-compute-apps=pid"], ""))


def read_amd_signs(run: CommandRunner) -> list[str]:
    """Return the signs of work on AMD GPUs. If their device file does not exist, no process is started."""
    if not os.path.exists(AMD_DEVICE):
        return []
    program = next((path for path in AMD_PROGRAMS if os.access(path, os.X_OK)), "amd-smi")
    return amd_signs(run([program, "metric", "--usage", "--json"], ""), run([program, "process", "--json"], ""))


GPU_READERS: dict[str, Callable[[CommandRunner], list[str]]] = {
    "nvidia-smi": read_nvidia_signs,
    "amd-smi": read_amd_signs,
}


def read_settings(path: str) -> IdleSettings:
    """Return the settings. Raise OSError or ValueError."""
    with open(path, encoding="utf-8") as stream:
        content = json.load(stream)
    return IdleSettings(parse_duration(content["after"]), parse_duration(content["ttl"]), str(content.get("user", "")))


def read_state(path: str, now: float) -> IdleState:
    """Return the saved state, or an empty one if it is missing, broken or from another boot."""
    try:
        with open(path, encoding="utf-8") as stream:
            content: dict[str, Any] = json.load(stream)
        values = {name: None if content[name] is None else float(content[name]) for name in IdleState._fields}
    except (OSError, ValueError, TypeError, KeyError):
        return IdleState()
    past = [values[name] for name in ("idle_since", "warned_at")]
    return IdleState() if any(moment is not None and moment > now for moment in past) else IdleState(**values)


def write_state(path: str, state: IdleState) -> None:
    """Write the state atomically."""
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(state._asdict(), stream)
    os.replace(path + ".new", path)


def format_warning(decision: PowerDecision, now: float) -> str:
    """Return the message to all logged-in users."""
    return (
        f"This machine powers off in {format_duration((decision.due or now) - now)}: {decision.reason}.\n"
        f"To keep it on for 8 more hours: sudo python3 {PROGRAM} stay 8h\n"
    )


def check(settings: IdleSettings, path: str, signs: UsageSigns, now: float, run: CommandRunner) -> str:
    """Perform the actions that are due; return a line for the journal."""
    decision = decide(settings, read_state(path, now), signs, now)
    write_state(path, decision.state)
    if decision.action == "warn":
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # nobody may be logged in
            run(["wall"], format_warning(decision, now))
    elif decision.action == "power-off":
        run(["systemctl", "poweroff"], "")
    return format_decision(decision, now)


def format_decision(decision: PowerDecision, now: float) -> str:
    """Return the decision and its reason on one line."""
    if decision.action == "power-off":
        return f"powers off: {decision.reason}"
    if decision.due is None:
        return f"stays on: {decision.reason}"
    return f"will power off in {format_duration(decision.due - now)} if nothing changes: {decision.reason}"


def main(arguments: Sequence[str]) -> str:
    """Run a command; return the text to print. Raise ValueError or OSError."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    if list(arguments) == ["check"]:
        settings = read_settings(SETTINGS)
        return check(settings, STATE, read_usage(run, settings.user), now, run)
    if list(arguments) == ["status"]:
        settings = read_settings(SETTINGS)
        return format_decision(decide(settings, read_state(STATE, now), read_usage(run, settings.user), now), now)
    if len(arguments) == 2 and arguments[0] == "stay":
        duration = parse_duration(arguments[1]) or 0.0
        write_state(STATE, IdleState(stay_until=now + duration if duration else None))
        return f"stays on for {format_duration(duration)}, even if idle" if duration else "powers off when idle again"
    raise ValueError(f"usage: idle_watch.py check | status | stay 8h, not {' '.join(arguments) or 'nothing'}")


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{main(sys.argv[1:])}\n")
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        message = repr(error) if isinstance(error, KeyError) else str(error)
        raise SystemExit(f"idle_watch: {message}") from None

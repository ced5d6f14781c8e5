"""Power off a rented machine that nobody uses, to save its cost. Standard library only.

    idle_watch.py check              look, warn, power off if it is time; called by the timer, as root
    idle_watch.py status             show signs of use and when the machine will go off; changes nothing
    idle_watch.py stay 8h            stay on for this long in any case; 0m cancels it

Settings: /etc/muster/idle_watch.json, {"after": "30m", "ttl": "24h"}; "off" disables one of them. Times are counted
from boot, so a wrong date powers nothing off, and the state does not outlast the boot.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from typing import Any, Callable, Mapping, NamedTuple, Sequence

SETTINGS = "/etc/muster/idle_watch.json"
STATE = "/run/muster_idle_watch.json"  # owned by root, in memory
PROGRAM = "/usr/local/lib/muster/idle_watch.py"
WARNING = 15 * 60.0  # seconds between the warning and power-off
BOOT = 20 * 60.0  # seconds after boot without power-off
GPU_IN_USE = 5.0  # percent
COMMAND_TIMEOUT = 60.0  # seconds; a broken driver makes nvidia-smi wait forever
PACKAGE_MANAGERS = ("apt", "apt-get", "aptitude", "dpkg", "dpkg-deb")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SSH_SESSION = re.compile(rb"sshd(?:-session)?: ([^\s@]+)@")  # sshd's title for a session's process


class Settings(NamedTuple):
    """after: seconds without use, ttl: seconds since boot; None is off."""

    after: float | None
    ttl: float | None


class State(NamedTuple):
    """What is remembered between checks, in seconds since boot; None: unset."""

    idle_since: float | None = None
    warned_at: float | None = None
    stay_until: float | None = None


class Seen(NamedTuple):
    """Signs of use. work: prevents power-off altogether. people: prevent it only until the ttl."""

    work: Sequence[str] = ()
    people: Sequence[str] = ()


class Decision(NamedTuple):
    """What to do: nothing, warn or power-off; when the machine is expected to go off (None: never); and why."""

    action: str
    state: State
    due: float | None
    why: str


# --- Pure -------------------------------------------------------------------------------------------------------------


def seconds(text: object) -> float | None:
    """A duration such as 30m, 24h, 2d in seconds; None for off. Raises ValueError, which says what is needed."""
    word = str(text).strip().lower()
    if word in ("off", "false", "no", "none"):
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", word)
    if not match:
        raise ValueError(f"{word!r} is not a duration. Needed: a number and its unit, such as 30m, 24h or 2d, or off")
    return float(match[1]) * UNITS[match[2]]


def in_words(duration: float) -> str:
    """A duration for a person, in whole minutes: 90 min, 26 h."""
    minutes = max(0, round(duration / 60))
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.0f} h"


def decide(settings: Settings, state: State, seen: Seen, now: float) -> Decision:
    """What to do with a machine. now: seconds since boot.

    It is powered off only after a warning that is at least 15 minutes old, and never while work is seen.
    """
    if state.stay_until is not None and now >= state.stay_until:
        state = State()
    work = list(seen.work)
    if now < BOOT:
        work.append(f"it booted {in_words(now)} ago")
    if state.stay_until is not None:
        work.append(f"somebody has asked it to stay on for {in_words(state.stay_until - now)}")
    if work:
        return Decision("nothing", State(stay_until=state.stay_until), None, "; ".join(work))
    idle_since = None if seen.people else (now if state.idle_since is None else state.idle_since)
    ends = []
    if settings.ttl is not None:
        ends.append((settings.ttl, f"it has been on for {in_words(settings.ttl)}"))
    if settings.after is not None and idle_since is not None:
        ends.append((idle_since + settings.after, f"nobody has used it for {in_words(settings.after)}"))
    if not ends:
        return Decision("nothing", State(idle_since), None, "; ".join(seen.people) or "both limits are off")
    due, why = min(ends)
    if now < due - WARNING:
        return Decision("nothing", State(idle_since), due, "; ".join(seen.people) or "nobody uses it")
    if state.warned_at is None:
        return Decision("warn", State(idle_since, now), max(due, now + WARNING), why)
    due = max(due, state.warned_at + WARNING)
    return Decision("power-off" if now >= due else "nothing", State(idle_since, state.warned_at), due, why)


def gpu_signs(utilization: str, processes: str) -> list[str]:
    """Signs of work from nvidia-smi: one line per GPU with its use in percent, and one per process with its pid."""
    found = []
    used = [float(line) for line in utilization.split("\n") if re.fullmatch(r"\s*\d+(\.\d+)?\s*", line)]
    if used and max(used) > GPU_IN_USE:
        found.append(f"a GPU is in use ({max(used):.0f} %)")
    pids = [line.strip() for line in processes.split("\n") if line.strip().isdigit()]
    if pids:
        found.append(f"processes hold a GPU ({', '.join(pids[:5])})")
    return found


def unit_signs(listed: str) -> list[str]:
    """Muster runs listed by systemd, one unit per line."""
    names = [line.split()[0] for line in listed.splitlines() if line.split()]
    return [f"{name} runs" for name in names if re.fullmatch(r"muster-\S+\.(service|scope)", name)]


def process_signs(processes: Sequence[Mapping[str, bytes]]) -> Seen:
    """Signs of use from the machine's processes, each with comm, cmdline and environ from /proc."""
    runs = sum(b"\0MUSTER_RUN_DIRECTORY=" in b"\0" + one["environ"] for one in processes)
    names = {one["comm"].decode("utf-8", "replace").strip() for one in processes}
    managers = sorted(names & set(PACKAGE_MANAGERS))
    sessions = sum(SSH_SESSION.match(one["cmdline"]) is not None for one in processes)
    work = [f"{runs} processes of a run"] * (runs > 0) + [f"{name} runs" for name in managers]
    return Seen(work, [f"{sessions} SSH sessions"] * (sessions > 0))


# --- Input and output -------------------------------------------------------------------------------------------------

Run = Callable[[Sequence[str], str], str]


def run(argv: Sequence[str], text: str = "") -> str:
    """The output of a program. Raises OSError and subprocess.SubprocessError."""
    return subprocess.run(
        argv, input=text, stdout=subprocess.PIPE, check=True, timeout=COMMAND_TIMEOUT, text=True
    ).stdout


def processes_of(proc: str) -> list[dict[str, bytes]]:
    """All processes but this one, as far as they can be read."""
    found = []
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != os.getpid():
            one = {}
            for part in ("comm", "cmdline", "environ"):
                one[part] = b""
                # The process may have ended.
                with contextlib.suppress(OSError), open(os.path.join(proc, name, part), "rb") as stream:
                    one[part] = stream.read()
            found.append(one)
    return found


def look(run: Run, proc: str = "/proc") -> Seen:
    """Current signs of use of this machine."""
    seen = process_signs(processes_of(proc))
    work, people = list(seen.work), list(seen.people)
    listing = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active,activating,deactivating,reloading"]
    try:
        work += unit_signs(run([*listing, "muster-*"], ""))
    except (OSError, subprocess.SubprocessError) as error:
        people.append(f"systemctl does not answer ({type(error).__name__})")
    query = ["nvidia-smi", "--format=csv,noheader,nounits"]
    try:
        work += gpu_signs(
            run([*query, "--query-gpu=utilization.gpu"], ""), run([*query, "--query-compute-apps=pid"], "")
        )
    except FileNotFoundError:
        pass  # no GPU
    except (OSError, subprocess.SubprocessError) as error:
        # There may be unseen work. The ttl still applies: a broken driver would keep the machine on forever.
        if "No devices were found" not in str(getattr(error, "stdout", "")):
            people.append(f"nvidia-smi does not answer ({type(error).__name__})")
    return Seen(work, people)


def read_settings(path: str) -> Settings:
    """The settings. Raises OSError and ValueError."""
    with open(path, encoding="utf-8") as stream:
        content = json.load(stream)
    return Settings(seconds(content["after"]), seconds(content["ttl"]))


def read_state(path: str, now: float) -> State:
    """The remembered state; empty if it is missing, broken or from another boot."""
    try:
        with open(path, encoding="utf-8") as stream:
            content: dict[str, Any] = json.load(stream)
        known = {name: None if content[name] is None else float(content[name]) for name in State._fields}
    except (OSError, ValueError, TypeError, KeyError):
        return State()
    past = [known[name] for name in ("idle_since", "warned_at")]
    return State() if any(moment is not None and moment > now for moment in past) else State(**known)


def write_state(path: str, state: State) -> None:
    """Write the state atomically."""
    with open(path + ".new", "w", encoding="utf-8") as stream:
        json.dump(state._asdict(), stream)
    os.replace(path + ".new", path)


def warning(decision: Decision, now: float) -> str:
    """The message to all logged-in users."""
    return (
        f"This machine powers off in {in_words((decision.due or now) - now)}: {decision.why}.\n"
        f"To keep it on for 8 more hours: sudo python3 {PROGRAM} stay 8h\n"
    )


def check(settings: Settings, path: str, seen: Seen, now: float, run: Run) -> str:
    """Do what is due now; return a line for the journal."""
    decision = decide(settings, read_state(path, now), seen, now)
    write_state(path, decision.state)
    if decision.action == "warn":
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # nobody may be logged in
            run(["wall"], warning(decision, now))
    elif decision.action == "power-off":
        run(["systemctl", "poweroff"], "")
    return line(decision, now)


def line(decision: Decision, now: float) -> str:
    """The signs of use, in one line."""
    if decision.action == "power-off":
        return f"powers off: {decision.why}"
    if decision.due is None:
        return f"stays on: {decision.why}"
    return f"powers off in {in_words(decision.due - now)}, as things stand: {decision.why}"


def main(arguments: Sequence[str]) -> str:
    """Carry out a command; return the text to print. Raises ValueError and OSError with the problem."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    if list(arguments) == ["check"]:
        return check(read_settings(SETTINGS), STATE, look(run), now, run)
    if list(arguments) == ["status"]:
        return line(decide(read_settings(SETTINGS), read_state(STATE, now), look(run), now), now)
    if len(arguments) == 2 and arguments[0] == "stay":
        duration = seconds(arguments[1]) or 0.0
        write_state(STATE, State(stay_until=now + duration if duration else None))
        return f"stays on for {in_words(duration)}, used or not" if duration else "goes by its use again"
    raise ValueError(f"usage: idle_watch.py check | status | stay 8h, not {' '.join(arguments) or 'nothing'}")


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as problem:
        sys.exit(f"idle_watch: {problem!r}" if isinstance(problem, KeyError) else f"idle_watch: {problem}")

"""Conditions for powering off a node. Commands are recorded but not run."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._idle_watch import idle_watch

ROLE = Path(__file__).resolve().parents[3] / "roles" / "idle_watch"
MINUTE = 60.0
HOUR = 3600.0
BOOTED = 20 * MINUTE
TRAINER, STRANGER = 1000, 1001


SETTINGS = idle_watch.IdleSettings(30 * MINUTE, 24 * HOUR)
NO_USE = idle_watch.UsageSigns()
SSH = idle_watch.UsageSigns(people=["1 SSH session"])
RUN = idle_watch.UsageSigns(work=["muster-first.service runs"])


class IdleMachine:
    """A machine that is checked every 5 minutes and records commands."""

    def __init__(self, path: Path, settings: Any = SETTINGS) -> None:
        self.state = path / "state.json"
        self.settings = settings
        self.now = 0.0
        self.commands: list[tuple[list[str], str]] = []

    def run(self, argv: Sequence[str], text: str) -> str:
        self.commands.append((list(argv), text))
        return ""

    def observe_until(self, until: float, signs: Any) -> None:
        """Check every 5 minutes up to a time after boot, in seconds, or until power-off."""
        while self.now + 5 * MINUTE <= until and not self.is_off:
            self.now += 5 * MINUTE
            idle_watch.check(self.settings, str(self.state), signs, self.now, self.run)

    @property
    def warnings(self) -> list[str]:
        return [text for argv, text in self.commands if argv == ["wall"]]

    @property
    def is_off(self) -> bool:
        return (["systemctl", "poweroff"], "") in self.commands


@pytest.fixture
def machine(tmp_path: Path) -> IdleMachine:
    return IdleMachine(tmp_path)


def test_unused_machine_is_powered_off_after_one_warning(machine: IdleMachine) -> None:
    machine.observe_until(BOOTED + 30 * MINUTE, NO_USE)
    assert machine.is_off
    assert machine.now == BOOTED + 30 * MINUTE
    (warning,) = machine.warnings
    assert "powers off in 15 min: it has been unused for 30 min" in warning
    assert "sudo python3 /usr/local/lib/muster/idle_watch.py stay 8h" in warning
    assert [argv[0] for argv, _text in machine.commands] == ["wall", "systemctl"]


def test_use_resets_the_idle_time_and_the_warning(machine: IdleMachine) -> None:
    machine.observe_until(BOOTED + 20 * MINUTE, NO_USE)
    assert len(machine.warnings) == 1
    machine.observe_until(BOOTED + 25 * MINUTE, SSH)
    machine.observe_until(BOOTED + 55 * MINUTE, NO_USE)
    assert (machine.is_off, len(machine.warnings)) == (False, 2)
    machine.observe_until(BOOTED + 60 * MINUTE, NO_USE)
    assert machine.is_off


@pytest.mark.parametrize("signs", [SSH, RUN])
def test_a_machine_in_use_stays_on(machine: IdleMachine, signs: Any) -> None:
    machine.observe_until(23 * HOUR, signs)
    assert machine.commands == []


def test_ttl_powers_off_a_machine_used_only_by_people(machine: IdleMachine) -> None:
    machine.observe_until(30 * HOUR, SSH)
    assert machine.now == 24 * HOUR
    (warning,) = machine.warnings
    assert "in 15 min: it has been on for 24 h" in warning


def test_ttl_never_ends_a_run_and_warns_after_it(machine: IdleMachine) -> None:
    machine.observe_until(30 * HOUR, RUN)
    assert machine.commands == []
    machine.observe_until(40 * HOUR, SSH)
    assert machine.is_off
    assert machine.now == 30 * HOUR + 20 * MINUTE
    assert len(machine.warnings) == 1


def test_both_limits_may_be_disabled(tmp_path: Path) -> None:
    machine = IdleMachine(tmp_path, idle_watch.IdleSettings(None, 24 * HOUR))
    machine.observe_until(23 * HOUR + 40 * MINUTE, NO_USE)
    assert machine.commands == []
    machine.observe_until(30 * HOUR, NO_USE)
    assert machine.now == 24 * HOUR
    machine = IdleMachine(tmp_path, idle_watch.IdleSettings(None, None))
    machine.observe_until(40 * HOUR, NO_USE)
    assert machine.commands == []


def test_stay_command_keeps_the_machine_on_longer(machine: IdleMachine) -> None:
    machine.observe_until(BOOTED + 20 * MINUTE, NO_USE)
    idle_watch.write_state(str(machine.state), idle_watch.IdleState(stay_until=machine.now + 8 * HOUR))
    machine.observe_until(BOOTED + 8 * HOUR, NO_USE)
    assert (machine.is_off, len(machine.warnings)) == (False, 1)
    machine.observe_until(40 * HOUR, NO_USE)
    assert machine.is_off
    assert BOOTED + 8 * HOUR + 45 * MINUTE <= machine.now <= BOOTED + 9 * HOUR
    assert len(machine.warnings) == 2


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"idle_since": "x"}', '{"idle_since": 1e9, "warned_at": 1e9, "stay_until": null}']
)
def test_stale_or_broken_state_does_not_power_off(machine: IdleMachine, content: str) -> None:
    machine.state.write_text(content)
    machine.now = 2 * HOUR
    machine.observe_until(2 * HOUR + 5 * MINUTE, NO_USE)
    assert machine.commands == []


@given(
    st.lists(st.tuples(st.floats(0, 3600), st.sampled_from([NO_USE, SSH, RUN])), max_size=60),
    st.one_of(st.none(), st.floats(900, 7200)),
    st.one_of(st.none(), st.floats(900, 50000)),
)
def test_machine_is_never_powered_off_during_a_run_or_without_warning(
    observations: list[tuple[float, Any]], after: float | None, ttl: float | None
) -> None:
    settings, state, now, warned = idle_watch.IdleSettings(after, ttl), idle_watch.IdleState(), 0.0, None
    for pause, signs in observations:
        now += pause
        decision = idle_watch.decide(settings, state, signs, now)
        if signs.work or now < BOOTED:
            assert decision.action == "nothing"
            warned = None
        if decision.action == "warn":
            assert warned is None
            warned = now
        if decision.action == "power-off":
            assert warned is not None and now - warned >= 15 * MINUTE
            break
        warned = None if decision.state.warned_at is None else warned
        state = decision.state


# --- Signs of use


def process(comm: str, cmdline: str = "", environ: str = "", uid: int = 0) -> idle_watch.RunningProcess:
    return idle_watch.RunningProcess(uid, f"{comm}\n".encode(), cmdline.encode(), environ.encode())


@pytest.mark.parametrize(
    ("entry", "work", "people"),
    [
        (process("python3", "python3\0train.py\0", "HOME=/root\0MUSTER_RUN_DIRECTORY=/home/a/x\0"), True, False),
        (process("python3", "", "MUSTER_RUN_DIRECTORY=/home/a/x\0"), True, False),
        (process("apt-get", "apt-get\0update\0"), True, False),
        (process("dpkg"), True, False),
        (process("python3", "", "MUSTER_RUN_DIRECTORY=/home/a/x\0", uid=TRAINER), True, False),
        (process("python3", "", "MUSTER_RUN_DIRECTORY=/home/a/x\0", uid=STRANGER), False, False),
        (process("apt", uid=STRANGER), False, False),
        (process("apt", uid=TRAINER), False, False),
        (process("sshd", "sshd: paperspace@pts/0"), False, True),
        (process("sshd", "sshd: ubuntu@notty\0"), False, True),
        (process("sshd-session", "sshd-session: ubuntu@pts/3"), False, True),
        # always present
        (process("sshd", "sshd: /usr/sbin/sshd -D [listener] 0 of 10-100 startups"), False, False),
        (process("sshd", "sshd: unknown [priv]"), False, False),
        (process("unattended-upgr", "/usr/bin/python3\0unattended-upgrade-shutdown\0"), False, False),
        (process("bash", "bash", "NOT_MUSTER_RUN_DIRECTORY=x\0"), False, False),
    ],
)  # fmt: skip
def test_processes_are_classified_as_work_or_people(entry: idle_watch.RunningProcess, work: bool, people: bool) -> None:
    signs = idle_watch.process_signs([process("systemd"), entry], {0, TRAINER})
    assert (bool(signs.work), bool(signs.people)) == (work, people)


@pytest.mark.parametrize(
    ("utilization", "processes", "work"),
    [
        ("0\n0\n", "", False),
        ("5\n", "", False),
        ("0\n6\n", "", True),
        ("[N/A]\n", "", False),
        ("0\n", "4711\n", True),
        ("0\n", "No running processes found\n", False),
    ],
)
def test_busy_gpus_count_as_work(utilization: str, processes: str, work: bool) -> None:
    assert bool(idle_watch.gpu_signs(utilization, processes)) is work


@pytest.mark.parametrize(
    ("listed", "work"),
    [
        ("", False),
        ("muster-first.service loaded active running A run\n", True),
        ("muster-first.scope loaded active running A run\n", True),
        ("muster_firewall.service loaded active exited Rules\n", False),
    ],
)
def test_run_units_count_as_work(listed: str, work: bool) -> None:
    assert bool(idle_watch.unit_signs(listed)) is work


class FakePrograms:
    """Outputs of systemctl and nvidia-smi."""

    def __init__(self, **outputs: str | Exception) -> None:
        self.outputs = outputs

    def __call__(self, argv: Sequence[str], text: str) -> str:
        assert argv[:2] == ["systemctl", "list-units"] or argv[0] == "nvidia-smi", argv
        name = argv[0].replace("-", "_") + ("_pids" if "--query-compute-apps=pid" in argv else "")
        output = self.outputs.get(name, "")
        if isinstance(output, Exception):
            raise output
        return output


@pytest.mark.parametrize(
    ("outputs", "work", "people"),
    [
        ({}, False, False),
        ({"systemctl": "muster-first.service loaded active running\n"}, True, False),
        ({"nvidia_smi": "80\n"}, True, False),
        ({"nvidia_smi_pids": "4711\n"}, True, False),
        ({"nvidia_smi": FileNotFoundError("nvidia-smi")}, False, False),
        ({"nvidia_smi": subprocess.CalledProcessError(6, "nvidia-smi", "No devices were found\n")}, False, False),
        # keeps the machine on, but no longer than the TTL
        ({"nvidia_smi": subprocess.TimeoutExpired("nvidia-smi", 60)}, False, True),
        ({"nvidia_smi": subprocess.CalledProcessError(9, "nvidia-smi", "couldn't communicate")}, False, True),
        ({"systemctl": subprocess.CalledProcessError(1, "systemctl")}, False, True),
    ],
)
def test_each_sign_of_use_suffices_alone(outputs: dict[str, Any], work: bool, people: bool, tmp_path: Path) -> None:
    signs = idle_watch.read_usage(FakePrograms(**outputs), "", str(tmp_path))
    assert (bool(signs.work), bool(signs.people)) == (work, people)


def test_the_processes_of_this_machine_can_be_read() -> None:
    processes = idle_watch.read_processes("/proc")
    assert len({entry.comm for entry in processes}) > 1
    assert os.getuid() in {entry.uid for entry in processes}


def test_runs_of_root_administrators_and_the_jobs_user_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    accounts = [
        pwd.struct_passwd((name, "x", uid, gid, "", "/", "/bin/sh"))
        for name, uid, gid in (("root", 0, 0), ("ubuntu", 5, 5), ("op", 6, 27), ("trainer", 7, 7), ("other", 8, 8))
    ]
    group = grp.struct_group(("sudo", "x", 27, ["ubuntu"]))
    # a directory service such as LDAP does not list all accounts
    monkeypatch.setattr("pwd.getpwall", lambda: accounts[:1])
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {account.pw_uid: account for account in accounts}[uid])
    uids = range(10)  # not all of them have an account
    monkeypatch.setattr("grp.getgrnam", lambda name: {"sudo": group}[name])
    assert idle_watch.find_run_users("", uids) == {0, 5, 6}
    assert idle_watch.find_run_users("trainer", uids) == {0, 5, 6, 7}
    assert idle_watch.find_run_users("nobody-knows", uids) == {0, 5, 6}


# --- Settings, messages, systemd units


@pytest.mark.parametrize(
    ("text", "value"), [("30m", 1800), ("24h", 86400), ("1.5h", 5400), ("2d", 172800), ("off", None), (False, None)]
)
def test_durations_are_parsed(text: object, value: float | None) -> None:
    assert idle_watch.parse_duration(text) == value


@pytest.mark.parametrize("text", ["", "30", "m", "-1h", "1 h 5", "soon"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration. Use a number with a unit, such as 30m"):
        idle_watch.parse_duration(text)


def test_role_defaults_are_valid_settings(tmp_path: Path) -> None:
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    (tmp_path / "settings.json").write_text(
        json.dumps({"after": defaults["idle_watch_after"], "ttl": defaults["idle_watch_ttl"]})
    )
    assert idle_watch.read_settings(str(tmp_path / "settings.json")) == SETTINGS


def test_status_line_shows_time_and_reason_of_power_off() -> None:
    def status_line(state: Any, signs: Any, now: float) -> str:
        text: str = idle_watch.format_decision(idle_watch.decide(SETTINGS, state, signs, now), now)
        return text

    assert status_line(idle_watch.IdleState(), NO_USE, 5 * MINUTE) == "stays on: it booted 5 min ago"
    assert status_line(idle_watch.IdleState(), RUN, HOUR) == "stays on: muster-first.service runs"
    assert status_line(idle_watch.IdleState(), SSH, HOUR) == "will power off in 23 h if nothing changes: 1 SSH session"
    assert (
        status_line(idle_watch.IdleState(), NO_USE, HOUR)
        == "will power off in 30 min if nothing changes: nobody uses it"
    )


def test_unknown_command_is_refused() -> None:
    for arguments in ([], ["poweroff"], ["stay"], ["stay", "long"]):
        with pytest.raises(ValueError, match=r"usage: idle_watch.py check|is not a duration"):
            idle_watch.main(arguments)


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        pytest.skip("systemd-analyze is not installed")
    for name in ("muster_idle_watch.service", "muster_idle_watch.timer"):
        shutil.copy(ROLE / "files" / name, tmp_path)
    completed = subprocess.run(
        [analyze, "verify", tmp_path / "muster_idle_watch.timer", tmp_path / "muster_idle_watch.service"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert "muster_idle_watch" not in completed.stderr, completed.stderr

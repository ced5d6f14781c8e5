"""Secrets do not appear in process lists, logs, -vvvv output, status, world-readable files or records."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator

from tests.lab import Lab
from tests.support import drive

SECRET = "s3cr3t-Kq9-\"quoted\" $HOME 'x'\nsecond line"
PART = "s3cr3t-Kq9"
PASSED = f"{PART} of this machine's own environment"
PLANTED = "/etc/planted"


@contextlib.contextmanager
def planted(lab: Lab, node: str, *expected_text: str) -> Iterator[None]:
    """Write these texts to a world-readable file: a working search finds only this file."""
    drive.output_of(
        lab, node, "sh", "-c", f"printf '%s\\n' {shlex.join(expected_text)} > {PLANTED}; chmod 644 {PLANTED}"
    )
    try:
        yield
    finally:
        drive.output_of(lab, node, "rm", PLANTED)


def test_secrets_reach_the_job_and_are_visible_nowhere_else(lab: Lab, nodes: list[str]) -> None:
    play = drive.launch(
        lab,
        "loop.py",
        "--show-environment",
        "API_KEY",
        "LAB_TOKEN",
        run_id="secret",
        nnodes=2,
        launch_environment={"API_KEY": SECRET, "OTHER": "plain"},  # passed with -e @FILE
        launch_pass_environment=["LAB_TOK*"],
        env={"LAB_TOKEN": PASSED},
        options=("-vvvv",),
    )
    command_lines: set[str] = set()

    def is_stepping() -> bool:
        command_lines.update(
            subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
        )
        return "step 3 sum 2" in play.output or play.rc is not None

    drive.eventually("the ranks are at work", is_stepping, 90, play.last_lines)
    play.wait_for("step 3 sum 2")
    token = (lab.inventory.parent / "runs/secret/token").read_text()
    assert any("launch.yml" in line for line in command_lines)
    assert not [line for line in command_lines if PART in line or token in line]
    for name in nodes[:2]:
        listed = drive.output_of(lab, name, "ps", "-eww", "-o", "args")
        assert "supervisor.py" in listed and PART not in listed and token not in listed
        # check as a different user on the node: all readable files, and the environments of other users' processes
        for word in (PART, token):
            pattern = f"[{word[0]}]{word[1:]}"  # the pattern must not match its own command line
            directories = "/home /tmp /run /var/log /var/tmp /etc /proc/[0-9]*/environ /proc/[0-9]*/cmdline"
            command = f"grep -rls '{pattern}' {directories}"
            with planted(lab, name, PART, token):
                completed = lab.exec(name, ["runuser", "-u", "nobody", "--", "sh", "-c", command])
            # grep exits with 2 because `nobody` cannot read some files
            assert (completed.returncode, completed.stdout.split()) == (2, [PLANTED]), completed
        journal = drive.output_of(lab, name, "journalctl", "--no-pager", "--output=cat")
        assert journal and PART not in journal and token not in journal
        modes = drive.output_of(
            lab, name, "sh", "-c", "stat -L -c '%a %U %n' /home/muster/.muster/runs/secret/node*/*"
        ).splitlines()
        assert modes and all(line.split()[0] in ("600", "700") and line.split()[1] == "muster" for line in modes), modes
    status = drive.run("status.yml", lab.inventory, run_id="secret", options=("-vvvv",))
    stop = drive.run("stop.yml", lab.inventory, run_id="secret", options=("-vvvv",))
    play.wait()
    logs = drive.run("logs.yml", lab.inventory, run_id="secret", fetch=True, options=("-vvvv",))
    for item in (play, status, stop, logs):
        assert item.rc is not None and PART not in item.output and token not in item.output
    for name, value in (("API_KEY", SECRET), ("LAB_TOKEN", PASSED)):
        assert f"length of {name} {len(value)}" in play.output  # the value arrived unchanged
    for path in (lab.inventory.parent / "runs/secret").rglob("*"):
        assert not path.is_file() or PART not in path.read_text(errors="replace"), path
    for name in nodes[:2]:
        with planted(lab, name, PART):
            assert drive.output_of(lab, name, "grep", "-rlF", PART, "/home/muster/.muster", PLANTED) == f"{PLANTED}\n"

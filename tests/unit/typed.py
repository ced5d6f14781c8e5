"""Commands as typed by a user who has only this collection: an empty home and default settings."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def give_collection(directory: Path) -> None:
    """Link the checkout into the collections path that typed() uses."""
    namespace = directory / "collections" / "ansible_collections" / "muster"
    namespace.mkdir(parents=True)
    (namespace / "training").symlink_to(CHECKOUT)
    # By default, a playbook looks for results of its processes a thousand times a second, a twentieth of a core.
    (directory / ".ansible.cfg").write_text("[defaults]\ninternal_poll_interval = 0.01\n")


def own_environment(directory: Path) -> dict[str, str]:
    """Return all environment variables of the command."""
    return {
        "PATH": f"{directory}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(directory),
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
        "ANSIBLE_NOCOLOR": "1",
        **({"CI": os.environ["CI"]} if "CI" in os.environ else {}),  # in that case Python collects garbage less often
    }


def typed(directory: Path, arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a typed command to its end, with the given additional environment variables. stdout also contains stderr."""
    return subprocess.run(
        arguments,
        check=False,
        cwd=directory,
        env={**own_environment(directory), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,  # only a hang takes this long
    )


def begun(directory: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """Start a command as typed() does, without waiting for it."""
    return subprocess.Popen(
        arguments,
        cwd=directory,
        # otherwise its output would be lost when it is killed
        env={**own_environment(directory), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def killed(process: subprocess.Popen[str]) -> str:
    """Kill a command and everything it has started immediately; return its output. A run continues on its own."""
    for item in family(process.pid):
        with contextlib.suppress(ProcessLookupError):  # the process has exited in the meantime
            os.kill(item, signal.SIGKILL)
    output, _none = process.communicate(timeout=240)
    return output


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    below: list[str] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():  # each thread has its own children
            below += (task / "children").read_text().split()
    return [pid, *(item for child in below for item in family(int(child)))]

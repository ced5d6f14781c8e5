"""Record the output of commands, and draw it as the pictures in docs/: make pictures

A recording is the output of real plays on nodes of this machine, with its colors, in tests/pictures; names, times and
paths that differ from run to run are replaced as in REPLACED. The pictures are drawn from the recordings alone, load
nothing, and use the reader's fonts. tests/unit/test_pictures.py fails if they are outdated.

    python -m tests.make_pictures          draw them
    python -m tests.make_pictures record   record all again first: a minute, and root for the one of site.yml
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.make_site import CHECKOUT
from tests.unit.supervised import free_port
from tests.unit.typed import give_collection

RECORDINGS = CHECKOUT / "tests" / "pictures"
PICTURES = CHECKOUT / "docs" / "pictures"
COLUMNS = 118
"""Characters per line in a picture, and in the recording's terminal."""

TRAIN = """\
import os
import time

time.sleep(1)  # as long as it takes until all nodes have checked in, which is said first
if os.environ["NODE_RANK"] == "0":
    for epoch in range(1, 4):
        print(f"epoch {epoch}/3 loss {2.3 / epoch**2:.4f} accuracy {1 - 0.35 / epoch**2:.4f}")
    print('MUSTER_RESULT {"accuracy": 0.9611}')
"""
BREAKS = """\
import os
import time

if os.environ["NODE_RANK"] == "1":
    raise ValueError("Attempting to unscale FP16 gradients.")
time.sleep(3600)
"""

CONFIGURATION = """\
[defaults]
inventory = local.yml
stdout_callback = muster.training.roll
callback_result_format = yaml
"""
SETTINGS = """\
launch_launcher: env
launch_working_directory: {place}
launch_node_directory: {runs}
launch_master_port: {master_port}
launch_lifeline_port: {lifeline_port}
launch_report: false
launch_skip: [busy]
"""


class Play(NamedTuple):
    """A play to record: title, command as typed, and whether it fails."""

    title: str
    typed: str
    fails: bool = False


PLAYS = {
    "launch": Play("a job on two nodes", "./muster launch -n 2 train.py"),
    "status": Play("where a run stands", "./muster status"),
    "failure": Play("a job that fails on one of them", "./muster launch -n 2 breaks.py", fails=True),
    "site": Play(
        "what would be changed on the nodes",
        "./muster site --check --tags base_packages,firewall,pytorch,python_env",
    ),
}
"""In order: status reports on the run before it."""
REPLACED = (
    (r"\b(train|breaks)-\d{8}-\d{6}-[0-9a-f]{4}\b", r"\1-20260301-101500-1a2b"),
    (r"\b\d:\d\d:\d\d\b", "0:00:04"),
    (r"\b\d+(?:\.\d)? (?:s|min(?: \d+ s)?) ago\b", "12 s ago"),
    (r"\b\d\d:\d\d:\d\d\b", "10:15:04"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "2026-03-01 10:15"),
    (r"\bport \d{5}\b", "port 29500"),
    (r"\S*/bin/python\b", "/opt/muster/env/bin/python"),
)
"""Patterns of texts that vary from run to run, and their replacements in recordings."""


def project(directory: Path) -> Path:
    """Create a project like `init` does for two local nodes, as far as needed, with scripts and settings."""
    give_collection(directory)
    project_path = directory / "project"
    (project_path / "group_vars").mkdir(parents=True)
    for playbook in (CHECKOUT / "playbooks").glob("*.yml"):
        text = f"- import_playbook: muster.training.{playbook.stem}\n"
        (project_path / playbook.name).write_text(text, encoding="utf-8")
    (project_path / "local.yml").write_bytes((CHECKOUT / "inventories" / "local.yml").read_bytes())
    (project_path / "ansible.cfg").write_text(CONFIGURATION, encoding="utf-8")
    program = (CHECKOUT / "roles" / "init" / "files" / "muster.py").read_text(encoding="utf-8")
    (project_path / "muster").write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
    (project_path / "muster").chmod(0o755)
    (project_path / "train.py").write_text(TRAIN, encoding="utf-8")
    (project_path / "breaks.py").write_text(BREAKS, encoding="utf-8")
    settings = SETTINGS.format(
        place=project_path, runs=directory / ".muster" / "runs", master_port=free_port(), lifeline_port=free_port()
    )
    (project_path / "group_vars" / "training.yml").write_text(settings, encoding="utf-8")
    return project_path


def environment(directory: Path) -> dict[str, str]:
    """Return the environment of a user whose home is this directory, with the collection in it."""
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(directory),
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "ANSIBLE_COLLECTIONS_PATH": str(directory / "collections"),
    }


def played(play: Play, directory: Path, project_path: Path) -> str:
    """Return the output of a command on a terminal, with its color codes, and with REPLACED applied."""
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    arguments = play.typed.split()
    command = subprocess.Popen(
        arguments,
        cwd=project_path,
        env=environment(directory),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    printed = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux reports end of file: the terminal's other end is closed
            break
        if not part:
            break
        printed += part
    os.close(master)
    text = printed.decode("utf-8").replace("\r\n", "\n")
    if (command.wait() != 0) != play.fails:
        raise RuntimeError(f"{play.typed} ended with {command.returncode}:\n{text}")
    return f"$ {play.typed}\n{normal(text, directory, project_path)}"


def normal(text: str, directory: Path, project_path: Path) -> str:
    """Return a text with everything that varies from run to run replaced."""
    for path, name in ((project_path, "/home/me/project"), (directory, "/home/me"), (CHECKOUT, "/home/me/training")):
        text = text.replace(str(path), name)
    for pattern, replacement in REPLACED:
        text = re.sub(pattern, replacement, text, flags=re.M)
    return text


def drawn(name: str, recording: str) -> str:
    """Return the picture of a recording as SVG."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        for line in recording.rstrip("\n").split("\n"):
            console.print(Text.from_ansi(line), soft_wrap=False)
        console.print()  # otherwise the descenders in the last line are cut off
        svg = console.export_svg(title=PLAYS[name].title, theme=MONOKAI, unique_id=f"muster-{name}")
    svg = re.sub(r"\s*@font-face \{.*?\}|<!--.*?-->", "", svg, flags=re.S)
    svg = svg.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    return "".join(f"{line.rstrip()}\n" for line in svg.splitlines())


def record(names: list[str]) -> dict[str, str]:
    """Run the named plays again, in one project, and return their output."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        location = project(directory)
        return {name: played(PLAYS[name], directory, location) for name in PLAYS if name in names}


def main() -> None:
    """Draw all pictures; with `record`, from new recordings."""
    for directory in (RECORDINGS, PICTURES):
        directory.mkdir(exist_ok=True)
    if sys.argv[1:] == ["record"]:
        for name, text in record(list(PLAYS)).items():
            (RECORDINGS / f"{name}.txt").write_text(text, encoding="utf-8")
    for name in PLAYS:
        recording = (RECORDINGS / f"{name}.txt").read_text(encoding="utf-8")
        (PICTURES / f"{name}.svg").write_text(drawn(name, recording), encoding="utf-8")


if __name__ == "__main__":
    main()

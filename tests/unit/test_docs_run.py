# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands on the pages work as a reader types them: in an empty directory, in order, with local nodes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.pages import CONTAINERS, GUIDES, Fence, fences, section
from tests.unit.supervised import free_port
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
IN_ORDER = ["docs/getting_started.md", "docs/launchers.md"]
"""Sections that each continue in the directory in which the previous one ended, as stated in them."""
FENCE_MARK = "the commands were run: "
SETTINGS = """
# So that nothing else on this machine is in the way, nor in ours.
launch_master_port: {master_port}
launch_lifeline_port: {lifeline_port}
launch_node_directory: {directory}
"""
ONCE = """
if [ -z "${is_set-}" ]; then
is_set=yes
cat >>group_vars/training.yml <<'END OF FILE'
SETTINGSEND OF FILE
fi
"""


def run_fences() -> list[Fence]:
    """Return the marked fences of all pages, in order."""
    return [
        fence
        for page in IN_ORDER
        for fence in fences(page)
        if fence.mark.startswith(("run: ", "file: ")) or fence.mark == "shows"
    ]


def script_of(fence: Fence, settings: str) -> str:
    """Return the bash commands for a fence; the tests' settings apply once there is a project."""
    kind, _colon, detail = fence.mark.partition(": ")
    if kind == "file":
        return f"cat >{shlex.quote(detail)} <<'END OF FILE'\n{fence.body}END OF FILE\n"
    if kind != "run":
        return ""
    mark = f"printf '%s\\n' {shlex.quote(f'{FENCE_MARK}{fence.page}:{fence.line}')}\n"
    if detail == "fails":
        *before, last = fence.body.splitlines()
        return "\n".join([*before, f"if {last}; then echo 'no error, where the page says one'; exit 1; fi", mark])
    return f"{fence.body}{mark}{settings}"


def test_run_marks_are_only_on_pages_that_are_run() -> None:
    assert {fence.page for page in GUIDES for fence in fences(page) if fence.mark.startswith("run: ")} == set(IN_ORDER)
    assert not [fence for page in GUIDES if page not in IN_ORDER for fence in fences(page) if fence.mark == "shows"]


def test_commands_on_pages_print_what_the_pages_show(tmp_path: Path) -> None:
    """All run in one shell, so `cd` persists. The output that a page shows comes from the preceding command."""
    give_collection(tmp_path)
    (folder := tmp_path / "folder").mkdir()
    text = SETTINGS.format(master_port=free_port(), lifeline_port=free_port(), directory=tmp_path / "runs")
    settings = ONCE.replace("SETTINGS", text)
    to_run = run_fences()
    completed = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", "".join(script_of(fence, settings) for fence in to_run)],
        cwd=folder,
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
            "ANSIBLE_NOCOLOR": "1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=540,
    )
    assert completed.returncode == 0, completed.stdout
    parts = re.split(rf"^{FENCE_MARK}(.*)\n", completed.stdout, flags=re.M)
    printed = dict(zip(parts[1::2], parts[::2], strict=False))
    last = ""
    for fence in to_run:
        if fence.mark.startswith("run: "):
            last = printed[f"{fence.page}:{fence.line}"]
        elif fence.mark == "shows":
            for line in fence.body.splitlines():
                pattern = re.escape(line).replace(r"\.\.\.", ".*")
                assert re.search(rf"^{pattern}$", last, re.M), f"{fence.page}:{fence.line}: {line}\nprinted:\n{last}"


STEPS = section(*CONTAINERS)[1]


@pytest.fixture(scope="module")
def of_the_guide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a project with the files of the section, and with two machines that do not respond."""
    directory = tmp_path_factory.mktemp("guide")
    give_collection(directory)
    completed = typed(directory, ["ansible-playbook", "muster.training.init", "-e", "source=static"])
    assert completed.returncode == 0, completed.stdout
    closed = "{ansible_host: 127.0.0.1, ansible_port: 1, node_address: 10.0.0.%d}"
    (directory / "static.yml").write_text(
        f"training: {{hosts: {{gpu1: {closed % 1}, gpu2: {closed % 2}}}, vars: {{ansible_user: me}}}}\n"
    )
    for name in ("AnomalyGPT/code", "pretrained_ckpt", "data"):
        (directory / name).mkdir(parents=True)
    (directory / "AnomalyGPT/code/train_mvtec.py").write_text("")
    (directory / "AnomalyGPT/requirements.txt").write_text("timm\n")
    settings = directory / "group_vars" / "training.yml"
    settings.write_text(re.sub(r"^launch_script:.*\n", "", settings.read_text(), flags=re.M))  # as the page says
    for name, text in section(*CONTAINERS)[0].items():
        with (directory / name).open("a") as file:
            file.write(text)
    return directory


@pytest.mark.parametrize(
    "command", [*STEPS[:2], *(pytest.param(step, marks=pytest.mark.thorough) for step in STEPS[2:])]
)
def test_each_guide_step_command_contacts_the_machines(of_the_guide: Path, command: str) -> None:
    """Nothing is missing on the controller: the command ends when the first machine does not respond."""
    completed = typed(of_the_guide, shlex.split(command))
    output = " ".join(completed.stdout.split())
    assert completed.returncode != 0 and "Connection refused" in output, completed.stdout
    assert "(with -e)" not in output and "unexpected argument" not in output, completed.stdout

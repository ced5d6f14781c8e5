# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The first-boot script, run in a directory that replaces a machine's root."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._clouds.age_limit import limit_seconds, normalize_limit
from ansible_collections.muster.training.plugins.plugin_utils._clouds.membership import PlanRefusedError
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.first_boot import (
    build_first_boot_script,
    first_boot_script_name,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.watch_files import read_watch_files

ROLE = Path(__file__).resolve().parents[6] / "roles" / "idle_watch"
PROGRAM = Path(__file__).resolve().parents[6] / "plugins" / "module_utils" / "_idle_watch" / "idle_watch.py"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkUeJcbx0vDN5hXgL5sWm3YpMMmxYHcGEYfCjRTsk1U"


def boot(root: Path, script: str) -> str:
    """Run a script as root on a machine; return the arguments passed to systemctl."""
    programs = root / "programs"
    programs.mkdir(exist_ok=True)
    for name in ("systemctl", "chown"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {root}/told\n')
        (programs / name).chmod(0o755)
    commands = re.compile(r"^(?:mkdir|touch|grep|chown|cat) .*", re.MULTILINE)
    paths = re.compile(r" (/home/paperspace|/usr/local/lib|/etc)")
    script = commands.sub(lambda line: paths.sub(rf" {root}\1", line[0]), script)
    (root / "script").write_text(script)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["sh", str(root / "script")], env=environment, check=True)
    return (root / "told").read_text()


def test_first_boot_authorizes_key_once_and_starts_idle_watch(tmp_path: Path) -> None:
    script = build_first_boot_script(KEY, read_watch_files("2h", "False"))
    boot(tmp_path, script)
    output = boot(tmp_path, script)
    keys = tmp_path / "home/paperspace/.ssh/authorized_keys"
    assert keys.read_text() == f"{KEY}\n"
    assert keys.stat().st_mode & 0o777 == 0o600
    for name, location in (
        ("idle_watch.py", "usr/local/lib/muster"),
        ("muster_idle_watch.service", "etc/systemd/system"),
        ("muster_idle_watch.timer", "etc/systemd/system"),
    ):
        path = tmp_path / location / name
        assert path.read_text() == (PROGRAM if name.endswith(".py") else ROLE / "files" / name).read_text()
        assert path.stat().st_mode & 0o777 == 0o644
    assert json.loads((tmp_path / "etc/muster/idle_watch.json").read_text()) == {"after": "2h", "ttl": "off"}
    assert "systemctl enable --now muster_idle_watch.timer" in output


def test_key_is_optional_and_without_tasks_no_script_is_built(tmp_path: Path) -> None:
    boot(tmp_path, build_first_boot_script("", read_watch_files("30m", "24h")))
    assert not (tmp_path / "home").exists()
    assert build_first_boot_script("", {}) == ""


def test_script_does_not_contain_the_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAPERSPACE_API_KEY", "a-key-that-nobody-may-read")
    script = build_first_boot_script(KEY, read_watch_files("30m", "24h"))
    assert "a-key-that-nobody-may-read" not in script
    assert "PAPERSPACE" not in script
    assert len(script) < 50_000, "a request of more than 100 kB is refused"


def test_different_content_gives_different_script_name() -> None:
    names = {
        first_boot_script_name("bert", build_first_boot_script(KEY, read_watch_files("30m", ttl)))
        for ttl in ("24h", "48h")
    }
    assert len(names) == 2


@pytest.mark.parametrize(
    ("message", "word", "seconds"), [("30M", "30m", 1800), ("2d", "2d", 172800), ("No", None, None)]
)
def test_age_limit_is_normalized_and_the_value_no_is_refused(
    message: str, word: str | None, seconds: float | None
) -> None:
    if word is None:
        with pytest.raises(PlanRefusedError, match="ttl is 'No'. Use a number with a unit"):
            normalize_limit("ttl", message)
    else:
        assert normalize_limit("ttl", message) == word
        assert limit_seconds(word) == seconds


@pytest.mark.parametrize("message", ["14m", "0h", "1.5h", "", "24", "24h; rm", "٣h"])
def test_invalid_age_limit_is_refused(message: str) -> None:
    with pytest.raises(PlanRefusedError, match=r"\(at least 15m\), or off"):
        normalize_limit("idle_after", message)

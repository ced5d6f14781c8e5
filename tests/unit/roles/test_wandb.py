"""The entry in a netrc: what others have written there stays."""

from __future__ import annotations

import importlib.util
import json
import netrc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "roles" / "wandb" / "files" / "netrc.py"
OURS = ("api.wandb.ai", "user", "k" * 40)
ENTRY = f"machine api.wandb.ai\n  login user\n  password {'k' * 40}\n"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("muster_netrc", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "before, after",
    [
        ("", ENTRY),
        ("machine other login me password p", f"machine other login me password p\n{ENTRY}"),
        ("machine api.wandb.ai login user password old\n", ENTRY),
        (
            "machine api.wandb.ai\n  login user\n  password old\n# mine\nmachine other\n  login me\n  password p\n",
            f"{ENTRY}# mine\nmachine other\n  login me\n  password p\n",
        ),
        (
            "machine api.wandb.ai.example login a password b\n",
            f"machine api.wandb.ai.example login a password b\n{ENTRY}",
        ),
        (
            "machine a login b password c\ndefault login d password e\n",
            f"machine a login b password c\n{ENTRY}default login d password e\n",
        ),
        (ENTRY, ENTRY),
    ],
)
def test_the_entry_is_there_and_all_else_stays(script: Any, before: str, after: str, tmp_path: Path) -> None:
    found = script.with_entry(before, *OURS)
    assert found == after
    path = tmp_path / "netrc"
    path.write_text(found)
    path.chmod(0o600)
    read = netrc.netrc(str(path)).authenticators("api.wandb.ai")
    assert read is not None and read[2] == "k" * 40, "by Python's own reader"


def ask(home: Path, check: bool = False) -> str:
    asked = json.dumps({"machine": OURS[0], "login": OURS[1], "password": OURS[2], "check": check})
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=asked,
        env={**os.environ, "HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert OURS[2] not in done.stdout + done.stderr
    return done.stdout.strip()


def test_the_file_is_written_once_and_for_one_pair_of_eyes(tmp_path: Path) -> None:
    path = tmp_path / ".netrc"
    assert (ask(tmp_path, check=True), path.exists()) == ("changed", False)
    assert ask(tmp_path) == "changed"
    assert (path.read_text(), path.stat().st_mode & 0o777) == (ENTRY, 0o600)
    assert ask(tmp_path) == "same"
    path.chmod(0o644)
    assert ask(tmp_path) == "changed"
    assert path.stat().st_mode & 0o777 == 0o600

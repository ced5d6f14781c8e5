"""Without a suitable Python, a message names the packages to install, and nothing is created."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def interpreter(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def make_venv(tmp_path: Path, *arguments: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [CHECKOUT / "tests" / "make_venv", tmp_path / "venv", *arguments],
        env={"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_given_interpreter_that_is_too_old_is_refused(tmp_path: Path) -> None:
    old = interpreter(tmp_path / "python3", 'if [ "$1" = --version ]; then echo "Python 3.8.18"; else exit 1; fi')
    run = make_venv(tmp_path, str(old))
    assert run.returncode == 1
    assert f"{old} is not Python 3.11 or newer (Python 3.8.18)" in run.stderr
    assert "make PYTHON=" in run.stderr
    assert not (tmp_path / "venv").exists()


def test_message_names_the_package_to_install_without_a_new_python(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "dirname", "realpath", "tail"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    interpreter(tools / "python3", 'if [ "$1" = --version ]; then echo "Python 3.8.18"; else exit 1; fi')
    run = make_venv(tmp_path, path=str(tools))
    assert run.returncode == 1
    assert "Python 3.11 or newer is missing (python3 is: Python 3.8.18)" in run.stderr
    assert "apt install python3 python3-venv" in run.stderr


def test_missing_ensurepip_names_the_package_to_install(tmp_path: Path) -> None:
    # Like Debian's python3 without the package python3-venv.
    script = f'case "$2" in *ensurepip*) exit 1;; esac\nexec {sys.executable} "$@"'
    bare = interpreter(tmp_path / "python3", script)
    run = make_venv(tmp_path, str(bare))
    assert run.returncode == 1
    assert f"apt install python3.{sys.version_info.minor}-venv" in run.stderr
    assert not (tmp_path / "venv").exists()


def test_checkout_is_linked_into_the_environment(tmp_path: Path) -> None:
    run = make_venv(tmp_path, sys.executable)
    assert run.returncode == 0, run.stderr
    links = list((tmp_path / "venv").glob("lib/python*/site-packages/ansible_collections/muster/training"))
    assert [link.resolve() for link in links] == [CHECKOUT]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verification of the key of NVIDIA's package source, with real keys and invalid files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.mount_s3_package import gpg, make_key
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")), reason="keys are made and used by gpg and gpgv"
)
TOO_LARGE = "x" * (2**20 + 1)
EMPTY_BLOCK = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!\n-----END PGP PUBLIC KEY BLOCK-----\n"


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Create gpg home directories by key fingerprint; the first key is the accepted key."""
    folder = tmp_path_factory.mktemp("keys")
    result = {make_key(folder / name): folder / name for name in ("ours", "others")}
    yield result
    for home in result.values():
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    give_collection(tmp_path)
    role = {"name": "muster.training.docker_engine", "tasks_from": "source_key", "rolespec_validate": False}
    tasks = [{"ansible.builtin.include_role": role}]
    (tmp_path / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    settings = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (tmp_path / "machines.yml").write_text(json.dumps({"all": {"hosts": {"node1": settings}}}))
    (tmp_path / "scratch").mkdir()
    return tmp_path


def install(directory: Path, fingerprints: Sequence[str], name: str = "key.asc") -> subprocess.CompletedProcess[str]:
    """Run the tasks with a key file of this name."""
    values = {
        "docker_engine_nvidia_key": str(directory / name),
        "docker_engine_nvidia_fingerprints": fingerprints,
        "__docker_engine_keyring": str(directory / "keyrings" / "key.gpg"),
    }
    argv = ["ansible-playbook", "play.yml", "-i", "machines.yml", "-e", json.dumps(values)]
    completed = typed(directory, argv, TMPDIR=str(directory / "scratch"))
    assert list((directory / "scratch").glob("*.muster")) == [], "nothing remains of the downloaded file"
    return completed


def refusal(directory: Path, fingerprints: Sequence[str]) -> str:
    """Return the reason for the refusal of a key."""
    completed = install(directory, fingerprints)
    match = re.search(r"node1: the key .* was rejected: (.*?)\. Accepted", " ".join(completed.stdout.split()))
    assert completed.returncode == 2 and match, completed.stdout
    return match[1]


def signs(home: Path, keyring: Path) -> bool:
    """Return whether gpgv, which apt uses, accepts a signature by this key with the keyring."""
    signature = keyring.with_name("signature")
    keyring.with_name("data").write_bytes(b"Release")
    gpg(home, "--yes", "--output", str(signature), "--detach-sign", str(keyring.with_name("data")))
    arguments = ["gpgv", "--keyring", str(keyring), str(signature), str(keyring.with_name("data"))]
    return subprocess.run(arguments, capture_output=True, check=False).returncode == 0


@pytest.mark.one_core
@pytest.mark.parametrize("is_armored", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_only_accepted_keys_of_a_file_verify_signatures(
    directory: Path, homes: dict[str, Path], is_armored: bool
) -> None:
    (fingerprint, home), (_other_fingerprint, other_home) = homes.items()
    if is_armored:
        texts = [gpg(item, "--armor", "--export") for item in (other_home, home)]
        (directory / "key.asc").write_text("".join(texts))
    else:
        gpg(home, "--output", str(directory / "key.asc"), "--export")
    spaced_fingerprint = " ".join(fingerprint[location : location + 4] for location in range(0, 40, 4)).lower()
    first = install(directory, [spaced_fingerprint])
    assert first.returncode == 0 and "changed=0" not in first.stdout, first.stdout
    again = install(directory, ["0" * 40, fingerprint])
    assert again.returncode == 0 and "changed=0" in again.stdout, again.stdout
    keyring = directory / "keyrings" / "key.gpg"
    assert keyring.stat().st_mode & 0o777 == 0o644
    assert signs(home, keyring)
    assert not signs(other_home, keyring)


@pytest.mark.one_core
def test_unknown_key_is_refused_and_the_keyring_is_kept(directory: Path, homes: dict[str, Path]) -> None:
    (fingerprint, home), (other_fingerprint, other_home) = homes.items()
    keyring = directory / "keyrings" / "key.gpg"
    (directory / "key.asc").write_text(gpg(other_home, "--armor", "--export"))
    assert refusal(directory, [fingerprint]) == f"its fingerprint is {other_fingerprint}"
    assert not keyring.exists()
    (directory / "key.asc").write_text(gpg(home, "--armor", "--export"))
    assert install(directory, [fingerprint]).returncode == 0
    (directory / "key.asc").write_text(gpg(other_home, "--armor", "--export"))
    assert refusal(directory, [fingerprint]) == f"its fingerprint is {other_fingerprint}"
    assert signs(home, keyring), "the previous one is kept"


@pytest.mark.one_core
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "it cannot be downloaded: "),
        ("<html>no such page</html>", "the downloaded file is not a key file"),
        ("", "its fingerprint is none, the file is empty"),
        pytest.param(EMPTY_BLOCK, "the downloaded file is not a key file", marks=pytest.mark.thorough),
        (TOO_LARGE, "the downloaded file has more than 1048576 bytes"),
    ],
)
def test_file_that_is_not_a_key_or_cannot_be_fetched_is_refused(
    directory: Path, content: str | None, reason: str
) -> None:
    if content is not None:
        (directory / "key.asc").write_text(content)
    assert refusal(directory, ["A" * 40]).startswith(reason)
    assert not (directory / "keyrings").exists()


@pytest.mark.one_core
@pytest.mark.parametrize("length", [17, *(pytest.param(item, marks=pytest.mark.thorough) for item in (1, 100))])
def test_truncated_key_is_not_accepted(directory: Path, homes: dict[str, Path], length: int) -> None:
    (fingerprint, home), _others = homes.items()
    gpg(home, "--output", str(directory / "whole"), "--export")
    (directory / "key.asc").write_bytes((directory / "whole").read_bytes()[:length])
    completed = install(directory, [fingerprint])
    keyring = directory / "keyrings" / "key.gpg"
    assert completed.returncode == 2 or signs(home, keyring), completed.stdout

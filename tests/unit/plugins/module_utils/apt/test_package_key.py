"""Which keys of a package source are accepted: tested with real keys, and with files that are not keys."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._apt import package_key as apt_package_key
from ansible_collections.muster.training.plugins.modules import package_key
from tests.support.mount_s3_package import gpg, make_key

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")), reason="keys are made and used by gpg and gpgv"
)


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Homes of gpg by the fingerprint of their key: the first is the one that counts."""
    folder = tmp_path_factory.mktemp("keys")
    result = {make_key(folder / name): folder / name for name in ("ours", "others")}
    yield result
    for home in result.values():
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


def armored(home: Path) -> str:
    return gpg(home, "--armor", "--export")


def ask(folder: Path, *fingerprints: str, check: bool = False) -> dict[str, Any]:
    given = {"url": str(folder / "key.asc"), "path": str(folder / "keyrings/key.gpg"), "fingerprints": fingerprints}
    return package_key.ensure_keyring(given, check)


def take(folder: Path, *fingerprints: str) -> tuple[int, str]:
    try:
        return 0, "changed" if ask(folder, *fingerprints)["changed"] else "unchanged"
    except apt_package_key.PackageKeyError as problem:
        return 1, str(problem)


def signs(home: Path, keyring: Path) -> bool:
    """Whether gpgv, as apt uses it, takes a signature of this key by that keyring."""
    signature = keyring.with_name("signature")
    keyring.with_name("data").write_bytes(b"Release")
    gpg(home, "--yes", "--output", str(signature), "--detach-sign", str(keyring.with_name("data")))
    arguments = ["gpgv", "--keyring", str(keyring), str(signature), str(keyring.with_name("data"))]
    return subprocess.run(arguments, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize("is_armored", [True, False])
def test_known_key_is_accepted_and_verifies_signatures(
    tmp_path: Path, homes: dict[str, Path], is_armored: bool
) -> None:
    (fingerprint, home), _others = homes.items()
    if is_armored:
        (tmp_path / "key.asc").write_text(armored(home))
    else:
        gpg(home, "--output", str(tmp_path / "key.asc"), "--export")
    spelt = " ".join(fingerprint[location : location + 4] for location in range(0, 40, 4)).lower()
    assert take(tmp_path, spelt) == (0, "changed")
    assert take(tmp_path, fingerprint) == (0, "unchanged")
    keyring = tmp_path / "keyrings/key.gpg"
    assert keyring.stat().st_mode & 0o777 == 0o644
    assert signs(home, keyring)


def test_unknown_key_is_refused_and_its_fingerprint_reported(tmp_path: Path, homes: dict[str, Path]) -> None:
    (fingerprint, home), (other, others) = homes.items()
    (tmp_path / "key.asc").write_text(armored(others))
    assert take(tmp_path, fingerprint) == (1, f"its fingerprint is {other}")
    assert not (tmp_path / "keyrings").exists()
    (tmp_path / "key.asc").write_text(armored(home))
    assert take(tmp_path, fingerprint)[0] == 0
    (tmp_path / "key.asc").write_text(armored(others))
    assert take(tmp_path, fingerprint)[0] == 1
    assert signs(home, tmp_path / "keyrings/key.gpg"), "the one before stays"


def test_extra_key_in_the_file_is_not_trusted(tmp_path: Path, homes: dict[str, Path]) -> None:
    (fingerprint, home), (_other, others) = homes.items()
    for text in (armored(others) + armored(home), armored(home) + armored(others)):
        (tmp_path / "key.asc").write_text(text)
        assert take(tmp_path, fingerprint)[0] == 0
        assert signs(home, tmp_path / "keyrings/key.gpg")
        assert not signs(others, tmp_path / "keyrings/key.gpg")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "its fingerprint is none, the file is empty"),
        ("<html>no such page</html>", "the downloaded file is not a key file"),
        ("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!\n-----END PGP PUBLIC KEY BLOCK-----\n", "is not a key file"),
        ("x" * (2**20 + 1), "has more than 1048576 bytes"),
    ],
)
def test_file_that_is_not_a_key_or_cannot_be_fetched_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "key.asc").write_text(text)
    code, output = take(tmp_path, "A" * 40)
    assert (code, message in output) == (1, True), output
    (tmp_path / "key.asc").unlink()
    assert "it cannot be downloaded" in take(tmp_path, "A" * 40)[1]


def test_check_mode_fetches_nothing_and_diff_shows_fingerprints(tmp_path: Path, homes: dict[str, Path]) -> None:
    (fingerprint, home), (other, others) = homes.items()
    assert ask(tmp_path, fingerprint, check=True) == {"changed": True}
    assert not (tmp_path / "keyrings").exists()
    (tmp_path / "key.asc").write_text(armored(home))
    first = ask(tmp_path, fingerprint)
    assert (first["diff"]["before"], first["diff"]["after"], first["kept"]) == ("", f"{fingerprint}\n", [fingerprint])
    assert ask(tmp_path, fingerprint, check=True) == {"changed": False}
    (tmp_path / "key.asc").write_text(armored(others))
    second = ask(tmp_path, other)
    assert (second["diff"]["before"], second["diff"]["after"]) == (f"{fingerprint}\n", f"{other}\n")


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_never_accepted_as_a_known_key(data: bytes) -> None:
    with pytest.raises(apt_package_key.PackageKeyError):
        apt_package_key.select_trusted(data, {"A" * 40})

"""Verification of mount-s3 packages with real keys, and with valid and invalid signatures."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._apt.package_signature import normalize, verify_signature
from tests.support.mount_s3_package import gpg, make_key

pytestmark = pytest.mark.skipif(
    not (shutil.which("gpg") and shutil.which("gpgv")),
    reason="signatures are judged by gpg and gpgv: apt install gnupg",
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, Path, str]]:
    """Yield two keys, each in its own GnuPG home."""
    folder = tmp_path_factory.mktemp("keys")
    own_home, foreign_home = folder / "ours", folder / "others"
    yield own_home, make_key(own_home), foreign_home, make_key(foreign_home)
    for home in (own_home, foreign_home):
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)


@pytest.fixture
def signed(tmp_path: Path, keys: tuple[Path, str, Path, str]) -> Path:
    """Return the directory of a node's downloads: a package, its signature, and both keys."""
    own_home, _fingerprint, foreign_home, _foreign_fingerprint = keys
    (tmp_path / "mount-s3.deb").write_bytes(b"package")
    sign(tmp_path, own_home)
    text = gpg(own_home, "--armor", "--export") + gpg(foreign_home, "--armor", "--export")
    (tmp_path / "KEYS").write_text(text)
    return tmp_path


def sign(folder: Path, home: Path) -> None:
    signature = str(folder / "mount-s3.deb.asc")
    gpg(home, "--yes", "--armor", "--output", signature, "--detach-sign", str(folder / "mount-s3.deb"))


def verify(folder: Path, *fingerprints: str) -> tuple[bool, str]:
    package, signature, keys = (str(folder / name) for name in ("mount-s3.deb", "mount-s3.deb.asc", "KEYS"))
    return verify_signature(package, signature, keys, {normalize(item) for item in fingerprints})


def test_package_signed_by_a_known_key_is_accepted(signed: Path, keys: tuple[Path, str, Path, str]) -> None:
    fingerprint = keys[1]
    spaced = " ".join(fingerprint[at : at + 4] for at in range(0, 40, 4)).lower()
    assert verify(signed, "0" * 40, fingerprint) == (True, f"signed by {fingerprint}")
    assert verify(signed, spaced)[0]


def test_package_not_signed_by_a_known_key_is_refused(signed: Path, keys: tuple[Path, str, Path, str]) -> None:
    own_home, fingerprint, foreign_home, foreign_fingerprint = keys
    sign(signed, foreign_home)
    assert verify(signed, fingerprint) == (False, f"it is signed by {foreign_fingerprint}, an untrusted key")
    sign(signed, own_home)
    (signed / "KEYS").write_text(gpg(foreign_home, "--armor", "--export"))
    assert verify(signed, fingerprint) == (False, "it is signed by a key that is missing from the key file")


def test_changed_package_or_invalid_signature_or_keys_are_refused(
    signed: Path, keys: tuple[Path, str, Path, str]
) -> None:
    fingerprint = keys[1]
    (signed / "mount-s3.deb").write_bytes(b"another package")
    assert verify(signed, fingerprint) == (False, "the signature does not match this package")
    (signed / "mount-s3.deb.asc").write_text("<html>not found</html>")
    is_signed, output = verify(signed, fingerprint)
    assert not is_signed and output.startswith("the signature cannot be verified")
    (signed / "KEYS").write_text("<html>not found</html>")
    assert verify(signed, fingerprint) == (False, "the downloaded key file contains no keys")
    (signed / "KEYS").write_text("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nA\n-----END PGP PUBLIC KEY BLOCK-----\n")
    assert verify(signed, fingerprint) == (False, "the downloaded key file contains no keys")

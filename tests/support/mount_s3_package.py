"""The stand-in for mount-s3 as a signed Debian package, served over HTTP as Amazon serves its own."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
STAND_IN = CHECKOUT / "extensions" / "molecule" / "data" / "files" / "mount_s3_stand_in.py"
CONTROL = """Package: mount-s3
Version: 1.21.0
Architecture: all
Maintainer: nobody
Depends: python3, s3fs
Description: stand-in
"""


@dataclass(frozen=True)
class Repository:
    """A served package repository; files in `folder` may be changed meanwhile."""

    folder: Path
    url: str
    fingerprint: str

    @property
    def variables(self) -> dict[str, object]:
        """Return the variables that make the role mount_s3 use this repository."""
        return {
            "mount_s3_package_url": f"{self.url}/latest/{{architecture}}/mount-s3.deb",
            "mount_s3_keys_url": f"{self.url}/public_keys/KEYS",
            "mount_s3_fingerprints": [self.fingerprint],
        }


def gpg(home: Path, *arguments: str) -> str:
    """Run gpg with its own home, and return its output."""
    environment = {**os.environ, "GNUPGHOME": str(home)}
    command = ["gpg", "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "", *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def make_key(home: Path) -> str:
    """Make a signing key; return its fingerprint."""
    home.mkdir(mode=0o700)
    gpg(home, "--quick-generate-key", "Tests <tests@example.org>", "ed25519", "sign", "never")
    listed = gpg(home, "--list-keys", "--with-colons")
    return next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:"))


def build(folder: Path) -> Path:
    """Build the package with dpkg-deb."""
    tree = folder / "tree"
    for directory in ("DEBIAN", "usr/bin", "sbin"):
        (tree / directory).mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(CONTROL)
    (tree / "usr/bin/mount-s3").write_text("#!/usr/bin/python3\n" + STAND_IN.read_text())
    (tree / "usr/bin/mount-s3").chmod(0o755)
    (tree / "sbin/mount.mount-s3").symlink_to("/usr/bin/mount-s3")
    for target in [tree, *(path for path in tree.rglob("*") if path.is_dir())]:
        target.chmod(0o755)
    package = folder / "mount-s3.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, package], check=True, capture_output=True)
    return package


@contextlib.contextmanager
def repository(folder: Path, address: str) -> Iterator[Repository]:
    """Build, sign and serve the package on an address of this machine."""
    served, home = folder / "served", folder / "keys"
    fingerprint = make_key(home)
    package = build(folder)
    for architecture in ("x86_64", "arm64"):
        destination = served / "latest" / architecture
        destination.mkdir(parents=True)
        shutil.copy(package, destination)
        gpg(
            home,
            "--armor",
            "--output",
            str(destination / "mount-s3.deb.asc"),
            "--detach-sign",
            str(destination / "mount-s3.deb"),
        )
    (served / "public_keys").mkdir()
    gpg(home, "--armor", "--output", str(served / "public_keys" / "KEYS"), "--export")
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    handler = functools.partial(Handler, directory=str(served))
    server = http.server.ThreadingHTTPServer((address, 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Repository(served, f"http://{address}:{server.server_port}", fingerprint)
    finally:
        server.shutdown()
        server.server_close()

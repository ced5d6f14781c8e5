"""A real Samba server as an ordinary process: shares, users with passwords, deliberate faults."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.virtual_machine import free_port
from tests.support.drive import eventually

ACCOUNTS = ("games", "news", "backup", "list")
"""System accounts of Debian and Ubuntu for the users: Samba requires one for each."""


@dataclass
class SambaServer:
    """A server that listens on one address. `stop` and `start` keep all its state, including the port."""

    directory: Path
    address: str
    port: int
    shares: dict[str, Path]
    accounts: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    closed: set[str] = field(default_factory=set)  # read-only shares

    @property
    def configuration(self) -> Path:
        """Its smb.conf."""
        return self.directory / "smb.conf"

    @property
    def log(self) -> str:
        """The content of its logs."""
        logs = sorted(self.directory.glob("log.*"))
        return "".join(path.read_text(errors="replace") for path in logs)

    def configure(self) -> None:
        """Write smb.conf with the current shares and users; a running server reloads it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        users = self.directory / "users.map"
        users.write_text("".join(f'{account} = "{user}"\n' for user, account in self.accounts.items()))
        settings = {
            "workgroup": "TRAINING",
            "interfaces": self.address,
            "bind interfaces only": "yes",
            "smb ports": str(self.port),
            "disable netbios": "yes",
            "load printers": "no",
            "printcap name": "/dev/null",
            "server min protocol": "SMB2_10",
            "username map": str(users),
            "log file": f"{self.directory}/log.%m",
            **{name: str(self.directory) for name in ("lock directory", "state directory", "cache directory")},
            **{name: str(self.directory) for name in ("pid directory", "private dir", "ncalrpc dir")},
        }
        text = "".join(["[global]\n", *(f"{name} = {value}\n" for name, value in settings.items())])
        for share, path in self.shares.items():
            path.mkdir(parents=True, exist_ok=True)
            text += f"[{share}]\npath = {path}\nforce user = root\n"
            text += f"read only = {'yes' if share in self.closed else 'no'}\n"
        self.configuration.write_text(text)
        if self.process:
            self._control("smbd", "reload-config")

    def set_password(self, user: str, password: str) -> None:
        """Set the password of a new or existing user."""
        if user not in self.accounts:
            self.accounts[user] = ACCOUNTS[len(self.accounts)]
            self.configure()
        command = ["pdbedit", f"--configfile={self.configuration}", "--create", "--password-from-stdin"]
        command.append(f"--user={self.accounts[user]}")
        subprocess.run(command, input=f"{password}\n{password}\n", text=True, check=True, capture_output=True)

    def rename_share(self, old: str, new: str) -> None:
        """Serve a share under another name, even to clients that have it open under the old one."""
        self.shares[new] = self.shares.pop(old)
        self.configure()
        self._control("smbd", "close-share", old)

    @contextmanager
    def read_only(self, share: str) -> Iterator[None]:
        """Make a share read-only; clients that have it open are disconnected."""
        self.closed.add(share)
        self.configure()
        self._control("smbd", "close-share", share)
        try:
            yield
        finally:
            self.closed.remove(share)
            self.configure()
            self._control("smbd", "close-share", share)

    def start(self) -> None:
        """Start the server; return when it listens."""
        command = ["smbd", "--foreground", "--no-process-group", f"--configfile={self.configuration}"]
        with (self.directory / "smbd.out").open("w") as out:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        eventually("smbd listens", self._listens, 90, lambda: self.log[-2000:])

    def stop(self) -> None:
        """Stop the server and its per-client processes: connections end, the port is closed."""
        if self.process:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGTERM)
            try:
                self.process.wait(60)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
            self.process = None

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Make the server hang: connections stay open without answers."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.process.pid, signal.SIGCONT)

    def _listens(self) -> bool:
        assert self.process and self.process.poll() is None, (self.directory / "smbd.out").read_text()
        with suppress(OSError), socket.create_connection((self.address, self.port), timeout=1):
            return True
        return False

    def _control(self, *arguments: str) -> None:
        command = ["smbcontrol", f"--configfile={self.configuration}", *arguments]
        subprocess.run(command, check=True, capture_output=True, text=True)


@contextmanager
def samba_server(address: str, shares: Mapping[str, str], users: Mapping[str, str]) -> Iterator[SambaServer]:
    """Serve shares until the end of the context.

    Args:
        address: an address of this machine to listen on.
        shares: directory names by share name; the directories are created.
        users: passwords by name. Each user can read and write all shares.
    """
    with tempfile.TemporaryDirectory(prefix="samba-") as scratch:
        root = Path(scratch)
        served = {name: root / "shares" / path for name, path in shares.items()}
        server = SambaServer(root / "server", address, free_port(address), served)
        server.configure()
        for user, password in users.items():
            server.set_password(user, password)
        server.start()
        try:
            yield server
        finally:
            server.stop()

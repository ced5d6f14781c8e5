"""Test hosts on which tests cause faults and undo them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.lab import Lab, files


@dataclass
class Cluster:
    """The hosts, and the faults to undo on them."""

    lab: Lab
    undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.lab.nodes]

    def address(self, name: str) -> str:
        return self.lab.node(name).address

    def sh(self, name: str, script: str) -> str:
        """Run a script as root on a host; it must succeed."""
        completed = self.lab.exec(name, ["bash", "-c", script])
        assert completed.returncode == 0, f"{name}: {script}\n{completed.stdout}{completed.stderr}"
        return completed.stdout

    def fault(self, name: str, make: str, undo: str) -> None:
        """Cause a fault on a host with a script; another script undoes it after the test, regardless of the outcome."""
        self.undo.append(lambda: self.sh(name, undo))
        self.sh(name, make)

    def log_in_anew(self, name: str) -> None:
        """Close open connections to a host, so that the next connection logs in anew."""
        files.end_ssh_masters(self.lab.name, self.address(name))

    def mend(self) -> None:
        """Undo all faults, in reverse order."""
        while self.undo:
            self.undo.pop()()

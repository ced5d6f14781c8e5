"""Test hosts to break, fault by fault, and to make whole again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.lab import Lab, files


@dataclass
class Cluster:
    """The hosts, and what is to be undone on them."""

    lab: Lab
    undo: list[Callable[[], object]] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.lab.nodes]

    def address(self, name: str) -> str:
        return self.lab.node(name).address

    def sh(self, name: str, script: str) -> str:
        """Run a script as root on a host; it must succeed."""
        done = self.lab.exec(name, ["bash", "-c", script])
        assert done.returncode == 0, f"{name}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def fault(self, name: str, make: str, undo: str) -> None:
        """Make a fault on a host by a script; another one undoes it after the test, whatever becomes of the test."""
        self.undo.append(lambda: self.sh(name, undo))
        self.sh(name, make)

    def log_in_anew(self, name: str) -> None:
        """End open connections to a host: what a login reads, and whether there is one, is seen by the next."""
        files.end_ssh_masters(self.lab.name, self.address(name))

    def mend(self) -> None:
        """Undo all faults, the last one first."""
        while self.undo:
            self.undo.pop()()

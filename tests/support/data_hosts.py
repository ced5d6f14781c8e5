"""Test hosts that mount buckets: mount in one call, and inspect the result."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import drive
from tests.support.cluster import Cluster
from tests.support.s3_server import S3Server

# All characters that a secret may contain; the server verifies signatures made with it.
SECRET = "k,e\"y 'with# $all %h\\x of=it ü"
PATH = "/mnt/data"


@dataclass
class Data(Cluster):
    """The hosts, the server, and a mount."""

    s3: S3Server = field(kw_only=True)
    folder: Path = field(kw_only=True)

    def words(self, play: drive.Play) -> str:
        """Return a play's output, without line breaks."""
        return " ".join(play.output.split())

    def arguments(self, options: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
        """Return valid arguments for the module, with changes."""
        return {
            "path": PATH,
            "kind": "s3fs",
            "source": "data",
            "user": "muster",
            "credentials": self.keys,
            "options": {"url": self.s3.url, "use_path_request_style": True, "allow_other": True, **(options or {})},
            **changed,
        }

    def play(self, *tasks: dict[str, Any]) -> drive.Play:
        """Run tasks on node1 as root."""
        playbook = self.folder / f"{time.monotonic_ns()}.yml"
        playbook.write_text(json.dumps([{"hosts": "node1", "gather_facts": False, "become": True, "tasks": tasks}]))
        return drive.run(str(playbook), self.lab.inventory)

    def mount(self, options: dict[str, Any] | None = None, **changed: Any) -> drive.Play:
        """Call the module once on node1."""
        return self.play({"name": "Mount", "muster.training.data_mount": self.arguments(options, **changed)})

    @property
    def keys(self) -> dict[str, str]:
        """The valid credentials."""
        return {"access_key": self.s3.access_key, "secret_key": self.s3.keys[self.s3.access_key]}

    def site(self, *options: str, **extra: Any) -> drive.Play:
        """Run site.yml's data roles; the keys come from this machine's environment."""
        environment = {
            "AWS_ACCESS_KEY_ID": self.keys["access_key"],
            "AWS_SECRET_ACCESS_KEY": self.keys["secret_key"],
            "AWS_SESSION_TOKEN": "",
        }
        tags = ("--tags", "data")
        return drive.run(
            "site.yml", self.lab.inventory, options=(*tags, *options), env=environment, timeout=600, **extra
        )

    def heal(self) -> None:
        """Undo changes to the server and the hosts."""
        self.s3.refuse, self.s3.read_only = "", False
        self.s3.release()
        self.s3.stop()
        self.s3.start()
        self.mend()

    def is_mounted(self, name: str, path: str = PATH) -> bool:
        """Return whether the kernel has it mounted, without touching the mount."""
        return f" {path} " in self.sh(name, "cat /proc/mounts")

    def nothing_left(self, name: str = "node1", path: str = PATH) -> None:
        """Assert that neither the mount nor its program remains."""
        assert not self.is_mounted(name, path)
        leftovers = [item.command for item in self.lab.processes(name) if re.match(rf"s3fs \S+ {path} ", item.command)]
        assert not leftovers

    def read(self, name: str, path: str, seconds: int = 60) -> str:
        """Read a file as the jobs' user, within a time limit."""
        return self.sh(name, f"runuser -u muster -- timeout {seconds} cat {path}")

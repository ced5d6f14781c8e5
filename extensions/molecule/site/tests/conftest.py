"""Fixtures: untouched test hosts, and a project that is not on them yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.support import drive

JOB = """
import os, socket
import torch.distributed as dist

dist.init_process_group("gloo")
names = [None] * dist.get_world_size()
dist.all_gather_object(names, socket.gethostname())
print("rank", os.environ["RANK"], "sees", *names, flush=True)
dist.destroy_process_group()
"""
# As some providers configure new machines: SSH on port 22 and nothing else.
FIREWALL = """#!/usr/sbin/nft -f
flush ruleset
table inet site {
  chain incoming {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
    iif lo accept
    tcp dport 22 accept
  }
}
"""


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Yield the hosts; node2 has a firewall."""
    with drive.own_lab("site", nodes=2, shells=("/bin/tcsh", "/usr/bin/fish")) as lab:
        # Jobs run in the environment that site.yml creates.
        lines = lab.inventory.read_text().splitlines()
        lab.inventory.write_text("".join(f"{line}\n" for line in lines if "launch_python" not in line))
        script = f"cat > /etc/nftables.conf <<'END'\n{FIREWALL}\nEND\nsystemctl enable --quiet --now nftables"
        completed = lab.exec("node2", ["bash", "-c", script])
        assert completed.returncode == 0, completed.stderr
        yield lab


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a job that needs all of its nodes."""
    project = tmp_path_factory.mktemp("source") / "project"
    project.mkdir()
    (project / "train.py").write_text(JOB)
    (project / "requirements.txt").write_text("colorama\n")
    return project

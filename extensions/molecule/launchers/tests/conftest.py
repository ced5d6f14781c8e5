"""Fixtures: three test hosts with 2, 1 and 1 slots, and clean nodes before and after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive

# They all differ from each other, and none supports the full syntax of sh.
SHELLS = ("/bin/tcsh", "/usr/bin/fish", "/usr/bin/zsh")
# If built from source, mpirun usually passes on the path to its libraries, in the syntax of the shell that it expects.
MPIRUN = """#!/bin/sh
exec /usr/bin/mpirun --prefix /usr "$@"
"""


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Yield untouched hosts: their names resolve to 127.0.1.1, and they cannot resolve or log in to their peers."""
    with drive.own_lab("launchers", nodes=3, slots=[2, 1, 1], shells=SHELLS) as lab:
        for node in lab.nodes:
            lab.exec(node.name, ["rm", "-rf", "/home/muster/.muster"])
        path = "/usr/local/bin/mpirun"
        drive.output_of(lab, "node1", "sh", "-c", f"cat > {path} <<'END'\n{MPIRUN}END\nchmod 755 {path}")
        yield lab


@pytest.fixture
def nodes(lab: Lab) -> Iterator[list[str]]:
    """Yield the names of the nodes, which are on, reachable and without runs before and after the test."""
    with drive.clean_nodes(lab, 3) as names:
        yield names

"""Fixtures: three test hosts for this scenario only, and an S3 server that they can reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.s3_server import S3Server


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Yield fresh hosts."""
    with drive.own_lab("checkpoints", nodes=3, shells=("/bin/tcsh", "/usr/bin/fish", "/usr/bin/zsh")) as lab:
        yield lab


@pytest.fixture(scope="session")
def s3(lab: Lab) -> Iterator[S3Server]:
    """Yield a server on this machine's address in the lab's network."""
    network = ipaddress.ip_network(f"{lab.nodes[0].address}/24", strict=False)
    with S3Server(str(network[1]), buckets=["saved", "data"]) as server:
        yield server

"""Fixtures: two test hosts for this scenario only, S3 on their network, and helpers for mounting."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest

from tests.lab import Lab
from tests.support import drive
from tests.support.data_hosts import SECRET, Data
from tests.support.mount_s3_package import Repository, repository
from tests.support.s3_server import S3Server


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Yield fresh hosts."""
    with drive.own_lab("data", nodes=2, shells=("/usr/bin/zsh", "/bin/tcsh")) as lab:
        yield lab


@pytest.fixture(scope="session")
def gateway(lab: Lab) -> str:
    """Return this machine's address in the network of the hosts."""
    return str(ipaddress.ip_network(f"{lab.nodes[0].address}/24", strict=False)[1])


@pytest.fixture(scope="session")
def s3(gateway: str) -> Iterator[S3Server]:
    """Yield a server with a bucket that contains points on a line of slope 2, and a directory with two more files."""
    with S3Server(gateway, buckets=["data", "other"], secret_key=SECRET) as server:
        client = server.client()
        for number in range(3):
            text = "".join(f"{(x + number) / 10},{(x + number) / 5}\n" for x in range(20))
            client.put_object(Bucket="data", Key=f"{number}.csv", Body=text.encode())
        client.put_object(Bucket="data", Key="large/20M", Body=bytes(20 * 2**20))
        client.put_object(Bucket="data", Key="large/two", Body=b"2")
        yield server


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory, gateway: str) -> Iterator[Repository]:
    """Yield a signed package repository with the fake mount-s3."""
    with repository(tmp_path_factory.mktemp("package"), gateway) as result:
        yield result


@pytest.fixture(scope="session")
def data(lab: Lab, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Return the hosts and the server of their buckets."""
    return Data(lab, s3=s3, folder=tmp_path_factory.mktemp("plays"))


@pytest.fixture
def node(data: Data) -> Iterator[Data]:
    """Yield the hosts for a fault on node1; afterward, heal the server, undo faults and remove the mount."""
    yield data
    data.heal()

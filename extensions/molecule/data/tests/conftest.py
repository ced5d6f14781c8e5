"""Two test hosts of this scenario's own, S3 on their network, and a way to mount in one call."""

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
    """Fresh hosts."""
    with drive.own_lab("data", nodes=2, shells=("/usr/bin/zsh", "/bin/tcsh")) as lab:
        yield lab


@pytest.fixture(scope="session")
def gateway(lab: Lab) -> str:
    """This machine's address in the network of the hosts."""
    return str(ipaddress.ip_network(f"{lab.nodes[0].address}/24", strict=False)[1])


@pytest.fixture(scope="session")
def s3(gateway: str) -> Iterator[S3Server]:
    """A server with points on a line of slope 2 in a bucket, and two files more in a directory."""
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
    """The stand-in for mount-s3, signed and served."""
    with repository(tmp_path_factory.mktemp("package"), gateway) as result:
        yield result


@pytest.fixture(scope="session")
def data(lab: Lab, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Data:
    """The hosts and what they mount."""
    return Data(lab, s3=s3, folder=tmp_path_factory.mktemp("plays"))


@pytest.fixture
def node(data: Data) -> Iterator[Data]:
    """The hosts for a fault on node1; afterward, the server is healthy, faults are undone and the mount is gone."""
    yield data
    data.heal()

"""NCCL's RAS report about a hang, from a server with its protocol.

No GPU is needed: the replies have the form that NCCL's src/ras/client_support.cc prints and its documentation shows.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._supervisor import nccl_ras
from ansible_collections.muster.training.plugins.module_utils._supervisor.nccl_ras import (
    describe_nccl,
    differences,
    port_of,
    read_status,
)

HEAD = """NCCL version 2.28.3 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          2            1          4        4

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         2         2         4         4   RUNNING  MISMATCH

Errors
======

"""
MISMATCH = (
    HEAD
    + """Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 6650
  Rank 3 has launched up to operation 6649 -- GPU 1 managed by process 1483960 on node 172.16.64.210

"""
)
# The reply of NCCL 2.28.9 to these requests, with four ranks on an H200, one of which is in a loop (2026-11-27).
RECORDED = """NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          4            1          4        4

Communicators... (0.000s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         4         4         4   RUNNING  MISMATCH

Errors
======

Warnings
========

#0-0 (bda63e34cfe9f119) MISMATCH
  Communicator ranks have different AllReduce operation counts
  3 ranks have launched up to operation 4
  Rank 3 has launched up to operation 3 -- GPU 0 managed by process 863 on node 127.0.0.1

"""
OLD = MISMATCH.replace("different AllReduce operation", "different collective operation")
INCOMPLETE = HEAD + "INCOMPLETE\n  Missing communicator data from 1 job process\n  Process 7 on node 10.0.0.2\n\n"
LATE = "AllReduce of communicator 0-0: 3 ranks launched up to operation 6650, rank 3 launched up to operation 6649"


@contextlib.contextmanager
def server(reply: str, greeting: bytes = b"SERVER PROTOCOL 2\n", closes: bool = True) -> Iterator[int]:
    """Serve one client as an NCCL process does: the dialogue of src/ras/client.cc, then the given status."""
    listener = socket.create_server(("127.0.0.1", 0))
    end = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection, connection.makefile("rb") as stream:
            assert stream.readline() == b"CLIENT PROTOCOL 2\n"
            connection.sendall(greeting)
            if stream.readline().startswith(b"TIMEOUT "):
                connection.sendall(b"OK\n")
            if stream.readline() == b"STATUS\n":
                connection.sendall(reply.encode())
                if not closes:
                    end.wait()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        end.set()
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (MISMATCH, [LATE]),
        (RECORDED, [LATE.replace("6650", "4").replace("6649", "3")]),
        (OLD, [LATE.replace("AllReduce", "operations")]),
        (
            MISMATCH.replace("has launched up to operation 6649", "has not launched any operations"),
            [LATE.replace("launched up to operation 6649", "launched none")],
        ),
        (INCOMPLETE, ["no reply from 1 job process"]),
        (HEAD, []),
        ("", []),
    ],
)
def test_ranks_that_lag_behind_are_named(status: str, expected: list[str]) -> None:
    assert differences(status) == expected


def test_hang_description_includes_the_operation_and_its_number() -> None:
    with server(MISMATCH) as port:
        assert describe_nccl({"NCCL_RAS_ADDR": f"localhost:{port}"}) == f"; NCCL: {LATE}"


def test_incomplete_status_is_used_as_received() -> None:
    with server(MISMATCH, closes=False) as port:
        assert differences(read_status(port, timeout=0.5)) == [LATE]


def test_other_programs_on_the_port_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(MISMATCH, greeting=b"HTTP/1.1 400 Bad Request\n") as port:
        assert read_status(port) == ""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert read_status(port, timeout=0.1) == ""
    assert read_status(port) == ""  # nothing is listening any longer
    monkeypatch.setattr(nccl_ras, "MAX_REPLY", 1000)
    with server("x" * 100_000) as port:
        assert len(read_status(port)) == 1000


@pytest.mark.parametrize(
    ("address", "port"),
    [
        ("localhost:1234", 1234),
        ("127.0.0.1:1234", 1234),
        ("10.0.0.1:1234", 0),
        ("localhost", 0),
        ("localhost:x", 0),
        ("localhost:²", 0),
    ],
)
def test_only_this_node_is_queried(address: str, port: int) -> None:
    assert port_of({"NCCL_RAS_ADDR": address}) == port
    assert port_of({}) == 28028


@given(st.text())
def test_any_reply_is_read(text: str) -> None:
    assert len(differences(MISMATCH + text)) <= nccl_ras.MAX_DIFFERENCES

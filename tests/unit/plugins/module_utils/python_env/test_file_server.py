"""The file server on the first node: requests that keep it running, and its connection limit."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._python_env.file_server import StoreHandler, StoreServer

TOKEN = "t" * 32


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    (tmp_path / "a.whl").write_text("wheel")
    monkeypatch.setattr(StoreHandler, "token", TOKEN)
    monkeypatch.setattr(StoreHandler, "last", 0.0)
    monkeypatch.setattr(StoreServer, "slots", threading.BoundedSemaphore(2))
    server = StoreServer(("127.0.0.1", 0), lambda *args: StoreHandler(*args, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    reply = response.status, response.read()
    connection.close()
    return reply


def test_request_with_the_token_counts_as_use(port: int) -> None:
    assert get(port, f"/{TOKEN}/a.whl") == (200, b"wheel")
    assert StoreHandler.last > 0


def test_request_with_a_wrong_token_does_not_keep_the_server_open(port: int) -> None:
    assert get(port, f"/{'x' * 32}/a.whl")[0] == 404
    assert StoreHandler.last == 0


@pytest.mark.parametrize("path", ["/a.whl", "/", f"/{TOKEN}/a.whl"])
def test_head_request_is_refused(port: int, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("HEAD", path)
    response = connection.getresponse()
    assert (response.status, response.read()) == (405, b"")
    connection.close()


def test_connections_beyond_the_limit_are_closed(port: int) -> None:
    open_connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=30) for _number in range(2)]
    for connection in open_connections:
        connection.request("GET", f"/{TOKEN}/a.whl")
        assert connection.getresponse().read() == b"wheel"  # the connection stays open, as in HTTP/1.1
    with pytest.raises((ConnectionError, http.client.BadStatusLine)):
        get(port, f"/{TOKEN}/a.whl")
    for connection in open_connections:
        connection.close()


def test_silent_connection_is_closed(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreHandler, "timeout", 0.1)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.connect()
    assert connection.sock.recv(1) == b""
    connection.close()

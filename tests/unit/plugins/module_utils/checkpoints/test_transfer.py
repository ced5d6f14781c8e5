"""Copies of checkpoints between nodes: real connections on this machine."""

from __future__ import annotations

import os
import socket
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import is_part, is_relative
from ansible_collections.muster.training.plugins.module_utils._checkpoints.transfer import (
    Channel,
    Server,
    TransferError,
    checked_parts,
    fetch,
    transfer_key,
)

KEY = transfer_key("token", "run", 1)


def save(path: Path, content: bytes = b"weights" * 100) -> None:
    """Write a file as torch.save does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", content)


def serve(directory: Path, name: str) -> tuple[str, int]:
    """Serve a checkpoint; return the address."""
    server = Server(str(directory), name, KEY)
    listener = server.listen("127.0.0.1")
    threading.Thread(target=server.accept_all, args=(listener,), daemon=True).start()
    return "127.0.0.1", listener.getsockname()[1]


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path / "a", tmp_path / "b"


def test_copy_has_the_content_and_the_time_of_the_original(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "run" / "step-4" / "model_rank_0.pt", os.urandom(2_500_000))
    os.utime(nodes[0] / "run" / "step-4" / "model_rank_0.pt", (1e9, 1e9))
    size = fetch(str(nodes[1]), "run/step-4", KEY, [serve(nodes[0], "run/step-4")])
    copy = nodes[1] / "run" / "step-4" / "model_rank_0.pt"
    assert copy.read_bytes() == (nodes[0] / "run" / "step-4" / "model_rank_0.pt").read_bytes()
    assert copy.stat().st_size == size and copy.stat().st_mtime == 1e9
    assert os.listdir(nodes[1] / "run") == ["step-4"]


def test_deepspeed_file_beside_the_checkpoint_is_copied_too(nodes: tuple[Path, Path]) -> None:
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        save(nodes[0] / "global_step4" / name)
    (nodes[0] / "latest").write_text("global_step4")
    fetch(str(nodes[1]), "global_step4", KEY, [serve(nodes[0], "global_step4")])
    assert (nodes[1] / "latest").read_text() == "global_step4" and len(os.listdir(nodes[1] / "global_step4")) == 2


def test_node_with_another_key_gets_nothing(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "step-4.pt")
    with pytest.raises((TransferError, OSError)):
        fetch(str(nodes[1]), "step-4.pt", transfer_key("other", "run", 1), [serve(nodes[0], "step-4.pt")])
    assert os.listdir(nodes[1]) == []


@pytest.mark.parametrize("part", ["../../secret", "/etc/passwd", "other.pt", 3, None])
def test_only_parts_of_the_checkpoint_are_sent(nodes: tuple[Path, Path], part: Any) -> None:
    save(nodes[0] / "step-4.pt")
    save(nodes[0] / "other.pt")
    with socket.create_connection(serve(nodes[0], "step-4.pt")) as sock:
        channel = Channel(sock, KEY, "client")
        channel.send({"part": part})
        assert channel.receive() == {"size": -1}


@pytest.mark.parametrize("name", ["../b", "/tmp/x", "a/../../b", ""])
def test_nothing_is_written_outside_of_the_directory(nodes: tuple[Path, Path], name: str) -> None:
    with pytest.raises(TransferError, match="is not below"):
        fetch(str(nodes[1]), name, KEY, [])


@pytest.mark.parametrize(
    "parts",
    [{"../x": [1, 1]}, {"/x": [1, 1]}, {"a/../../x": [1, 1]}, {"x": 1}, {"x": [-1, 1]}, {"x": ["1", 1]}, [], None],
)
def test_list_with_impossible_parts_is_refused(parts: Any) -> None:
    with pytest.raises(TransferError):
        checked_parts({"parts": parts})


def test_link_below_the_directory_is_not_followed(nodes: tuple[Path, Path], tmp_path: Path) -> None:
    save(nodes[0] / "run" / "step-4.pt")
    (tmp_path / "elsewhere").mkdir()
    (nodes[1] / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a directory"):
        fetch(str(nodes[1]), "run/step-4.pt", KEY, [serve(nodes[0], "run/step-4.pt")])
    assert os.listdir(tmp_path / "elsewhere") == []


def test_content_that_is_changed_on_the_way_is_refused(nodes: tuple[Path, Path]) -> None:
    """A relay that flips one bit of the content."""
    save(nodes[0] / "step-4.pt", os.urandom(100_000))
    address = serve(nodes[0], "step-4.pt")
    relay = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket, flips: bool) -> None:
        passed = 0
        while data := source.recv(4096):
            if flips and passed > 50_000:
                data, flips = bytes([data[0] ^ 1]) + data[1:], False
            passed += len(data)
            target.sendall(data)

    def run() -> None:
        client, _address = relay.accept()
        server = socket.create_connection(address)
        threading.Thread(target=pump, args=(client, server, False), daemon=True).start()
        pump(server, client, True)

    threading.Thread(target=run, daemon=True).start()
    with pytest.raises(TransferError, match="was modified in transit"):
        fetch(str(nodes[1]), "step-4.pt", KEY, [relay.getsockname()])
    assert os.listdir(nodes[1]) == []


def test_paths_of_parts() -> None:
    assert all(map(is_part, ("", "../latest", "a", "a/b", ".metadata")))
    assert not any(map(is_part, (".", "..", "a/", "./a", "a//b", "../a", "a/../b", "a\0b", "a" * 5000)))
    assert is_relative(".") and not is_relative("")

"""Copies of checkpoints between nodes: real connections on this machine."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._checkpoints import transfer
from ansible_collections.muster.training.plugins.module_utils._checkpoints.agreement import (
    MAX_NAMES,
    describe_parts,
    hash_names,
    is_part,
    is_relative,
)
from ansible_collections.muster.training.plugins.module_utils._checkpoints.transfer import (
    MAX_UNPROVEN,
    Channel,
    Server,
    Source,
    TransferError,
    fetch,
    intact_parts,
    transfer_key,
    validate_parts,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.preparation import copies

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


def agreed(directory: Path, name: str) -> list[str]:
    """Return the parts that this node offers."""
    return sorted(intact_parts(str(directory), name))


@pytest.fixture
def nodes(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    return tmp_path / "a", tmp_path / "b"


def test_copy_has_the_content_and_the_time_of_the_original(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "run" / "step-4" / "model_rank_0.pt", os.urandom(2_500_000))
    os.utime(nodes[0] / "run" / "step-4" / "model_rank_0.pt", (1e9, 1e9))
    size = fetch(str(nodes[1]), "run/step-4", KEY, [serve(nodes[0], "run/step-4")], agreed(nodes[0], "run/step-4"))
    copy = nodes[1] / "run" / "step-4" / "model_rank_0.pt"
    assert copy.read_bytes() == (nodes[0] / "run" / "step-4" / "model_rank_0.pt").read_bytes()
    assert copy.stat().st_size == size and copy.stat().st_mtime == 1e9
    assert os.listdir(nodes[1] / "run") == ["step-4"]


def test_deepspeed_file_beside_the_checkpoint_is_copied_too(nodes: tuple[Path, Path]) -> None:
    for name in ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        save(nodes[0] / "global_step4" / name)
    (nodes[0] / "latest").write_text("global_step4")
    fetch(str(nodes[1]), "global_step4", KEY, [serve(nodes[0], "global_step4")], agreed(nodes[0], "global_step4"))
    assert (nodes[1] / "latest").read_text() == "global_step4" and len(os.listdir(nodes[1] / "global_step4")) == 2


def test_node_with_another_key_gets_nothing(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "step-4.pt")
    with pytest.raises((TransferError, OSError)):
        fetch(str(nodes[1]), "step-4.pt", transfer_key("other", "run", 1), [serve(nodes[0], "step-4.pt")], [""])
    assert os.listdir(nodes[1]) == []


@pytest.mark.parametrize("part", ["../../secret", "/etc/passwd", "other.pt", 3, None])
def test_only_parts_of_the_checkpoint_are_sent(nodes: tuple[Path, Path], part: Any) -> None:
    save(nodes[0] / "step-4.pt")
    save(nodes[0] / "other.pt")
    with socket.create_connection(serve(nodes[0], "step-4.pt")) as sock:
        channel = Channel(sock, KEY, "client")
        channel.send({"part": part})
        assert channel.receive() == {"size": -1}


@pytest.mark.parametrize("name", ["../b", "/tmp/x", "a/../../b", "", "."])
def test_nothing_is_written_outside_of_the_directory(nodes: tuple[Path, Path], name: str) -> None:
    with pytest.raises(TransferError, match="is not inside"):
        fetch(str(nodes[1]), name, KEY, [], [])
    with pytest.raises(TransferError, match="is not inside"):
        Server(str(nodes[1]), name, KEY)


def test_parts_that_were_not_agreed_on_are_not_copied(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "step-4" / "model_rank_0.pt")
    (nodes[0] / "step-4" / "sitecustomize.py").write_text("evil")
    size = fetch(str(nodes[1]), "step-4", KEY, [serve(nodes[0], "step-4")], ["model_rank_0.pt"])
    assert os.listdir(nodes[1] / "step-4") == ["model_rank_0.pt"]
    assert size == (nodes[1] / "step-4" / "model_rank_0.pt").stat().st_size


def test_many_parts_are_agreed_on_by_their_hash(nodes: tuple[Path, Path]) -> None:
    assert describe_parts({"b": 1, "a": 2}) == {"parts": ["a", "b"]}
    names = [f"{number}.bin" for number in range(MAX_NAMES // 8)]
    assert describe_parts(names) == {"parts": hash_names(names[::-1])}
    save(nodes[0] / "step-4" / "model_rank_0.pt")
    address = serve(nodes[0], "step-4")
    for wrong_parts in (hash_names(["model_rank_0.pt", "other"]), None, 3):
        with pytest.raises(ValueError, match="differ from those that the nodes agreed on"):
            fetch(str(nodes[1]), "step-4", KEY, [address], wrong_parts)
    assert os.listdir(nodes[1]) == []
    fetch(str(nodes[1]), "step-4", KEY, [address], hash_names(["model_rank_0.pt"]))
    assert os.listdir(nodes[1] / "step-4") == ["model_rank_0.pt"]


def test_copying_process_knows_the_agreed_parts(
    nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(nodes[0] / "step-4" / "model_rank_0.pt")
    (nodes[0] / "step-4" / "sitecustomize.py").write_text("evil")
    (nodes[1] / "plan.json").write_text(json.dumps({"checkpoints": str(nodes[1] / "kept")}))
    request = {"name": "step-4", "key": KEY, "sources": [serve(nodes[0], "step-4")], "parts": ["model_rank_0.pt"]}
    monkeypatch.setattr(copies, "read_request", lambda: request)
    assert copies.fetch_main([str(nodes[1])]) == 0
    assert json.loads(capsys.readouterr().out)["error"] == ""
    assert os.listdir(nodes[1] / "kept" / "step-4") == ["model_rank_0.pt"]
    monkeypatch.setattr(copies, "read_request", lambda: {**request, "name": ".", "address": "127.0.0.1"})
    for main in (copies.fetch_main, copies.serve_main):
        assert main([str(nodes[1])]) == 1
        assert "is not inside" in json.loads(capsys.readouterr().out)["error"]


class Offer(Server):
    """A node that offers any files below a directory."""

    def __init__(self, directory: Path, name: str, *parts: str) -> None:
        super().__init__(str(directory), name, KEY)
        paths = {part: os.path.join(self.target, part) for part in parts}
        self.parts = {part: (os.lstat(path).st_size, 1.0) for part, path in paths.items()}
        self.listener = self.listen("127.0.0.1")
        threading.Thread(target=self.accept_all, args=(self.listener,), daemon=True).start()


def test_other_files_are_not_replaced(nodes: tuple[Path, Path]) -> None:
    for node, text in zip(nodes, ("evil", "good"), strict=True):
        (node / "src").mkdir()
        (node / "src" / "train.py").write_text(text)
    save(nodes[0] / "src" / "model_rank_0.pt")
    offer = Offer(nodes[0], "src", "train.py", "model_rank_0.pt")
    with pytest.raises(TransferError, match="src exists and is not a checkpoint"):
        fetch(str(nodes[1]), "src", KEY, [offer.listener.getsockname()], ["train.py", "model_rank_0.pt"])
    assert (nodes[1] / "src" / "train.py").read_text() == "good" and os.listdir(nodes[1] / "src") == ["train.py"]


def test_nothing_is_replaced_if_the_result_is_not_complete(nodes: tuple[Path, Path]) -> None:
    save(nodes[1] / "step-4" / "model_rank_0.pt")
    save(nodes[0] / "step-4" / "model_rank_2.pt")
    with pytest.raises(TransferError, match="the shard of rank 1 is missing"):
        fetch(str(nodes[1]), "step-4", KEY, [serve(nodes[0], "step-4")], ["model_rank_2.pt"])
    assert os.listdir(nodes[1] / "step-4") == ["model_rank_0.pt"] and os.listdir(nodes[1]) == ["step-4"]


def test_new_directory_without_a_complete_checkpoint_is_not_created(nodes: tuple[Path, Path]) -> None:
    (nodes[0] / "src").mkdir()
    (nodes[0] / "src" / "train.py").write_text("evil")
    offer = Offer(nodes[0], "src", "train.py")
    with pytest.raises(TransferError, match="src is not a checkpoint"):
        fetch(str(nodes[1]), "src", KEY, [offer.listener.getsockname()], ["train.py"])
    assert os.listdir(nodes[1]) == []


def test_only_deepspeed_checkpoints_have_a_file_beside_them(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "step-4" / "model_rank_0.pt")
    (nodes[0] / "latest").write_text("step-4")
    (nodes[1] / "latest").write_text("other")
    offer = Offer(nodes[0], "step-4", "model_rank_0.pt", "../latest")
    with pytest.raises(TransferError, match="is not a DeepSpeed checkpoint"):
        fetch(str(nodes[1]), "step-4", KEY, [offer.listener.getsockname()], ["model_rank_0.pt", "../latest"])
    assert (nodes[1] / "latest").read_text() == "other" and os.listdir(nodes[1]) == ["latest"]


def test_file_and_directory_with_the_same_name_are_refused(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "step-4" / "model_rank_0.pt")
    save(nodes[1] / "source" / "model.pt")
    offer = Offer(nodes[0], "step-4", "model_rank_0.pt")
    offer.parts[""] = offer.parts["model_rank_0.pt"]
    second_server = Server(str(nodes[1] / "source"), "model.pt", KEY)
    second_server.parts[""] = intact_parts(str(nodes[1] / "source"), "model.pt")[""]
    listener = second_server.listen("127.0.0.1")
    threading.Thread(target=second_server.accept_all, args=(listener,), daemon=True).start()
    addresses = [listener.getsockname(), offer.listener.getsockname()]
    with pytest.raises(TransferError, match="is both a file and a directory"):
        fetch(str(nodes[1]), "step-4", KEY, addresses, ["", "model_rank_0.pt"])
    assert os.listdir(nodes[1]) == ["source"]


def test_damaged_part_is_replaced_and_an_empty_directory_is_filled(nodes: tuple[Path, Path]) -> None:
    for rank in range(2):
        save(nodes[0] / "step-4" / f"model_rank_{rank}.pt")
    save(nodes[1] / "step-4" / "model_rank_0.pt")
    (nodes[1] / "step-4" / "model_rank_1.pt").write_bytes(b"PK\3\4")
    fetch(str(nodes[1]), "step-4", KEY, [serve(nodes[0], "step-4")], ["model_rank_1.pt"])
    assert sorted(intact_parts(str(nodes[1]), "step-4")) == ["model_rank_0.pt", "model_rank_1.pt"]
    (nodes[1] / "third" / "step-4").mkdir(parents=True)
    fetch(str(nodes[1] / "third"), "step-4", KEY, [serve(nodes[0], "step-4")], agreed(nodes[0], "step-4"))
    assert len(intact_parts(str(nodes[1] / "third"), "step-4")) == 2


def test_silent_connections_do_not_block_a_copy(nodes: tuple[Path, Path]) -> None:
    save(nodes[0] / "step-4.pt")
    address = serve(nodes[0], "step-4.pt")
    silent = [socket.create_connection(address) for _ in range(MAX_UNPROVEN + 5)]
    source = Source(*address, KEY)
    assert list(source.parts) == [""]
    source.close()
    for sock in silent:
        sock.close()


@pytest.mark.parametrize("data", [b"", b"a", b"0123456789abcdef\n" + b"x" * 300])
def test_connection_that_does_not_authenticate_in_time_is_closed(
    nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    """Cover a client that sends single bytes slowly, and one with a long first line."""
    monkeypatch.setattr(transfer, "COPY_AUTHENTICATION_TIMEOUT", 0.4 if len(data) < 100 else 60.0)
    save(nodes[0] / "step-4.pt")
    started = time.monotonic()
    with socket.create_connection(serve(nodes[0], "step-4.pt"), timeout=20) as sock:
        sock.sendall(data)
        with pytest.raises(OSError, match=r"reset|Broken"):
            while time.monotonic() - started < 20:
                time.sleep(0.1)
                sock.sendall(b"a")
    assert time.monotonic() - started < 20


def test_server_survives_connections_that_cannot_be_accepted(
    nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "COPY_ACCEPT_RETRY_INTERVAL", 0.01)
    save(nodes[0] / "step-4.pt")
    server = Server(str(nodes[0]), "step-4.pt", KEY)
    listener = server.listen("127.0.0.1")

    class Listener:
        """A listener that fails at first, as without a free descriptor."""

        failures = 3

        def fileno(self) -> int:
            return listener.fileno()

        def accept(self) -> Any:
            self.failures -= 1
            if self.failures >= 0:
                raise OSError(24, "Too many open files")
            return listener.accept()

    threading.Thread(target=server.accept_all, args=(Listener(),), daemon=True).start()
    host, port = listener.getsockname()
    source = Source(host, port, KEY)
    assert list(source.parts) == [""]
    source.close()


def test_number_of_concurrent_copies_is_limited(nodes: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MAX_CLIENTS", 2)
    save(nodes[0] / "step-4.pt")
    address = serve(nodes[0], "step-4.pt")
    sources = [Source(*address, KEY) for _ in range(2)]
    with pytest.raises((TransferError, OSError)):
        Source(*address, KEY)
    for source in sources:
        source.close()


@pytest.mark.parametrize(
    "parts",
    [{"../x": [1, 1]}, {"/x": [1, 1]}, {"a/../../x": [1, 1]}, {"x": 1}, {"x": [-1, 1]}, {"x": ["1", 1]}, [], None],
)
def test_list_with_impossible_parts_is_refused(parts: Any) -> None:
    with pytest.raises(TransferError):
        validate_parts({"parts": parts})


def test_link_below_the_directory_is_not_followed(nodes: tuple[Path, Path], tmp_path: Path) -> None:
    save(nodes[0] / "run" / "step-4.pt")
    (tmp_path / "elsewhere").mkdir()
    (nodes[1] / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not a directory"):
        fetch(
            str(nodes[1]), "run/step-4.pt", KEY, [serve(nodes[0], "run/step-4.pt")], agreed(nodes[0], "run/step-4.pt")
        )
    assert os.listdir(tmp_path / "elsewhere") == []


def test_content_changed_in_transit_is_refused(nodes: tuple[Path, Path]) -> None:
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
        fetch(str(nodes[1]), "step-4.pt", KEY, [relay.getsockname()], [""])
    assert os.listdir(nodes[1]) == []


def test_paths_of_parts() -> None:
    assert all(map(is_part, ("", "../latest", "a", "a/b", ".metadata")))
    assert not any(map(is_part, (".", "..", "a/", "./a", "a//b", "../a", "a/../b", "a\0b", "a" * 5000)))
    assert is_relative(".") and not is_relative("")

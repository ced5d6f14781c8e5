"""What a node has packed is unpacked on the controller, and nothing else."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

import pytest
from ansible.errors import AnsibleActionFail

from ansible_collections.muster.training.plugins.action.run_logs import unpack


def packed(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """An archive of (name, type, text or target)."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, kind, text in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid = kind, 0o6777, 4711
            if kind == tarfile.REGTYPE:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
            else:
                member.linkname = text
                tar.addfile(member)
    archive.seek(0)
    return archive


def test_files_and_directories_come_for_their_owner_alone(tmp_path: Path) -> None:
    unpack(
        packed(
            ("node0/ranks", tarfile.DIRTYPE, ""),
            ("node0/ranks/0.log", tarfile.REGTYPE, "new"),
            ("node1/supervisor.log", tarfile.REGTYPE, "x" * 200_000),
        ),
        tmp_path,
    )
    log = tmp_path / "node0" / "ranks" / "0.log"
    assert log.read_text() == "new"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert (tmp_path / "node1" / "supervisor.log").stat().st_size == 200_000
    unpack(packed(("node0/ranks/0.log", tarfile.REGTYPE, "and")), tmp_path)
    assert log.read_text() == "and", "a second fetch takes the place of the first"


@pytest.mark.parametrize("name", ["/etc/passwd", "../out.log", "node0/../../out.log"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "logs"
    target.mkdir()
    with pytest.raises(AnsibleActionFail, match="would lie outside of"):
        unpack(packed((name, tarfile.REGTYPE, "x")), target)
    assert list(tmp_path.rglob("*")) == [target]


def test_no_link_and_no_device_comes(tmp_path: Path) -> None:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    unpack(packed(*((f"node0/{kind.decode()}", kind, "/etc/passwd") for kind in kinds)), tmp_path)
    assert list(tmp_path.rglob("*")) == []


def test_a_link_that_lies_there_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "0.log").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="0.log"):
        unpack(packed(("0.log", tarfile.REGTYPE, "theirs")), tmp_path)
    assert (tmp_path / "mine").read_text() == "mine"

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image cleanup removes all secrets, and keeps the files that a machine needs."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.module_utils._machine_image import cleanup
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import SECRETS
from tests.unit.hostile import nested_directories

ME = pwd.getpwuid(os.geteuid())
SECRET = "a-secret-that-nobody-may-read"
HOLD_A_SECRET = [
    "etc/ssh/ssh_host_ed25519_key",
    "etc/ssh/ssh_host_rsa_key-cert.pub",
    "etc/muster/mounts/mnt-data-01234567.credentials",
    "var/lib/cloud/instances/i-1/user-data.txt",
    "home/.ssh/id_ed25519",
    "home/.ssh/my_key",
    "home/.ssh/a_key",
    "home/.ssh/known_hosts",
    "home/.netrc",
    "home/.aws/credentials",
    "home/.cache/huggingface/token",
    "home/.config/wandb/settings",
    "home/.config/my-tool/token",
    "home/.docker/config.json",
    "home/.muster/runs/first/node0/environment.json",
    "home/.bash_history",
]
STAY = {
    "home/.ssh/authorized_keys": "ssh-ed25519 AAAA me\n",
    "home/data/train.bin": "data",
    "home/.cache/huggingface/hub/model": "weights",
    "etc/ssh/sshd_config": "PubkeyAuthentication yes\n",
    "etc/systemd/system/other.mount": "What=//a/b\n",
    "usr/local/lib/muster/idle_watch.py": "watch",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    texts = {**STAY, **dict.fromkeys(HOLD_A_SECRET, SECRET), "etc/machine-id": "0123456789abcdef\n"}
    texts["home/.ssh/authorized_keys"] += f"cert-authority ssh-ed25519 {SECRET} muster-ssh-mesh\n"
    texts["etc/systemd/system/mnt-data.mount"] = f"Options=credentials={SECRETS}/mnt-data-01234567.credentials\n"
    texts["etc/ssh/sshd_config.d/10-muster-ssh-mesh.conf"] = "RevokedKeys /etc/ssh/muster_ssh_mesh_revoked\n"
    texts["etc/ssh/muster_ssh_mesh_revoked"] = ""
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def clean(root: Path, check: bool = False) -> list[str]:
    user = pwd.struct_passwd([*ME[:5], str(root / "home"), ME[6]])
    return cleanup.clean(str(root), [user], [".config/my-tool"], check)


def files(root: Path) -> dict[str, str]:
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_directories_of_any_depth_are_removed(root: Path) -> None:
    with nested_directories(root / "home/.muster/runs/nested", 1800):
        clean(root)
        assert not (root / "home/.muster").exists()
        assert SECRET not in files(root).values(), "of the paths after .muster, too"


def test_secrets_are_removed_and_other_files_kept(root: Path) -> None:
    before = files(root)
    planned = clean(root, check=True)
    assert files(root) == before
    assert clean(root) == planned
    assert f"{root}/home/.ssh/authorized_keys (only the mesh's keys)" in planned
    remaining = files(root)
    assert not [name for name, text in remaining.items() if SECRET in text]
    assert {name: remaining[name] for name in STAY} == STAY
    assert remaining["etc/machine-id"] == "", "a machine id of its own is made at boot where the file is empty"
    assert "etc/systemd/system/mnt-data.mount" not in remaining
    assert not [name for name in remaining if "mesh" in name], (
        "sshd lets nobody in whose list of revoked keys is missing"
    )
    assert clean(root) == []


def test_host_keys_are_created_at_the_next_boot(root: Path) -> None:
    clean(root)
    link = root / "etc/systemd/system/multi-user.target.wants/muster_new_identity.service"
    assert os.readlink(link) == "/etc/systemd/system/muster_new_identity.service"
    unit = files(root)["etc/systemd/system/muster_new_identity.service"]
    assert "ExecStart=/usr/bin/ssh-keygen -A\n" in unit
    assert "Before=ssh.service" in unit


def test_link_in_a_home_is_removed_but_not_its_target(root: Path) -> None:
    (root / "elsewhere").mkdir()
    (root / "elsewhere" / "kept").write_text("kept")
    (root / "home" / ".kube").symlink_to(root / "elsewhere")
    clean(root)
    assert not (root / "home" / ".kube").is_symlink()
    assert (root / "elsewhere" / "kept").read_text() == "kept"

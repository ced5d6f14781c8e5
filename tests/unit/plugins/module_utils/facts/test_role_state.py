# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call reads the state for several roles. The state of each role is tested with its own module."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._apt import state
from ansible_collections.muster.training.plugins.module_utils._facts import (
    driver as node_driver,
)
from ansible_collections.muster.training.plugins.module_utils._facts import (
    firewall,
    role_state,
)
from ansible_collections.muster.training.plugins.module_utils._facts import (
    gpus as node_gpus,
)
from ansible_collections.muster.training.plugins.module_utils._hosts_file import resolution
from ansible_collections.muster.training.plugins.module_utils._ssh import mesh_state

REQUEST: dict[str, Any] = {"base_packages": {"wait": 1}, "hosts_file": True}


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def not_debian(_request: object) -> dict[str, Any]:
    raise state.AptStateError("the system is Rocky Linux 9.4")


def unreadable() -> dict[str, Any]:
    raise PermissionError(13, "Permission denied", "/etc/hosts")


def test_each_state_is_stored_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "state", lambda request: {"missing": [str(request["wait"])]})
    monkeypatch.setattr(resolution, "read_state", lambda: {"hostname": "node1"})
    assert role_state.main(REQUEST) == {"base_packages": {"missing": ["1"]}, "hosts_file": {"hostname": "node1"}}
    assert role_state.main({}) == {}


def test_unreadable_state_is_an_error_if_requested_alone_and_omitted_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "state", not_debian)
    monkeypatch.setattr(resolution, "read_state", lambda: {"hostname": "node1"})
    assert role_state.main(REQUEST) == {"hosts_file": {"hostname": "node1"}}
    assert role_state.main({"base_packages": {}}) == {"error": "the system is Rocky Linux 9.4."}
    monkeypatch.setattr(resolution, "read_state", unreadable)
    assert role_state.main(REQUEST) == {}
    output = role_state.main({"hosts_file": True})
    assert output == {
        "error": "cannot read /etc/hosts: Permission denied. Check the disk, for example with `sudo dmesg`"
    }


def test_broken_reader_omits_only_its_own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "state", lambda request: request["no such key"])
    monkeypatch.setattr(resolution, "read_state", lambda: {"hostname": "node1"})
    assert role_state.main(REQUEST) == {"hosts_file": {"hostname": "node1"}}
    with pytest.raises(KeyError):
        role_state.main({"base_packages": {}})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files are run")
@pytest.mark.parametrize(
    ("text", "mode", "rules"),
    [
        ('print(\'{"saved": ""}\')', 0o755, {"saved": ""}),
        ("", 0o755, {}),
        ("raise SystemExit('no nft')", 0o755, {}),
        ('print(\'{"saved": ""}\')', 0o775, {}),
    ],
)
def test_firewall_program_is_trusted_only_if_complete_and_owned_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, mode: int, rules: dict[str, str]
) -> None:
    monkeypatch.setattr(firewall, "STATE_DIRECTORY", str(tmp_path))
    program = tmp_path / "firewall.py"
    program.write_text(text)
    program.chmod(mode)
    assert firewall.read_rules(str(program)) == rules
    tmp_path.chmod(0o777)
    assert firewall.read_rules(str(program)) == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's files are run")
@pytest.mark.parametrize("unsafe", ["program", "program/_firewall", "program/_firewall/firewall.py"])
def test_firewall_program_with_a_module_that_others_can_change_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unsafe: str
) -> None:
    monkeypatch.setattr(firewall, "STATE_DIRECTORY", str(tmp_path))
    module = tmp_path / "program" / "_firewall" / "firewall.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    program = tmp_path / "firewall.py"
    program.write_text("print('{}')")
    for path in (program, module, module.parent, module.parent.parent):
        path.chmod(0o755)
    started = tmp_path / "started"
    program.write_text(f"open({str(started)!r}, 'w')")
    firewall.read_rules(str(program), [str(program), str(module), "/etc/systemd/system/x.service"])
    assert started.exists()
    started.unlink()
    (tmp_path / unsafe).chmod(0o777)
    assert firewall.read_rules(str(program), [str(program), str(module)]) == {}
    assert not started.exists()


def test_login_of_an_unknown_user_is_an_error() -> None:
    output = role_state.main({"ssh_logins": {"user": "nobody-knows", "names": ["node2"]}})["error"]
    assert output.startswith("there is no user nobody-knows. Create the user ")


def test_without_root_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert role_state.main(REQUEST) == {"error": "this needs root. Set become: true"}


@pytest.mark.parametrize(("pci", "loaded", "queried"), [(0, None, False), (1, None, True), (0, "535.1", True)])
def test_packages_of_the_driver_are_read_only_with_a_gpu(
    monkeypatch: pytest.MonkeyPatch, pci: int, loaded: str | None, queried: bool
) -> None:
    gpus = {"pci": pci, "driver": {"loaded": loaded}}
    monkeypatch.setattr(node_gpus.GpuQuery, "__init__", lambda _self: None)
    monkeypatch.setattr(node_gpus.GpuQuery, "result", lambda _self: gpus)
    monkeypatch.setattr(node_driver.DriverQuery, "__init__", lambda _self: None)
    monkeypatch.setattr(node_driver.DriverQuery, "result", lambda _self: {"packages": ["one"]})
    driver = role_state.main({"nvidia_driver": True})["nvidia_driver"]
    assert (driver["gpus"], driver["driver"]["packages"]) == (gpus, ["one"] if queried else [])


def test_key_directories_are_inaccessible_to_others(tmp_path: Path) -> None:
    home, key = tmp_path / "home", tmp_path / "home" / ".ssh" / "id_ed25519"
    key.parent.mkdir(parents=True)
    home.chmod(0o750)
    key.parent.chmod(0o700)
    uid = home.stat().st_uid
    assert mesh_state.is_closed(str(home), str(key), uid)
    assert not mesh_state.is_closed(str(home), str(key), uid + 1)
    home.chmod(0o770)
    assert not mesh_state.is_closed(str(home), str(key), uid)
    home.chmod(0o755)
    key.parent.chmod(0o755)
    assert not mesh_state.is_closed(str(home), str(key), uid)
    assert not mesh_state.is_closed(str(home), str(home / ".keys" / "id"), uid)

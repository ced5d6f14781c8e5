"""The SSH authority, verified by the real ssh-keygen's reading of certificates and revocation lists."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.module_utils._ssh.authority import (
    AuthorityError,
    create_authority,
    parse_duration,
)
from ansible_collections.muster.training.plugins.modules import ssh_authority


@pytest.fixture(autouse=True)
def _umask() -> Any:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """Return public keys by name."""
    result = {}
    for name in ("user0", "host0", "user1", "host1", "other"):
        path = tmp_path / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
        result[name] = path.with_suffix(".pub").read_text()
    return result


@pytest.fixture
def params(tmp_path: Path, keys: dict[str, str]) -> dict[str, Any]:
    nodes = [
        {
            "name": f"node{i}",
            "user": "me",
            "user_key": keys[f"user{i}"],
            "host_key": keys[f"host{i}"],
            "names": [f"node{i}", f"10.0.0.{i}"],
        }
        for i in range(2)
    ]
    directory = str(tmp_path / "clusters" / "ca")
    return {
        "directory": directory,
        "members": ["node0", "node1"],
        "nodes": nodes,
        "source_addresses": [],
        "valid_for": "52w",
        "renew_before": "12w",
    }


def keep(params: dict[str, Any], *, check_mode: bool = False, **changed: Any) -> dict[str, Any]:
    return ssh_authority.update_authority({**params, **changed}, check_mode)


def read(certificate: str, tmp_path: Path) -> str:
    """Return ssh-keygen's description of a certificate."""
    path = tmp_path / "read-cert.pub"
    path.write_text(certificate)
    completed = subprocess.run(["ssh-keygen", "-L", "-f", path], capture_output=True, text=True, check=True)
    return completed.stdout


def is_revoked(result: dict[str, Any], certificate: str, tmp_path: Path) -> bool:
    path, revoked = tmp_path / "asked-cert.pub", tmp_path / "asked.krl"
    path.write_text(certificate)
    revoked.write_bytes(base64.b64decode(result["revoked_list"]))
    completed = subprocess.run(["ssh-keygen", "-Q", "-f", revoked, path], capture_output=True, check=False)
    assert completed.returncode in (0, 1)
    return completed.returncode == 1


def test_certificates_contain_what_was_requested(params: dict[str, Any], tmp_path: Path) -> None:
    result = keep(params)
    assert result["changed"]
    user = read(result["certificates"]["node1"]["user"], tmp_path)
    host = read(result["certificates"]["node1"]["host"], tmp_path)
    assert "user certificate" in user and "Principals: \n                me\n" in user
    assert "host certificate" in host and "Principals: \n                10.0.0.1\n                node1\n" in host
    assert 'Key ID: "node1/user-' in user
    authority = subprocess.run(
        ["ssh-keygen", "-l", "-f", Path(params["directory"], "ca.pub")], capture_output=True, text=True, check=True
    )
    assert authority.stdout.split()[1] in user
    assert result["public_key"] in Path(params["directory"], "ca.pub").read_text()


def test_user_certificate_is_limited_to_one_user_the_nodes_addresses_and_no_forwarding(
    params: dict[str, Any], tmp_path: Path
) -> None:
    unlimited = keep(params)["certificates"]["node0"]
    assert "permit-pty\n" in read(unlimited["user"], tmp_path) and "forwarding" not in read(unlimited["user"], tmp_path)
    limited = keep(params, source_addresses=["10.0.0.1", "10.0.0.0"])
    assert limited["changed"]
    assert "source-address 10.0.0.0,10.0.0.1" in read(limited["certificates"]["node0"]["user"], tmp_path)
    assert limited["certificates"]["node0"]["host"] == unlimited["host"]
    assert not keep(params, source_addresses=["10.0.0.1", "10.0.0.0"])["changed"]


@pytest.mark.parametrize("user", ["me,root", "me root", "", "-oProxyCommand=x", "me\n"])
def test_user_name_that_would_add_principals_is_refused(params: dict[str, Any], user: str) -> None:
    params["nodes"][0]["user"] = user
    with pytest.raises(AuthorityError, match="node0: .* is not a user name. Set ssh_mesh_user"):
        keep(params)


def test_second_run_changes_nothing(params: dict[str, Any]) -> None:
    first, second = keep(params), keep(params)
    assert not second["changed"]
    assert second["certificates"] == first["certificates"]
    assert second["diff"]["before"] == second["diff"]["after"] == first["diff"]["after"]


def test_authority_is_readable_only_by_its_owner(params: dict[str, Any]) -> None:
    keep(params)
    directory = Path(params["directory"])
    for path in [directory, *directory.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    assert (directory / ".gitignore").read_text() == "*\n"


def test_check_mode_reports_changes_and_writes_nothing(params: dict[str, Any], tmp_path: Path) -> None:
    result = keep(params, check_mode=True)
    assert result["changed"]
    assert result["public_key"] == ""
    assert result["certificates"]["node0"] == {"user": "", "host": ""}
    assert "node0/user-" in result["diff"]["after"]
    assert not (tmp_path / "clusters").exists()
    keep(params)
    assert not keep(params, check_mode=True)["changed"]


def test_missing_key_is_omitted_in_check_mode(params: dict[str, Any]) -> None:
    params["nodes"][0]["user_key"] = ""
    result = keep(params, check_mode=True)
    assert "node0/user-" not in result["diff"]["after"]
    assert "node0/host-" in result["diff"]["after"]


def test_certificate_is_renewed_before_it_expires(params: dict[str, Any], tmp_path: Path) -> None:
    short = keep(params, valid_for="4h", renew_before="2h")
    assert not keep(params, valid_for="52w", renew_before="3h")["changed"], "4 hours are left, 3 are enough"
    renewed = keep(params, valid_for="52w", renew_before="5h")
    assert renewed["changed"]
    before, after = (read(result["certificates"]["node0"]["user"], tmp_path) for result in (short, renewed))
    assert before != after
    for line in ("Key ID", "Public key"):  # a single entry must revoke both
        assert [item for item in before.splitlines() if line in item] == [
            item for item in after.splitlines() if line in item
        ]
    assert renewed["revoked"] == []


def test_certificate_for_outdated_names_is_replaced_and_revoked(params: dict[str, Any], tmp_path: Path) -> None:
    params["nodes"][0]["names"].append("github.com")
    wrong = keep(params)["certificates"]["node0"]["host"]
    params["nodes"][0]["names"] = ["node0", "10.0.0.99"]  # remove the wrong name, and change the address
    for _run in range(2):
        result = keep(params)
        right = result["certificates"]["node0"]["host"]
        assert "github.com" in read(wrong, tmp_path) and "github.com" not in read(right, tmp_path)
        assert is_revoked(result, wrong, tmp_path)
        assert not is_revoked(result, right, tmp_path)
        assert len(result["revoked"]) == 1
    changed = keep(params, nodes=[{**params["nodes"][0], "user": "trainer"}])
    assert is_revoked(changed, result["certificates"]["node0"]["user"], tmp_path)
    assert not is_revoked(changed, changed["certificates"]["node0"]["user"], tmp_path)


def test_concurrent_runs_create_one_authority(params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second run starts while the first one is creating the key."""
    results: list[dict[str, Any]] = []
    second = threading.Thread(target=lambda: results.append(keep(params)))
    make = create_authority

    def make_while_the_second_comes(directory: Path) -> str:
        monkeypatch.setattr(ssh_authority, "create_authority", make)
        second.start()
        second.join(
            1
        )  # it waits for this run; without a lock it would create its own key, which this run would replace
        assert second.is_alive()
        return make(directory)

    monkeypatch.setattr(ssh_authority, "create_authority", make_while_the_second_comes)
    first = keep(params)
    second.join(60)
    assert [result["public_key"] for result in results] == [first["public_key"]]
    assert results[0]["certificates"] == first["certificates"]
    assert not results[0]["changed"]


def test_key_with_a_passphrase_is_used_through_ssh_agent(
    params: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(params)
    key = str(Path(params["directory"], "ca"))
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", "a phrase", "-f", key], check=True)
    assert not keep(params)["changed"], "nothing to sign, nothing to ask"
    params["nodes"][0]["names"].append("gpu")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    with pytest.raises(AuthorityError, match=f"ssh-agent does not have it.*Add it to ssh-agent: ssh-add {key}"):
        keep(params)
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.PIPE, text=True)
    try:
        assert agent.stdout is not None and str(socket) in agent.stdout.readline(), "it says so once it listens"
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        with pytest.raises(AuthorityError, match="ssh-agent does not have it"):
            keep(params)
        askpass = tmp_path / "ask"
        askpass.write_text("#!/bin/sh\necho a phrase\n")
        askpass.chmod(0o700)
        environment = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":0"}
        subprocess.run(["ssh-add", "-q", key], env=environment, check=True, stdin=subprocess.DEVNULL)
        signed = keep(params)
    finally:
        agent.terminate()
        agent.wait()
    assert "gpu" in read(signed["certificates"]["node0"]["host"], tmp_path)


def test_removed_node_is_revoked_until_it_returns(params: dict[str, Any], tmp_path: Path) -> None:
    certificates = keep(params)["certificates"]
    result = keep(params, members=["node0"], nodes=params["nodes"][:1])
    assert result["changed"]
    for node, revoked in (("node0", False), ("node1", True)):
        for kind in ("user", "host"):
            assert is_revoked(result, certificates[node][kind], tmp_path) is revoked
    assert "node1/user-" in result["diff"]["after"]
    assert not keep(params, members=["node0"], nodes=params["nodes"][:1])["changed"]
    back = keep(params)
    assert back["changed"] and back["revoked"] == []
    assert not is_revoked(back, certificates["node1"]["user"], tmp_path)


def test_member_absent_from_this_run_is_not_revoked(params: dict[str, Any]) -> None:
    keep(params)
    assert not keep(params, nodes=params["nodes"][:1])["changed"]


def test_replaced_key_stays_revoked(params: dict[str, Any], keys: dict[str, str], tmp_path: Path) -> None:
    old = keep(params)["certificates"]["node0"]["host"]
    params["nodes"][0]["host_key"] = keys["other"]
    for _run in range(2):
        result = keep(params)
        assert is_revoked(result, old, tmp_path)
        assert not is_revoked(result, result["certificates"]["node0"]["host"], tmp_path)


def test_nodes_that_share_keys_are_revoked_individually(params: dict[str, Any], tmp_path: Path) -> None:
    for kind in ("user_key", "host_key"):
        params["nodes"][1][kind] = params["nodes"][0][kind]
    certificates = keep(params)["certificates"]
    result = keep(params, members=["node0"], nodes=params["nodes"][:1])
    assert is_revoked(result, certificates["node1"]["user"], tmp_path)
    assert not is_revoked(result, certificates["node0"]["user"], tmp_path)


def test_new_authority_signs_all_certificates_again(params: dict[str, Any], tmp_path: Path) -> None:
    first = keep(params)
    Path(params["directory"], "ca").unlink()
    second = keep(params)
    assert second["public_key"] != first["public_key"]
    assert second["certificates"] != first["certificates"]
    assert not keep(params)["changed"]


@pytest.mark.parametrize(("text", "seconds"), [("52w", 31449600), ("1d12h", 129600), ("90m", 5400)])
def test_duration_is_read_in_seconds(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "52", "w", "1y", "1 w", "-1d", "1w\n"])
def test_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(AuthorityError, match="is not a duration"):
        parse_duration(text)


def test_renewal_period_longer_than_validity_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(AuthorityError, match="valid_for is 4h. Set it higher than renew_before, 12w"):
        keep(params, valid_for="4h")


def test_module_returns_its_result_and_reports_missing_ssh_keygen(
    params: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with patch_module_args(params), pytest.raises(SystemExit):
        ssh_authority.main()
    assert json.loads(capsys.readouterr().out)["changed"]
    monkeypatch.setenv("PATH", "/nowhere")
    params["nodes"][0]["names"].append("other")
    with patch_module_args(params), pytest.raises(SystemExit):
        ssh_authority.main()
    reply = json.loads(capsys.readouterr().out)
    assert reply["failed"] and "ssh-keygen is missing" in reply["msg"]

"""Mount units, credential files and explanations of failures; systemd's own tools check names and units."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.module_utils._facts.commands import CommandOutput
from ansible_collections.muster.training.plugins.module_utils._mounts import ensure, probe, systemd
from ansible_collections.muster.training.plugins.module_utils._mounts.cifs import share_of
from ansible_collections.muster.training.plugins.module_utils._mounts.driver import (
    DesiredMount,
    MountDriver,
    MountError,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.registry import KINDS
from ansible_collections.muster.training.plugins.module_utils._mounts.unit import (
    credentials_path,
    environment_text,
    format_options,
    mount_unit,
    unit_name,
)
from ansible_collections.muster.training.plugins.module_utils._mounts.units_on_node import (
    MARK,
    PROBE,
    UNITS,
    summarize_names,
)

KEYS = {"access_key": "AKIAEXAMPLE", "secret_key": 'a b"c$d`e\\f#g,ü='}
PATHS = [
    "/mnt/data",
    "/mnt/training-data",
    "/srv/a b",
    "/srv/ü/%h",
    "/.hidden/.twice",
    "/a_b:c.d",
    "/mnt/$x'y\"z",
    "/back\\slash",
]
LOGIN = {"username": "trainer", "password": "a, b'c\"d#e=ü%h ", "domain": "LAB"}
SHARE = "\\\\10.64.92.2\\training data"
EXAMPLES = {
    "cifs": DesiredMount("/mnt/data", SHARE, {"seal": True, "port": 4450}, LOGIN, uid=1000, gid=1001),
    "s3fs": DesiredMount(
        "/mnt/data", "bucket:/a/b", {"url": "https://s3.us-east-1.amazonaws.com"}, KEYS, uid=1000, gid=1001
    ),
    "mount-s3": DesiredMount("/mnt/data", "bucket:/a/b", {"region": "us-east-1"}, KEYS, True, uid=1000, gid=1001),
}


by_systemd = pytest.mark.skipif(
    not (shutil.which("systemd-escape") and shutil.which("systemd-analyze")), reason="judged by systemd: there is none"
)


def tool(*argv: str) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.rstrip("\n")


@by_systemd
@pytest.mark.parametrize("path", PATHS)
def test_units_are_named_as_systemd_names_them(path: str) -> None:
    assert unit_name(path) == tool("systemd-escape", "--path", "--suffix=mount", path)


@by_systemd
@given(st.lists(st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1), min_size=1))
def test_unit_name_of_any_path_matches_systemd(parts: list[str]) -> None:
    path = "/" + "/".join(part for part in parts if part not in (".", ".."))
    if path == "/" or len(path.encode()) > 60:
        return
    assert unit_name(path) == tool("systemd-escape", "--path", "--suffix=mount", path)


@by_systemd
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_systemd_accepts_the_generated_units(name: str, path: str, tmp_path: Path) -> None:
    example = EXAMPLES[name]
    files = ensure.desired_files(KINDS[name], DesiredMount(path, example.source, example.options, example.credentials))
    unit = tmp_path / files.unit
    unit.write_text(files.unit_text)
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    completed = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    messages = [line for line in completed.stderr.splitlines() if files.unit in line or str(tmp_path) in line]
    assert messages == []


@by_systemd
def test_systemd_rejects_a_unit_with_the_wrong_name(tmp_path: Path) -> None:
    """The check in the test above can fail."""
    unit = tmp_path / "mnt-other.mount"
    unit.write_text(mount_unit("/mnt/data", "x", "fuse", ["nofail"], 30))
    completed = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert "Where= setting doesn't match unit name" in completed.stderr


@pytest.mark.parametrize("name", EXAMPLES)
def test_boot_does_not_wait_for_a_mount_unit(name: str) -> None:
    lines = ensure.desired_files(KINDS[name], EXAMPLES[name]).unit_text.splitlines()
    options = next(line for line in lines if line.startswith("Options=")).partition("=")[2].split(",")
    assert {"nofail", "_netdev"} <= set(options)
    assert "WantedBy=remote-fs.target" in lines
    assert {"After=network-online.target", "Wants=network-online.target", "TimeoutSec=30"} <= set(lines)
    assert not [line for line in lines if re.match("RequiredBy=|Before=|WantedBy=(local-fs|multi-user)", line)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_units_contain_no_secrets(name: str) -> None:
    files = ensure.desired_files(KINDS[name], EXAMPLES[name])
    assert not any(secret in files.unit_text for secret in (*KEYS.values(), LOGIN["username"], LOGIN["password"]))
    assert files.credentials_file in files.unit_text
    without = ensure.desired_files(KINDS[name], DesiredMount("/mnt/data", EXAMPLES[name].source))
    assert without.credentials_text == "" and without.credentials_file not in without.unit_text


def test_credential_file_names_need_no_escaping() -> None:
    names = [credentials_path(path) for path in PATHS]
    assert len(set(names)) == len(PATHS)
    assert all(re.fullmatch(r"/etc/muster/mounts/[A-Za-z0-9-]+\.credentials", name) for name in names)


def test_environment_file_values_are_quoted() -> None:
    assert environment_text({"A": 'a b"c$d`e\\f#g'}) == 'A="a b\\"c\\$d\\`e\\\\f#g"\n'


def test_options_become_arguments_and_unset_options_are_omitted() -> None:
    assert format_options({"a": True, "b": False, "c": None, "d": 1, "e": "x"}) == ["a", "d=1", "e=x"]


def test_s3fs_source_and_options() -> None:
    kind = KINDS["s3fs"]
    parts = kind.parts(EXAMPLES["s3fs"], "/c")
    assert (parts.what, parts.fs_type, parts.environment_file) == ("bucket:/a/b", "fuse.s3fs", "/c")
    assert {"rw", "uid=1000", "gid=1001", "url=https://s3.us-east-1.amazonaws.com"} <= set(parts.options)
    assert "iam_role=auto" not in parts.options
    assert "iam_role=auto" in kind.parts(DesiredMount("/m", "b"), "").options
    assert "iam_role=auto" not in kind.parts(DesiredMount("/m", "b", {"public_bucket": 1}), "").options
    assert "use_session_token" in kind.parts(DesiredMount("/m", "b", {}, {**KEYS, "session_token": "t"}), "/c").options
    assert "retries=9" in kind.parts(DesiredMount("/m", "b", {"retries": 9}), "").options
    assert "ro" in kind.parts(DesiredMount("/m", "b", read_only=True), "").options
    assert kind.directories(DesiredMount("/m", "b", {"use_cache": "/var/cache/b"})) == ["/var/cache/b"]
    assert kind.may_probe(DesiredMount("/m", "b")) and not kind.may_probe(DesiredMount("/m", "b", read_only=True))


def test_cifs_source_and_options() -> None:
    kind = KINDS["cifs"]
    parts = kind.parts(EXAMPLES["cifs"], "/c")
    assert (parts.what, parts.fs_type, parts.environment_file) == ("//10.64.92.2/training data", "cifs", "")
    assert {"rw", "nosuid", "nodev", "uid=1000", "gid=1001", "seal", "port=4450", "credentials=/c"} <= set(
        parts.options
    )
    assert {"file_mode=0755", "dir_mode=0755", "echo_interval=5"} <= set(parts.options)
    assert not [word for word in parts.options if word.startswith(("vers", "user", "pass", "guest"))]
    guest = kind.parts(
        DesiredMount("/m", "//a/b", {"uid": 7, "file_mode": "0640", "seal": False}, read_only=True), ""
    ).options
    assert {"ro", "guest", "uid=7", "file_mode=0640"} <= set(guest) and "seal" not in guest and "rw" not in guest


def test_password_is_written_verbatim_on_its_line() -> None:
    text = KINDS["cifs"].credential_text(LOGIN)
    assert text == f"username=trainer\npassword={LOGIN['password']}\ndomain=LAB\n"


@pytest.mark.parametrize(
    ("notation", "share"),
    [
        ("//10.0.0.2/data", "//10.0.0.2/data"),
        ("\\\\10.64.92.2\\sdvkpg3v2v", "//10.64.92.2/sdvkpg3v2v"),
        # the source in double quotes, as YAML reads it
        ("\\10.64.92.2\\sdvkpg3v2v", "//10.64.92.2/sdvkpg3v2v"),
        (" //nas.lab/a b/sub/ ", "//nas.lab/a b/sub"),
    ],
)
def test_share_notations_are_normalized(notation: str, share: str) -> None:
    assert share_of(notation) == share
    ensure.validate(KINDS["cifs"], DesiredMount("/mnt/data", notation))


def test_mount_s3_source_and_options() -> None:
    kind = KINDS["mount-s3"]
    parts = kind.parts(EXAMPLES["mount-s3"], "/c")
    assert (parts.what, parts.fs_type) == ("s3://bucket/a/b/", "mount-s3")
    assert parts.options[:3] == ("_netdev", "nosuid", "nodev")  # required by mount-s3
    assert {"ro", "uid=1000", "region=us-east-1"} <= set(parts.options) and "read-only" not in parts.options
    assert "cache=/a\\,b" in kind.parts(DesiredMount("/m", "b", {"cache": "/a,b"}), "").options
    assert kind.parts(DesiredMount("/m", "b"), "").what == "s3://b/"
    assert not kind.may_probe(DesiredMount("/m", "b")), "what it writes it could not remove"
    assert kind.may_probe(DesiredMount("/m", "b", {"allow-delete": True}))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("s3fs", {"source": "s3://bucket"}, "without s3://"),
        ("s3fs", {"source": "bucket:prefix"}, "such as bucket:/prefix"),
        ("s3fs", {"options": {"url": "http://a,b"}}, "cannot contain commas"),
        ("s3fs", {"options": {"use_cache": "/a b"}}, "cannot contain"),
        ("s3fs", {"credentials": {"access_key": "a"}}, "the credentials lack secret_key"),
        ("s3fs", {"credentials": {**KEYS, "password": "x"}}, "the credentials contain password, but"),
        ("s3fs", {"credentials": {**KEYS, "secret_key": "ab\n"}}, "secret_key contains a control character"),
        ("s3fs", {"path": "mnt/data"}, "an absolute path"),
        ("s3fs", {"path": "/mnt/../data"}, "an absolute path"),
        ("s3fs", {"path": "/"}, "an absolute path"),
        ("s3fs", {"timeout": 0}, "must be between 5 and 300 seconds"),
        ("mount-s3", {"options": {"read-only": True}}, "does not recognize the option read-only"),
        ("mount-s3", {"options": {"url": "x"}}, "does not recognize the option url"),
        ("mount-s3", {"options": {"allow-other": True, "allow-root": True}}, "are mutually exclusive"),
        ("mount-s3", {"options": {"cache": "/a b"}}, "cannot contain"),
        ("cifs", {"source": "10.0.0.2/data"}, "//ADDRESS/SHARE"),
        ("cifs", {"source": "//10.0.0.2"}, "//ADDRESS/SHARE"),
        ("cifs", {"source": "//10.0.0.2/a,b"}, "without commas"),
        ("cifs", {"credentials": {"password": "x"}}, "the credentials lack a username"),
        ("cifs", {"credentials": {"username": "x"}}, "the credentials lack a password"),
        ("cifs", {"credentials": KEYS}, "the credentials contain access_key, secret_key, but"),
        ("cifs", {"credentials": {**LOGIN, "password": "x\n"}}, "password has a line break"),
        ("cifs", {"credentials": {**LOGIN, "password": "ü" * 257}}, "password is 514 bytes long"),
        ("cifs", {"credentials": {**LOGIN, "username": "LAB\\me"}}, "its domain in domain"),
        ("cifs", {"credentials": {**LOGIN, "username": "a,b"}}, "comma"),
        ("cifs", {"options": {"password": "x"}}, "the option password is set by the mount's credentials"),
        ("cifs", {"options": {"ro": True}}, "the option ro is set by the mount's read_only"),
        ("cifs", {"options": {"sec,x": True}}, "'sec,x' is not an option"),
        ("cifs", {"options": {"sec": "ntlmssp,guest"}}, "cannot contain commas"),
        # 0644 without quotes, as YAML reads it
        ("cifs", {"options": {"file_mode": 420}}, "in quotes, such as '0755'"),
        ("cifs", {"options": {"seal": True, "vers": 2.1}}, "seal needs SMB 3 or newer"),
    ],
)
def test_invalid_mount_is_refused_without_showing_secrets(name: str, change: dict[str, Any], message: str) -> None:
    example = EXAMPLES[name]
    settings: dict[str, Any] = {"path": "/mnt/data", "source": "bucket", "credentials": KEYS}
    if name == "cifs":
        settings |= {"source": example.source, "credentials": LOGIN}
    with pytest.raises(MountError, match=re.escape(message)) as refused:
        ensure.validate(KINDS[name], DesiredMount(**{**settings, **change}))
    assert KEYS["secret_key"] not in str(refused.value) and LOGIN["password"] not in str(refused.value)


@pytest.mark.parametrize("name", KINDS)
def test_mount_point_that_others_can_replace_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to("/mnt")
    example = EXAMPLES[name]
    for path in (tmp_path / "open" / "data", tmp_path / "link" / "data"):
        with pytest.raises(MountError, match=f"root must not use {path}: .*Choose a path that only root can change"):
            ensure.validate(KINDS[name], DesiredMount(str(path), example.source, example.options, example.credentials))


def test_valid_mounts_are_accepted() -> None:
    for name, expected in EXAMPLES.items():
        ensure.validate(KINDS[name], expected)


# Journal messages of s3fs 1.90
CREDENTIALS_REFUSED = """
curl.cpp:RequestPerform(2363): HTTP response code 403, returning EPERM. Body Text: <?xml version="1.0"?>
<Error><Code>{}</Code><Message>{}</Message><RequestId>0</RequestId></Error>
s3fs.cpp:s3fs_check_service(3575): Failed to connect by sigv4, so retry to connect by signature version 2.
curl.cpp:RequestPerform(2363): HTTP response code 403, returning EPERM. Body Text: <?xml version="1.0"?>
<Error><Code>AccessDenied</Code><Message>Access Denied</Message><RequestId>0</RequestId></Error>
s3fs.cpp:s3fs_check_service(3590): invalid credentials(host=http://10.89.0.1:39893) - result of checking service.
s3fs.cpp:s3fs_exit_fuseloop(3372): Exiting FUSE event loop due to errors
"""
CURL_FAILED = """
curl.cpp:RequestPerform({}): ### CURLE_{}
curl.cpp:RequestPerform(2533): ### giving up
curl.cpp:CheckBucket(3421): Check bucket failed, S3 response:
s3fs.cpp:s3fs_check_service(3597): unable to connect(host=http://nosuch.invalid) - result of checking service.
"""


# Journal messages of mount.cifs from cifs-utils 7.0 on Linux 6.1
CIFS_FAILED = """
Mounting mnt-data.mount - //10.0.2.2/training-data by cifs...
CIFS: Attempting to mount \\\\10.0.2.2\\training-data
CIFS: Status code returned 0xc000006d {0}
mount error({1}): x
Refer to the mount.cifs(8) manual page (e.g. man mount.cifs) and kernel log messages (dmesg)
mnt-data.mount: Mount process exited, code=exited, status=32/n/a
"""


@pytest.mark.parametrize(
    ("name", "log", "cause", "remedy"),
    [
        ("s3fs", CREDENTIALS_REFUSED.format("SignatureDoesNotMatch", "x"), "secret key does not belong", "AWS_SECRET"),
        (
            "s3fs",
            CREDENTIALS_REFUSED.format("InvalidAccessKeyId", "x"),
            "does not recognize the access key",
            "AWS_ACCESS",
        ),
        ("s3fs", CREDENTIALS_REFUSED.format("RequestTimeTooSkewed", "x"), "this node's clock", "set-ntp true"),
        (
            "s3fs",
            CREDENTIALS_REFUSED.format("AccessDenied", "x"),
            "denies access to the bucket with these credentials",
            "s3:ListBucket",
        ),
        ("s3fs", CREDENTIALS_REFUSED.format("ExpiredToken", "x"), "expired", "temporary"),
        (
            "s3fs",
            CREDENTIALS_REFUSED.format(
                "AuthorizationHeaderMalformed", "the region 'a' is wrong; expecting 'us-east-1'"
            ),
            "is in region us-east-1",
            "set the region of the mount to us-east-1",
        ),
        (
            "s3fs",
            "s3fs_check_service(3593): bucket or key not found(host=http://h)",
            "this bucket or prefix does not exist",
            "s3://",
        ),
        ("s3fs", CURL_FAILED.format(2411, "COULDNT_RESOLVE_HOST"), "cannot be resolved", "resolvectl"),
        ("s3fs", CURL_FAILED.format(2416, "COULDNT_CONNECT"), "is not responding", "curl -v"),
        ("s3fs", "curl.cpp:RequestPerform(2426): ### CURLE_ABORTED_BY_CALLBACK", "did not respond in time", "curl -v"),
        ("s3fs", "fuse: unknown option `nonsense=1'", "does not recognize the option nonsense", "remove nonsense"),
        ("s3fs", "fuse: device not found, try 'modprobe fuse' first", "FUSE is not available", "--device /dev/fuse"),
        (
            "s3fs",
            "There is no enough disk space for used as cache(or temporary) directory by s3fs.",
            "full",
            "free up space",
        ),
        ("mount-s3", "error: unexpected argument '--nonsense' found", "--nonsense", "mount-s3 --help"),
        (
            "cifs",
            CIFS_FAILED.format("", 19) + "filesystem not supported by the system",
            "cannot mount CIFS",
            "modprobe",
        ),
        (
            "cifs",
            CIFS_FAILED.format("STATUS_LOGON_FAILURE", 13),
            "does not accept this username",
            "username and password",
        ),
        ("cifs", CIFS_FAILED.format("STATUS_PASSWORD_EXPIRED", 13), "rejects this user (PASSWORD_EXPIRED)", "server"),
        ("cifs", CIFS_FAILED.format("STATUS_ACCESS_DENIED", 13), "but not access this share", "grant"),
        ("cifs", CIFS_FAILED.format("", 13), "rejects this user", "username and password"),
        (
            "cifs",
            CIFS_FAILED.format("VFS: BAD_NETWORK_NAME: \\\\10.0.2.2\\nosuch", 2),
            "no share with this name",
            "source",
        ),
        ("cifs", CIFS_FAILED.format("", 2), "or the share has no such directory", "source"),
        (
            "cifs",
            CIFS_FAILED.format("server share \\\\10.0.2.2\\training-data deleted", 11),
            "or it was removed",
            "source",
        ),
        ("cifs", "mount error(111): could not connect to 10.0.2.2", "nothing is listening", "set the port option"),
        (
            "cifs",
            "mount error(113): could not connect to 10.0.2.99",
            "this node cannot reach the server",
            "private network",
        ),
        ("cifs", "mount error(115): could not connect to 10.0.2.99", "is not responding", "firewall"),
        ("cifs", CIFS_FAILED.format("", 112), "is not responding", "firewall"),
        ("cifs", "it was not mounted within 30 s", "is not responding", "firewall"),
        (
            "cifs",
            CIFS_FAILED.format("VFS: Dialect not supported by server. Consider", 95),
            "version of SMB",
            "remove vers",
        ),
        ("cifs", CIFS_FAILED.format("VFS: Encryption is not supported on share", 95), "seal", "remove seal"),
        ("cifs", CIFS_FAILED.format("Unknown parameter 'nonsense'", 22), "the option nonsense", "remove nonsense"),
        ("cifs", CIFS_FAILED.format("VFS: Unknown vers= option specified: 3.9", 22), "no version 3.9", "remove vers"),
        ("cifs", CIFS_FAILED.format("", 22), "an option", "journalctl --dmesg"),
        ("cifs", 'bad option uid="nosuch"', 'rejects the option uid="nosuch"', "man mount.cifs"),
        ("cifs", "mount error: could not resolve address for nas.lab: Unknown error", "nas.lab", "address"),
        ("cifs", "it is not writable: Permission denied", "may read the share", "read_only: true"),
        ("cifs", "it is not writable: No space left on device", "the drive is full", "enlarge"),
        (
            "mount-s3",
            "Error: Failed to create S3 client\n    1: Client error\n    2: No signing credentials available",
            "no credentials",
            "no-sign-request",
        ),
    ],
)
def test_known_failures_are_explained_with_a_remedy(name: str, log: str, cause: str, remedy: str) -> None:
    result = KINDS[name].diagnose(log)
    assert result is not None
    assert cause in result[0] and remedy in result[1]
    assert "{" not in result[0] + result[1]


def test_cause_that_reaches_the_journal_late_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = iter(["Mounting mnt-data.mount\n", "Mounting mnt-data.mount\n"])
    late = "Mounting mnt-data.mount\ns3fs: no enough disk space for s3fs.\n"
    monkeypatch.setattr(
        systemd, "call", lambda *_arguments, **_more: CommandOutput(1, "Job for mnt-data.mount failed.")
    )
    monkeypatch.setattr(systemd, "read_journal", lambda *_arguments: next(journal, late))
    monkeypatch.setattr(systemd, "force_unmount", lambda *_arguments: None)
    with pytest.raises(MountError, match="the disk of the cache directory is full"):
        ensure.start_mount(KINDS["s3fs"], DesiredMount("/mnt/data", "bucket"), "mnt-data.mount")


def test_unknown_journal_message_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensure, "JOURNAL_TIMEOUT", 0.0)
    monkeypatch.setattr(systemd, "read_journal", lambda *_arguments: "something new")
    assert ensure.read_failure_messages(KINDS["s3fs"], "mnt-data.mount", 0.0) == "something new"


def test_unknown_failure_is_quoted() -> None:
    expected = DesiredMount("/mnt/data", "bucket")
    assert KINDS["s3fs"].diagnose("something new") is None
    output = ensure.explain(KINDS["s3fs"], expected, "it cannot be mounted", "one\n\nsomething new\n")
    assert "one / something new" in output and "journalctl -u 'mnt-data.mount'" in output


def test_listing_ignores_order_and_probe_files(tmp_path: Path) -> None:
    names = ["b", "a", "ü", "c d"]
    assert summarize_names(names) == summarize_names([*reversed(names), f"{PROBE}other-1"])
    assert summarize_names(names) != summarize_names(names[1:])
    assert summarize_names(["ab"])["digest"] != summarize_names(["a", "b"])["digest"]
    for name in names:
        (tmp_path / name).touch()
    result = probe.verify_access(str(tmp_path), os.getuid(), os.getgid(), f"{PROBE}here", 10)
    assert result == {"listing": summarize_names(names), "probe": True}
    assert sorted(os.listdir(tmp_path)) == sorted(names)


def test_failed_verification_names_the_step(tmp_path: Path) -> None:
    missing = probe.verify_access(str(tmp_path / "none"), os.getuid(), os.getgid(), "", 10)
    assert (missing["step"], missing["errno"]) == ("stat", errno.ENOENT)
    assert not probe.is_broken(missing)
    (tmp_path / "file").touch()
    assert probe.verify_access(str(tmp_path / "file"), os.getuid(), os.getgid(), "", 10)["step"] == "list"


def test_unresponsive_mount_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setattr(os, "stat", lambda _path: open(fifo).close())  # nothing ever writes to it
    result = probe.verify_access(str(tmp_path), os.getuid(), os.getgid(), "", 1)
    assert result["hangs"] and probe.is_broken(result)


def test_mount_that_cannot_be_unmounted_keeps_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = [{"source": "bucket", "type": "fuse.s3fs", "options": "rw"}]
    calls: list[str] = []
    monkeypatch.setattr(probe, "mounted_at", lambda _path: mounts[0] if mounts else None)
    monkeypatch.setattr(
        probe, "verify_access", lambda *_arguments: {"step": "stat", "errno": errno.ETIMEDOUT, "hangs": True}
    )
    monkeypatch.setattr(systemd, "read_text", lambda _path: MARK)
    monkeypatch.setattr(systemd, "unit_state", lambda _unit: {"UnitFileState": "enabled"})
    monkeypatch.setattr(systemd, "force_unmount", lambda *_arguments: calls.append("take_down"))
    monkeypatch.setattr(systemd, "call_checked", lambda *arguments: calls.append(arguments[-1]))
    monkeypatch.setattr(systemd, "call", lambda *arguments: calls.append(arguments[-1]))
    monkeypatch.setattr(os, "unlink", calls.append)
    for absent in (False, True):
        with pytest.raises(
            MountError, match=r"^/mnt/data is not responding, and is still mounted after .*\. Try that with sudo"
        ):
            ensure.ensure_unmounted(KINDS["s3fs"], DesiredMount("/mnt/data", ""), False, absent)
    assert calls == ["take_down", "take_down"]
    monkeypatch.setattr(systemd, "force_unmount", lambda *_arguments: mounts.clear())
    assert ensure.ensure_unmounted(KINDS["s3fs"], DesiredMount("/mnt/data", ""), False, True)["changed"]
    assert calls[2:] == ["mnt-data.mount", f"{UNITS}/mnt-data.mount", "daemon-reload", "mnt-data.mount"]


def test_kinds_are_complete() -> None:
    for name, kind in KINDS.items():
        assert isinstance(kind, MountDriver) and kind.name == name
        assert kind.program and kind.role and kind.filesystem
        for cause in kind.causes:
            re.compile(cause.pattern)
            assert cause.cause and cause.remedy

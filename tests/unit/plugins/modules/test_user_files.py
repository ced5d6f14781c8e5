"""Files in a user's home are changed with that user's permissions, so links cannot redirect writes."""

from __future__ import annotations

import base64
import errno
import os
import pwd
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._files import root_path
from ansible_collections.muster.training.plugins.module_utils._files import user_files as files_as_user
from ansible_collections.muster.training.plugins.module_utils._files.root_path import (
    PathError,
    make_directory,
    parent_error,
)
from ansible_collections.muster.training.plugins.module_utils._files.user_files import UserFileError
from ansible_collections.muster.training.plugins.modules import user_files

ME = pwd.getpwuid(os.geteuid())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Create a home of the user who runs the tests and also stands for "root"."""
    entry = pwd.struct_passwd([*ME[:5], str(tmp_path), ME[6]])
    monkeypatch.setattr(pwd, "getpwnam", lambda name: {ME.pw_name: entry}[name])
    before = os.umask(0o022)
    yield tmp_path
    os.umask(before)


DIRECTORY_DEFAULTS = {"mode": None, "closed": False, "only_root": False, "user": ""}


def keep(check: bool = False, **params: Any) -> dict[str, Any]:
    directories = [{**DIRECTORY_DEFAULTS, **item} for item in params.get("directories", [])]
    defaults: dict[str, Any] = {
        "mode": "0600",
        "content": None,
        "base64": False,
        "line": "",
        "mark": "",
        "user": "",
        "validate": [],
    }
    files = [{**defaults, **item} for item in params.get("files", [])]
    return user_files.apply_state({"user": ME.pw_name, "directories": directories, "files": files}, check)


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):o}"


def test_directories_and_files_are_created_once(home: Path) -> None:
    expected: dict[str, Any] = {
        "directories": [{"path": "~/.ssh", "mode": "0700"}, {"path": "~/a/b"}],
        "files": [{"path": "~/.ssh/keys", "line": "key ours", "mark": " ours"}, {"path": "~/a/b/c", "content": "text"}],
    }
    assert keep(check=True, **expected)["changed"]
    assert list(home.iterdir()) == []
    assert keep(**expected)["changed"]
    assert (mode(home / ".ssh"), mode(home / "a" / "b"), mode(home / ".ssh" / "keys")) == ("700", "755", "600")
    assert (home / ".ssh" / "keys").read_text() == "key ours\n"
    assert (home / "a" / "b" / "c").read_text() == "text"
    again = keep(**expected)
    assert (again["changed"], again["diff"]) == (False, [])


def test_directory_created_by_another_node_at_the_same_time_is_used(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = os.makedirs

    def create_twice(path: str) -> None:
        create(path)
        create(path)

    monkeypatch.setattr(os, "makedirs", create_twice)
    keep(directories=[{"path": "~/shared", "mode": "0700"}])
    assert mode(home / "shared") == "700"


def test_changed_files_are_named_and_invalid_text_is_not_written(home: Path) -> None:
    (home / "same").write_text("as it is\n")
    (home / "same").chmod(0o600)
    bad: dict[str, Any] = {"content": "no\n", "validate": ["grep", "-q", "yes", "%s"]}
    files: list[dict[str, Any]] = [{"path": "~/same", "content": "as it is\n"}, {"path": "~/judged", **bad}]
    with pytest.raises(UserFileError, match=r"judged was not changed: `grep -q yes .*` rejects the new content"):
        keep(files=files)
    files[1]["content"] = "yes\n"
    assert keep(check=True, files=files)["changed_files"] == [f"{home}/judged"]
    assert keep(files=files)["changed_files"] == [f"{home}/judged"]
    assert keep(files=files)["changed_files"] == []
    assert sorted(os.listdir(home)) == ["judged", "same"]


def test_binary_content_is_written_unchanged_and_shown_by_size(home: Path) -> None:
    content = bytes(range(256))
    files = [{"path": "~/list", "content": base64.b64encode(content).decode(), "base64": True}]
    result = keep(files=files)
    assert (home / "list").read_bytes() == content
    assert (result["diff"][0]["before"], result["diff"][0]["after"][:22]) == ("", "256 bytes, SHA-256 40a")
    again = keep(files=files)
    assert (again["changed"], again["diff"]) == (False, [])


def test_foreign_line_in_another_encoding_is_kept_and_the_diff_is_utf8(home: Path) -> None:
    (home / "keys").write_bytes(b"key of B\xfcro\n")
    result = keep(files=[{"path": "~/keys", "line": "key ours", "mark": " ours"}])
    assert (home / "keys").read_bytes() == b"key of B\xfcro\nkey ours\n"
    assert [result["diff"][0][key] for key in ("before", "after")] == [
        "key of B\ufffdro\n",
        "key of B\ufffdro\nkey ours\n",
    ]


def test_mounted_file_is_overwritten_but_not_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Like /etc/hosts in a container, which cannot be replaced."""
    hosts = home / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")

    def busy(source: str, target: str) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source)

    monkeypatch.setattr(os, "replace", busy)
    before = hosts.stat().st_ino
    assert keep(files=[{"path": str(hosts), "content": "10.0.0.1 node1\n", "mode": "0644"}])["changed"]
    assert (hosts.read_text(), mode(hosts), hosts.stat().st_ino) == ("10.0.0.1 node1\n", "644", before)
    assert os.listdir(home) == ["hosts"]


def test_marked_line_is_replaced_and_other_lines_are_kept(home: Path) -> None:
    keys = home / "keys"
    keys.write_text("mine\nold ours\nlast")
    result = keep(files=[{"path": "~/keys", "line": "new ours", "mark": " ours"}])
    assert keys.read_text() == "mine\nnew ours\nlast\n"
    assert result["diff"][0]["before"] == "mine\nold ours\nlast"


KEY = "ssh-ed25519 AAAAC3Nz me@laptop"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"{KEY}\n"),
        (f"{KEY}\n", f"{KEY}\n"),
        (f'from="10.0.0.*",command="backup" {KEY}\nother\n', f'from="10.0.0.*",command="backup" {KEY}\nother\n'),
        (f"# {KEY}\n", f"# {KEY}\n{KEY}\n"),
        (f"x{KEY}", f"x{KEY}\n{KEY}\n"),
    ],
)
def test_line_without_a_mark_replaces_nothing(home: Path, before: str, after: str) -> None:
    keys = home / "keys"
    keys.write_text(before)
    keep(files=[{"path": "~/keys", "line": KEY}])
    assert keys.read_text() == after


def test_home_directory_with_restricted_access_loses_only_group_write_permission(home: Path) -> None:
    home.chmod(0o775)
    assert keep(directories=[{"path": "~", "closed": True}])["changed"]
    assert mode(home) == "755"
    home.chmod(0o700)
    assert not keep(directories=[{"path": "~", "closed": True}])["changed"]
    assert mode(home) == "700"


def test_users_own_link_is_followed(home: Path) -> None:
    (home / "real").write_text("one\n")
    (home / "keys").symlink_to("real")
    keep(files=[{"path": "~/keys", "line": "two"}])
    assert (home / "keys").is_symlink()
    assert (home / "real").read_text() == "one\ntwo\n"


def test_pipe_is_refused_without_blocking(home: Path) -> None:
    os.mkfifo(home / "keys")
    with pytest.raises(UserFileError, match="keys is not a regular file. Remove it: sudo rm "):
        keep(files=[{"path": "~/keys", "line": "two"}])


def test_dangling_link_and_file_are_refused_as_directories(home: Path) -> None:
    (home / "gone").symlink_to("nowhere")
    with pytest.raises(UserFileError, match="gone is a link to a missing directory"):
        keep(directories=[{"path": "~/gone"}])
    (home / "file").write_text("")
    with pytest.raises(UserFileError, match="file is not a directory"):
        keep(directories=[{"path": "~/file"}])


def test_invalid_requests_are_refused(home: Path) -> None:
    with pytest.raises(UserFileError, match="Use an absolute path, or one that begins with ~/"):
        keep(directories=[{"path": "work"}])
    with pytest.raises(UserFileError, match="mode is 'rwx'. Use octal digits"):
        keep(directories=[{"path": "~/work", "mode": "rwx"}])
    with pytest.raises(UserFileError, match="Set content, or a line that ends with mark"):
        keep(files=[{"path": "~/keys", "line": "key", "mark": " ours"}])
    with pytest.raises(UserFileError, match="there is no user nobody-knows"):
        files_as_user.get_user("nobody-knows")


@pytest.fixture
def root_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory that stands for /, where the user who runs the tests stands for root."""
    tmp_path.chmod(0o755)
    real = os.open
    monkeypatch.setattr(root_path, "ROOT", os.geteuid())
    monkeypatch.setattr(
        os,
        "open",
        lambda path, flags, *mode, **more: real(str(tmp_path) if path == "/" else path, flags, *mode, **more),
    )
    return tmp_path


def test_path_is_safe_only_if_root_alone_can_replace_it(root_tree: Path) -> None:
    (root_tree / "srv" / "data").mkdir(parents=True)
    (root_tree / "open").mkdir()
    (root_tree / "open").chmod(0o777)
    (root_tree / "tmp" / "mine").mkdir(parents=True)
    (root_tree / "tmp").chmod(0o1777)
    (root_tree / "link").symlink_to("srv")
    assert parent_error("/srv/data/x") == parent_error("/srv/none/x/y") == parent_error("/tmp/mine/x") == ""
    assert parent_error("/open/x") == "/open is writable by users other than root"
    assert parent_error("/link/x") == "/link is a link, or not a directory"
    assert parent_error("srv/x") == "srv/x is not an absolute path"


def test_links_of_root_are_followed_to_their_targets_if_requested(root_tree: Path) -> None:
    (root_tree / "srv" / "data").mkdir(parents=True)
    (root_tree / "open").mkdir()
    (root_tree / "open").chmod(0o777)
    for name, target in {
        "link": "srv",
        "up": "srv/../srv/data",
        "bad": "/open",
        "loop": "loop",
        "lost": "none",
    }.items():
        (root_tree / name).symlink_to(target)
    for path in ("/link/data/x", "/up/x", "/lost/x"):
        assert parent_error(path, links=True) == "", path
    assert parent_error("/bad/x", links=True) == "/open is writable by users other than root"
    assert parent_error("/loop/x", links=True) == "/loop is a link, or not a directory"
    (root_tree / "file").touch()
    assert parent_error("/file/x", links=True) == "/file is a link, or not a directory"


def test_group_without_other_members_does_not_make_a_directory_unsafe(
    root_tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian gave /usr/local to the group staff, which is usually empty."""
    (root_tree / "local").mkdir()
    (root_tree / "local").chmod(0o2775)
    monkeypatch.setattr(root_path, "is_group_of_root", lambda _gid: True)
    assert parent_error("/local/x") == ""
    monkeypatch.setattr(root_path, "is_group_of_root", lambda _gid: False)
    assert parent_error("/local/x") == "/local is writable by users other than root"


def test_root_creates_only_new_directories_on_safe_paths(root_tree: Path) -> None:
    (root_tree / "srv" / "there").mkdir(parents=True)
    (root_tree / "open").mkdir()
    (root_tree / "open").chmod(0o777)
    (root_tree / "link").symlink_to("srv")
    make_directory("/srv/a/b", os.geteuid(), os.getegid(), 0o700)
    assert (mode(root_tree / "srv" / "a"), mode(root_tree / "srv" / "a" / "b")) == ("755", "700")
    for path, result in (("/open/x/y", "is writable by users other than root"), ("/link/x", "is a link")):
        with pytest.raises(PathError, match=result):
            make_directory(path, os.geteuid(), os.getegid(), 0o700)
    with pytest.raises(FileExistsError):
        make_directory("/srv/there", os.geteuid(), os.getegid(), 0o700)
    assert list((root_tree / "open").iterdir()) == []
    assert not (root_tree / "srv" / "x").exists()


@pytest.mark.one_core  # in this environment, every program can import the collection
def test_root_changes_the_owner_only_of_new_files(tmp_path: Path) -> None:
    """With a real second user, in a user namespace where this process is root and the other user exists."""
    script = f"""
import os, pwd, sys
sys.path[:0] = {[str(path) for path in __import__("sys").path]!r}
from ansible_collections.muster.training.plugins.module_utils._files import user_files as files_as_user
from ansible_collections.muster.training.plugins.modules import user_files
base = {str(tmp_path)!r}
os.chmod(base, 0o755)
above = os.path.dirname(base)
while above != "/" and os.stat(above).st_uid == os.geteuid() and above != "/tmp":
    os.chmod(above, 0o755)
    above = os.path.dirname(above)
entry = pwd.getpwnam("nobody")
home = base + "/home"
os.mkdir(home); os.chown(home, entry.pw_uid, entry.pw_gid)
os.mkdir(base + "/roots", 0o755); os.mkdir(base + "/roots/inner", 0o755)
open(base + "/roots/file", "w").write("root's"); os.chmod(base + "/roots/file", 0o600)
os.symlink(base + "/roots/inner", home + "/.ssh")
os.symlink(base + "/roots/file", home + "/keys")
os.symlink(base + "/roots", home + "/work")
os.symlink(base + "/roots", base + "/byname")
entry = pwd.struct_passwd([*entry[:5], home, entry[6]])
root = pwd.getpwnam("root")
user_files.pwd.getpwnam = lambda name: root if name == "root" else entry
def refused(**params):
    full = {{"user": "nobody", "directories": [], "files": [], **params}}
    try:
        user_files.apply_state(full, False)
    except files_as_user.UserFileError as error:
        return str(error)
    raise SystemExit(f"not refused: {{params}}")
def directory(path, user="", only_root=False):
    return {{"path": path, "mode": "0700", "closed": False, "only_root": only_root, "user": user}}
def file(path, mode, content, line, user=""):
    words = {{"content": content, "base64": False, "line": line, "mark": "", "validate": []}}
    return {{"path": path, "mode": mode, "user": user, **words}}
print(refused(directories=[directory("~/.ssh")]))
print(refused(directories=[directory("~/work/new")]))
print(refused(files=[file("~/keys", "0600", None, "mine")]))
print(refused(files=[file("~/work/new", "0600", "x", "")]))
os.symlink(home, base + "/byhome")
for path in (home + "/images/inner", base + "/byhome/images"):
    print(refused(directories=[directory(path, "root", only_root=True)]))
assert os.listdir(home + "/../roots/inner") == [] and not os.path.exists(home + "/images")
only = [directory(base + "/byname/images", "root", only_root=True)]  # a link of root's, to a directory of root's
user_files.apply_state({{"user": "nobody", "directories": only, "files": []}}, False)
os.rmdir(base + "/roots/images")
only = [directory(base + "/only/images", only_root=True)]
user_files.apply_state({{"user": "root", "directories": only, "files": []}}, False)
os.chown(base + "/only/images", entry.pw_uid, entry.pw_gid)  # given away afterwards
print(refused(user="root", directories=only))
os.mkdir(base + "/scratch")
os.chmod(base + "/scratch", 0o1777)
print(refused(user="root", directories=[directory(base + "/scratch", only_root=True)]))
assert os.stat(base + "/scratch").st_mode & 0o7777 == 0o1777
user_files.apply_state({{"user": "nobody", "directories": [directory("~/images", only_root=True)], "files": []}}, False)
made = [directory(base + "/roots/given"), directory("~/own")]
user_files.apply_state({{"user": "nobody", "directories": made, "files": []}}, False)
assert os.stat(base + "/roots/given").st_uid == os.stat(home + "/own").st_uid == entry.pw_uid
assert os.stat(base + "/roots").st_uid == os.stat(base + "/roots/inner").st_uid == 0
assert os.stat(base + "/roots/inner").st_mode & 0o777 == 0o755
assert open(base + "/roots/file").read() == "root's"
assert sorted(os.listdir(base + "/roots")) == ["file", "given", "inner"]
os.chown(base + "/roots/file", entry.pw_uid, entry.pw_gid)
both = [file(base + "/roots/file", "0600", "root's", "", "root"), file("~/own/file", "0600", "nobody's", "")]
assert user_files.apply_state({{"user": "nobody", "directories": [], "files": both}}, False)["changed"]
assert [os.stat(path).st_uid for path in (base + "/roots/file", home + "/own/file")] == [0, entry.pw_uid]
"""
    as_root = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--map-auto"]
    completed = subprocess.run([*as_root, "python3", "-c", script], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    link, below, keys, new, in_home, by_link, given_away, shared = completed.stdout.splitlines()
    assert "/.ssh (a link to" in link and "belongs to root, and nobody cannot write there" in link
    assert "work/new was not created" in below and "does not belong to root" in below
    assert "keys (a link to" in keys and "cannot be written by nobody" in keys
    assert "cannot be written by nobody" in new
    assert in_home.split(". ")[0].endswith("home/images/inner") and "/home does not belong to root, and root" in in_home
    assert "/home does not belong to root" in by_link and "only/images does not belong to root" in given_away
    assert "scratch is writable by users other than root, and root would trust" in shared


def test_child_process_replies_or_its_failure_is_reported() -> None:
    entry = pwd.getpwuid(os.geteuid())
    assert files_as_user.run_as_user(entry, lambda: {"uid": os.geteuid()}) == {"uid": os.geteuid()}
    with pytest.raises(UserFileError, match="ended without returning a result"):
        files_as_user.run_as_user(entry, lambda: os._exit(3))

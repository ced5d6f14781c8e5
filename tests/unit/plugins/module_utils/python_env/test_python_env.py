"""The python_env role on a node without an index: real locks, wheels and file transfers."""

from __future__ import annotations

import base64
import functools
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._code.compare import installed_requirements
from ansible_collections.muster.training.plugins.module_utils._detached.result_line import RESULT_MARK, StepError
from ansible_collections.muster.training.plugins.module_utils._files.text import write
from ansible_collections.muster.training.plugins.module_utils._python_env import (
    credentials,
    environment,
    file_server,
    installed,
    installers,
    root_safety,
    solve,
    steps,
)
from ansible_collections.muster.training.plugins.module_utils._python_env import (
    install as installing,
)
from ansible_collections.muster.training.plugins.module_utils._python_env.paths import EnvironmentPaths
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import FIRST_LINE, standard_input

PYTHON = "{}.{}.{}".format(*sys.version_info[:3])


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    return {
        **dict.fromkeys(("requirements", "files", "editable", "find_links", "extra_index_urls", "options"), []),
        **dict.fromkeys(("conda_packages", "conda_channels"), []),
        **dict.fromkeys(("index_url", "torch_index_url", "url", "from", "conda_installer_url"), ""),
        "project_name": "project",
        "directory": str(tmp_path / "muster"),
        "manager": "venv",
        "python": sys.executable,
        "requested_python": "auto",
        "min_free_gb": 0,
        "pip_version": "26.3",
        "uv_version": "0.13.8",
        "environment": {},
        "project": {},
        "layer": "base",
        "order": 0,
    }


def make_wheel(directory: Path, name: str, version: str) -> Path:
    """Make a wheel that contains one module."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"VERSION = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)
    return path


def lock_of(settings: dict[str, Any], *names: str) -> dict[str, Any]:
    paths = EnvironmentPaths(settings)
    files = [installers.lock_entry(paths, "wheel", f"{name}-1.0-py3-none-any.whl") for name in names]
    return {
        "layer": settings["layer"],
        "order": 0,
        "key": "k",
        "python": PYTHON,
        "packages": [{"name": name, "version": "1.0"} for name in names],
        "editable": [],
        "files": files,
    }


def test_node_fetches_files_from_the_first_node_and_verifies_hashes(settings: dict[str, Any], tmp_path: Path) -> None:
    make_wheel(Path(settings["directory"], "store"), "alpha", "1.0")
    lock = lock_of(settings, "alpha")
    served = file_server.serve({**settings, "address": "127.0.0.1", "token": "t0ken"})
    assert "t0ken" not in str(served), "what a node answers can be shown"
    served["url"] += "/t0ken"
    peer = {**settings, "directory": str(tmp_path / "peer"), "url": served["url"], "from": "node1"}
    try:
        installing.fetch_files(EnvironmentPaths(peer), peer, lock)
        wheel = tmp_path / "peer" / "store" / "alpha-1.0-py3-none-any.whl"
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == lock["files"][0]["sha256"]

        wheel.unlink()
        lock["files"][0]["sha256"] = "0" * 64
        with pytest.raises(StepError, match="instead of sha256:0000"):
            installing.fetch_files(EnvironmentPaths(peer), peer, lock)
        assert list(wheel.parent.iterdir()) == [], "what is not right is not kept"

        for url in (served["url"] + "x/alpha-1.0-py3-none-any.whl", served["url"].rpartition("/")[0] + "/alpha"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url)
    finally:
        file_server.stop_serving(served)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(served["url"]).close()
        except OSError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the server has not ended")
    with pytest.raises(StepError, match="cannot download alpha-1.0.* from node1.*--tags firewall"):
        installing.fetch_files(EnvironmentPaths(peer), peer, lock)


def test_missing_packages_are_those_locked_but_not_installed(settings: dict[str, Any]) -> None:
    make_wheel(Path(settings["directory"], "store"), "alpha", "1.0")
    make_wheel(Path(settings["directory"], "store"), "beta", "1.0")
    lock = lock_of(settings, "alpha", "beta")
    assert installing.check({**settings, "lock": lock})["missing"] == ["alpha", "beta", "the environment"]
    paths = EnvironmentPaths(settings)
    environment.make_environment(paths, settings, [])
    site = next(Path(paths.environment).glob("lib/python3*/site-packages"))
    (site / "alpha-1.0.dist-info").mkdir()
    (site / "Beta-2.0.dist-info").mkdir()
    assert installed.missing_packages(paths, lock) == ["beta", "base"]
    (site / "Beta-2.0.dist-info").rename(site / "beta-1.0.dist-info")
    write(paths.installed("base"), "k")
    result = installing.check({**settings, "lock": lock})
    assert (result["missing"], result["python"], result["changed"]) == ([], lock["python"], False)
    assert installing.install({**settings, "lock": lock}) == {"changed": False}


def test_python_chosen_by_auto_does_not_change_the_lock_key(settings: dict[str, Any]) -> None:
    """The environment keeps its Python, which later runs use."""
    paths = EnvironmentPaths(settings)
    key = solve.lock_key(paths, settings)
    assert solve.lock_key(paths, {**settings, "python": "3.12"}) == key
    assert solve.lock_key(paths, {**settings, "python": "3.12", "requested_python": "3.12"}) != key


def test_python_differing_from_the_first_node_is_refused(settings: dict[str, Any]) -> None:
    lock = {**lock_of(settings), "python": "3.7.1"}
    with pytest.raises(StepError, match=r"Python is .* here, but the packages were chosen for 3\.7\.1, "):
        installing.check({**settings, "lock": lock})


def test_too_little_disk_space_is_reported_before_fetching(settings: dict[str, Any]) -> None:
    with pytest.raises(StepError, match=r"GB free, but the packages need 1000000000 GB"):
        installing.check({**settings, "min_free_gb": 1000000000, "lock": {}})


def test_environment_created_by_another_user_is_left_unchanged(settings: dict[str, Any]) -> None:
    paths = EnvironmentPaths(settings)
    environment.make_with_venv(paths, settings, [])
    with pytest.raises(StepError, match="an environment that this role did not create"):
        environment.make_environment(paths, settings, [])
    assert os.path.exists(paths.python)


def test_partially_created_environment_is_rebuilt(settings: dict[str, Any]) -> None:
    paths = EnvironmentPaths(settings)
    write(os.path.join(paths.environment, "pyvenv.cfg"), "home = /nowhere\n")
    environment.make_environment(paths, settings, [])
    assert installed.environment_version(paths) == PYTHON


def test_lock_is_reused_until_requirements_or_earlier_layers_change(settings: dict[str, Any], tmp_path: Path) -> None:
    paths = EnvironmentPaths(settings)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("alpha\n")
    settings = {**settings, "files": [str(requirements)], "layer": "job", "order": 20}
    environment.make_environment(paths, settings, [])
    lock = {"layer": "job", "order": 20, "key": solve.lock_key(paths, settings), "packages": [], "files": []}
    write(paths.lock("job"), json.dumps(lock))
    assert solve.read_lock(settings)["lock"] == lock
    assert solve.read_lock({**settings, "requirements": ["numpy"]})["lock"] == {}

    requirements.write_text("alpha>1\n")
    assert solve.read_lock(settings)["lock"] == {}
    requirements.write_text("alpha\n")
    assert solve.read_lock(settings)["lock"] == lock

    earlier = {"layer": "torch", "order": 10, "key": "", "packages": [{"name": "torch", "version": "1"}], "files": []}
    write(paths.lock("torch"), json.dumps(earlier))
    assert solve.read_lock(settings)["lock"] == {}, "what comes earlier binds what comes later"
    write(paths.lock("torch"), json.dumps({**earlier, "order": 30}))
    assert solve.read_lock(settings)["lock"] == lock


@pytest.mark.parametrize(
    "info, direct, pin",
    [
        ({"url": "https://host/a.whl"}, False, "Name==1.0"),
        ({"url": "https://host/a.whl"}, True, "Name @ https://host/a.whl"),
        (
            {"url": "https://host/a", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            True,
            "Name @ git+https://host/a@abc",
        ),
    ],
)
def test_direct_urls_are_pinned_by_url_and_others_by_version(info: dict[str, Any], direct: bool, pin: str) -> None:
    assert (
        solve.pin_package({"download_info": info, "is_direct": direct, "metadata": {"name": "Name", "version": "1.0"}})
        == pin
    )


def test_wheel_for_this_platform_is_selected_from_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "uv" / "index.html"
    page.parent.mkdir()
    names = ["uv-0.13.8-py3-none-win_amd64.whl", "uv-0.13.80-py3-none-any.whl", "uv-0.13.8.tar.gz"]
    names += [f"uv-0.13.8-py3-none-manylinux_2_17_{os.uname().machine}.manylinux2014_{os.uname().machine}.whl"]
    page.write_text("".join(f'<a href="../files/{name}#sha256=ab{number}">x</a>' for number, name in enumerate(names)))
    page.rename(tmp_path / "uv" / "page")
    opened = credentials.open_url
    monkeypatch.setattr(installers, "open_url", lambda url: opened(url + "page"))
    url, digest = installers.find_wheel(f"file://{tmp_path}", "uv", "0.13.8")
    assert url == f"file://{tmp_path}/files/{names[3]}"
    assert digest == "ab3"
    with pytest.raises(StepError, match="has no uv 9"):
        installers.find_wheel(f"file://{tmp_path}", "uv", "9")
    with pytest.raises(StepError, match="cannot read the package index .* Set python_env_index_url"):
        installers.find_wheel("file:///nowhere", "uv", "9")


# --- Programs that fail -----------------------------------------------------------------------------------------------


def run_on_node(step: str, settings: dict[str, Any], **variables: str) -> tuple[str, dict[str, Any]]:
    """Run a step as on a node; return its output for the user and its reply."""
    completed = subprocess.run(
        [sys.executable, "-c", FIRST_LINE],
        input=standard_input("_python_env.steps", {**settings, "step": step}, RESULT_MARK),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **variables},
        check=False,
    )
    text, _mark, reply = completed.stdout.decode().rpartition(RESULT_MARK)
    assert reply, completed.stdout
    return text, json.loads(reply)


def put_pip(settings: dict[str, Any], text: str) -> None:
    """Install a pip with the given program, at the path where the script expects it."""
    store = Path(settings["directory"], "store")
    store.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(store / f"pip-{settings['pip_version']}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__main__.py", text)


def test_failing_program_is_reported_with_its_own_output(settings: dict[str, Any]) -> None:
    put_pip(settings, "print('ERROR: No matching distribution found for zzz==9'); raise SystemExit(1)")
    text, reply = run_on_node("solve", {**settings, "requirements": ["zzz==9"]})
    assert "ERROR: No matching distribution found for zzz==9" in text
    failed = (
        r"pip install --dry-run .* failed \(exit code 1\)\. The packages .* In requirements\.txt, "
        r".* correct the ones that pip names below"
    )
    assert reply["show_output"] and re.search(failed, reply["step_error"])
    assert "above" not in reply["step_error"]


def test_settings_error_is_reported_without_program_output(settings: dict[str, Any]) -> None:
    _text, reply = run_on_node("solve", {**settings, "files": ["/srv/none.txt"]})
    assert reply["show_output"] is False and reply["step_error"].startswith(
        "there is no requirements file /srv/none.txt on this node. "
    )


def test_missing_compiler_is_named_with_the_command(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    paths = EnvironmentPaths(settings)
    monkeypatch.setattr(solve, "read_output", lambda argv: "/nowhere\n")
    monkeypatch.setattr("shutil.which", lambda name: None)
    advice = solve.compiler_advice(paths)
    assert advice.startswith(". This node lacks a compiler and Python's headers")
    assert (
        "ansible-playbook site.yml --tags base_packages -e '{base_packages_extra: [build-essential, python3-dev]}'"
        in advice
    )
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.path.exists", lambda path: True)
    assert solve.compiler_advice(paths) == ""


def test_long_list_of_removed_packages_is_shortened() -> None:
    assert installing.describe_packages(["a", "b"]) == "a, b"
    names = [f"package-{number:02}" for number in range(60)]
    assert installing.describe_packages(names) == (
        "60 packages (package-00, package-01, package-02, package-03, package-04, ...)"
    )


# --- Credentials ------------------------------------------------------------------------------------------------------


def test_credentials_are_stripped_from_index_and_wheel_urls(settings: dict[str, Any]) -> None:
    request = {
        **settings,
        "index_url": "https://user:se%40cret@Index.host:8443/simple",
        "extra_index_urls": ["http://token@extra.host/simple", "https://plain.host/simple"],
        "requirements": [
            "numpy",
            "name @ https://user:se%40cret@index.host/a.whl",
            "x @ git+https://user:t@git.host/x",
        ],
    }
    stripped, logins = credentials.extract_credentials(request)
    assert stripped["index_url"] == "https://Index.host:8443/simple"
    assert stripped["extra_index_urls"] == ["http://extra.host/simple", "https://plain.host/simple"]
    assert stripped["requirements"][:2] == ["numpy", "name @ https://index.host/a.whl"]
    assert stripped["requirements"][2] == request["requirements"][2], "git has its own ways"
    assert logins == {"index.host": ("user", "se@cret"), "extra.host": ("token", "")}
    with pytest.raises(StepError, match=r"different credentials for b\.host\. Use the same user") as result:
        credentials.extract_credentials(
            {**settings, "find_links": ["https://u:one1@b.host/", "https://u:two2@b.host/"]}
        )
    assert "one1" not in str(result.value) and "two2" not in str(result.value)
    with pytest.raises(StepError, match="a space, a quotation mark or a backslash"):
        credentials.extract_credentials({**settings, "index_url": "https://u:a%20b@host/"})


class Index(http.server.SimpleHTTPRequestHandler):
    """A package index that requires a login."""

    def do_GET(self) -> None:
        word = base64.b64encode(b"user:S3CR3T").decode()
        if self.headers.get("Authorization") != f"Basic {word}":
            self.send_error(401)
            return
        super().do_GET()

    def log_message(self, *_arguments: Any) -> None:
        """Discard the message."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """Serve an index with a pip that prints its arguments and credentials; user:S3CR3T has access."""
    directory = tmp_path / "index" / "pip"
    make_wheel(directory, "pip", "26.3")
    (wheel,) = directory.iterdir()
    with zipfile.ZipFile(wheel, "a") as archive:
        text = "import netrc, os, sys; print(sys.argv); path = os.environ['NETRC']\n"
        text += "print(netrc.netrc(path).authenticators('127.0.0.1'), netrc.netrc(path).authenticators('own.host'))\n"
        text += "print(oct(os.stat(path).st_mode & 0o777)); raise SystemExit(1)"
        archive.writestr("pip/__main__.py", text)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (directory / "index.html").write_text(f'<a href="{wheel.name}#sha256={digest}">x</a>')
    handler = functools.partial(Index, directory=str(tmp_path / "index"))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(port=server.server_address[1], page=directory / "index.html")
    server.shutdown()
    server.server_close()


def test_index_token_is_used_without_being_exposed(
    settings: dict[str, Any], index: SimpleNamespace, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".netrc").write_text("machine own.host login me password mine\n")
    address = f"http://user:S3CR3T@127.0.0.1:{index.port}"
    text, reply = run_on_node("solve", {**settings, "index_url": address, "requirements": ["zzz"]}, HOME=str(home))
    assert reply["show_output"], (text, reply)
    argv, *lines = text.splitlines()[-3:]
    assert f"http://127.0.0.1:{index.port}" in argv and "S3CR3T" not in argv
    assert lines[0].count("'user'") == lines[0].count("'S3CR3T'") == lines[0].count("'mine'") == 1
    assert lines[1] == "0o600"
    assert "S3CR3T" not in json.dumps(reply)
    stored_files = [
        path for path in Path(settings["directory"]).rglob("*") if path.is_file() and "env" not in path.parts
    ]
    assert stored_files and not [path for path in stored_files if b"S3CR3T" in path.read_bytes()], (
        "nothing of it is left"
    )

    _text, refused = run_on_node(
        "solve",
        {**settings, "directory": settings["directory"] + "2", "index_url": address.replace("user:S3CR3T@", "")},
    )
    assert "401" in refused["step_error"] and "cannot read the package index" in refused["step_error"]


# --- Safety of root's files -------------------------------------------------------------------------------------------


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> dict[str, os.stat_result]:
    """Make lstat report root as the owner of all paths, except for the owners and modes in this dict."""
    changed: dict[str, Any] = {}
    lstat = os.lstat

    def fake_lstat(path: Any, **more: Any) -> Any:
        info = lstat(path, **more)
        expected = {"st_uid": 0, "st_mode": info.st_mode & ~0o022, **changed.get(str(path), {})}
        return SimpleNamespace(
            **{name: getattr(info, name) for name in ("st_mode", "st_gid", "st_dev", "st_ino")} | expected
        )

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.lstat", fake_lstat)
    return changed


def test_root_runs_nothing_from_a_directory_that_others_can_change(
    settings: dict[str, Any], as_root: dict[str, Any], tmp_path: Path
) -> None:
    paths = EnvironmentPaths(settings)
    python = Path(paths.python)
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    parent = str(tmp_path)
    nobody, everybody, sticky = {"st_uid": 65534}, {"st_mode": 0o40777}, {"st_mode": 0o41777}
    for path, change, word in (
        (parent, nobody, "belongs to nobody, and root would run programs"),
        (parent, everybody, "is world-writable"),
        (paths.root, nobody, "belongs to nobody"),
        (paths.root, sticky, "is world-writable"),
        (paths.python, nobody, "belongs to nobody"),
        (paths.environment, everybody, "is world-writable"),
    ):
        as_root[path] = change
        with pytest.raises(StepError, match=f"^{re.escape(path)} {word}"):
            steps.run_step({**settings, "step": "read_lock"})
        as_root.clear()
    as_root[parent] = sticky
    steps.run_step({**settings, "step": "read_lock"})


def test_link_in_the_path_is_checked_at_its_target(
    settings: dict[str, Any], as_root: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "foreign" / "muster").mkdir(parents=True)
    (tmp_path / "way").symlink_to(tmp_path / "foreign")
    as_root[str(tmp_path / "foreign")] = {"st_uid": 65534}
    with pytest.raises(StepError, match="foreign belongs to nobody"):
        root_safety.check_root_safety(EnvironmentPaths({**settings, "directory": str(tmp_path / "way" / "muster")}))


def test_parents_of_a_missing_directory_are_checked(
    settings: dict[str, Any], as_root: dict[str, Any], tmp_path: Path
) -> None:
    as_root[str(tmp_path)] = {"st_uid": 65534}
    with pytest.raises(StepError, match=f"^{re.escape(str(tmp_path))} belongs to nobody, and root would run programs"):
        root_safety.check_root_safety(EnvironmentPaths({**settings, "directory": str(tmp_path / "new" / "muster")}))


def test_ownership_is_checked_once_and_a_foreign_mark_is_not_trusted(
    settings: dict[str, Any], as_root: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = EnvironmentPaths(settings)
    os.makedirs(paths.store)
    mark = Path(paths.root, ".only-root")
    root_safety.check_root_safety(paths)
    genuine = mark.read_text()
    monkeypatch.setattr("os.walk", lambda _top: pytest.fail("looked at again"))
    root_safety.check_root_safety(paths)
    monkeypatch.undo()

    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(
        root_safety, "describe_other_writers", lambda path, **_more: "belongs to nobody" if path == paths.store else ""
    )
    mark.write_text(genuine + "0")
    with pytest.raises(StepError, match="store belongs to nobody"):
        root_safety.check_root_safety(paths)


def test_directory_ownership_is_not_checked_without_root(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs(settings["directory"], mode=0o777)
    os.chmod(settings["directory"], 0o777)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    root_safety.check_root_safety(EnvironmentPaths(settings))


# --- Downloads without a known hash -----------------------------------------------------------------------------------


def test_root_downloads_nothing_without_a_known_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("x")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(StepError, match=r"root would execute its content\. Set its sha256 \(a setting\)"):
        installers.download(source.as_uri(), str(target), "", "a setting")
    assert not target.exists()
    installers.download(source.as_uri(), str(target), hashlib.sha256(b"x").hexdigest(), "")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    installers.download(source.as_uri(), str(target), "", "")
    with pytest.raises(StepError, match="instead of sha256:0000 "):
        installers.download(source.as_uri(), str(target), "0000", "")
    with pytest.raises(StepError, match="cannot download .* Correct the address, or fix this node's internet access"):
        installers.download_external("file:///nowhere", str(target), "00", "")


def test_conda_installer_without_a_hash_is_refused(settings: dict[str, Any], tmp_path: Path) -> None:
    installer = tmp_path / "installer.sh"
    installer.write_text("touch ran")
    settings = {**settings, "manager": "conda", "conda_installer_url": installer.as_uri(), "conda_installer_sha256": ""}
    with pytest.raises(StepError, match=r"Set python_env_conda_installer_sha256 to its sha256"):
        environment.make_environment(EnvironmentPaths(settings), settings, [])
    existing = tmp_path / "kept.sh"
    existing.write_text("something else that lay there")
    digest = hashlib.sha256(installer.read_bytes()).hexdigest()
    environment.get_conda_installer({**settings, "conda_installer_sha256": digest}, str(existing))
    assert existing.read_text() == "touch ran"


def test_unneeded_packages_are_removed_unless_another_layer_needs_them(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Path(settings["directory"], "store")
    for name in ("alpha", "beta", "gamma", "hand"):
        make_wheel(store, name, "1.0")
    paths = EnvironmentPaths(settings)
    environment.make_environment(paths, settings, [])
    site = next(Path(paths.environment).glob("lib/python3*/site-packages"))
    (site / "hand-1.0.dist-info").mkdir()  # installed by a user, although it is also in the lock
    runs: list[list[str]] = []

    def pip(arguments: list[str], **_options: Any) -> None:
        runs.append(arguments[2:])
        for word in arguments:
            name = word.rpartition("/")[2].split("-")[0]
            if arguments[2] == "uninstall" and (site / f"{word}-1.0.dist-info").exists():
                (site / f"{word}-1.0.dist-info").rmdir()
            elif arguments[2] == "install" and word.endswith(".whl"):
                (site / f"{name}-1.0.dist-info").mkdir()

    monkeypatch.setattr(installing, "run", pip)

    def install(layer: str, key: str, *names: str) -> dict[str, Any]:
        request = {**settings, "layer": layer}
        lock = {**lock_of(request, *names), "key": key}
        result: dict[str, Any] = installing.check({**request, "lock": lock})
        outcome: dict[str, Any] = installing.install({**request, "lock": lock})
        assert result["unneeded"] == outcome["removed"], "so it is told beforehand"
        return outcome

    assert install("requirements", "1", "alpha", "beta", "gamma", "hand")["removed"] == []
    assert install("deepspeed", "1", "beta")["removed"] == []
    assert installing.check({**settings, "lock": {}})["layers"] == ["requirements"]
    outcome = install("requirements", "2", "gamma")
    assert outcome["removed"] == ["alpha"] and runs[-1] == ["uninstall", "--yes", "alpha"]
    assert outcome["notice"] == "alpha removed from all nodes (no longer required by any package)"
    assert install("requirements", "3")["removed"] == ["gamma"], "a list that is empty removes all"
    assert installing.check({**settings, "lock": {}})["layers"] == []
    assert {path.name for path in site.glob("*.dist-info")} == {"beta-1.0.dist-info", "hand-1.0.dist-info"}

    install("requirements", "4", "alpha")
    write(paths.installed("deepspeed"), "1")  # written by a version that recorded only the key
    assert install("requirements", "5", "gamma")["removed"] == []


# --- World-readable data ----------------------------------------------------------------------------------------------


def test_lock_larger_than_a_command_line_argument_is_accepted(settings: dict[str, Any]) -> None:
    names = [f"package-{number}" for number in range(1500)]
    lock = {
        **{"layer": "base", "order": 0, "key": "k", "python": PYTHON, "editable": []},
        "packages": [{"name": name, "version": "1.0"} for name in names],
        "files": [{"kind": "wheel", "file": f"{name}-1.0-py3-none-any.whl", "sha256": "0" * 64} for name in names],
    }
    assert len(json.dumps(lock)) > 128 * 1024
    _text, reply = run_on_node("compare", {**settings, "lock": lock})
    assert reply["missing"] == [*names, "the environment"]


# --- Project requirements ---------------------------------------------------------------------------------------------


PROJECT = {"file": "requirements.txt", "main": "requirements.txt", "digest": "d1"}


def test_project_requirements_are_written_privately_and_removed_later(settings: dict[str, Any]) -> None:
    texts = {"requirements.txt": "-r more/a.txt\n", "more/a.txt": "six\n"}
    paths = EnvironmentPaths(settings)
    (main,) = solve.project_files(paths, {**settings, "project": {**PROJECT, "texts": texts}})
    assert Path(main).read_text() == texts["requirements.txt"]
    assert (Path(main).parent / "more" / "a.txt").read_text() == "six\n"
    assert Path(main).parent.stat().st_mode & 0o077 == 0
    assert solve.project_files(paths, settings) == [] and not Path(main).exists()


def test_lock_key_changes_with_the_project_requirements(settings: dict[str, Any]) -> None:
    paths = EnvironmentPaths(settings)
    keys = [solve.lock_key(paths, {**settings, "project": item}) for item in ({}, PROJECT, {**PROJECT, "digest": "d2"})]
    assert len(set(keys)) == 3


INDEX = "https://download.pytorch.org/whl"


@pytest.mark.parametrize(
    ("url", "version", "index"),
    [
        (f"{INDEX}/BUILD", "2.7.1+cu126", f"{INDEX}/cu126"),  # the role pytorch has not run in this play
        (f"{INDEX}/cu126", "2.7.1+cu126", f"{INDEX}/cu126"),  # this index has the build
        (f"{INDEX}/BUILD", "2.7.1", ""),
        ("https://mirror/simple", "2.7.1", "https://mirror/simple"),
        (f"{INDEX}/BUILD", None, ""),
    ],
)
def test_torch_index_does_not_depend_on_which_roles_are_in_a_play(
    settings: dict[str, Any], url: str, version: str | None, index: str
) -> None:
    paths = EnvironmentPaths(settings)
    packages = [] if version is None else [{"name": "torch", "version": version}]
    lock = {"layer": "pytorch", "order": 10, "packages": packages}
    os.makedirs(os.path.dirname(paths.lock("pytorch")), exist_ok=True)
    write(paths.lock("pytorch"), json.dumps(lock))
    request = {**settings, "order": 20, "torch_index_url": url}
    assert solve.torch_index_url(request, solve.earlier_packages(paths, request)) == index
    assert solve.lock_key(paths, request) == solve.lock_key(paths, {**request, "torch_index_url": index})


def test_digest_of_installed_project_requirements_is_recorded(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = EnvironmentPaths(settings)
    environment.make_environment(paths, settings, [])
    monkeypatch.setattr(installing, "run", lambda arguments, **_options: None)
    settings = {**settings, "layer": "requirements"}
    installing.install({**settings, "lock": {**lock_of(settings), "project": "d1", "project_name": "project"}})
    assert installed_requirements(paths.python) == ("d1", "project")
    installing.install({**settings, "lock": {**lock_of(settings), "key": "of one that kept none"}})
    assert installed_requirements(paths.python) == ("", "")


@pytest.mark.parametrize(
    ("line", "refused"),
    [("torch==2.4.0", True), ("torch == 2.13", False), ("torch==2.13.0", False), ("torch>=2", False)],
)
def test_project_pinning_a_different_torch_is_refused_naming_the_setting(
    line: str, refused: bool, settings: dict[str, Any]
) -> None:
    request = {**settings, "project": {**PROJECT, "texts": {"requirements.txt": f"six\n{line}\ntorchvision==0.1\n"}}}
    solve.check_torch(request, {})
    if not refused:
        solve.check_torch(request, {"torch": {"version": "2.13.0+cpu"}})
        return
    with pytest.raises(StepError, match="torch 2.13.0.cpu was installed before it.*pytorch_version to 2"):
        solve.check_torch(request, {"torch": {"version": "2.13.0+cpu"}})

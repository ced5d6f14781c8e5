"""What the role python_env does on a node, as far as it needs no index: locks, wheels, handing on. All of it runs."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

SCRIPT = Path(__file__).resolve().parents[3] / "roles" / "python_env" / "files" / "packages.py"
PYTHON = "{}.{}.{}".format(*sys.version_info[:3])


@pytest.fixture(scope="module")
def packages() -> Any:
    spec = importlib.util.spec_from_file_location("packages", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    return {
        **dict.fromkeys(("requirements", "files", "editable", "find_links", "extra_index_urls", "options"), []),
        **dict.fromkeys(("conda_packages", "conda_channels"), []),
        **dict.fromkeys(("index_url", "url", "from", "conda_installer_url"), ""),
        "directory": str(tmp_path / "muster"),
        "manager": "venv",
        "python": sys.executable,
        "python_asked": "auto",
        "space": 0,
        "pip_version": "26.3",
        "uv_version": "0.13.8",
        "environment": {},
        "layer": "base",
        "order": 0,
    }


def make_wheel(directory: Path, name: str, version: str) -> Path:
    """A wheel with one module."""
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


def lock_of(packages: Any, given: dict[str, Any], *names: str) -> dict[str, Any]:
    place = packages.Place(given)
    files = [packages.stored(place, "wheel", f"{name}-1.0-py3-none-any.whl") for name in names]
    return {
        "layer": given["layer"],
        "order": 0,
        "key": "k",
        "python": PYTHON,
        "packages": [{"name": name, "version": "1.0"} for name in names],
        "editable": [],
        "files": files,
    }


def test_a_node_gets_the_files_from_the_first_one_and_compares_them(
    packages: Any, given: dict[str, Any], tmp_path: Path
) -> None:
    make_wheel(Path(given["directory"], "store"), "alpha", "1.0")
    lock = lock_of(packages, given, "alpha")
    served = packages.serve({**given, "address": "127.0.0.1"})
    peer = {**given, "directory": str(tmp_path / "peer"), "url": served["url"], "from": "node1"}
    try:
        packages.fetch(packages.Place(peer), peer, lock)
        got = tmp_path / "peer" / "store" / "alpha-1.0-py3-none-any.whl"
        assert hashlib.sha256(got.read_bytes()).hexdigest() == lock["files"][0]["sha256"]

        got.unlink()
        lock["files"][0]["sha256"] = "0" * 64
        with pytest.raises(packages.Fault, match="Needed: sha256:0000"):
            packages.fetch(packages.Place(peer), peer, lock)
        assert list(got.parent.iterdir()) == [], "what is not right is not kept"

        for url in (served["url"] + "x/alpha-1.0-py3-none-any.whl", served["url"].rpartition("/")[0] + "/alpha"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url)
    finally:
        packages.end(served)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(served["url"]).close()
        except OSError:
            break
        time.sleep(0.05)
    else:
        pytest.fail("the server has not ended")
    with pytest.raises(packages.Fault, match="node1 does not give alpha-1.0.*role firewall"):
        packages.fetch(packages.Place(peer), peer, lock)


def test_missing_is_what_the_lock_has_and_the_environment_has_not(packages: Any, given: dict[str, Any]) -> None:
    make_wheel(Path(given["directory"], "store"), "alpha", "1.0")
    make_wheel(Path(given["directory"], "store"), "beta", "1.0")
    lock = lock_of(packages, given, "alpha", "beta")
    assert packages.check({**given, "lock": lock})["missing"] == ["alpha", "beta", "the environment"]
    place = packages.Place(given)
    packages.make_environment(place, given, [])
    site = next(Path(place.environment).glob("lib/python3*/site-packages"))
    (site / "alpha-1.0.dist-info").mkdir()
    (site / "Beta-2.0.dist-info").mkdir()
    assert packages.missing_in(place, lock) == ["beta", "base"]
    (site / "Beta-2.0.dist-info").rename(site / "beta-1.0.dist-info")
    packages.write(place.installed("base"), "k")
    assert packages.check({**given, "lock": lock}) == {"missing": [], "python": lock["python"]}
    assert packages.install({**given, "lock": lock}) == {"changed": False}


def rendered(name: str, **variables: Any) -> str:
    """A variable of the role, with its defaults."""
    role = SCRIPT.parents[1]
    given = {**yaml.safe_load((role / "defaults" / "main.yml").read_text()), **variables}
    ours = yaml.safe_load((role / "vars" / "main.yml").read_text())
    texts = {key: trust_as_template(value) if isinstance(value, str) else value for key, value in ours.items()}
    return str(Templar(DataLoader(), variables={**given, **texts}).template(trust_as_template("{{ " + name + " }}")))


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        ("auto", "/opt/muster/env/bin/python:python3"),
        ("3.12", "/opt/muster/env/bin/python:3.12:python3.12"),
        ("/usr/bin/python3.9", "/opt/muster/env/bin/python:/usr/bin/python3.9:python/usr/bin/python3.9"),
    ],
)
def test_the_interpreter_of_an_environment_that_is_there_counts_first(python: str, expected: str) -> None:
    assert rendered("__python_env_interpreters", python_env_python=python) == expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "python3"),
        ({"python_env_manager": "conda"}, "3.12"),
        ({"__pytorch_choice": {"directory": "/opt/muster", "python": "3.12"}}, "3.12"),
        ({"__pytorch_choice": {"directory": "/opt/another", "python": "3.12"}}, "python3"),
        ({"__pytorch_choice": {"directory": "/opt/muster", "python": "3.12"}, "python_env_python": "3.9"}, "3.9"),
    ],
)
def test_what_an_environment_is_made_with(variables: dict[str, Any], expected: str) -> None:
    assert rendered("__python_env_python", **variables).strip() == expected


def test_what_auto_stands_for_does_not_make_a_lock_another_one(packages: Any, given: dict[str, Any]) -> None:
    """The environment keeps its Python, which later runs find there."""
    place = packages.Place(given)
    key = packages.key_of(place, given)
    assert packages.key_of(place, {**given, "python": "3.12"}) == key
    assert packages.key_of(place, {**given, "python": "3.12", "python_asked": "3.12"}) != key


def test_another_python_than_the_first_nodes_is_refused(packages: Any, given: dict[str, Any]) -> None:
    lock = {**lock_of(packages, given), "python": "3.7.1"}
    with pytest.raises(packages.Fault, match=r"Python here is .*, and 3\.7\.1 on the first node"):
        packages.check({**given, "lock": lock})


def test_too_little_space_is_told_before_anything_is_fetched(packages: Any, given: dict[str, Any]) -> None:
    with pytest.raises(packages.Fault, match=r"GB free\. Needed: 1000000000 GB for packages"):
        packages.check({**given, "space": 1000000000, "lock": {}})


def test_an_environment_of_somebody_else_is_not_touched(packages: Any, given: dict[str, Any]) -> None:
    place = packages.Place(given)
    packages.venv_environment(place, given, [])
    with pytest.raises(packages.Fault, match="an environment that somebody else made"):
        packages.make_environment(place, given, [])
    assert os.path.exists(place.python)


def test_an_environment_that_was_left_half_made_is_made_anew(packages: Any, given: dict[str, Any]) -> None:
    place = packages.Place(given)
    packages.write(os.path.join(place.environment, "pyvenv.cfg"), "home = /nowhere\n")
    packages.make_environment(place, given, [])
    assert packages.version_in(place) == PYTHON


def test_a_lock_stands_until_something_changes(packages: Any, given: dict[str, Any], tmp_path: Path) -> None:
    place = packages.Place(given)
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("alpha\n")
    given = {**given, "files": [str(requirements)], "layer": "job", "order": 20}
    packages.make_environment(place, given, [])
    lock = {"layer": "job", "order": 20, "key": packages.key_of(place, given), "packages": [], "files": []}
    packages.write(place.lock("job"), json.dumps(lock))
    assert packages.look(given)["lock"] == lock
    assert packages.look({**given, "requirements": ["numpy"]})["lock"] == {}

    requirements.write_text("alpha>1\n")
    assert packages.look(given)["lock"] == {}
    requirements.write_text("alpha\n")
    assert packages.look(given)["lock"] == lock

    earlier = {"layer": "torch", "order": 10, "key": "", "packages": [{"name": "torch", "version": "1"}], "files": []}
    packages.write(place.lock("torch"), json.dumps(earlier))
    assert packages.look(given)["lock"] == {}, "what comes earlier binds what comes later"
    packages.write(place.lock("torch"), json.dumps({**earlier, "order": 30}))
    assert packages.look(given)["lock"] == lock


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
def test_pins(packages: Any, info: dict[str, Any], direct: bool, pin: str) -> None:
    assert (
        packages.pinned({"download_info": info, "is_direct": direct, "metadata": {"name": "Name", "version": "1.0"}})
        == pin
    )


def test_a_wheel_is_found_on_an_index(packages: Any, tmp_path: Path) -> None:
    page = tmp_path / "uv" / "index.html"
    page.parent.mkdir()
    names = ["uv-0.13.8-py3-none-win_amd64.whl", "uv-0.13.80-py3-none-any.whl", "uv-0.13.8.tar.gz"]
    names += [f"uv-0.13.8-py3-none-manylinux_2_17_{os.uname().machine}.manylinux2014_{os.uname().machine}.whl"]
    page.write_text("".join(f'<a href="../files/{name}#sha256=ab{number}">x</a>' for number, name in enumerate(names)))
    page.rename(tmp_path / "uv" / "page")
    opened = packages.urllib.request.urlopen
    packages.urllib.request.urlopen = lambda url, timeout: opened(url + "page")
    try:
        url, digest = packages.wheel_on_index(f"file://{tmp_path}", "uv", "0.13.8")
        assert url == f"file://{tmp_path}/files/{names[3]}"
        assert digest == "ab3"
        with pytest.raises(packages.Fault, match="has no wheel of uv 9"):
            packages.wheel_on_index(f"file://{tmp_path}", "uv", "9")
        with pytest.raises(packages.Fault, match="Needed: a package index. Set python_env_index_url"):
            packages.wheel_on_index("file:///nowhere", "uv", "9")
    finally:
        packages.urllib.request.urlopen = opened

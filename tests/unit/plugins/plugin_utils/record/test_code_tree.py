"""The recorded code of a run."""

from __future__ import annotations

import os
from pathlib import Path

from ansible_collections.muster.training.plugins.plugin_utils._project.local_code import read_local_code
from ansible_collections.muster.training.plugins.plugin_utils._record.code_tree import (
    MAX_ROWS,
    differing_files,
    digest_of_files,
    make_code_tree,
    read_files,
)


def read_tree(directory: Path) -> dict[str, str]:
    """Return the files as a launch records them."""
    files = read_files(make_code_tree("code", read_local_code(str(directory), [], "code", "").tree))
    assert files is not None
    return files


def test_fingerprints_change_with_the_content_but_not_with_the_time(tmp_path: Path) -> None:
    for name in ("train.py", "model/net.py", "run.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "latest").symlink_to("model")
    before = read_tree(tmp_path)
    assert list(before) == ["latest", "model/net.py", "run.sh", "train.py"]
    os.utime(tmp_path / "train.py", (1, 1))
    assert read_tree(tmp_path) == before
    (tmp_path / "train.py").write_text("train.PY")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "new.py").touch()
    (tmp_path / "latest").unlink()
    after = read_tree(tmp_path)
    assert digest_of_files(after) != digest_of_files(before)
    rows, more = differing_files([before, after, None])
    assert ([row[0] for row in rows], more) == (["latest", "new.py", "run.sh", "train.py"], 0)
    assert [row[1:3] for row in rows][:2] == [["link", "-"], ["-", after["new.py"][:12]]]
    assert {row[3] for row in rows} == {"?"}, "it is unknown"


def test_unrecorded_code_is_not_reported_as_different() -> None:
    assert differing_files([{"a": "1"}, None]) == differing_files([]) == ([], 0)
    assert read_files(None) is read_files({"files": []}) is read_files([1]) is None


def test_long_lists_are_cut() -> None:
    rows, more = differing_files([{f"{number:03}": "1" for number in range(MAX_ROWS + 7)}, {"a": "1"}])
    assert (len(rows), more) == (MAX_ROWS, 8)


def test_paths_outside_the_directory_are_omitted() -> None:
    names = ["../a", "/a", "a/../../b", "a//b", "./a", ".", "..", ".git/config", "sub/.GIT/hooks/x", ""]
    assert read_files({"files": {name: "1" for name in [*names, "..a", "a/b.py"]}}) == {"..a": "1", "a/b.py": "1"}
    assert read_files({"files": {name: "1" for name in names}}) is None

"""Arguments and results of the working-tree modules, including file names that are not valid text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args

from ansible_collections.muster.training.plugins.modules import code_tree, code_tree_info


def run_module(capsys: pytest.CaptureFixture[str], module: Any, **arguments: Any) -> dict[str, Any]:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        module.main()
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    (source / "train.py").write_text("1")
    Path(os.fsdecode(os.fsencode(source) + b"/\xff")).write_text("2")
    return source


def test_tree_is_listed_copied_and_hashed(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, peer = str(tmp_path / "first"), str(tmp_path / "peer")
    for path in (first, peer):
        os.mkdir(path)
    listing = run_module(capsys, code_tree_info, path=str(source), read="listing")["listing"]
    assert set(json.loads(listing)) == {"train.py", "\udcff"}
    assert not run_module(capsys, code_tree, path=first, listing=listing)["changed"]
    for name in os.listdir(os.fsencode(source)):
        os.link(os.path.join(os.fsencode(source), name), os.path.join(os.fsencode(first), name))
    copied = run_module(capsys, code_tree, path=peer, source=first)
    assert copied["changed"] and len(copied["copied"]) == 2
    assert not run_module(capsys, code_tree, path=peer, source=first)["changed"]
    trees = [run_module(capsys, code_tree_info, path=path) for path in (first, peer)]
    assert trees[0]["hash"] == trees[1]["hash"] and trees[0]["count"] == 2
    assert len(json.loads(run_module(capsys, code_tree_info, path=peer, read="files")["files"])) == 2

    (source / "train.py").unlink()
    listing = run_module(capsys, code_tree_info, path=str(source), read="listing")["listing"]
    for check in (True, False):
        removal = run_module(capsys, code_tree, path=first, listing=listing, _ansible_check_mode=check)
        assert (removal["changed"], removal["removed"], removal["diff"]["before"]) == (True, ["train.py"], "train.py\n")
    checked = run_module(capsys, code_tree, path=peer, source=first, _ansible_check_mode=True)
    assert not checked["changed"] and (tmp_path / "peer/train.py").exists()


def test_missing_source_and_unknown_user_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "peer").mkdir()
    failed = run_module(capsys, code_tree, path=str(tmp_path / "peer"), source=str(tmp_path / "none"))
    assert failed["msg"] == "the first node has no copy of the code yet. Run this once without --limit"
    assert "rsync cannot list" in run_module(capsys, code_tree_info, path=str(tmp_path / "none"), read="listing")["msg"]
    unknown = run_module(capsys, code_tree_info, path=str(tmp_path), user="nobody-knows")
    assert "there is no user nobody-knows" in unknown["msg"]

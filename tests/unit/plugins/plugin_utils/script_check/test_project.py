"""A script is read with the modules of its project, without executing any code."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._script_check import project
from ansible_collections.muster.training.plugins.plugin_utils._script_check.check import check_script, uses_torch
from ansible_collections.muster.training.plugins.plugin_utils._script_check.project import ScriptError, read_project

pytestmark = pytest.mark.one_core
SAVE = (
    "import torch\ndef save(state):\n    torch.save(state, 'a.pt')\ndef unused(state):\n    torch.save(state, 'b.pt')\n"
)


def write(directory: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = directory.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory / "train.py"


def test_imported_modules_are_checked_and_unused_functions_are_not(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        train="from tools.files import save\nsave({})\n",
        tools__init="",
        tools__files=SAVE,
        other="import torch\ntorch.save(1, 'c.pt')\n",
    )
    modules, findings = check_script(script)
    assert [module.path for module in modules] == ["train.py", "tools/files.py"]
    assert [(finding.file, finding.line) for finding in findings] == [("tools/files.py", 3)]


def test_main_block_of_an_imported_module_is_ignored(tmp_path: Path) -> None:
    own_main = "@torch.no_grad()\ndef run():\n    save({})\nif __name__ == '__main__':\n    run()\n"
    script = write(tmp_path, train="import files\nprint(files)\n", files=SAVE + own_main)
    assert check_script(script)[1] == []


def test_guard_in_another_file_is_recognized(tmp_path: Path) -> None:
    script = write(tmp_path, train="from files import save\nif rank == 0:\n    save({})\n", files=SAVE)
    assert check_script(script)[1] == []


def test_modules_in_the_project_root_are_resolved_for_a_script_below_it(tmp_path: Path) -> None:
    write(tmp_path, src__train="from src.files import save\nsave({})\n", src__files=SAVE)
    script = tmp_path / "src" / "train.py"
    assert [finding.file for finding in check_script(script, [tmp_path])[1]] == ["src/files.py"]


def test_relative_imports_and_import_cycles_are_followed(tmp_path: Path) -> None:
    script = write(
        tmp_path,
        train="import tools.files\ntools.files.save({})\n",
        tools__files="from . import names\n" + SAVE,
        tools__names="from .files import save\n",
    )
    (tmp_path / "tools" / "__init__.py").touch()
    assert [finding.file for finding in check_script(script)[1]] == ["tools/files.py"]


def test_nothing_is_executed(tmp_path: Path) -> None:
    script = write(tmp_path, train=f"import torch\nopen({str(tmp_path / 'made')!r}, 'w')\n")
    check_script(script)
    assert not (tmp_path / "made").exists()


def test_project_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project, "MAX_FILES", 3)
    imports = "\n".join(f"import m{number}" for number in range(9))
    script = write(tmp_path, train=imports, **{f"m{number}": "" for number in range(9)})
    assert len(read_project(script)) == 3


def test_script_without_torch_has_nothing_to_check(tmp_path: Path) -> None:
    modules, findings = check_script(write(tmp_path, train="print('hello')\n"))
    assert findings == [] and not uses_torch(modules)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "train.py, line 1: "),
        ("if x:\ny = 1\n", r"line 2: expected an indented block .*\. Correct the indentation$"),
        ("print 'hello'\n", "Only Python 3 can be checked"),
        ("a = '\x00'\n", "Only Python 3 can be checked"),
    ],
)
def test_invalid_script_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        read_project(write(tmp_path, train=text))


def test_missing_or_binary_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match="cannot be read"):
        read_project(tmp_path / "train.py")
    (tmp_path / "train.py").write_bytes(b"\x7fELF\xff\xfe")
    with pytest.raises(ScriptError, match="cannot be read"):
        read_project(tmp_path / "train.py")

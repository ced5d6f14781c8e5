"""The import test with real interpreters and packages: tested and skipped imports, and the cache."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.muster.training.plugins.module_utils._facts import import_program, imports
from ansible_collections.muster.training.plugins.module_utils._facts.commands import CommandOutput
from ansible_collections.muster.training.plugins.plugin_utils._node_call.call import module_source

PROGRAM = module_source("_facts.import_program")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a directory of installed packages, and a home for the cache."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "good.py").write_text("value = 1\n")
    (packages / "numpy_like.py").write_text(
        "raise ImportError('A module that was compiled using NumPy 1.x cannot be run in\\nNumPy 2.2.6')\n"
    )
    (packages / "ends.py").write_text("import os\nprint('fatal', flush=True)\nos.abort()\n")
    (packages / "noisy.py").write_text("import sys\nprint('x' * 10)\nsys.stdout.close()\n")
    (tmp_path / "job").mkdir()
    return tmp_path / "job"


def run(project: Path, script: str = "train.py", **request: Any) -> dict[str, Any]:
    """Return the result of the import test for a script of the project."""
    values = {
        "program": PROGRAM,
        "test": True,
        "module": "",
        "cuda": False,
        "environment": {"PYTHONPATH": str(project.parent / "site-packages")},
        **request,
    }
    path = str(project / script) if script else ""
    return imports.ImportQuery(values, sys.executable, path, str(project)).result()


def errors(result: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(failure["error"].partition("\n")[0], failure["certain"]) for failure in result["failures"]]


def test_working_imports_are_not_reported_and_libraries_are_listed(project: Path) -> None:
    (project / "train.py").write_text("import json\nfrom good import value\nimport noisy\nimport os.path as p\n")
    result = run(project)
    assert (result["failures"], result["ended"], result["tested"]) == ([], "", True)
    assert result["libraries"] == ["good", "json", "noisy", "os"]


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("import numpy_like\n", [("ImportError: A module that was compiled using NumPy 1.x cannot be run in", True)]),
        ("import absent\n", [("ModuleNotFoundError: No module named 'absent'", True)]),
        (
            "import sys\nsys.path.append('..')\nimport absent\n",
            [("ModuleNotFoundError: No module named 'absent'", False)],
        ),
        ("from good import other\n", [("ImportError: cannot import name 'other' from 'good'", True)]),
        ("import good.sub\n", [("ModuleNotFoundError: No module named 'good.sub'; 'good' is not a package", True)]),
        ("try:\n    import absent\nexcept ImportError:\n    absent = None\n", []),
        ("try:\n    import absent\nfinally:\n    pass\n", [("ModuleNotFoundError: No module named 'absent'", True)]),
        ("def f():\n    import absent\n", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import absent\n", []),
        ("import sys\nif len(sys.argv) > 3:\n    import absent\n", []),
        ("if __name__ == '__main__':\n    import absent\n", [("ModuleNotFoundError: No module named 'absent'", True)]),
        ("import contextlib\nwith contextlib.suppress(ImportError):\n    import absent\n", []),
        ("def f(:\n", [(f"SyntaxError in Python {sys.version_info[0]}.{sys.version_info[1]}: invalid syntax", True)]),
    ],
)
def test_imports_that_the_job_executes_are_tested(project: Path, source: str, result: list[tuple[str, bool]]) -> None:
    (project / "train.py").write_text(source)
    reported = errors(run(project))
    assert len(reported) == len(result), reported
    for (text, certain), (expected, expected_certain) in zip(reported, result, strict=True):
        assert text.startswith(expected) and certain == expected_certain


def test_users_modules_are_read_but_not_executed(project: Path) -> None:
    effect = project / "effect"
    package = project / "lib"
    package.mkdir()
    (package / "__init__.py").write_text("from . import data\nfrom .model import Net\n")
    (package / "data.py").write_text(f"import numpy_like\nopen({str(effect)!r}, 'w')\n")
    (package / "model.py").write_text("import absent\nclass Net: pass\n")
    (project / "unused.py").write_text("import absent_too\n")
    (project / "train.py").write_text("from lib import Net\n")
    result = run(project)
    assert not effect.exists()
    assert {failure["statement"] for failure in result["failures"]} == {"import numpy_like", "import absent"}
    assert {Path(failure["file"]).name for failure in result["failures"]} == {"data.py", "model.py"}
    assert result["files"] == 4


def test_jobs_module_is_located_like_a_script(project: Path) -> None:
    (project / "pkg").mkdir()
    (project / "pkg" / "__init__.py").write_text("")
    (project / "pkg" / "train.py").write_text("from . import helper\n")
    (project / "pkg" / "helper.py").write_text("import absent\n")
    assert errors(run(project, "", module="pkg.train")) == [("ModuleNotFoundError: No module named 'absent'", True)]
    assert run(project, "", module="good")["failures"] == []
    assert errors(run(project, "", module="absent.train")) == [("ModuleNotFoundError: No module named 'absent'", True)]


def test_interpreter_that_crashes_is_reported_with_its_last_output(project: Path) -> None:
    (project / "train.py").write_text("import good\nimport ends\n")
    result = run(project)
    (failure,) = result["failures"]
    assert (result["ended"], failure["statement"], failure["line"]) == ("crash", "import ends", 2)
    assert failure["error"] == "Python was killed by SIGABRT: fatal"


def test_hanging_import_is_stopped_at_the_deadline(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "TIMEOUT", 1.5)
    (project.parent / "site-packages" / "sleeps.py").write_text("import time\ntime.sleep(3600)\n")
    (project / "train.py").write_text("import sleeps\n")
    result = run(project)
    assert result["ended"] in ("time", "unknown")  # on a busy machine the interpreter may not have started yet
    assert result["ended"] == "unknown" or result["failures"][0]["statement"] == "import sleeps"


def test_success_is_remembered_until_packages_or_sources_change(project: Path) -> None:
    packages = project.parent / "site-packages"
    (project / "train.py").write_text("import good\n")
    assert not run(project)["cached"]
    assert run(project)["cached"]
    (project / "train.py").write_text("import good, json\n")
    assert not run(project)["cached"]
    (packages / "other.dist-info").mkdir()
    os.utime(packages, ns=(1, time.time_ns()))
    assert not run(project)["cached"]
    assert run(project)["cached"]
    cache = project.parent / "home" / ".muster" / "import_tests"
    assert cache.stat().st_mode & 0o777 == 0o700
    for path in cache.iterdir():
        os.utime(path)
        path.write_text(json.dumps({"passed": time.time() - import_program.CACHE_LIFETIME - 1, "cuda": None}))
    assert not run(project)["cached"]


def test_failure_is_not_remembered(project: Path) -> None:
    (project / "train.py").write_text("import late\n")
    assert run(project)["failures"]
    (project.parent / "site-packages" / "late.py").write_text("")
    assert run(project)["failures"] == []


@pytest.mark.parametrize("content", ["", "[]", '{"passed": "x"}', "{" * 100000, '{"passed": 1e99}'])
def test_damaged_or_foreign_cache_is_ignored(tmp_path: Path, content: str) -> None:
    path = tmp_path / "entry.json"
    path.write_text(content)
    assert import_program.read_cache(str(path), time.time()) == {}
    link = tmp_path / "link.json"
    path.write_text(json.dumps({"passed": time.time(), "cuda": None}))
    link.symlink_to(path)
    assert import_program.read_cache(str(path), time.time() + 1) and import_program.read_cache(str(link), 0) == {}


def test_cache_keeps_a_limited_number_of_entries(tmp_path: Path) -> None:
    for number in range(import_program.MAX_CACHE_FILES + 5):
        import_program.write_cache(str(tmp_path / f"{number}.json"), {"passed": 0})
    assert len(list(tmp_path.iterdir())) == import_program.MAX_CACHE_FILES


@pytest.mark.parametrize(
    ("source", "features"),
    [
        ("import os\nlocal_rank = int(os.environ['LOCAL_RANK'])\n", []),
        ("def setup(rank: int, local_rank: int): pass\n", []),
        ("p.add_argument('--local_rank', type=int)\n", ["local-rank"]),
        ("p.add_argument('--local-rank', type=int)\n", ["local-rank"]),
        ("class Arguments:\n    local_rank: int = -1\n", ["local-rank"]),
        ("import torch\n@torch.compile\ndef f(): pass\n", ["compile"]),
        ("import torch\nmodel = torch.compile(model)\n", ["compile"]),
        ("import re\nre.compile('x')\n", []),
        ("from deepspeed.ops.adam import DeepSpeedCPUAdam\n", ["deepspeed-ops"]),
    ],
)
def test_features_are_read_from_the_sources(project: Path, source: str, features: list[str]) -> None:
    (project / "train.py").write_text(source)
    result = run(project, test=False)
    assert result["features"] == features and not result["tested"] and result["failures"] == []


def test_library_output_cannot_forge_types() -> None:
    forged = {"failures": [{"file": 1, "error": ["x"]}, 7], "cuda": "no", "libraries": [1], "files": "x", "python_h": 3}
    text = f"{import_program.MARK}{json.dumps({'result': forged})}\n{import_program.MARK}not json\n"
    result = imports.parse_result(CommandOutput(0, text))
    assert result["failures"] == [{"file": "", "line": 0, "statement": "", "error": "", "certain": True}]
    assert (result["cuda"], result["libraries"], result["files"], result["python_h"]) == ([], ["1"], 0, None)


def test_crashing_kernel_is_a_cuda_failure() -> None:
    line = json.dumps({"cuda": "GPU 3"})
    result = imports.parse_result(CommandOutput(-11, f"{import_program.MARK}{line}\nsegfault\n"))
    assert result["cuda"] == [{"gpu": -1, "error": "Python was killed by SIGSEGV: segfault"}]


TORCH = """
class version: cuda, hip = "12.8", None
class cuda:
    init = staticmethod(lambda: INIT)
    device_count = staticmethod(lambda: 2)
class Tensor:
    def add_(self, value): return self
    def sum(self): return self
    def item(self): return 2.0
def ones(count, device):
    if device in BROKEN: raise RuntimeError("CUDA error: unknown error")
    return Tensor()
"""


@pytest.mark.parametrize(
    ("init", "broken", "result"),
    [
        ("None", "()", []),
        ("None", "('cuda:1',)", [{"gpu": 1, "error": "RuntimeError: CUDA error: unknown error"}]),
        ("1 / 0", "()", [{"gpu": -1, "error": "ZeroDivisionError: division by zero"}]),
    ],
)
def test_kernel_is_run_on_each_gpu_and_success_is_remembered(
    project: Path, monkeypatch: pytest.MonkeyPatch, init: str, broken: str, result: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(imports, "has_gpus", lambda: True)
    text = TORCH.replace("INIT", init).replace("BROKEN", broken)
    (project.parent / "site-packages" / "torch.py").write_text(text)
    (project / "train.py").write_text("import torch\n")
    assert run(project, cuda=True)["cuda"] == result
    if not result:
        (project.parent / "site-packages" / "torch.py").write_text(text.replace("return Tensor()", "1 / 0"))
        assert run(project, cuda=True)["cuda"] == []


def test_job_that_uses_an_image_is_tested_once_in_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine runs the command on this machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    engine = tmp_path / "podman"
    calls = tmp_path / "calls"
    engine.write_text(
        f"""#!{sys.executable}
import os, sys
if sys.argv[1] == "image":
    print("{"ab" * 32} 1000")
else:
    open({str(calls)!r}, "a").write(repr(sys.argv[1:]) + "\\n")
    index = sys.argv.index("-c")
    os.execv(sys.executable, [sys.executable, *sys.argv[index:]])
"""
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    script = tmp_path / "train.py"
    script.write_text("import json\n")
    request = {
        "program": PROGRAM,
        "test": True,
        "module": "",
        "cuda": False,
        "environment": {"HF_HOME": "/data/hf"},
        "mounts": ["/data:/data:ro"],
        "options": ["--memory=1g"],
    }

    def result() -> dict[str, Any]:
        return imports.ImageImportQuery(request, "podman", "job:1", str(script), str(tmp_path)).result()

    first, second = result(), result()
    assert (first["failures"], first["cached"], second["cached"]) == ([], False, True)
    (line,) = calls.read_text().splitlines()
    for part in ("--pull=never", "--volume=/data:/data:ro", "--env=HF_HOME=/data/hf", "--memory=1g", f"{tmp_path}:ro"):
        assert part in line
    script.write_text("import absent\n")
    assert errors(result()) == [("ModuleNotFoundError: No module named 'absent'", True)]

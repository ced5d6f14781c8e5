"""The collection's utilities are imported with cached bytecode."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

from ansible.utils.collection_loader import AnsibleCollectionConfig

from ansible_collections.muster.training.plugins.plugin_utils import _compiled_modules as compiled
from ansible_collections.muster.training.plugins.plugin_utils._text import duration

PROGRAM = """
import sys
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([sys.argv[1]])
from ansible_collections.muster.training.plugins.plugin_utils import _text
from ansible_collections.muster.training.plugins.plugin_utils._text import duration
print(duration.__cached__)
print(type(_text.__loader__).__name__)
"""


def test_modules_use_pythons_loader_before_ansibles() -> None:
    assert isinstance(duration.__loader__, SourceFileLoader)
    assert Path(duration.__file__).name == "duration.py"
    finders = [type(finder).__name__ for finder in sys.meta_path]
    position = sys.meta_path.index(AnsibleCollectionConfig.collection_finder)
    assert finders[position - 1] == compiled.CompiledModules.__name__


def test_first_import_writes_bytecode(tmp_path: Path) -> None:
    tree = tmp_path / "ansible_collections" / "muster" / "training"
    source = Path(duration.__file__).parents[1]
    for path in ("__init__.py", "_compiled_modules.py", "_text/duration.py"):
        copy = tree / "plugins" / "plugin_utils" / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((source / path).read_text())
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    completed = subprocess.run(
        command, cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    cached, package_loader = completed.stdout.split()
    copy = tree / "plugins" / "plugin_utils" / "_text" / "duration.py"
    assert cached == importlib.util.cache_from_source(str(copy))
    assert Path(cached).is_file()
    assert package_loader.startswith("_Ansible"), "Ansible imports packages"


def test_other_names_are_left_to_ansible() -> None:
    finder = compiled.CompiledModules()
    prefix = compiled.PLUGINS
    assert finder.find_spec("ansible_collections.other.collection.plugins.plugin_utils.text", ["/tmp"]) is None
    assert finder.find_spec(f"{prefix}.plugin_utils._text", [str(Path(compiled.__file__).parent)]) is None
    assert finder.find_spec(f"{prefix}.plugin_utils._text.missing", [str(Path(duration.__file__).parent)]) is None

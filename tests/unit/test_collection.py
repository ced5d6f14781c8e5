"""Promises of the collection as a whole: versions, examples that work, roles that match their documentation."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.inventory.manager import InventoryManager
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import filter_loader, fragment_loader, inventory_loader, lookup_loader, module_loader
from ansible.release import __version__ as ansible_core_version
from ansible.template import Templar, trust_as_template
from ansible.utils.plugin_docs import get_plugin_docs
from ansible.vars.hostvars import HostVars
from ansible.vars.manager import VariableManager
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.support.paperspace_server.account import PaperspaceAccount
from tests.support.paperspace_server.objects import drive
from tests.support.paperspace_server.server import PaperspaceServer
from tests.unit.typed import give_collection

CHECKOUT = Path(__file__).resolve().parents[2]
COLLECTION = "muster.training"
# Type names that plugins may use in addition to those that modules may use
TYPES = {
    "boolean": "bool",
    "integer": "int",
    "string": "str",
    "dictionary": "dict",
    "pathlist": "list",
    "tmppath": "path",
}
LOADERS = {
    "filter": filter_loader,
    "inventory": inventory_loader,
    "lookup": lookup_loader,
    "modules": module_loader,
}


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def plugins(kind: str) -> list[str]:
    """Return the names of the public plugins of one kind; documentation may be in a .yml file next to the code."""
    files = (CHECKOUT / "plugins" / kind).glob("*")
    return sorted({file.stem for file in files if file.suffix in (".py", ".yml") and not file.stem.startswith("_")})


def documentation(kind: str, name: str) -> tuple[dict[str, Any], str]:
    documented_type = "module" if kind == "modules" else kind
    docs, examples, _returns, _metadata = get_plugin_docs(
        f"{COLLECTION}.{name}", documented_type, LOADERS[kind], fragment_loader, verbose=False
    )
    return docs, examples


def argument_spec(options: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the documented options as an argument spec. A template has no type before it is rendered."""
    spec = {}
    for name, option in options.items():
        value = next((arguments[key] for key in (name, *option.get("aliases", [])) if key in arguments), None)
        if isinstance(value, str) and "{{" in value:
            spec[name] = {"type": "raw", "aliases": option.get("aliases", [])}
            continue
        spec[name] = {
            key: option[key] for key in ("type", "required", "choices", "elements", "aliases") if key in option
        }
        spec[name]["type"] = TYPES.get(option.get("type", "str"), option.get("type", "str"))
        if "default" in option and not option.get("required"):
            spec[name]["default"] = option["default"]
        if "suboptions" in option:
            merged: dict[str, Any] = {}
            for entry in value if isinstance(value, list) else [value]:
                if isinstance(entry, dict):
                    merged.update(entry)
            spec[name]["options"] = argument_spec(option["suboptions"], merged)
    return spec


def problems_of(options: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    return list(ArgumentSpecValidator(argument_spec(options, arguments)).validate(arguments).error_messages)


def tasks_of(examples: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the module and arguments of every task of this collection, including those nested in plays and blocks."""
    if isinstance(examples, list):
        for entry in examples:
            yield from tasks_of(entry)
    elif isinstance(examples, dict):
        for key, value in examples.items():
            name = str(key).removeprefix(f"{COLLECTION}.")
            if name != key and name in plugins("modules"):
                yield name, value or {}
            else:
                yield from tasks_of(value)


def trusted(value: Any) -> Any:
    """Mark a playbook's values as templates, which the return value of yaml.safe_load is not."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [trusted(entry) for entry in value]
    return value


# --- Versions ---------------------------------------------------------------------------------------------------------


def test_version_is_the_newest_in_the_changelog() -> None:
    version = load(CHECKOUT / "galaxy.yml")["version"]
    releases = load(CHECKOUT / "changelogs" / "changelog.yaml")["releases"]
    assert version == max(releases, key=lambda release: [int(part) for part in release.split(".")])
    assert f"\nv{version}\n" in (CHECKOUT / "CHANGELOG.rst").read_text()


def test_supported_ansible_core_matches_installed_and_tested_versions() -> None:
    supported = SpecifierSet(load(CHECKOUT / "meta" / "runtime.yml")["requires_ansible"])
    assert ansible_core_version in supported
    pins = []
    for file in ("requirements.txt", "tests/requirements-newest.txt"):
        lines = [line for line in (CHECKOUT / file).read_text().splitlines() if line.startswith("ansible-core")]
        pins += [specifier.version for line in lines for specifier in Requirement(line).specifier]
    assert len(pins) >= 2
    assert all(pin in supported for pin in pins)
    assert min(pins).startswith(str(supported).removeprefix(">=").rsplit(".", 1)[0] + "."), "the oldest must be tested"


# --- Code on nodes ----------------------------------------------------------------------------------------------------


INSTALLED = {
    "_torch": {"torch", "flash_attn", "flash_attn_2_cuda"},
    "_benchmark_job": {"torch", "torch.distributed"},
    "_s3_client": {"boto3", "botocore.config", "botocore.exceptions"},
    "_hub": {"huggingface_hub"},
}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=str(path.relative_to(CHECKOUT)))
        for room in ("modules", "module_utils")
        for path in sorted((CHECKOUT / "plugins" / room).rglob("*.py"))
    ],
)
def test_node_code_needs_only_the_python_3_8_standard_library(path: Path) -> None:
    """Exceptions are folders that run with the interpreter of an environment that has these packages."""
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides what is sent to a node"
            imported.add(node.module or "")
    prefixes = ("ansible.module_utils", f"ansible_collections.{COLLECTION}.plugins.module_utils")
    foreign = {
        name for name in imported if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith(prefixes)
    }
    foreign -= INSTALLED.get(path.parent.name, set())
    assert not foreign


def test_plugins_do_not_import_other_plugins() -> None:
    """Shared code is in module_utils and plugin_utils."""
    kinds = ("action", "callback", "filter", "inventory", "lookup", "modules")
    prefixes = tuple(f"ansible_collections.{COLLECTION}.plugins.{kind}" for kind in kinds)
    imports = []
    for path in sorted(path for kind in kinds for path in (CHECKOUT / "plugins" / kind).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: a relative import"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            imports += [f"{path.relative_to(CHECKOUT)}: {name}" for name in names if name.startswith(prefixes)]
    assert not imports


def test_each_role_has_ansible_doc_documentation(tmp_path: Path) -> None:
    give_collection(tmp_path)
    roles = sorted(path.name for path in (CHECKOUT / "roles").iterdir())
    names = [f"{COLLECTION}.{name}" for name in roles]
    completed = subprocess.run(
        [Path(sys.executable).with_name("ansible-doc"), "-t", "role", "--json", *names],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections")},
        check=False,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 0, completed.stderr
    output = json.loads(completed.stdout)
    assert sorted(output) == names
    assert [name for name in names if not output[name]["entry_points"]["main"]["short_description"]] == []


# --- Cost per node on the controller ----------------------------------------------------------------------------------

NEWLY_IMPORTED = """
import importlib, json, os, sys
import ansible.executor.task_executor, ansible.plugins.action
from ansible.plugins.loader import init_plugin_loader
init_plugin_loader([sys.argv[1]])
before = set(sys.modules)
for name in sys.argv[2:]:
    if not os.fork():  # each begins with what Ansible has imported
        importlib.import_module(name)
        print(json.dumps([name, sorted(set(sys.modules) - before)]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"{name} cannot be imported")
"""


LAUNCH = [
    *(CHECKOUT / "roles" / "launch" / "tasks").glob("*.yml"),
    *(CHECKOUT / "playbooks" / f"{name}.yml" for name in ("launch", "status", "logs", "stop", "runs")),
]
MODULES_OF_LAUNCH = sorted(
    {name for path in LAUNCH for name in re.findall(r"^ +(\w+\.\w+\.\w+):$", path.read_text(), re.M)}
)


def test_launch_needs_no_other_collection() -> None:
    assert "muster.training.launch_plan" in MODULES_OF_LAUNCH
    assert [name for name in MODULES_OF_LAUNCH if not name.startswith(("ansible.builtin.", f"{COLLECTION}."))] == []


def test_launch_actions_add_no_imports_beyond_stdlib_and_own_code(tmp_path: Path) -> None:
    """Some run for each node at each launch, in a process that already has Ansible's imports; none needs a package."""
    give_collection(tmp_path)
    prefixes = f"ansible_collections.{COLLECTION}."
    names = [name.rpartition(".")[2] for name in MODULES_OF_LAUNCH if COLLECTION in name]
    plugins = [f"{prefixes}plugins.action.{name}" for name in names]
    command = [sys.executable, "-c", NEWLY_IMPORTED, str(tmp_path / "collections"), *plugins]
    completed = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert completed.returncode == 0, completed.stderr
    imported = dict(map(json.loads, completed.stdout.splitlines()))
    assert list(imported) == plugins and all(plugin in modules for plugin, modules in imported.items())
    namespaces = {"ansible_collections", "ansible_collections.muster"}
    foreign = {
        plugin: [
            module
            for module in modules
            if module not in namespaces
            and module.split(".")[0] not in sys.stdlib_module_names
            and not f"{module}.".startswith(prefixes)
        ]
        for plugin, modules in imported.items()
    }
    assert foreign == dict.fromkeys(plugins, [])


# --- Examples in the documentation ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", plugins("modules"))
def test_module_examples_match_module_options(name: str) -> None:
    _docs, examples = documentation("modules", name)
    tasks = list(tasks_of(yaml.safe_load(examples)))
    assert name in [module for module, _arguments in tasks], "no example uses the module itself"
    for module, arguments in tasks:
        options = documentation("modules", module)[0].get("options", {})
        assert problems_of(options, arguments) == [], f"{module}: {arguments}"


@pytest.mark.parametrize("name", plugins("inventory"))
def test_inventory_examples_match_plugin_options(name: str) -> None:
    docs, examples = documentation("inventory", name)
    documents = [document for document in yaml.safe_load_all(examples) if document]
    assert documents
    for document in documents:
        assert document["plugin"] == f"{COLLECTION}.{name}"
        assert problems_of(docs["options"], document) == [], document


@pytest.fixture(scope="module")
def account() -> Iterator[None]:
    """Provide a Paperspace account with the drive that examples name."""
    with PaperspaceServer(PaperspaceAccount()) as server, pytest.MonkeyPatch.context() as patch:
        server.account.drives.append(drive(1, id="RJFHxSmO7U03"))
        patch.setenv("PAPERSPACE_API_URL", server.url)
        patch.setenv("PAPERSPACE_API_KEY", server.key)
        yield


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in ("filter", "lookup") for name in plugins(kind)])
def test_filter_and_lookup_examples_render(kind: str, name: str, tmp_path: Path, account: None) -> None:
    (tmp_path / "nodes.yml").write_text(
        yaml.safe_dump(
            {
                "training": {
                    "hosts": {
                        f"node{rank}": {
                            "ansible_host": f"203.0.113.{10 + rank}",
                            "node_address": f"10.0.0.{10 + rank}",
                            "node_rank": rank,
                            "node_slots": 4,
                        }
                        for rank in range(4)
                    }
                }
            }
        )
    )
    loader = DataLoader()
    loader.set_basedir(str(tmp_path))
    inventory = InventoryManager(loader=loader, sources=[str(tmp_path / "nodes.yml")])
    manager = VariableManager(loader=loader, inventory=inventory)
    variables = manager.get_vars(host=inventory.get_host("node0"))
    variables["hostvars"] = HostVars(inventory=inventory, variable_manager=manager, loader=loader)
    variables["ansible_play_hosts_all"] = [host.name for host in inventory.get_hosts()]
    _docs, examples = documentation(kind, name)
    rendered = []
    for task in trusted(yaml.safe_load(examples)):
        templar = Templar(loader=loader, variables={**variables, **task.get("vars", {})})
        for module, arguments in task.items():
            if "." in module and f"{COLLECTION}.{name}" in str(task):
                rendered.append(templar.template(arguments))
    assert rendered, f"no example uses the {kind} itself"
    for arguments in rendered:
        assert all(arguments.values())
        assert "{{" not in str(arguments)


# --- Roles ------------------------------------------------------------------------------------------------------------

ROLES = sorted(path.name for path in (CHECKOUT / "roles").glob("*") if path.is_dir())


def without_job(value: Any) -> Any:
    """Return a default, or, if a job file may override it, the value that applies without a job file."""
    result = re.fullmatch(r"\{\{ job\.\w+ \| default\((.*)\) \}\}", str(value))
    return yaml.safe_load(result[1]) if result else value


@pytest.mark.parametrize("role", ROLES)
def test_role_defaults_match_argument_specs(role: str) -> None:
    defaults_file = CHECKOUT / "roles" / role / "defaults" / "main.yml"
    defaults = (load(defaults_file) or {}) if defaults_file.exists() else {}
    specs = load(CHECKOUT / "roles" / role / "meta" / "argument_specs.yml")["argument_specs"]
    options: dict[str, Any] = {}
    for entry_point in specs.values():
        options.update(entry_point.get("options", {}))
    # Required variables have no default, so they are only in the specs.
    assert set(defaults) == {name for name, option in options.items() if not option.get("required")}
    differing = {
        name: (value, options[name].get("default"))
        for name, value in defaults.items()
        # A default that is a template, or empty, is explained in the text rather than in the specs.
        if "default" in options[name] and without_job(value) != options[name]["default"]
    }
    assert differing == {}
    undeclared = [
        name
        for name, value in defaults.items()
        if "default" not in options[name] and value not in (None, "", [], {}) and "{{" not in str(value)
    ]
    assert undeclared == [], "defaults that the argument specs do not tell"


@pytest.mark.parametrize("role", ROLES)
def test_each_role_default_has_a_comment(role: str) -> None:
    defaults_file = CHECKOUT / "roles" / role / "defaults" / "main.yml"
    if not defaults_file.exists():
        return
    lines = defaults_file.read_text().splitlines()
    explained = ""
    for line in lines:
        if line.startswith("#"):
            explained = line
        elif re.match(r"\w+:", line):
            assert explained, f"no comment above {line}"
        elif not line:
            explained = ""


@pytest.mark.parametrize("role", ROLES)
def test_disabled_role_forks_no_process_per_node(role: str) -> None:
    """Ansible evaluates meta tasks itself, and forks for all others, including skipped ones."""
    defaults = CHECKOUT / "roles" / role / "defaults" / "main.yml"
    tasks = load(CHECKOUT / "roles" / role / "tasks" / "main.yml")
    if f"{role}_enabled" not in (load(defaults) if defaults.exists() else {}):
        assert not any("end_role" in str(task) for task in tasks)
        return
    before = [task for task in tasks[: tasks.index(ended(role))] if not task.get("run_once")]
    assert before == [], "each of these runs on each node, also where the role is off"


def ended(role: str) -> dict[str, Any]:
    """Return the task that ends a role if it is disabled."""
    return {
        "name": "End the role where it is off",
        "ansible.builtin.meta": "end_role",
        "when": f"not ({role}_enabled | bool)",
    }


@pytest.mark.parametrize("role", [role for role in ROLES if role != "init"])  # init runs only on this machine
def test_roles_do_not_use_the_template_lookup(role: str) -> None:
    """The lookup copies all variables for each text and node: 20 of the 60 ms that a task costs the controller."""
    lookup = re.compile(r"lookup\('(ansible\.builtin\.)?template'")
    assert [str(path) for path in (CHECKOUT / "roles" / role).glob("*/*.yml") if lookup.search(path.read_text())] == []


def imported_tasks(role: str, name: str = "main.yml") -> Iterator[dict[str, Any]]:
    """Yield a role's tasks, with imported files replaced by the tasks in them."""
    for task in load(CHECKOUT / "roles" / role / "tasks" / name):
        if "ansible.builtin.import_tasks" in task:
            yield from imported_tasks(role, task["ansible.builtin.import_tasks"])
        else:
            yield task


@pytest.mark.parametrize(
    ("role", "most"), [("base_packages", 0), ("nvidia_driver", 7), ("hosts_file", 0), ("firewall", 0), ("ssh_mesh", 5)]
)
def test_enabled_role_starts_few_processes_per_node_when_nothing_changes(role: str, most: int) -> None:
    """Each task, even if skipped, costs a controller process: related tasks are included together or not at all."""
    until_end = itertools.takewhile(lambda task: "nothing is left to do" not in task["name"], imported_tasks(role))
    tasks = [task for task in until_end if not task.get("run_once") and "ansible.builtin.meta" not in task]
    assert len(tasks) <= most, [task["name"] for task in tasks]


@pytest.mark.parametrize("role", ROLES)
def test_roles_that_can_end_early_import_no_role(role: str) -> None:
    """Ending would end the imported role only; an included role is not loaded yet."""
    imported = [task["name"] for task in imported_tasks(role) if "ansible.builtin.import_role" in str(task)]
    assert not imported or f"{role}_enabled" not in load(CHECKOUT / "roles" / role / "defaults" / "main.yml")


def test_parts_of_the_launch_role_are_imported_without_its_variables() -> None:
    """Ansible would copy all variables of the role for each part, and merge them for each task and node."""
    texts = [path.read_text(encoding="utf-8") for path in (CHECKOUT / "roles" / "launch" / "tasks").glob("*.yml")]
    imports = [item for text in texts for item in re.findall(r"import_role:\n((?: +\w+: .*\n)+)", text)]
    parts = [item for item in imports if "name: muster.training.launch\n" in item]
    assert len(parts) > 20
    assert [item for item in parts if "defaults_from: none\n" not in item or "vars_from: none\n" not in item] == []


# --- Pages ------------------------------------------------------------------------------------------------------------


def test_architecture_page_names_existing_files() -> None:
    text = (CHECKOUT / "docs" / "architecture.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:inventories|playbooks|plugins|roles|tests)(?:/[\w.*]+)*)`", text))
    supervisor = {f"plugins/module_utils/_supervisor/{name}" for name in re.findall(r"`(\w+\.py)`[^|\n]*\| ", text)}
    assert len(paths) > 30 and len(supervisor) > 10
    assert [name for name in paths | supervisor if not list(CHECKOUT.glob(name))] == []

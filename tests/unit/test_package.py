# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The contents of the package, its declared controller requirements, its module groups and its changelog."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.plugins.loader import fragment_loader, module_loader
from ansible.utils.plugin_docs import get_plugin_docs
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.galaxy import REQUIREMENT_FILES, complaints, requirement_lines
from tests.unit.typed import give_collection, typed

pytestmark = pytest.mark.one_core
CHECKOUT = Path(__file__).resolve().parents[2]
CONTROLLER_PLUGINS = ("action", "callback", "filter", "inventory", "lookup", "plugin_utils")
ENTRIES = {
    "CHANGELOG.rst",
    "CONTRIBUTING.md",
    "FILES.json",
    "LICENSE",
    "MANIFEST.json",
    "README.md",
    "SECURITY.md",
    "changelogs",
    "docs",
    "examples",
    "inventories",
    "meta",
    "playbooks",
    "plugins",
    "roles",
}
LARGEST_PACKAGE = 2_200_000  # bytes


def load(path: str) -> Any:
    return yaml.safe_load((CHECKOUT / path).read_text(encoding="utf-8"))


# --- Files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the package, built from the checkout."""
    directory = tmp_path_factory.mktemp("package")
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    command = [galaxy, "collection", "build", "--output-path", str(directory), str(CHECKOUT)]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    (built,) = directory.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def names(package: Path) -> set[str]:
    """Return the names of the files in the package."""
    with tarfile.open(package) as archive:
        return {member.name for member in archive if member.isfile()}


def test_package_has_no_files_that_git_does_not_list(names: set[str]) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert names - set(listed) == {"MANIFEST.json", "FILES.json"}


def test_package_contains_only_files_for_users(package: Path, names: set[str]) -> None:
    """Whatever is new at the top of the checkout must be listed here, or in build_ignore of galaxy.yml."""
    assert {name.partition("/")[0] for name in names} == ENTRIES
    assert {name for name in names if name.startswith("changelogs/")} == {"changelogs/changelog.yaml"}
    assert {Path(name).parent.as_posix() for name in names if name.startswith("docs/")} == {"docs"}
    assert {name for name in names if name.endswith((".gif", ".jpg", ".pdf", ".png", ".svg"))} == set()
    assert package.stat().st_size <= LARGEST_PACKAGE


def test_links_between_pages_of_the_package_point_to_its_files(names: set[str]) -> None:
    """Exceptions are links to pictures, which Galaxy does not show, and to the tests."""
    missing = set()
    for page in [name for name in names if re.fullmatch(r"(docs/)?\w+\.md", name)]:
        for target in re.findall(r"\]\(([^)#]+)", (CHECKOUT / page).read_text(encoding="utf-8")):
            path = (CHECKOUT / page).parent / target
            if "://" not in target and path.is_file():
                missing |= {str(path.resolve().relative_to(CHECKOUT))} - names
    assert {name for name in missing if not name.startswith(("docs/pictures/", "tests/", "extensions/"))} == set()


@pytest.mark.parametrize("page", ["README.md", "docs/getting_started.md"])
def test_documented_installation_without_galaxy_needs_no_network(page: str, tmp_path: Path) -> None:
    """The command for ansible-galaxy; the test environment already has the packages that the pip command installs."""
    text = (CHECKOUT / page).read_text(encoding="utf-8")
    (command,) = re.findall(r"`pip install ansible [^`]*&& (ansible-galaxy collection install [^`]*)`", text)
    (tmp_path / "training").symlink_to(CHECKOUT)
    completed = typed(tmp_path, [*command.split(), "--collections-path", str(tmp_path / "collections")])
    assert completed.returncode == 0 and "installed successfully" in completed.stdout, completed.stdout
    assert (tmp_path / "collections/ansible_collections/muster/training/README.md").is_file()


@pytest.mark.parametrize("page", ["README.md", "docs/getting_started.md"])
def test_documented_installation_draws_the_plots_of_reports(page: str) -> None:
    commands = re.findall(r"pip install (ansible[^#\n&]*)", (CHECKOUT / page).read_text(encoding="utf-8"))
    assert [command.split()[:2] for command in commands] == [
        ["ansible-core", "vl-convert-python"],
        ["ansible", "vl-convert-python"],
    ]


# --- Requirements of the controller -----------------------------------------------------------------------------------

DECLARED = [Requirement(line) for line in requirement_lines((CHECKOUT / REQUIREMENT_FILES["pip"]).read_text())]


def controller_imports() -> dict[str, set[str]]:
    """Return the third-party packages that plugins on the controller import, each with the files that do."""
    imports: dict[str, set[str]] = {}
    packages = {"ansible", "ansible_collections"}
    for path in [path for kind in CONTROLLER_PLUGINS for path in (CHECKOUT / "plugins" / kind).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
            for name in {module.partition(".")[0] for module in modules} - packages - set(sys.stdlib_module_names):
                imports.setdefault(name, set()).add(str(path.relative_to(CHECKOUT)))
    return imports


def requirement_closure(distribution: str) -> set[str]:
    """Return the distribution and all that it requires here, by canonical name."""
    names: set[str] = set()
    pending = [canonicalize_name(distribution)]
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            requirements = map(Requirement, importlib.metadata.requires(name) or [])
            pending += [
                canonicalize_name(requirement.name)
                for requirement in requirements
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            ]
    return names


def test_controller_requirements_are_what_plugins_import_besides_ansible_core() -> None:
    distributions = importlib.metadata.packages_distributions()
    included = requirement_closure("ansible-core") | {"botocore"}  # boto3's dependency, which follows its version
    imported = {canonicalize_name(distributions[name][0]) for name in controller_imports()}
    assert imported - included == {canonicalize_name(requirement.name) for requirement in DECLARED}


def test_execution_environment_names_the_requirement_files() -> None:
    dependencies = load("meta/execution-environment.yml")["dependencies"]
    assert dependencies == {"python": REQUIREMENT_FILES["pip"], "system": REQUIREMENT_FILES["bindep"]}
    system = requirement_lines((CHECKOUT / REQUIREMENT_FILES["bindep"]).read_text())
    assert {line.split()[0] for line in system} == {"openssh-client", "openssh-clients", "rsync"}


@pytest.mark.parametrize("requirement", DECLARED, ids=str)
def test_readme_names_each_controller_requirement_in_the_same_versions(requirement: Requirement) -> None:
    readme = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    _heading, requirements = readme.split("## Requirements")
    installed = {
        Requirement(word).name: Requirement(word)
        for line in re.findall(r"`pip install (?!-)([^`]+)`", requirements)
        for word in line.replace("'", "").split()
    }
    assert installed[requirement.name].specifier == requirement.specifier


@pytest.mark.parametrize("file", ["requirements.txt", "requirements-test.txt", "tests/requirements-newest.txt"])
def test_tested_versions_satisfy_the_controller_requirements(file: str) -> None:
    lines = requirement_lines((CHECKOUT / file).read_text())
    pins = {pin.name: pin for pin in [Requirement(line) for line in lines if not line.startswith("-")]}
    for requirement in DECLARED:
        for specifier in pins[requirement.name].specifier if requirement.name in pins else []:
            assert specifier.version in requirement.specifier


# --- Groups of modules ------------------------------------------------------------------------------------------------

MODULES = sorted(path.stem for path in (CHECKOUT / "plugins" / "modules").glob("*.py") if path.stem[0] != "_")
GROUPS = load("meta/runtime.yml")["action_groups"]


def members(group: str) -> list[str]:
    """Return the modules of a group, including those of the groups that it extends."""
    names: list[str] = []
    for entry in GROUPS[group]:
        if isinstance(entry, dict):
            names += [name for extended in entry["metadata"]["extend_group"] for name in members(extended)]
        else:
            names.append(entry)
    return sorted(set(names))  # a module that supports several providers is in the group of each


# Modules with the option `provider`.
CLOUD_MODULES = ("cluster", "cluster_info")


def test_action_groups_contain_each_providers_modules_and_all_modules() -> None:
    assert set(GROUPS) == {"all", "ec2", "paperspace"}
    for provider in ("ec2", "paperspace"):
        provider_modules = [name for name in MODULES if name.startswith(f"{provider}_")]
        assert members(provider) == [*CLOUD_MODULES, *provider_modules]
    assert members("all") == MODULES, "meta/runtime.yml: action_groups"


@pytest.mark.parametrize("name", MODULES)
def test_modules_document_their_action_groups(name: str) -> None:
    docs, *_others = get_plugin_docs(f"muster.training.{name}", "module", module_loader, fragment_loader, verbose=False)
    groups = {f"muster.training.{group}" for group in GROUPS if name in members(group)}
    assert set(docs["attributes"]["action_group"]["membership"]) == groups


@pytest.mark.parametrize("group", ["paperspace", "all"])
def test_module_defaults_of_a_group_reach_its_modules(group: str, tmp_path: Path) -> None:
    """Nothing listens on the port of the default api_url, which the message names."""
    give_collection(tmp_path)
    (tmp_path / "clusters.yml").write_text(
        yaml.safe_dump(
            [
                {
                    "name": "Show the clusters of the account",
                    "hosts": "localhost",
                    "gather_facts": False,
                    "module_defaults": {
                        f"group/muster.training.{group}": {"api_url": "http://127.0.0.1:9/v1", "retries": 0}
                    },
                    "tasks": [
                        {
                            "name": "Show",
                            "muster.training.cluster_info": {"provider": "paperspace", "api_key": "x" * 30},
                        }
                    ],
                }
            ]
        )
    )
    completed = typed(tmp_path, ["ansible-playbook", "clusters.yml"])
    assert completed.returncode == 2 and "127.0.0.1:9" in completed.stdout, completed.stdout


# --- Changelog --------------------------------------------------------------------------------------------------------

SECTIONS = {name for name, _title in load("changelogs/config.yaml")["sections"]} | {"release_summary", "trivial"}


@pytest.mark.parametrize("path", sorted((CHECKOUT / "changelogs/fragments").glob("*")) or [None], ids=str)
def test_changelog_fragments_list_sentences_in_known_sections(path: Path | None) -> None:
    if path is None:
        return  # already released: the fragments are in changelogs/changelog.yaml
    assert re.fullmatch(r"[a-z0-9_-]+\.yml", path.name), "antsibull-changelog would ignore this file"
    fragment = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(fragment, dict) and set(fragment) <= SECTIONS, path.name
    for section, entries in fragment.items():
        if section == "release_summary":
            assert isinstance(entries, str)
            continue
        assert isinstance(entries, list) and entries, f"{path.name}: {section} is not a list"
        assert all(isinstance(entry, str) and entry.rstrip().endswith(".") for entry in entries), (
            f"{path.name}: each entry of {section} is a sentence with a full stop"
        )


# --- Checks of the package --------------------------------------------------------------------------------------------


def test_warnings_of_the_importer_are_reported() -> None:
    output = (
        "Loading role init\nWARNING: No changelog found.\nERROR: The import failed\nImporter processing completed\n"
    )
    assert complaints(output) == ["WARNING: No changelog found.", "ERROR: The import failed"]


def test_requirement_lines_have_no_comments() -> None:
    assert requirement_lines("# of the controller\nboto3  # buckets\n\nrsync [platform:dpkg]\n") == [
        "boto3",
        "rsync [platform:dpkg]",
    ]

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links, variables, playbooks and ./muster commands on the pages exist. Each command is marked as run or not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import context

from ansible_collections.muster.training.plugins.action.run_record import run_commands
from ansible_collections.muster.training.plugins.module_utils._run.unit import LOGIND
from tests.make_site import CHECKOUT, is_foreign
from tests.unit.pages import GUIDES, PAGES, REASONS, anchors, commands, fences, links, spans, text_of
from tests.unit.test_short_words import muster

pytestmark = pytest.mark.one_core
ROLES = sorted(path.name for path in (CHECKOUT / "roles").iterdir() if path.is_dir())
PLAYBOOKS = {path.stem for path in (CHECKOUT / "playbooks").glob("*.yml")}


def options(specs: Any) -> Iterator[str]:
    """Yield all names of options in a specification, including suboptions."""
    for name, option in (specs or {}).items():
        yield name
        yield from options(option.get("options") or option.get("suboptions"))


def variables() -> set[str]:
    """Return everything that can be set: role variables, and what playbooks and defaults use in addition, such as
    nnodes.
    """
    names = set()
    for role in ROLES:
        specs = yaml.safe_load((CHECKOUT / "roles" / role / "meta/argument_specs.yml").read_text())
        for entry_point in specs["argument_specs"].values():
            names |= set(options(entry_point.get("options")))
    texts = [*CHECKOUT.glob("roles/*/defaults/main.yml"), *CHECKOUT.glob("playbooks/*.yml")]
    for text in texts:
        for template in re.findall(r"\{\{(.*?)\}\}", text.read_text(encoding="utf-8"), re.S):
            names |= set(re.findall(r"(?<![.\w'\"])[a-z]\w+", template))
    for playbook in CHECKOUT.glob("playbooks/*.yml"):
        names |= set(re.findall(r"-e (\w+)=", playbook.read_text(encoding="utf-8")))
    return names


VARIABLES = variables()
PLUGINS = {
    path.stem
    for kind in ("modules", "filter", "lookup", "inventory")
    for path in (CHECKOUT / "plugins" / kind).iterdir()
}
DISABLED = {
    role
    for role in ROLES
    if yaml.safe_load((CHECKOUT / "roles" / role / "defaults/main.yml").read_text()).get(f"{role}_enabled") is False
}
"""Roles that do nothing unless they are enabled, so site.yml refuses their tags."""
ENABLED_BEFORE = {"docs/slurm.md": {"slurm"}}
"""Roles that the settings shown on a page enable."""
SIMILAR_NAMES = {"init_process_group", "open_mpi_proof"}
"""Names that begin like a role's name but are not variables: a torch function and a file."""


SHORT = {playbook: word for word, (playbook, *_more) in muster.COMMANDS.items()}
IN_FULL = {
    # a checkout without a project, where ./muster does not exist
    "README.md": ["ansible-playbook playbooks/launch.yml"],
    "docs/getting_started.md": ["ansible-playbook logs.yml"],  # the command behind ./muster
    "docs/benchmarks.md": ["launch.yml"],  # the name of the measured command
}
"""Commands that guides show in full although ./muster has a command for them, each with the reason."""


def muster_arguments(command: str) -> list[list[str]]:
    """Return the arguments after each ./muster in a line."""
    parts = re.split(r"(?:^|\s)\./muster(?=\s|$)", command)[1:]
    return [shlex.split(part) for part in parts if part.strip()]


# --- Links ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_links_point_to_existing_files_and_headings(page: str) -> None:
    wrong = []
    for target in links(page):
        if target.startswith("#"):
            target = f"{Path(page).name}{target}"
        elif is_foreign(target):
            continue
        path, _mark, anchor = target.partition("#")
        file = (CHECKOUT / page).parent.joinpath(path).resolve()
        if not file.exists():
            wrong.append(f"{target}: there is no such file")
        elif anchor and anchor not in anchors(str(file.relative_to(CHECKOUT))):
            wrong.append(f"{target}: there is no such heading")
    assert wrong == []


def test_readme_links_to_each_guide() -> None:
    linked = {str((CHECKOUT / target.partition("#")[0]).relative_to(CHECKOUT)) for target in links("README.md")}
    assert {page for page in GUIDES if page != "README.md"} - linked == set()


def test_readme_and_its_quick_start_are_short() -> None:
    assert len(text_of("README.md").splitlines()) <= 160
    (fence,) = [fence for fence in fences("README.md") if "muster.training.init" in fence.body]
    lines = fence.body.splitlines()
    assert len(lines) < 10 and lines[-1].startswith("./muster launch ") and "{" not in fence.body


def test_site_contents_list_each_guide_once() -> None:
    listed = re.findall(r"^(docs/\w+)$", text_of("docs/site/contents.md"), re.M)
    assert sorted(f"{page}.md" for page in listed) == sorted(page for page in GUIDES if page != "README.md")


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_role_variables_named_on_pages_exist(page: str) -> None:
    """A name in code that begins with a role's name must be a variable of that role, or an existing plugin, file or
    unit.
    """
    code = [*(fence.body for fence in fences(page) if fence.language in ("sh", "yaml")), *spans(page)]
    beginnings = "|".join(sorted(ROLES, key=len, reverse=True))
    names = {name for text in code for name in re.findall(rf"(?<![\w./-])(?:{beginnings})_[a-z]\w*(?![\w/.(-])", text)}
    assert names - VARIABLES - PLUGINS - set(ROLES) - PLAYBOOKS - SIMILAR_NAMES == set()


@pytest.mark.parametrize("page", PAGES)
def test_playbooks_and_variables_in_commands_exist(page: str) -> None:
    for command in commands(page):
        for name in re.findall(r"ansible-playbook (?:playbooks/)?(\w+)\.yml", command):
            assert name in PLAYBOOKS, command
        for name in re.findall(r"ansible-playbook muster\.training\.(\w+)", command):
            assert name in PLAYBOOKS, command
        if "ansible-playbook" in command or "./muster" in command or command.startswith("-e "):
            names = set(re.findall(r"(?:^|\s)-e ['\"]?(\w+)=", command)) | set(re.findall(r"-e '\{\"(\w+)\":", command))
            assert names - VARIABLES - {"NAME"} == set(), command
        for tags in re.findall(r"--tags ([\w,]+)", command):
            assert set(tags.split(",")) - set(ROLES) - {"data"} == set(), command


@pytest.mark.parametrize("page", PAGES)
def test_commands_enable_the_roles_that_their_tags_select(page: str) -> None:
    for command in commands(page):
        for tags in re.findall(r"--tags ([\w,]+)", command):
            selected = set(tags.split(",")) & DISABLED - ENABLED_BEFORE.get(page, set())
            assert [role for role in selected if f"{role}_enabled=true" not in command] == [], command


@pytest.mark.parametrize("page", PAGES)
def test_muster_commands_on_pages_are_valid(page: str) -> None:
    for command in commands(page):
        for word, *arguments in muster_arguments(command):
            if word == "help":
                assert len(arguments) <= 1 and muster.format_help(*arguments or [""]), command
            elif word not in ("WORD", "..."):
                assert muster.translate(word, arguments)[1] == f"{muster.COMMANDS[word][0]}.yml", command


@pytest.mark.parametrize("page", GUIDES)
def test_guides_use_muster_commands_where_they_exist(page: str) -> None:
    """One notation per command: `ansible-playbook X.yml` and `X.yml -e ...` are only in printed output."""
    form = re.compile(r"ansible-playbook (?:\S*/)?(\w+)\.yml|^(\w+)\.yml(?= -|$)")
    result = [match for command in commands(page) for match in form.finditer(command)]
    in_full = [match[0] for match in result if (match[1] or match[2]) in SHORT]
    assert in_full == IN_FULL.get(page, []), f"write ./muster WORD on this page: {SHORT}"


def test_documented_hint_about_a_detached_run_matches_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUSTER_COMMAND", "./muster")
    monkeypatch.setattr(context, "CLIARGS", {})
    (hint,) = [fence.body for fence in fences("docs/running.md") if "keeps running on its nodes" in fence.body]
    run_id = hint.split()[1]
    assert hint == f"run {run_id} keeps running on its nodes.\n{run_commands(run_id)}\n"


# --- Undo -------------------------------------------------------------------------------------------------------------

READ_ONLY = {
    "/etc/apt/sources.list.d/paperspace.list",  # renamed, as the page explains
    "/etc/nsswitch.conf",
    "/etc/systemd/system",
}


def test_undo_page_names_each_role_and_each_file_that_roles_write() -> None:
    page = text_of("docs/undo.md")
    roles = {role for cell in re.findall(r"^\| (`[^|]*) \|", page, re.M) for role in re.findall(r"`(\w+)`", cell)}
    assert set(ROLES) - roles == set()
    written = set()
    for file in [*CHECKOUT.glob("roles/*/tasks/*.yml"), *CHECKOUT.glob("roles/*/vars/main.yml")]:
        text = re.sub(r"#.*", "", file.read_text(encoding="utf-8"))
        written |= set(re.findall(r"(?<![\w.}])(?:/etc|/usr/local/lib/muster|/var/lib/muster)/[\w./-]*\w", text))
    assert len(written) > 15
    assert {path for path in written - READ_ONLY if path not in page} == set()


@pytest.mark.parametrize("page", ["docs/undo.md", "roles/launch/README.md"])
def test_pages_explain_a_launchs_lasting_logind_change_and_how_to_undo_it(page: str) -> None:
    (location,) = (" ".join(part.split()) for part in re.split(r"\n(?=[|-] )", text_of(page)) if f"`{LOGIND}`" in part)
    assert all(arguments in location for arguments in ("RemoveIPC=no", "until the next boot", f"rm {LOGIND} && ")), (
        location
    )


# --- Marks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
def test_fences_have_a_language_and_shell_fences_have_a_run_mark(page: str) -> None:
    assert len(fences(page)) * 2 == len(re.findall(r"^```", text_of(page), re.M)), "a fence that is not understood"
    for fence in fences(page):
        location = f"{page}:{fence.line}"
        assert fence.language, f"{location}: a fence says its language: sh for commands, text for what they print"
        kind, _colon, detail = fence.mark.partition(": ")
        if fence.language == "sh":
            assert kind in ("run", "not run"), (
                f"{location}: no mark says whether these commands are run (tests/unit/pages.py)"
            )
            assert detail in (REASONS if kind == "not run" else ("local", "fails")), location
        elif fence.mark:
            assert kind in ("file", "shows"), f"{location}: {fence.mark} is no mark of a fence that is not sh"

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tags, switches and variables that have no effect on the roles of a play. Private, controller only."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

SPECIAL_TAGS = frozenset({"all", "always", "never", "tagged", "untagged"})
WORD = re.compile(r"\b[A-Za-z]\w*")
TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
# Prefixes of variables that other tools put on the command line and read themselves.
TOOLS = ("ansible_", "awx_", "tower_", "semaphore_", "packer_", "ara_", "mitogen_", "molecule_", "_")
COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)
MODULE = re.compile(r"^ +(?:- )?(\w+\.\w+)\.\w+:$", re.MULTILINE)


class PlayRole(NamedTuple):
    """A role of a play. switch: the default of ROLE_enabled as written in the role, "" if the user has set it."""

    name: str
    path: Path
    tags: frozenset[str]
    options: frozenset[str]
    switch: str


def is_selected(role: PlayRole, only: Collection[str], skip: Collection[str]) -> bool:
    """Whether --tags and --skip-tags leave the role in the play, by Ansible's own rules for tagged tasks."""
    run = not role.tags.isdisjoint(only) or bool({"all", "tagged"} & set(only))
    return run and role.tags.isdisjoint(skip) and not {"all", "tagged"} & set(skip)


def is_off(role: PlayRole) -> str:
    """A message that the role is off, and how to enable it."""
    needed = [name for name in dict.fromkeys(WORD.findall(role.switch)) if name in role.options]
    remedy = (
        f"set {'one of ' if len(needed) > 1 else ''}{', '.join(needed)}"
        if needed
        else f"add -e {role.name}_enabled=true"
    )
    return f"the role {role.name} is off on all nodes (to enable it, {remedy})"


def unknown_tags(option: str, given: Iterable[str], roles: Iterable[PlayRole]) -> list[str]:
    """One sentence for each tag that no role has. option: --tags or --skip-tags."""
    known = sorted({tag for role in roles for tag in role.tags})
    said = []
    for tag in given:
        if tag in SPECIAL_TAGS or tag in known:
            continue
        alike = difflib.get_close_matches(tag, known, n=1)
        hint = f"did you mean {alike[0]}?" if alike else f"Tags: {', '.join(known)}"
        said.append(f"{option} {tag}: no role has this tag; {hint}")
    return said


def idle_tags(
    only: Collection[str], skip: Collection[str], roles: Collection[PlayRole], is_on: Callable[[PlayRole], bool]
) -> list[str]:
    """One sentence for each known tag of --tags that runs nothing; if there is none, one if no role is left at all."""
    said = []
    for tag in only:
        # A tag named like a role means this role, although other roles may have the tag, too, to prepare for it.
        tagged = [role for role in roles if tag == role.name] or [role for role in roles if tag in role.tags]
        left = [role for role in tagged if is_selected(role, only, skip)]
        if tagged and not left:
            said.append(
                f"--tags {tag} selects nothing, because --skip-tags {','.join(skip)} excludes it; remove one of them"
            )
        elif left and not any(is_on(role) for role in left):
            said.append(f"--tags {tag} selects nothing: {'; '.join(map(is_off, left))}")
    if not said and not any(is_selected(role, only, skip) for role in roles):
        chosen = " ".join(
            f"{name} {','.join(tags)}" for name, tags in (("--tags", only), ("--skip-tags", skip)) if tags
        )
        said.append(f"{chosen}: no role is left to run; choose roles with --tags, or remove these options")
    return said


def idle_switches(
    switched_on: Collection[str], only: Collection[str], skip: Collection[str], roles: Iterable[PlayRole]
) -> list[str]:
    """One sentence for each role that was switched on with -e but is excluded by the tags."""
    return [
        f"{role.name}_enabled is set (with -e), but the tags exclude the role {role.name}; add {role.name} to --tags, "
        "or remove the variable"
        for role in roles
        if f"{role.name}_enabled" in switched_on and not is_selected(role, only, skip)
    ]


def unread_variables(
    typed: Collection[str],
    roles: Collection[PlayRole],
    is_on: Callable[[PlayRole], bool],
    others: Mapping[str, str],
    read_elsewhere: Callable[[], Collection[str]],
) -> list[str]:
    """One sentence for each typed variable that nothing reads.

    others: options of roles that are not in the play, each with its role. read_elsewhere: returns the words of the play
    itself and of the inventory; called only if a name is still unknown.
    """
    unknown = {name for name in typed if not name.startswith(TOOLS)}
    # Switches are always read, and a role switched off with -e is off on purpose.
    unknown -= {f"{role.name}_enabled" for role in roles}
    reading = [role for role in roles if f"{role.name}_enabled" in typed or is_on(role)] if unknown else []
    if unknown:
        unknown -= words_of(file for role in reading for file in files_of(role.path))
    if unknown:
        unknown -= set(read_elsewhere())
    said = []
    for name in sorted(unknown):
        owner = next((role for role in roles if name in role.options), None)
        if owner:
            said.append(f"{name} is set (with -e), but {is_off(owner)}")
        elif name in others:
            reader = f"only the role {others[name]} reads it, which this playbook does not run"
            said.append(f"{name} is set (with -e), but {reader}; remove it")
        else:
            said.append(f"{name} is set (with -e), but nothing reads it; correct the name, or remove it")
    return said


def needed_collections(roles: Iterable[PlayRole]) -> dict[str, list[str]]:
    """The collections whose modules the roles use, besides Ansible's own and this one, each with the roles' names."""
    needed: dict[str, list[str]] = {}
    for role in roles:
        text = "".join(file.read_text(encoding="utf-8") for file in sorted((role.path / "tasks").glob("*.yml")))
        for name in sorted(set(MODULE.findall(text)) - {"ansible.builtin", "muster.training"}):
            needed.setdefault(name, []).append(role.name)
    return needed


def files_of(role: Path) -> Iterable[Path]:
    """The files of a role that can read variables."""
    return [file for pattern in ("*/*.yml", "templates/*") for file in role.glob(pattern) if file.parent.name != "meta"]


def words_of(files: Iterable[Path]) -> set[str]:
    """All words in these files that could be names of variables, without comments."""
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return {word for text in texts for word in WORD.findall(COMMENT.sub("", text))}


def strings_in(value: object) -> Iterator[str]:
    """All strings of a nested value, without the keys of its dictionaries."""
    if isinstance(value, str):
        yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    for one in inner:
        yield from strings_in(one)


def words_in(value: object) -> set[str]:
    """All words in the strings of a nested value that could be names of variables."""
    return {word for text in strings_in(value) for word in WORD.findall(text)}


def words_of_templates(value: object) -> set[str]:
    """All words in the templates of a nested value that could be names of variables."""
    return {word for text in strings_in(value) for span in TEMPLATE.findall(text) for word in WORD.findall(span)}

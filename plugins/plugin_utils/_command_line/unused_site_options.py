# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find tags, switches and variables that do not affect any role in a play."""

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
    """A role in a play.

    switch: the default of ROLE_enabled as written in the role, "" if the user has set it; others: the variables that it
    reads in addition to its own.
    """

    name: str
    path: Path
    tags: frozenset[str]
    options: frozenset[str]
    switch: str
    others: frozenset[str] = frozenset()


def is_selected(role: PlayRole, only: Collection[str], skip: Collection[str]) -> bool:
    """Return whether --tags and --skip-tags keep the role in the play, by Ansible's rules for tagged tasks."""
    is_included = not role.tags.isdisjoint(only) or bool({"all", "tagged"} & set(only))
    return is_included and role.tags.isdisjoint(skip) and not {"all", "tagged"} & set(skip)


def describe_disabled_role(role: PlayRole) -> str:
    """Return a message that says that the role is disabled and how to enable it."""
    switches = [name for name in dict.fromkeys(WORD.findall(role.switch)) if name in role.options]
    remedy = (
        f"set {'one of ' if len(switches) > 1 else ''}{', '.join(switches)}"
        if switches
        else f"add -e {role.name}_enabled=true"
    )
    return f"the role {role.name} is disabled on all nodes (to enable it, {remedy})"


def describe_unknown_tags(option: str, tags: Iterable[str], roles: Iterable[PlayRole]) -> list[str]:
    """Return one sentence for each tag that no role has. option: either --tags or --skip-tags."""
    known_tags = sorted({tag for role in roles for tag in role.tags})
    messages = []
    for tag in tags:
        if tag in SPECIAL_TAGS or tag in known_tags:
            continue
        matches = difflib.get_close_matches(tag, known_tags, n=1)
        hint = f"did you mean {matches[0]}?" if matches else f"Tags: {', '.join(known_tags)}"
        messages.append(f"{option} {tag}: no role has this tag; {hint}")
    return messages


def describe_unused_tags(
    only: Collection[str], skip: Collection[str], roles: Collection[PlayRole], is_on: Callable[[PlayRole], bool]
) -> list[str]:
    """Return one sentence for each known tag in --tags that selects nothing, or just one if no role remains."""
    messages = []
    for tag in only:
        # A tag with the same name as a role means this role, although other roles may have the tag as well, to prepare
        # for it.
        tagged_roles = [role for role in roles if tag == role.name] or [role for role in roles if tag in role.tags]
        selected_roles = [role for role in tagged_roles if is_selected(role, only, skip)]
        if tagged_roles and not selected_roles:
            messages.append(
                f"--tags {tag} selects nothing, because --skip-tags {','.join(skip)} excludes it; remove one of them"
            )
        elif selected_roles and not any(is_on(role) for role in selected_roles):
            messages.append(f"--tags {tag} selects nothing: {'; '.join(map(describe_disabled_role, selected_roles))}")
    if not messages and not any(is_selected(role, only, skip) for role in roles):
        tag_options = " ".join(
            f"{name} {','.join(tags)}" for name, tags in (("--tags", only), ("--skip-tags", skip)) if tags
        )
        messages.append(f"{tag_options}: no roles are left to run; choose roles with --tags, or remove these options")
    return messages


def describe_unused_switches(
    switched_on: Collection[str], only: Collection[str], skip: Collection[str], roles: Iterable[PlayRole]
) -> list[str]:
    """Return one sentence for each role that was enabled with -e but is excluded by the tags."""
    return [
        f"{role.name}_enabled is set (with -e), but "
        + (
            f"--skip-tags {','.join(skip)} excludes the role {role.name}; remove the variable or --skip-tags"
            if not role.tags.isdisjoint(skip)
            else f"the tags exclude the role {role.name}; add {role.name} to --tags, or remove the variable"
        )
        for role in roles
        if f"{role.name}_enabled" in switched_on and not is_selected(role, only, skip)
    ]


def describe_unread_variables(
    typed: Collection[str],
    roles: Collection[PlayRole],
    is_on: Callable[[PlayRole], bool],
    other_options: Mapping[str, str],
    words_read_elsewhere: Callable[[], Collection[str]],
) -> list[str]:
    """Return one sentence for each typed variable that nothing reads.

    other_options: options of roles that are not in the play, each with its role. words_read_elsewhere: returns the
    words of the play itself and of the inventory; called only if a name is still unknown.
    """
    unknown = {name for name in typed if not name.startswith(TOOLS)}
    # Switches are always read, and a role that is switched off with -e is off deliberately.
    unknown -= {f"{role.name}_enabled" for role in roles}
    active_roles = [role for role in roles if f"{role.name}_enabled" in typed or is_on(role)] if unknown else []
    if unknown:
        unknown = unknown.difference(*(role.options | role.others for role in active_roles))
    if unknown:
        unknown -= set(words_read_elsewhere())
    messages = []
    for name in sorted(unknown):
        owner = next((role for role in roles if name in role.options), None)
        if owner:
            messages.append(f"{name} is set (with -e), but {describe_disabled_role(owner)}")
        elif name in other_options:
            reader = f"only the role {other_options[name]}, which this playbook does not run, reads it"
            messages.append(f"{name} is set (with -e), but {reader}; remove it")
        else:
            messages.append(f"{name} is set (with -e), but nothing reads it; correct the name, or remove it")
    return messages


def required_collections(roles: Iterable[PlayRole]) -> dict[str, list[str]]:
    """Return collections whose modules the roles use, except Ansible's and this one, with the roles' names for each."""
    collections: dict[str, list[str]] = {}
    for role in roles:
        text = "".join(file.read_text(encoding="utf-8") for file in sorted((role.path / "tasks").glob("*.yml")))
        for name in sorted(set(MODULE.findall(text)) - {"ansible.builtin", "muster.training"}):
            collections.setdefault(name, []).append(role.name)
    return collections


def names_in_files(files: Iterable[Path]) -> set[str]:
    """Return all words in these files, except in comments, that could be variable names."""
    texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
    return {word for text in texts for word in WORD.findall(COMMENT.sub("", text))}


def strings_in(value: object) -> Iterator[str]:
    """Yield all strings in a nested value, except dictionary keys."""
    if isinstance(value, str):
        yield value
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    for item in items:
        yield from strings_in(item)


def names_in_strings(value: object) -> set[str]:
    """Return all words in a nested value's strings that could be variable names."""
    return {word for text in strings_in(value) for word in WORD.findall(text)}


def names_in_templates(value: object) -> set[str]:
    """Return all words in a nested value's templates that could be variable names."""
    return {word for text in strings_in(value) for span in TEMPLATE.findall(text) for word in WORD.findall(span)}

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the variables typed after -e on the command line, but not those in a file."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any

import yaml
from ansible.parsing.splitter import parse_kv


class TagIgnoringLoader(yaml.SafeLoader):
    """YAML loader that ignores Ansible's own tags !unsafe and !vault, and keeps the tagged values."""


def _construct_untagged(loader: TagIgnoringLoader, _tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node) if isinstance(node, yaml.ScalarNode) else None


TagIgnoringLoader.add_multi_constructor("!", _construct_untagged)


def read_yaml(text: str) -> Any:
    """Read JSON or YAML as Ansible does, ignoring Ansible's own tags. Raise yaml.YAMLError if it is invalid."""
    with contextlib.suppress(ValueError):  # JSON allows things that YAML does not, such as tabs
        return json.loads(text)
    # str(): the parser does not accept Ansible's own string type
    return yaml.load(str(text), Loader=TagIgnoringLoader)


def typed_variables(texts: Iterable[str]) -> dict[str, Any]:
    """Parse the variables in the texts after -e as Ansible does.

    Variables of a file (-e @FILE) are omitted: it may serve other playbooks too.
    """
    variables: dict[str, Any] = {}
    for text in texts:
        if text and not text.startswith("@"):
            variables.update(read_yaml(text) if text[0] in "[{" else parse_kv(text))
    return variables

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Variables that were typed behind -e, in words and not in a file. Private to this collection, controller only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ansible.parsing.splitter import parse_kv


def typed_variables(words: Iterable[str], load: Callable[[str], Any]) -> dict[str, Any]:
    """The variables of these words, read as Ansible reads them. load: reads JSON or YAML.

    What a file given as -e @FILE holds is left out: it may serve other playbooks too.
    """
    found: dict[str, Any] = {}
    for word in words:
        if word and not word.startswith("@"):
            # Ansible marks the words as its own kind of text, which the parser of YAML does not take
            found.update(load(str(word)) if word[0] in "[{" else parse_kv(word))
    return found

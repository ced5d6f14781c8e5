# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find a job's checkpoint directory in its arguments and in the configuration files that they name.

Nothing is executed, imported or expanded. A configuration file is read up to a limit.
"""

from __future__ import annotations

import os
import re

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost each node a few milliseconds
    from collections.abc import Iterator
    from typing import Any, Sequence

# Last components of the names of options and keys that hold the directory (trainer.default_root_dir), in order of
# preference: those of scripts and DCP, DeepSpeed and Megatron, Lightning's ModelCheckpoint, Transformers, Lightning's
# Trainer.
NAMES = (
    *("checkpoint_dir", "checkpoints_dir", "ckpt_dir", "checkpoint_path", "checkpoint_folder", "checkpoints"),
    *("save_dir", "save_checkpoint_dir", "save_path", "save_folder", "save"),
    "dirpath",
    "output_dir",
    "default_root_dir",
)
CONFIG_OPTION = re.compile(r"--?[a-z_.-]*conf(ig)?(ig)?([-_.](file|path|yaml))?\Z", re.I)
CONFIG_FILE = re.compile(r"[^\0\n]+\.(ya?ml|json)\Z", re.I)
YAML_LINE = re.compile(r"[ \t]*(?:- )?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*:[ \t]+(\S.*)")
PLACEHOLDER = re.compile(r"[${}*&|>\n\0]")
URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.I)
MAX_CONFIG_BYTES = 2**20
MAX_CONFIG_FILES = 8
MAX_VALUE = 4096
NOTHING = {"", "null", "none", "~", "true", "false"}


def rank_of(name: str) -> int | None:
    """Return the position of an option or key in NAMES, or None if it is not there."""
    last = name.lstrip("-+").rpartition(".")[2].replace("-", "_").lower()
    return NAMES.index(last) if last in NAMES else None


def pairs_of_arguments(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for each --name value, --name=value and Hydra name=value."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if equals:
            yield name, value
        elif argument.startswith("-") and not argument.lstrip("-").isdigit():
            following = next(iter(arguments[index + 1 : index + 2]), "")
            if not following.startswith("-"):
                yield name, following


def config_files(arguments: Sequence[str], directory: str) -> list[str]:
    """Return the configuration files named in the arguments."""
    named = [value for name, value in pairs_of_arguments(arguments) if CONFIG_OPTION.match(name)]
    named += [argument.lstrip("@") for argument in arguments if not argument.startswith("-") and "=" not in argument]
    files = dict.fromkeys(value for value in named if CONFIG_FILE.match(value))
    return [os.path.join(directory, os.path.expanduser(path)) for path in files][:MAX_CONFIG_FILES]


def pairs_of_json(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the strings in a JSON value with their keys. The depth was limited during parsing."""
    queue = [value]
    while queue:
        current = queue.pop()
        if isinstance(current, dict):
            yield from ((str(key), entry) for key, entry in current.items() if isinstance(entry, str))
            queue.extend(current.values())
        elif isinstance(current, list):
            queue.extend(current)


def pairs_of_yaml(text: str) -> Iterator[tuple[str, str]]:
    """Yield the plain and quoted strings in a YAML file with their keys, line by line, as there is no YAML parser
    here.
    """
    for line in text.splitlines():
        match = YAML_LINE.match(line)
        if match:
            value = match[2].strip()
            quote = value[0]
            if quote in "'\"":
                yield match[1], value[1:].partition(quote)[0]
            else:
                yield match[1], re.split(r"\s+#", value)[0]


def pairs_of_config(path: str) -> list[tuple[str, str]]:
    """Return the strings in a configuration file with their keys, or [] if it cannot be read."""
    try:
        text = read_bytes(path, MAX_CONFIG_BYTES).decode("utf-8")
        return list(pairs_of_json(parse_json(text)) if path.lower().endswith(".json") else pairs_of_yaml(text))
    except (OSError, ValueError, RecursionError):
        return []


def best_pair(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the name and value of the best option; among equals, the last one wins, as in argparse."""
    best: tuple[int, str, str] | None = None
    for name, value in pairs:
        rank = rank_of(name)
        usable = value.lower() not in NOTHING and len(value) <= MAX_VALUE and not PLACEHOLDER.search(value)
        if rank is not None and usable and (best is None or rank <= best[0]):
            best = (rank, name, value)
    return None if best is None else best[1:]


def detect(arguments: Sequence[str], directory: str) -> tuple[str, str]:
    """Return the checkpoint directory named by the job and where it is named, or ("", "").

    directory: the job's working directory, for relative paths of configuration files.
    """
    pair = best_pair(list(pairs_of_arguments(arguments)))
    if pair is not None:
        return pair[1], pair[0]
    for path in config_files(arguments, directory):
        pair = best_pair(pairs_of_config(path))
        if pair is not None:
            return pair[1], f"{pair[0]} in {os.path.basename(path)}"
    return "", ""

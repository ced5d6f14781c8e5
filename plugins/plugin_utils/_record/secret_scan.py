# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find secrets in source code and configuration before a copy is stored.

Stricter than the redaction of output: there, `token = tokenizer(text)` only loses a value; here, it rejects a file.
Words that secrets begin with are searched first, since these patterns would take long for megabytes.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

from ansible_collections.muster.training.plugins.plugin_utils._report.redact import (
    ASSIGNMENT,
    BEARER,
    NETRC,
    SIGNED_URL,
    URL_PASSWORD,
    WHOLE,
    is_ordinary,
    key_of,
)

MIN_LITERAL = 6  # number of characters in a password
# Files in which an unquoted value is usually an expression.
PROGRAMS = {
    *(
        ".py",
        ".pyi",
        ".pyx",
        ".c",
        ".cc",
        ".cpp",
        ".cu",
        ".cuh",
        ".h",
        ".hpp",
        ".go",
        ".rs",
        ".js",
        ".jsx",
        ".ts",
        ".tsx",
    ),
    *(".java", ".kt", ".scala", ".jl", ".lua", ".r", ".rb", ".swift", ".cs", ".php", ".html", ".css", ".sql", ".proto"),
}
PROSE = {".md", ".rst", ".txt", ".tex", ".log", ".csv", ".tsv"}
NOTEBOOK = ".ipynb"
# Values that stand in for a secret: references, placeholders, type names.
PLACEHOLDER = re.compile(
    r"[<${%\[*].*|.*\$?\{.*\}.*|[A-Z]+(?:_[A-Z]+)+|(?i:\w*(?:token|secret|password|passwd|api_?key|cookie)s?|"
    r"required|string|optional|change_?me|replace_?me|example|x{3,}|\.{3}|your[-_ ].*|"
    r"(?:read|write|none)\W{0,3})"  # permissions in GitHub workflows: `id-token: write`
)
EXPRESSION = re.compile(r".*[({].*|(?:os|args|self|config|cfg)\..*")  # an unquoted expression
NUMBER = re.compile(r"[\d.]+")
PASSWORD = re.compile(r".*(?:passw|passphrase|_pwd|_pass$).*", re.IGNORECASE)
SENTENCE = re.compile(
    r"\b(?:the|an?|your|of|for|to|is|are|not|no|must|enter|if|or|with|password|passphrase|token|key|wrong|invalid)\b",
    re.IGNORECASE,
)
# The lower-case prefixes of the patterns' matches; "key" covers the names in SECRET_WORD that end with it.
NAMES = (
    "passw",
    "_pwd",
    "_pass",
    "passphrase",
    "secret",
    "token",
    "credential",
    "authorization",
    "signature",
    "cookie",
)
KEY_NAME = re.compile(r"(?:api|access|private|wandb|kaggle|account|client|auth)[_-]?$")
SESSION = "session"
TOKENS = (
    *(
        "hooks.slack.com",
        "discord.com",
        "discordapp.com",
        "gsk_",
        "r8_",
        "akia",
        "asia",
        "abia",
        "acca",
        "hf_",
        "api_org_",
    ),
    *(
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "glpat-",
        "sk-",
        "xox",
        "aiza",
        "ya29.",
        "nvapi-",
        "pypi-",
    ),
    *("npm_", "dop_v1_", "eyj", "ssh-"),
)
PRIVATE_KEY = re.compile(r"-----(?:BEGIN|END) [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
WANDB = re.compile(r"wandb[^\n]{0,40}\b[0-9a-f]{40}\b|\b[0-9a-f]{40}\b[^\n]{0,40}wandb")
SIGNED = ("x-amz-", "sig=", "signature=", "token=", "key=")
MAX_SCHEME = 22  # characters before "://"


def find_secret(name: str, content: bytes) -> int:
    """Return the number of the first line with a secret, or 0 if there is none. name: the file's name."""
    text = content.decode("latin-1")  # one character per byte, so that positions in the lower-case text are the same
    lowered = text.lower()
    positions = [*find_tokens(text, lowered), *find_assignments(name, text, lowered)]
    return text.count("\n", 0, min(positions)) + 1 if positions else 0


def occurrences(text: str, word: str) -> Iterator[int]:
    """Yield the positions of a word."""
    position = text.find(word)
    while position >= 0:
        yield position
        position = text.find(word, position + len(word))


def windows(text: str, word: str, before: int, after: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges around a word to search for a pattern, which cover all its occurrences and their
    surroundings.
    """
    end = 0
    for position in occurrences(text, word):
        if position + after > end:
            end = position + 3 * after
            yield max(0, position - before), end


def first_match(
    pattern: re.Pattern[str], text: str, starts: Iterator[int], accepts: Callable[[re.Match[str]], bool] | None = None
) -> list[int]:
    """Return the position of the first match at one of these positions."""
    for start in starts:
        match = pattern.match(text, start)
        if match and (accepts is None or accepts(match)):
            return [start]
    return []


def find_tokens(text: str, lowered: str) -> list[int]:
    """Return the positions of values that are recognizable as secrets by their format."""
    positions = []
    for word in TOKENS:
        positions += first_match(WHOLE, text, occurrences(lowered, word))
    for start in occurrences(lowered, "private key"):
        match = PRIVATE_KEY.search(text, max(0, start - 50), start + 50)
        positions += [match.start()] if match else []
    for begin, end in windows(lowered, "wandb", 90, 90):
        match = WANDB.search(text, begin, end)
        positions += [match.start()] if match else []
    if "password" in lowered:
        positions += first_match(NETRC, text, occurrences(lowered, "machine"))
    for word in SIGNED:
        positions += first_match(SIGNED_URL, text, (start - 1 for start in occurrences(lowered, word) if start))
    for begin, end in windows(lowered, "://", MAX_SCHEME, 500):
        addresses = URL_PASSWORD.finditer(text, begin, end)
        positions += [match.start() for match in addresses if is_url_password(match[0])]
    for word in ("bearer", "basic", "token"):
        positions += first_match(
            BEARER, text, occurrences(lowered, word), lambda match: bool(re.search(r"\d", match[0]))
        )
    return positions


def find_assignments(name: str, text: str, lowered: str) -> list[int]:
    """Return the positions of values assigned to names such as PASSWORD. name: the file's name."""
    kind = posixpath.splitext(posixpath.basename(name))[1].lower()
    positions = []
    for word in (*NAMES, SESSION):
        positions += first_match(ASSIGNMENT, text, occurrences(lowered, word), lambda match: is_secret(match, kind))
    positions += first_match(ASSIGNMENT, text, key_names(lowered), lambda match: is_secret(match, kind))
    return positions


def key_names(lowered: str) -> Iterator[int]:
    """Yield the positions of names such as api_key."""
    for position in occurrences(lowered, "key"):
        begin = max(0, position - 9)
        match = KEY_NAME.search(lowered[begin:position])
        if match:
            yield begin + match.start()


def is_url_password(url: str) -> bool:
    """Return whether the user part of a URL contains a literal password."""
    _user, colon, password = url.partition("://")[2][:-1].partition(":")
    return bool(colon) and bool(password) and not re.match(r"[<${%]", password)


def is_secret(match: re.Match[str], kind: str) -> bool:
    """Return whether an assignment sets a secret to a literal value. kind: the extension of the file's name."""
    value, key = match["value"].replace("\\", ""), key_of(match)
    quoted = value[:1] in ("'", '"')
    literal = value.strip("\"'")
    if len(literal) < MIN_LITERAL or is_ordinary(key) or PLACEHOLDER.fullmatch(literal):
        return False
    if NUMBER.fullmatch(literal):
        return bool(PASSWORD.fullmatch(key)) and (quoted or kind not in PROGRAMS)
    if not quoted:
        return not EXPRESSION.fullmatch(literal) and is_written_out(match, kind, key, literal)
    return " " not in literal or (bool(PASSWORD.fullmatch(key)) and not SENTENCE.search(literal))


def is_written_out(match: re.Match[str], kind: str, key: str, literal: str) -> bool:
    """Return whether unquoted text is a literal value, rather than an expression or a word in a sentence."""
    if kind in PROGRAMS:
        return False
    has_digit = any(character.isdigit() for character in literal)
    if kind == NOTEBOOK:  # a shell command in a cell
        return has_digit and key.isupper() and match["name"].endswith("=") and not match["name"].endswith(" =")
    return has_digit or kind not in PROSE

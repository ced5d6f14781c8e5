# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find secrets in source code and configuration, before a copy of it is kept.

Stricter than the redaction of output: there, `token = tokenizer(text)` loses a value, here it would refuse a file.
"""

from __future__ import annotations

import posixpath
import re

from ansible_collections.muster.training.plugins.plugin_utils._report.redact import (
    ASSIGNMENT,
    BEARER,
    NETRC,
    ORDINARY,
    SIGNED_URL,
    URL_PASSWORD,
    WHOLE,
)

MAX_SCANNED = 8 << 20  # characters of one file
MIN_LITERAL = 6  # characters of a password in quotes
# Files in which a value needs no quotes.
SETTINGS_FILES = (".env", ".ini", ".cfg", ".conf", ".yml", ".yaml", ".toml", ".properties", ".sh", ".netrc", "")
# Values that stand for a secret: references, placeholders, type names.
PLACEHOLDER = re.compile(
    r"[<${%\[*].*|.*[({].*|[A-Z_]+|[\d.]+|(?:os|args|self|config|cfg)\..*|(?i:\w*(?:token|secret|password|passwd|api_?key|cookie)s?|"
    r"required|string|optional|changeme|example|x{3,}|\.{3}|your[-_ ].*)"
)


def find_secret(name: str, text: str) -> int:
    """Return the number of the first line with a secret, 0 if there is none. name: of the file."""
    text = text[:MAX_SCANNED]
    positions = [match.start() for pattern in (WHOLE, NETRC, SIGNED_URL) for match in pattern.finditer(text)]
    positions += [match.start() for match in URL_PASSWORD.finditer(text) if is_url_password(match[0])]
    positions += [match.start() for match in BEARER.finditer(text) if re.search(r"\d", match[0])]
    unquoted = (
        posixpath.splitext(posixpath.basename(name))[1] in SETTINGS_FILES or posixpath.basename(name)[:4] == ".env"
    )
    positions += [match.start("value") for match in ASSIGNMENT.finditer(text) if is_secret(match, unquoted)]
    return text.count("\n", 0, min(positions)) + 1 if positions else 0


def is_url_password(url: str) -> bool:
    """Return whether the user part of an address has a password that is written out."""
    _user, colon, password = url.partition("://")[2][:-1].partition(":")
    return bool(colon) and bool(password) and not re.match(r"[<${%]", password)


def is_secret(match: re.Match[str], unquoted: bool) -> bool:
    """Return whether an assignment gives a secret a value that is written out."""
    value = match["value"].replace("\\", "")
    quoted = value[:1] in ("'", '"')
    literal = value.strip("\"'")
    if ORDINARY.fullmatch(match["key"]) or len(literal) < MIN_LITERAL or not (quoted or unquoted):
        return False
    return not PLACEHOLDER.fullmatch(literal) and " " not in literal

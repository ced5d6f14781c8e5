# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Remove secrets from text that is sent to someone else: tokens in known formats, and values of names like PASSWORD."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

REMOVED = "[removed]"
MIN_SECRET = 6  # number of characters of a known value to remove; shorter values would remove ordinary words
MAX_DEPTH = 50  # nesting levels of lists and mappings
# A name whose value is secret, as part of an identifier: HF_TOKEN, aws_secret_access_key, "apiKey", dbPassword.
SECRET_WORD = (
    r"(?:passw(?:or)?d|_pwd|_pass\b|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|"
    r"(?:wandb|kaggle|account|client|auth)[_-]?key|credential|authorization|signature|session[_-]?id|cookie)"
)
NAME_END = rf"{SECRET_WORD}[\w.-]{{0,40}}"
SECRET_NAME = rf"[\w.-]{{0,60}}{NAME_END}"
MAX_NAME = 100  # number of characters before the word
# Names that match although their values are not secret: counts of tokens in a text, for example.
ORDINARY = re.compile(
    r"(?:(?:max|min|num|n|total|special|added|input|output|per|seen|new)_(?:\w{1,20}_)?)?tokens(?:_\w{0,30})?|"
    r"(?:pad|eos|bos|unk|cls|sep|mask|image)_token|tokenizer\w{0,40}|"
    r"(?:[a-z0-9]{1,12}_){1,3}tokenizer(?:_(?:name|path|file|type|class|dir|config|model))?|tiktoken(?:_\w{0,30})?|"
    r"token_(?:embed(?:ding)?s?|types?|level|dropout|shift|mixer)(?:_\w{0,30})?|(?:pad|eos|bos|unk|image)?_?token_ids?",
    re.IGNORECASE,
)
WHOLE = re.compile(
    r"(?:^[A-Za-z0-9+/=]{1,80}\n){1,400}-----END [A-Z ]{0,30}PRIVATE KEY-----|"  # cut off before
    r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----BEGIN).){0,20000}?"  # SSH, TLS, PGP
    r"(?:-----END [A-Z ]{0,30}PRIVATE KEY(?: BLOCK)?-----|(?=-----BEGIN)|\Z)"
    r"|\bhooks\.slack\.com/services/\S{1,200}|\bdiscord(?:app)?\.com/api/webhooks/\S{1,200}"
    r"|\bgsk_[A-Za-z0-9]{20,200}|\br8_[A-Za-z0-9]{20,200}"  # Groq, Replicate
    r"|\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"  # AWS
    r"|\bhf_[A-Za-z0-9]{20,200}|\bapi_org_[A-Za-z0-9]{20,200}"  # Hugging Face
    r"|\bgh[pousr]_[A-Za-z0-9]{20,255}|\bgithub_pat_\w{20,255}|\bglpat-[\w-]{16,255}"  # GitHub, GitLab
    r"|\bsk-[\w-]{16,255}|\bxox[abeoprs]-[\w-]{10,255}|\bAIza[\w-]{30,60}|\bya29\.[\w.-]{20,400}"  # OpenAI, Slack
    r"|\bnvapi-[\w-]{20,255}|\bpypi-[\w-]{20,400}|\bnpm_[A-Za-z0-9]{20,100}|\bdop_v1_[0-9a-f]{20,100}"
    r"|\beyJ[\w-]{10,2000}\.[\w-]{5,4000}\.?[\w-]{0,2000}"  # JSON web tokens
    r"|\bssh-(?:rsa|ed25519|dss) [A-Za-z0-9+/=]{40,2000}"
    r"|\b[0-9a-f]{40}\b(?=[^\n]{0,40}wandb)|(?<=wandb: )[0-9a-f]{40}\b"  # Weights & Biases
    r"|\bwandb[^\n]{0,40}\b[0-9a-f]{40}\b",
    re.DOTALL | re.MULTILINE,
)
URL_PASSWORD = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@]{1,400}@", re.IGNORECASE)
NETRC = re.compile(
    r"(?P<name>\bmachine\s{1,4}\S{1,255}\s{1,20}(?:(?:login|account)\s{1,4}\S{1,255}\s{1,20}){0,2}password\s{1,4})\S{1,2000}"
)
SIGNED_URL = re.compile(
    r"(?P<name>[?&](?:X-Amz-(?:Signature|Credential|Security-Token)|sig|signature|token|key|access_token|api_key)=)"
    r"[^&\s\"']{1,2000}",
    re.IGNORECASE,
)
BEARER = re.compile(r"(?P<name>\b(?:Bearer|Basic|Token)\s{1,3})[\w.~+/=-]{12,4000}")
KEPT = re.escape(REMOVED)
# Starts at the word that makes a name secret, not at the beginning of the name, since that would take long for long
# words.
ASSIGNMENT = re.compile(
    rf"(?P<name>(?P<key>{NAME_END})(?:\\?[\"'])?\]?\s{{0,3}}(?:[=:]|\s--?>)\s{{0,3}})(?!{KEPT})"
    r"(?P<value>\\\"[^\"\\\n]{1,2000}\\\"|\"[^\"\n]{1,2000}\"|'[^'\n]{1,2000}'|[^\s,;}\]\"']{1,2000})",
    re.IGNORECASE,
)
OPTION = re.compile(
    rf"(?P<name>(?<![\w-])--(?P<key>{SECRET_NAME})[ \n]{{1,3}})(?!{KEPT})(?P<value>[^\s-][^\s]{{0,2000}})",
    re.IGNORECASE,
)
SECRET_KEY = re.compile(SECRET_NAME, re.IGNORECASE)
NAME_CHARACTERS = "".join(filter(re.compile(r"[\w.-]").match, map(chr, range(128))))


def key_of(match: re.Match[str]) -> str:
    """Return the full name in a match of ASSIGNMENT or OPTION."""
    before = match.string[max(0, match.start("key") - MAX_NAME) : match.start("key")]
    return before[len(before.rstrip(NAME_CHARACTERS)) :] + match["key"]


def is_ordinary(name: str) -> bool:
    """Return whether a name matched by SECRET_NAME has a value that is not secret."""
    return bool(ORDINARY.fullmatch(name.rpartition(".")[2].strip("-")) or ORDINARY.fullmatch(name))


def strip_value(match: re.Match[str]) -> str:
    """Return an assignment without its value, unless its name is ordinary or its value is harmless.

    Harmless values are numbers of at most 12 characters, true, false, null and none.
    """
    if is_ordinary(key_of(match)) or re.fullmatch(r"[\d.]{1,12}|true|false|null|none", match["value"], re.I):
        return match[0]
    return match["name"] + REMOVED


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without secrets.

    secrets: values that are known to be secret, of whatever form.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, REMOVED)
    text = WHOLE.sub(REMOVED, text)
    text = NETRC.sub(rf"\g<name>{REMOVED}", text)
    text = URL_PASSWORD.sub(rf"\g<scheme>{REMOVED}@", text)
    for pattern in (SIGNED_URL, BEARER):
        text = pattern.sub(rf"\g<name>{REMOVED}", text)
    for pattern in (ASSIGNMENT, OPTION):
        text = pattern.sub(strip_value, text)
    return text


def redact_values(value: Any, clean: Callable[[str], str], depth: int = 0) -> Any:
    """Return a JSON value after redacting its texts and removing the values of secret names."""
    if depth > MAX_DEPTH:
        return REMOVED
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return clean("\n".join(value)).split("\n")  # a key may span several lines, and an option two items
    if isinstance(value, list):
        return [redact_values(item, clean, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        clean(str(key)): REMOVED
        if isinstance(item, str) and SECRET_KEY.fullmatch(str(key)) and not ORDINARY.fullmatch(str(key))
        else redact_values(item, clean, depth + 1)
        for key, item in value.items()
    }

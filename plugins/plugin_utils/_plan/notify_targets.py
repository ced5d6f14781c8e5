# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The notification targets, as written by the user. URLs are secrets: no message may contain one."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Mapping
from typing import Any

from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.messages import (
    ENDED,
    EVENTS,
    KINDS,
)
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.outbox import (
    MAX_TARGETS,
    MAX_URL,
)

ALL_KINDS = (*KINDS, "smtp")
SCHEMES = {"smtp": ("smtp", "smtps")}  # schemes by kind; all other kinds use http and https
KEYS = {"url", "kind", "events"}
EVENT_NAMES = (*dict.fromkeys(EVENTS.values()), ENDED)
# The kind of service, determined by the end of its host name.
HOSTS = {
    "hooks.slack.com": "slack",
    "hooks.slack-gov.com": "slack",
    "discord.com": "discord",
    "discordapp.com": "discord",
    "webhook.office.com": "teams",
    "logic.azure.com": "teams",
    "api.powerplatform.com": "teams",
    "ntfy.sh": "ntfy",
}


def read_targets(value: object) -> list[dict[str, Any]]:
    """Return the targets, each with url, kind and events. Raise a ValueError that lists all problems.

    value: a URL, several separated by spaces or commas, or a list of URLs and of dictionaries with url, kind, events.
    """
    entries = re.split(r"[\s,]+", value.strip(" ,\n")) if isinstance(value, str) else value
    if entries in (None, [""], []):
        return []
    if isinstance(entries, Mapping):
        entries = [entries]
    if not isinstance(entries, list):
        raise ValueError(
            "launch_notify must be a URL, or a list of URLs and dictionaries with the keys url, kind and events"
        )
    problems = (
        [] if len(entries) <= MAX_TARGETS else [f"launch_notify has {len(entries)} URLs; use at most {MAX_TARGETS}"]
    )
    targets = []
    for number, entry in enumerate(entries, start=1):
        target = dict(entry) if isinstance(entry, Mapping) else {"url": entry}
        problem = target_problem(target)
        if problem:
            problems.append(f"launch_notify, entry {number}: {problem}")
            continue
        events = target.get("events") or EVENT_NAMES
        events = events.split(",") if isinstance(events, str) else events
        url = str(target["url"])
        targets.append({"url": url, "kind": target.get("kind") or kind_of(url), "events": [*map(str, events)]})
    if problems:
        raise ValueError("\n".join(problems))
    return targets


def target_problem(target: Mapping[str, Any]) -> str:
    """Return the problem with a target, or "" if it is valid."""
    if set(target) - KEYS:
        return f"unknown key {ascii(sorted(set(target) - KEYS)[0])[:40]}; use url, kind and events"
    url = target.get("url")
    try:
        parts = urllib.parse.urlsplit(url if isinstance(url, str) else "")
        host, _port = parts.hostname, parts.port
    except ValueError:
        return "the URL is invalid"
    if not host or len(str(url)) > MAX_URL or not str(url).isprintable() or " " in str(url):
        return "the URL is invalid; use https://HOST/... or smtp://USER:PASSWORD@HOST:PORT?from=ADDRESS&to=ADDRESS"
    kind = target.get("kind") or kind_of(str(url))
    if kind not in ALL_KINDS:
        return f"unknown kind {ascii(kind)[:40]}; use {', '.join(ALL_KINDS)}"
    schemes = SCHEMES.get(kind, ("http", "https"))
    if parts.scheme not in schemes:
        return f"for the kind {kind}, the URL must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if kind == "smtp" and not {"from", "to"} <= set(urllib.parse.parse_qs(parts.query)):
        return "the URL of a mail server must end with ?from=ADDRESS&to=ADDRESS"
    return event_problem(target.get("events"))


def event_problem(events: object) -> str:
    """Return the problem with a target's events, or "" if they are valid."""
    names = events.split(",") if isinstance(events, str) else events or []
    if not isinstance(names, list):
        return "events must be a list"
    unknown = [name for name in names if name not in EVENT_NAMES]
    return f"unknown event {ascii(unknown[0])[:40]}; use {', '.join(EVENT_NAMES)}" if unknown else ""


def kind_of(url: str) -> str:
    """Return the kind of service that a URL belongs to; "json" for an unknown host."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme in ("smtp", "smtps"):
        return "smtp"
    host = (parts.hostname or "").lower()
    return next((kind for end, kind in HOSTS.items() if host == end or host.endswith(f".{end}")), "json")

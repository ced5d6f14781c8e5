"""User-written targets of notifications. No error contains a URL."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.muster.training.plugins.plugin_utils._plan.job_file import settings_of_job
from ansible_collections.muster.training.plugins.plugin_utils._plan.notify_targets import (
    EVENT_NAMES,
    kind_of,
    read_targets,
)

SLACK = "https://hooks.slack.com/services/s3cr3t"
NTFY = "https://ntfy.example.org/s3cr3t"
MAIL = "smtps://me:s3cr3t@mail.example.org:465?from=a@b.org&to=c@d.org"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        (None, []),
        ([], []),
        (SLACK, [(SLACK, "slack", [*EVENT_NAMES])]),
        (f" {SLACK} {NTFY},\n", [(SLACK, "slack", [*EVENT_NAMES]), (NTFY, "json", [*EVENT_NAMES])]),
        ([SLACK, {"url": NTFY, "kind": "ntfy", "events": ["ended"]}],
         [(SLACK, "slack", [*EVENT_NAMES]), (NTFY, "ntfy", ["ended"])]),
        ({"url": MAIL, "events": "ended,hang"}, [(MAIL, "smtp", ["ended", "hang"])]),
    ],
)  # fmt: skip
def test_targets_are_parsed(value: Any, expected: list[tuple[str, str, list[str]]]) -> None:
    targets = [(target["url"], target["kind"], target["events"]) for target in read_targets(value)]
    assert targets == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("s3cr3t", "entry 1: the URL is invalid"),
        ("ftp://example.org/s3cr3t", "entry 1: for the kind json, the URL must begin with http:// or https://"),
        ("https://[s3cr3t/", "entry 1: the URL is invalid"),
        (["https://example.org/a", "https://example.org:s3cr3t/"], "entry 2: the URL is invalid"),
        ([{"url": SLACK, "kind": "fax"}], "entry 1: unknown kind 'fax'"),
        ([{"url": SLACK, "events": ["ended", "lunch"]}], "entry 1: unknown event 'lunch'; use started, hang"),
        ([{"url": SLACK, "when": "now"}], "entry 1: unknown key 'when'"),
        ([{"kind": "slack"}], "entry 1: the URL is invalid"),
        ("smtps://me:s3cr3t@mail.example.org", "entry 1: the URL of a mail server must end with"),
        ([SLACK] * 11, "launch_notify has 11 URLs; use at most 10"),
        (7, "launch_notify must be a URL"),
    ],
)
def test_errors_name_the_entry_but_reveal_no_secret(value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match="launch_notify") as caught:
        read_targets(value)
    assert problem in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_urls_in_job_files_are_neither_facts_nor_shown() -> None:
    settings = settings_of_job({"notify": SLACK}, {"notify": "launch_notify"}, {}, {"launch_notify": NTFY})
    assert settings == ({}, {})


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("https://hooks.slack.com/services/T/B/x", "slack"),
        ("https://discord.com/api/webhooks/1/x", "discord"),
        ("https://example.webhook.office.com/webhookb2/x", "teams"),
        ("https://prod-1.westeurope.logic.azure.com/workflows/x", "teams"),
        ("https://ntfy.sh/topic", "ntfy"),
        ("https://evilhooks.slack.com.example.org/", "json"),
        ("https://notdiscord.com/", "json"),
        ("smtps://u:p@mail.example.org?from=a&to=b", "smtp"),
    ],
)
def test_kind_of_service_is_determined_by_the_host_name(url: str, kind: str) -> None:
    assert kind_of(url) == kind

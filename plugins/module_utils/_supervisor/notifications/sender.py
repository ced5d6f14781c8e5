# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The child process that sends one message to all targets. It reads them from its standard input, as JSON.

URLs are secrets: an error names the kind of service and its host, but never the URL. Redirects are refused, since they
would pass a secret on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from ansible_collections.muster.training.plugins.module_utils._run.timeouts import NOTIFICATION_TIMEOUT
from ansible_collections.muster.training.plugins.module_utils._supervisor.notifications.messages import KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Mapping, Sequence

LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NotSentError(Exception):
    """A message was not sent; the error text explains why, without secrets."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as an error."""

    def redirect_request(self, *_arguments: Any, **_options: Any) -> None:
        return None


def send_http(url: str, kind: str, content: Mapping[str, Any]) -> None:
    """Send a message over HTTP. Raise OSError or NotSentError."""
    body = KINDS[kind](content)
    request = urllib.request.Request(url, data=body.data, headers={**body.headers, "User-Agent": "muster"})
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=NOTIFICATION_TIMEOUT) as response:
            response.read(65536)
    except urllib.error.HTTPError as error:
        detail = ", a redirect, which is not followed: use the final URL" if 300 <= error.code < 400 else ""
        raise NotSentError(f"it replied with HTTP status {error.code}{detail}") from None


def send_mail(url: str, content: Mapping[str, Any]) -> None:
    """Send a message by email. Raise OSError or NotSentError.

    url: smtp[s]://USER:PASSWORD@HOST:PORT?from=ADDRESS&to=ADDRESS
    """
    import smtplib
    import ssl
    from email.message import EmailMessage

    parts = urllib.parse.urlsplit(url)
    query = urllib.parse.parse_qs(parts.query)
    mail = EmailMessage()
    mail["Subject"], mail["From"], mail["To"] = content["title"], query["from"][0], ", ".join(query["to"])
    mail.set_content(content["text"])
    host = parts.hostname or ""
    connect = smtplib.SMTP_SSL if parts.scheme == "smtps" else smtplib.SMTP
    try:
        with connect(host, parts.port or 0, timeout=NOTIFICATION_TIMEOUT) as server:
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=ssl.create_default_context())
            elif parts.scheme == "smtp" and parts.username and host not in LOOPBACK:
                raise NotSentError("it does not offer STARTTLS, so the password is not sent: use smtps://")
            if parts.username:
                server.login(urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or ""))
            server.send_message(mail)
    except smtplib.SMTPException as error:
        raise NotSentError(f"it rejected the email ({type(error).__name__})") from None


def send(target: Mapping[str, str], content: Mapping[str, Any], errors: list[str]) -> None:
    """Send a message to one target; if this fails, append an error."""
    url, kind = target["url"], target["kind"]
    try:
        if kind == "smtp":
            send_mail(url, content)
        else:
            send_http(url, kind, content)
    except NotSentError as error:
        errors.append(str(error))
    except urllib.error.URLError as error:
        errors.append(str(error.reason))
    except (OSError, ValueError, KeyError) as error:  # an invalid URL, which the message would reveal
        errors.append(str(error) if isinstance(error, OSError) else "its URL is invalid")
    except Exception as error:  # other errors, for example from http.client or in the mail's encoding
        errors.append(type(error).__name__)
    else:
        errors.append("")


def describe_target(target: Mapping[str, str]) -> str:
    """Return the kind and host of a target, without secrets."""
    return f"{target['kind']} at {urllib.parse.urlsplit(target['url']).hostname}"


def main(_arguments: list[str]) -> int:
    """Send the message on stdin to all targets at the same time, and print a line for each target that failed."""
    order = json.loads(sys.stdin.read())
    deliver(order["targets"], order["message"])
    os._exit(0)  # do not wait for threads whose server is not replying


def deliver(targets: Sequence[Mapping[str, str]], content: Mapping[str, Any]) -> None:
    """Send a message to all targets at once, and write a line to stderr for each target that failed."""
    jobs = []
    deadline = time.monotonic() + NOTIFICATION_TIMEOUT
    for target in targets:
        errors: list[str] = []
        thread = threading.Thread(target=send, args=(target, content, errors), daemon=True)
        thread.start()
        jobs.append((target, thread, errors))
    for target, thread, errors in jobs:
        thread.join(max(0.0, deadline - time.monotonic()))
        problem = errors[0] if errors else f"no reply within {NOTIFICATION_TIMEOUT:g} s"
        if problem:
            line = (
                f"muster: the notification {content['event']!r} to {describe_target(target)} was not sent: {problem}\n"
            )
            os.write(2, line.encode("utf-8", "replace"))

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Typed errors of the Paperspace API and the way to it. Private to this collection.

Every error says in one line what was requested, what was answered and what to do, and never holds the API key. Text
from the API is sanitized before it becomes part of a message.
"""

from __future__ import annotations

DEFAULT_URL = "https://api.paperspace.com/v1"
KEYS_PAGE = "https://console.paperspace.com/settings/apikeys"
STATUS_PAGE = "https://status.paperspace.com"


class PaperspaceError(Exception):
    """A request failed. str() is the complete one-line message for a person.

    status: HTTP status, None if there was no answer. code: the API's own error code, for example "NOT_FOUND".
    retry_after: seconds the server asked to wait, None if it did not ask.
    """

    hint = ""
    #: Whether the request was certainly not carried out.
    refused = False
    #: Whether the same request may soon succeed.
    passing = False

    def __init__(
        self,
        what: str,
        *,
        hint: str | None = None,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.what = what
        self.hint = type(self).hint if hint is None else hint
        self.status = status
        self.code = code
        self.retry_after = retry_after
        super().__init__(f"{what}{'' if what.endswith('.') else '.'} {self.hint}".strip())


class KeyMissingError(PaperspaceError):
    """No API key was found, or it cannot be one."""

    hint = f"Create a key at {KEYS_PAGE} and put it into the environment variable PAPERSPACE_API_KEY."
    refused = True


class AuthenticationError(PaperspaceError):
    """401: the key is wrong."""

    hint = (
        "The API key is wrong or was deleted. "
        f"Check PAPERSPACE_API_KEY (or the option api_key); keys are made at {KEYS_PAGE}."
    )
    refused = True


class ForbiddenError(PaperspaceError):
    """403: the key is valid, but lacks permission."""

    hint = "The API key may not do this: a key belongs to one team. Use a key of the team that owns the machines."
    refused = True


class NotFoundError(PaperspaceError):
    """404: no such object, or no such path."""

    hint = "Check the id, and that the API's address is " + DEFAULT_URL + " (PAPERSPACE_API_URL or the option api_url)."
    refused = True


class RequestError(PaperspaceError):
    """Another 4xx, or a redirect: the request itself is wrong."""

    hint = "The API does not accept this request; check the values given."
    refused = True


class RateLimitError(PaperspaceError):
    """429: too many requests, even after waiting."""

    hint = "Wait some minutes and try again; for an inventory, a cache saves requests."
    refused = True
    passing = True


class ServerError(PaperspaceError):
    """5xx: the service failed."""

    hint = f"The fault is on Paperspace's side: see {STATUS_PAGE} and try again later."
    passing = True


class ConnectionFailedError(PaperspaceError):
    """No complete answer: refused, reset, timed out, name not resolved."""

    hint = "Check this machine's network and proxy settings (HTTPS_PROXY), then try again."
    passing = True


class TlsError(PaperspaceError):
    """The server could not prove its identity."""

    hint = (
        "Check this machine's clock and whether a proxy opens TLS connections; "
        "a private certificate authority is trusted by SSL_CERT_FILE=/path/to/ca.pem."
    )


class AnswerError(PaperspaceError):
    """The answer violates the API document: HTML, broken JSON, wrong structure, a loop of pages."""

    hint = f"Check that the API's address is {DEFAULT_URL} (PAPERSPACE_API_URL or the option api_url), and try again."


class LostAnswerError(PaperspaceError):
    """A changing request got no usable answer, so it is unknown whether it was carried out.

    cause: what came in place of the answer, for example a ServerError.
    """

    hint = "It may have been carried out all the same: check what exists before sending it again."

    def __init__(self, cause: PaperspaceError) -> None:
        super().__init__(cause.what, status=cause.status, code=cause.code, retry_after=cause.retry_after)
        self.cause = cause


class EventError(PaperspaceError):
    """An accepted operation failed, or did not end in time."""

    hint = "See the machine's events in the Paperspace console."

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors from the Paperspace API and from connecting to it.

Every error is one line with the request, the reply and the remedy, and never contains the API key. Text
from the API is sanitized before it becomes part of a message.
"""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._clouds.errors import CloudError

DEFAULT_URL = "https://api.paperspace.com/v1"
KEYS_PAGE = "https://console.paperspace.com/settings/apikeys"
STATUS_PAGE = "https://status.paperspace.com"


class PaperspaceError(CloudError):
    """A request failed. str() is the complete one-line message; summary is the message without the hint.

    status: HTTP status, None if there was no reply. code: the API's own error code, for example "NOT_FOUND".
    retry_after: seconds that the server asked to wait, or None.
    """

    hint = ""

    def __init__(
        self,
        summary: str,
        *,
        hint: str | None = None,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.hint = type(self).hint if hint is None else hint
        self.status = status
        self.code = code
        self.retry_after = retry_after
        super().__init__(f"{summary}{'' if summary.endswith('.') else '.'} {self.hint}".strip())
        self.summary = summary
        self.scope = "offer" if self.refused and not self.transient else "request"


class ApiKeyError(PaperspaceError):
    """No API key was found, or it is malformed."""

    hint = f"Create a key at {KEYS_PAGE} and set the environment variable PAPERSPACE_API_KEY to it."
    refused = True


class AuthenticationError(PaperspaceError):
    """401: the key is wrong."""

    hint = (
        "The API key is wrong or was deleted. "
        f"Check PAPERSPACE_API_KEY (or the option api_key); create keys at {KEYS_PAGE}."
    )
    refused = True


class ForbiddenError(PaperspaceError):
    """403: the key is valid but lacks permission."""

    hint = "The API key lacks permission: a key belongs to one team. Use a key of the team that owns the machines."
    refused = True


class NotFoundError(PaperspaceError):
    """404: no such object, or no such path."""

    hint = "Check the id, and that the API's URL is " + DEFAULT_URL + " (PAPERSPACE_API_URL or the option api_url)."
    refused = True


class RequestError(PaperspaceError):
    """Another 4xx status, or a redirect: the request itself is wrong."""

    hint = "The API rejected this request. Check its values."
    refused = True


class RateLimitError(PaperspaceError):
    """429: too many requests, even after waiting and retrying."""

    hint = "Wait a few minutes and try again; for an inventory, a cache reduces the number of requests."
    refused = True
    transient = True


class ServerError(PaperspaceError):
    """5xx: the service failed."""

    hint = f"This is an error in Paperspace's service: see {STATUS_PAGE} and try again later."
    transient = True


class ConnectionFailedError(PaperspaceError):
    """No complete response: the connection was refused or reset, it timed out, or the name could not be resolved."""

    hint = "Check this machine's network and proxy settings (HTTPS_PROXY), then try again."
    transient = True


class TlsError(PaperspaceError):
    """The server's certificate could not be verified."""

    hint = (
        "Check this machine's clock, and whether a proxy intercepts TLS connections; "
        "to trust a private certificate authority, set SSL_CERT_FILE=/path/to/ca.pem."
    )


class InvalidReplyError(PaperspaceError):
    """The reply violates the API documentation: HTML, invalid JSON, a wrong structure, or a loop of pages."""

    hint = f"Check that the API's URL is {DEFAULT_URL} (PAPERSPACE_API_URL or the option api_url), and try again."


class LostReplyError(PaperspaceError):
    """A mutating request got no usable reply, so it is unknown whether it was executed.

    cause: the error in place of the reply, for example a ServerError.
    """

    hint = "The request may have been executed anyway: check what exists before sending it again."
    reply_lost = True
    cause: PaperspaceError

    def __init__(self, cause: PaperspaceError) -> None:
        super().__init__(cause.summary, status=cause.status, code=cause.code, retry_after=cause.retry_after)
        self.cause = cause


class EventError(PaperspaceError):
    """An accepted operation failed, or did not finish in time."""

    hint = "See the machine's events in the Paperspace console."

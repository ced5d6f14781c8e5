# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Client for the Paperspace API v1: one request at a time, with typed errors, paging, retries and event polling."""

from __future__ import annotations

import email.utils
import json
import re
import time
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.errors import (
    DEFAULT_URL,
    AuthenticationError,
    EventError,
    ForbiddenError,
    InvalidReplyError,
    LostReplyError,
    NotFoundError,
    PaperspaceError,
    RateLimitError,
    RequestError,
    ServerError,
)
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.transport import (
    Response,
    Transport,
    open_url_transport,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import single_line

PAGE_SIZE = 120  # the API document's maximum for `limit`
MAX_PAGES = 1000

# Seconds. The API documents no rate limit; the longest delay is acceptable for a user who is waiting at a terminal.
FIRST_DELAY = 1.0
MAX_DELAY = 60.0

FINAL_EVENT_STATES = ("done", "error", "cancelled")


class Change(NamedTuple):
    """The reply to a mutating request: the event to wait for (None: already complete) and the object."""

    event: dict[str, Any] | None
    data: dict[str, Any]


class Client:
    """Client for the API as documented, for one key. The individual operations are in operations.py.

    Args:
        timeout: seconds per request
        retries: how often a request is repeated after a transient failure; a changing request is repeated only if it
            was refused (429, connection refused), never if it may have been executed
        notify: called with one line before each retry
        sleep, clock, transport: replaceable in tests
    """

    def __init__(  # noqa: PLR0913
        self,
        api_key: str,
        base_url: str = DEFAULT_URL,
        *,
        timeout: float = 30.0,
        retries: int = 4,
        transport: Transport = open_url_transport,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        notify: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._key = api_key
        self._base_url = validate_base_url(base_url)
        self._timeout = timeout
        self._retries = retries
        self._transport = transport
        self._sleep = sleep
        self._clock = clock
        self._notify = notify
        # When the last reply was sent, according to the API's clock, in seconds since 1970; None if unknown.
        self.server_time: float | None = None

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send one request; return the parsed JSON. path starts with "/" and has quoted segments (see quote_path()).

        Raise a PaperspaceError subclass; LostReplyError if a changing request may have been executed.
        """
        attempts = 0
        while True:
            try:
                return self._send(method, path, query, body)
            except PaperspaceError as error:
                delay = self._retry_delay(error, method, attempts)
                if delay is None:
                    if method != "GET" and not error.refused:
                        raise LostReplyError(error) from None
                    raise
                attempts += 1
                self._notify(f"{error.summary}; retrying in {delay:g} s ({attempts} of {self._retries})")
                self._sleep(delay)

    def _retry_delay(self, error: PaperspaceError, method: str, attempts: int) -> float | None:
        """Return the seconds to wait, or None to give up, for example if the server asks for more than MAX_DELAY."""
        if attempts >= self._retries or not error.transient or (method != "GET" and not error.refused):
            return None
        if error.retry_after is None:
            return float(min(FIRST_DELAY * 2**attempts, MAX_DELAY))
        return error.retry_after if error.retry_after <= MAX_DELAY else None

    def _send(
        self, method: str, path: str, query: Mapping[str, str | int] | None, body: Mapping[str, Any] | None
    ) -> Any:
        url = self._base_url + path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        data = None
        if body is not None:
            # exactly this value, and only with a body: with a charset the API ignores the body, and without the header
            # it fails
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        request_line = f"{method} {path}"
        try:
            response = self._transport(method, url, headers, data, self._timeout)
        except PaperspaceError as error:
            host = urllib.parse.urlsplit(self._base_url).netloc
            sanitized = type(error)(self._redact_key(f"{request_line} at {host}: {error.summary}"), hint=error.hint)
            sanitized.transient, sanitized.refused = error.transient, error.refused
            raise sanitized from None
        reply_date = email.utils.parsedate_tz(response.headers.get("date", ""))
        self.server_time = None if reply_date is None else float(email.utils.mktime_tz(reply_date))
        return self._parse_response(request_line, response)

    def _parse_response(self, request_line: str, response: Response) -> Any:
        text = response.body.decode("utf-8", "replace")
        is_json = True
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            is_json = False
            content = None
        is_error = response.status >= 300 or _is_api_error(content)
        if not is_error and is_json:
            return content
        code = single_line(content.get("code") or "", 60) if isinstance(content, dict) else ""
        if is_error:
            message = _format_api_error(content) if is_json else _summarize_body(text)
            raise self._build_error(request_line, response, code, message)
        raise InvalidReplyError(
            self._redact_key(
                f"{request_line}: HTTP {response.status}, but not the expected JSON: {_summarize_body(text)}"
            ),
            status=response.status,
        )

    def _build_error(self, request_line: str, response: Response, code: str, message: str) -> PaperspaceError:
        status = response.status
        error_class: type[PaperspaceError]
        if status == 401 or code == "UNAUTHORIZED":
            error_class = AuthenticationError
        elif status == 403 or code == "FORBIDDEN":
            error_class = ForbiddenError
        elif status == 404 or code == "NOT_FOUND":
            error_class = NotFoundError
        elif status == 429 or code == "TOO_MANY_REQUESTS":
            error_class = RateLimitError
        elif status >= 500 or status in (408, 499) or code in ("INTERNAL_SERVER_ERROR", "TIMEOUT"):
            error_class = ServerError
        else:
            error_class = RequestError
        hint = error_class.hint
        retry_after = _parse_retry_after(response.headers)
        if error_class.transient and retry_after is not None and retry_after > MAX_DELAY:
            hint = f"The API requests a wait of {retry_after:.0f} s before the next attempt."
        if 300 <= status < 400:
            message = f"redirected to {single_line(response.headers.get('location', 'nowhere'), 200)}"
            hint = NotFoundError.hint
        summary = f"{request_line}: HTTP {status}{' ' + code if code else ''}: {message}"
        return error_class(
            self._redact_key(summary), hint=hint, status=status, code=code or None, retry_after=retry_after
        )

    def _redact_key(self, text: str) -> str:
        """Remove the key from a text, because a server or proxy may quote the rejected request."""
        return text.replace(self._key, "(key)") if self._key else text

    def list_all(
        self,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        order_by: str | None = "dtCreated",
        key: str = "id",
    ) -> list[dict[str, Any]]:
        """Return all items in a list, in page order, without duplicates.

        Oldest first, so that items created in the meantime come last and do not shift pages. order_by: the field to
        order by if the list cannot be ordered by age (None: the API's order). key: the field that identifies an item.
        Raise InvalidReplyError if the pages do not end: a partial list is never returned.
        """
        items: dict[str, dict[str, Any]] = {}
        cursors: set[str] = set()
        order = {"orderBy": order_by, "order": "asc"} if order_by else {}
        params: dict[str, str | int] = {"limit": PAGE_SIZE, **order, **(query or {})}
        while True:
            page = self.request("GET", path, params)
            has_more, cursor = self._read_page(path, page, key, items)
            if not has_more:
                return list(items.values())
            number = len(cursors) + 1
            if not cursor:
                raise InvalidReplyError(f"GET {path}: page {number} has more pages after it, but no cursor")
            if cursor in cursors:
                raise InvalidReplyError(f"GET {path}: the pages form a loop: page {number} points to an earlier one")
            if number >= MAX_PAGES:
                raise InvalidReplyError(f"GET {path}: more than {MAX_PAGES} pages")
            cursors.add(cursor)
            params["after"] = cursor

    def _read_page(self, path: str, page: Any, key: str, items: dict[str, dict[str, Any]]) -> tuple[bool, str]:
        """Add a page's items by key; return whether there are more pages, and the next cursor."""
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise InvalidReplyError(f"GET {path}: HTTP 200, but not a page of a list")
        for item in page["items"]:
            if not isinstance(item, dict) or not isinstance(item.get(key), str) or not item[key]:
                raise InvalidReplyError(f"GET {path}: HTTP 200, but an item in the list has no {key}")
            items.setdefault(item[key], item)
        return bool(page.get("hasMore")), str(page.get("nextPage") or "")

    def change(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Change:
        """Send a mutating request. The reply is `{event, data}` or the bare object.

        Raise the same errors as request().
        """
        reply = self.request(method, path, None, body)
        if not isinstance(reply, dict):
            raise LostReplyError(InvalidReplyError(f"{method} {path}: HTTP 200, but not an object", status=200))
        if isinstance(reply.get("data"), dict):
            event = reply.get("event")
            return Change(event if isinstance(event, dict) else None, reply["data"])
        return Change(None, reply)

    def wait_for_event(
        self, event: Mapping[str, Any], *, timeout: float = 1800.0, interval: float = 5.0
    ) -> dict[str, Any]:
        """Poll an event until it finishes, and return its final state. timeout and interval are in seconds.

        The API sometimes ends an event with the state "error", no error text and a finishing time although the
        operation succeeded. Such an event is returned, so the caller must check the machine's state.
        Raise EventError if the event failed, was cancelled, or did not finish in time.
        """
        started = self._clock()
        current = dict(event)
        while True:
            state = current.get("state")
            if state in FINAL_EVENT_STATES:
                return _check_final_event(current)
            waited = self._clock() - started
            if waited >= timeout:
                raise EventError(
                    f"{_format_event(current)} has not finished after {waited:.0f} s; "
                    f"its last state is {single_line(state, 40)}"
                )
            self._sleep(min(interval, timeout - waited))
            reply = self.request("GET", "/machine-events/" + quote_path(str(current.get("id", ""))))
            if not isinstance(reply, dict) or "state" not in reply:
                raise InvalidReplyError(f"{_format_event(current)}: HTTP 200, but not an event")
            current = reply


def _check_final_event(event: dict[str, Any]) -> dict[str, Any]:
    if event["state"] == "done" or (event["state"] == "error" and not event.get("error") and event.get("dtFinished")):
        return event
    reason = f": {single_line(event['error'])}" if event.get("error") else " without a reason"
    outcome = "was cancelled" if event["state"] == "cancelled" else "failed"
    raise EventError(f"{_format_event(event)} {outcome}{reason}")


def _format_event(event: Mapping[str, Any]) -> str:
    machine = f" of machine {single_line(event['machineId'], 60)}" if event.get("machineId") else ""
    return f"the event {single_line(event.get('name', ''), 60)} ({single_line(event.get('id', ''), 60)}){machine}"


def quote_path(part: str) -> str:
    """Escape an id for use as a single path segment."""
    return urllib.parse.quote(part, safe="")


def validate_base_url(url: str) -> str:
    """Return the base URL without a trailing "/". Raise RequestError if the key must not be sent there."""
    url = url.strip().rstrip("/")
    hint = f"Omit PAPERSPACE_API_URL and the option api_url, or set {DEFAULT_URL}."
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        credentials = parts.username or parts.password
    except ValueError:
        host, credentials = "", None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or credentials:
        # omit the URL, which may contain a password
        raise RequestError("the API's URL does not have the form https://HOST/PATH", hint=hint)
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise RequestError(f"http://{single_line(host, 100)} would send the API key unencrypted", hint=hint)
    return url


def _is_api_error(content: Any) -> bool:
    """Return whether content is an error: as in the official client, `{code, message}` is, whatever the status."""
    return isinstance(content, dict) and "code" in content and "message" in content and "id" not in content


def _format_api_error(content: Any) -> str:
    """Format `{message, code, issues?}` as text; issues name the rejected fields."""
    if not isinstance(content, dict):
        return "no message"
    message = single_line(content.get("message") or "no message")
    issues = content.get("issues")
    if not isinstance(issues, list):
        return message
    texts = []
    for issue in issues[:5]:
        if isinstance(issue, dict):
            path = issue.get("path")
            field = ".".join(single_line(part, 60) for part in path) if isinstance(path, list) else ""
            texts.append(f"{field}: {single_line(issue.get('message', ''), 100)}" if field else single_line(issue, 100))
    return f"{message} ({'; '.join(texts)})" if texts else message


def _summarize_body(text: str) -> str:
    """Describe a non-JSON body by the title of its HTML page, or by the beginning of the body."""
    if not text.strip():
        return "an empty body"
    if re.search(r"<(!doctype html|html|head|body)\b", text[:2000], re.IGNORECASE):
        title = re.search(r"<title[^>]*>([^<]*)", text[:20000], re.IGNORECASE)
        return f'an HTML page, "{single_line(title.group(1), 100)}"' if title else "an HTML page"
    return f'text that begins "{single_line(text[:200], 60)}"'


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait, from a number or from a date (relative to the server's clock, if known)."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    retry_date = email.utils.parsedate_tz(value) if value else None
    if retry_date is None:
        return None
    reply_date = email.utils.parsedate_tz(headers.get("date", ""))
    now = email.utils.mktime_tz(reply_date) if reply_date else time.time()
    return max(0.0, float(email.utils.mktime_tz(retry_date) - now))

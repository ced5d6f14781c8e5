# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Client of the Paperspace API v1: one request at a time, typed errors, paging, retries, polling of events.

Private to this collection.
"""

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
    AnswerError,
    AuthenticationError,
    EventError,
    ForbiddenError,
    LostAnswerError,
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
from ansible_collections.muster.training.plugins.plugin_utils._text.printable import one_line

PAGE_SIZE = 120  # the API document's maximum for `limit`
MAX_PAGES = 1000

# Seconds. The API publishes no rate limit; the longest wait is what a user at a terminal will accept.
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0

EVENT_ENDED = ("done", "error", "cancelled")


class Change(NamedTuple):
    """Reply to a changing request: the event to wait for (None: done at once) and the object."""

    event: dict[str, Any] | None
    data: dict[str, Any]


class Client:
    """The API as documented, for one key. operations.py has the individual operations.

    timeout: seconds per request. retries: how often a request is repeated after a transient failure; a changing request
    is repeated only if it was refused (429, connection refused), never if it may have been carried out.
    notify: called with one line before each wait. sleep, clock, transport: replaceable in tests.
    """

    def __init__(
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
        self._base_url = checked_base_url(base_url)
        self._timeout = timeout
        self._retries = retries
        self._transport = transport
        self._sleep = sleep
        self._clock = clock
        self._notify = notify
        #: When the last answer was sent, by the API's clock, in seconds since 1970; None if unknown.
        self.server_time: float | None = None

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send one request; return the parsed JSON. path starts with "/" and its parts are quoted (see quoted()).

        Raises a PaperspaceError subclass; LostAnswerError if a changing request may have been carried out.
        """
        tries = 0
        while True:
            try:
                return self._send(method, path, query, body)
            except PaperspaceError as error:
                wait = self._wait_before_next(error, method, tries)
                if wait is None:
                    if method != "GET" and not error.refused:
                        raise LostAnswerError(error) from None
                    raise
                tries += 1
                self._notify(f"{error.what}; trying again in {wait:g} s ({tries} of {self._retries})")
                self._sleep(wait)

    def _wait_before_next(self, error: PaperspaceError, method: str, tries: int) -> float | None:
        """Seconds to wait, None to give up. Gives up if the server asks for more than LONGEST_WAIT."""
        if tries >= self._retries or not error.passing or (method != "GET" and not error.refused):
            return None
        if error.retry_after is None:
            return float(min(FIRST_WAIT * 2**tries, LONGEST_WAIT))
        return error.retry_after if error.retry_after <= LONGEST_WAIT else None

    def _send(
        self, method: str, path: str, query: Mapping[str, str | int] | None, body: Mapping[str, Any] | None
    ) -> Any:
        url = self._base_url + path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {"Authorization": f"Bearer {self._key}", "Accept": "application/json"}
        data = None
        if body is not None:
            # Exactly this, and only with a body: with a charset the API ignores the body, without the header it fails.
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        asked = f"{method} {path}"
        try:
            response = self._transport(method, url, headers, data, self._timeout)
        except PaperspaceError as error:
            where = urllib.parse.urlsplit(self._base_url).netloc
            again = type(error)(self._without_key(f"{asked} at {where}: {error.what}"), hint=error.hint)
            again.passing, again.refused = error.passing, error.refused
            raise again from None
        sent = email.utils.parsedate_tz(response.headers.get("date", ""))
        self.server_time = None if sent is None else float(email.utils.mktime_tz(sent))
        return self._parsed(asked, response)

    def _parsed(self, asked: str, response: Response) -> Any:
        text = response.body.decode("utf-8", "replace")
        is_json = True
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            is_json = False
            content = None
        refused = response.status >= 300 or _looks_like_error(content)
        if not refused and is_json:
            return content
        code = one_line(content.get("code") or "", 60) if isinstance(content, dict) else ""
        if refused:
            message = _api_message(content) if is_json else _text_message(text)
            raise self._error(asked, response, code, message)
        raise AnswerError(
            self._without_key(f"{asked}: HTTP {response.status}, but not the JSON expected: {_text_message(text)}"),
            status=response.status,
        )

    def _error(self, asked: str, response: Response, code: str, message: str) -> PaperspaceError:
        status = response.status
        kind: type[PaperspaceError]
        if status == 401 or code == "UNAUTHORIZED":
            kind = AuthenticationError
        elif status == 403 or code == "FORBIDDEN":
            kind = ForbiddenError
        elif status == 404 or code == "NOT_FOUND":
            kind = NotFoundError
        elif status == 429 or code == "TOO_MANY_REQUESTS":
            kind = RateLimitError
        elif status >= 500 or status in (408, 499) or code in ("INTERNAL_SERVER_ERROR", "TIMEOUT"):
            kind = ServerError
        else:
            kind = RequestError
        hint = kind.hint
        retry_after = _retry_after(response.headers)
        if kind.passing and retry_after is not None and retry_after > LONGEST_WAIT:
            hint = f"The API asks to wait {retry_after:.0f} s before trying again."
        if 300 <= status < 400:
            message = f"redirected to {one_line(response.headers.get('location', 'nowhere'), 200)}"
            hint = NotFoundError.hint
        what = f"{asked}: HTTP {status}{' ' + code if code else ''}: {message}"
        return kind(self._without_key(what), hint=hint, status=status, code=code or None, retry_after=retry_after)

    def _without_key(self, text: str) -> str:
        """Remove the key from a text: a server or proxy may quote the request that it refuses."""
        return text.replace(self._key, "(key)") if self._key else text

    def list_all(
        self,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        order_by: str | None = "dtCreated",
        key: str = "id",
    ) -> list[dict[str, Any]]:
        """All items of a list, in page order, without duplicates.

        Oldest first, so that items created meanwhile come last and do not shift pages. order_by: the field to order by
        if the list cannot be ordered by age (None: the API's order). key: the field that identifies an item.
        Raises AnswerError if the pages do not end: a partial list is never returned.
        """
        items: dict[str, dict[str, Any]] = {}
        cursors: set[str] = set()
        order = {"orderBy": order_by, "order": "asc"} if order_by else {}
        wanted: dict[str, str | int] = {"limit": PAGE_SIZE, **order, **(query or {})}
        while True:
            page = self.request("GET", path, wanted)
            has_more, cursor = self._read_page(path, page, key, items)
            if not has_more:
                return list(items.values())
            number = len(cursors) + 1
            if not cursor:
                raise AnswerError(f"GET {path}: page {number} says that more follows, but not where")
            if cursor in cursors:
                raise AnswerError(
                    f"GET {path}: the pages go round in a loop: page {number} leads back to one read before"
                )
            if number >= MAX_PAGES:
                raise AnswerError(f"GET {path}: no end after {MAX_PAGES} pages")
            cursors.add(cursor)
            wanted["after"] = cursor

    def _read_page(self, path: str, page: Any, key: str, items: dict[str, dict[str, Any]]) -> tuple[bool, str]:
        """Add a page's items by key; return (whether there are more, the next page)."""
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise AnswerError(f"GET {path}: HTTP 200, but not a page of a list")
        for item in page["items"]:
            if not isinstance(item, dict) or not isinstance(item.get(key), str) or not item[key]:
                raise AnswerError(f"GET {path}: HTTP 200, but an item of the list has no {key}")
            items.setdefault(item[key], item)
        return bool(page.get("hasMore")), str(page.get("nextPage") or "")

    def change(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Change:
        """Send a changing request. Replies come as `{event, data}` or as the bare object.

        Raises as request() does.
        """
        reply = self.request(method, path, None, body)
        if not isinstance(reply, dict):
            raise LostAnswerError(AnswerError(f"{method} {path}: HTTP 200, but not an object", status=200))
        if isinstance(reply.get("data"), dict):
            event = reply.get("event")
            return Change(event if isinstance(event, dict) else None, reply["data"])
        return Change(None, reply)

    def wait_for(self, event: Mapping[str, Any], *, timeout: float = 1800.0, interval: float = 5.0) -> dict[str, Any]:
        """Poll an event until it ends and return its final state. timeout and interval in seconds.

        The API sometimes ends an event with the state "error", no error text and a finishing time although the
        operation succeeded. Such an event is returned, so the caller must check the machine's state.
        Raises EventError if the event failed, was cancelled, or has not ended in time.
        """
        started = self._clock()
        current = dict(event)
        while True:
            state = current.get("state")
            if state in EVENT_ENDED:
                return _ended(current)
            waited = self._clock() - started
            if waited >= timeout:
                raise EventError(
                    f"{_event_name(current)} has not ended after {waited:.0f} s; "
                    f"its last state is {one_line(state, 40)}"
                )
            self._sleep(min(interval, timeout - waited))
            answer = self.request("GET", "/machine-events/" + quoted(str(current.get("id", ""))))
            if not isinstance(answer, dict) or "state" not in answer:
                raise AnswerError(f"{_event_name(current)}: HTTP 200, but not an event")
            current = answer


def _ended(event: dict[str, Any]) -> dict[str, Any]:
    if event["state"] == "done" or (event["state"] == "error" and not event.get("error") and event.get("dtFinished")):
        return event
    why = f": {one_line(event['error'])}" if event.get("error") else " without a reason"
    ending = "was cancelled" if event["state"] == "cancelled" else "failed"
    raise EventError(f"{_event_name(event)} {ending}{why}")


def _event_name(event: Mapping[str, Any]) -> str:
    machine = f" of machine {one_line(event['machineId'], 60)}" if event.get("machineId") else ""
    return f"the event {one_line(event.get('name', ''), 60)} ({one_line(event.get('id', ''), 60)}){machine}"


def quoted(part: str) -> str:
    """An id as one part of a path, with special characters escaped."""
    return urllib.parse.quote(part, safe="")


def checked_base_url(url: str) -> str:
    """The base URL without a final "/". Raises RequestError if the key must not be sent there."""
    url = url.strip().rstrip("/")
    hint = f"Leave PAPERSPACE_API_URL and the option api_url out, or give {DEFAULT_URL}."
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        secret = parts.username or parts.password
    except ValueError:
        host, secret = "", None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or secret:
        # Does not quote the URL, which may hold a password.
        raise RequestError("the API's address is not of the form https://HOST/PATH", hint=hint)
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise RequestError(f"http://{one_line(host, 100)} would carry the API key unencrypted", hint=hint)
    return url


def _looks_like_error(content: Any) -> bool:
    """Whether content is an error: like the official client, treat `{code, message}` as one, whatever the status."""
    return isinstance(content, dict) and "code" in content and "message" in content and "id" not in content


def _api_message(content: Any) -> str:
    """`{message, code, issues?}` as text; issues name the rejected fields."""
    if not isinstance(content, dict):
        return "no message"
    message = one_line(content.get("message") or "no message")
    issues = content.get("issues")
    if not isinstance(issues, list):
        return message
    texts = []
    for issue in issues[:5]:
        if isinstance(issue, dict):
            path = issue.get("path")
            field = ".".join(one_line(part, 60) for part in path) if isinstance(path, list) else ""
            texts.append(f"{field}: {one_line(issue.get('message', ''), 100)}" if field else one_line(issue, 100))
    return f"{message} ({'; '.join(texts)})" if texts else message


def _text_message(text: str) -> str:
    """The message in a non-JSON body: an HTML page's title, else the beginning."""
    if not text.strip():
        return "an empty body"
    if re.search(r"<(!doctype html|html|head|body)\b", text[:2000], re.IGNORECASE):
        title = re.search(r"<title[^>]*>([^<]*)", text[:20000], re.IGNORECASE)
        return f'an HTML page, "{one_line(title.group(1), 100)}"' if title else "an HTML page"
    return f'text that begins "{one_line(text[:200], 60)}"'


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from a number or a date (relative to the server's clock if given)."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    when = email.utils.parsedate_tz(value) if value else None
    if when is None:
        return None
    sent = email.utils.parsedate_tz(headers.get("date", ""))
    now = email.utils.mktime_tz(sent) if sent else time.time()
    return max(0.0, float(email.utils.mktime_tz(when) - now))

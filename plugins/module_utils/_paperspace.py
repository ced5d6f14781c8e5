# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Client of the Paperspace API v1: one request at a time, typed errors, paging, retries, events polled to their end.

Private to this collection. Every error says in one line what was asked, what was answered and what to do, and never
holds the API key. All text that comes from the API is cleaned before it reaches a message.
"""

from __future__ import annotations

import email.utils
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
from typing import Any, Callable, Mapping, NamedTuple, Protocol

from ansible.module_utils.urls import ConnectionError as UrlsConnectionError
from ansible.module_utils.urls import SSLValidationError, open_url

try:
    import tomllib
except ImportError:  # Python < 3.11; only find_api_key() needs it, and says so
    tomllib = None  # type: ignore[assignment]

DEFAULT_URL = "https://api.paperspace.com/v1"
KEYS_PAGE = "https://console.paperspace.com/settings/apikeys"
STATUS_PAGE = "https://status.paperspace.com"

PAGE_SIZE = 120  # the most that the API document allows for `limit`
MAX_PAGES = 1000
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_MESSAGE = 300

# Seconds. The API publishes no rate limit; the longest wait is what a person at a terminal bears.
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0

EVENT_ENDED = ("done", "error", "cancelled")


def one_line(text: object, limit: int = MAX_MESSAGE) -> str:
    """Text from outside as one short printable line: no control or format characters, no lone surrogates."""
    printable = "".join(char if char.isprintable() else " " for char in str(text)[: 10 * limit])
    line = " ".join(printable.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


# --- Errors


class PaperspaceError(Exception):
    """A request failed. str() is the whole message for a person, in one line.

    status: HTTP status, None where there was no answer. code: the API's own error code, for example "NOT_FOUND".
    retry_after: seconds the server asked to wait, None where it did not ask.
    """

    hint = ""
    #: The request was not carried out, so that any method may be sent again.
    refused = False
    #: The same request may succeed a moment later.
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


class AuthenticationError(PaperspaceError):
    """401: the key is wrong."""

    hint = (
        "The API key is wrong or was deleted. "
        f"Check PAPERSPACE_API_KEY (or the option api_key); keys are made at {KEYS_PAGE}."
    )


class ForbiddenError(PaperspaceError):
    """403: the key is good, but not for this."""

    hint = "The API key may not do this: a key belongs to one team. Use a key of the team that owns the machines."


class NotFoundError(PaperspaceError):
    """404: no such object, or no such path."""

    hint = "Check the id, and that the API's address is " + DEFAULT_URL + " (PAPERSPACE_API_URL or the option api_url)."


class RequestError(PaperspaceError):
    """Another 4xx, or a redirect: the request itself is at fault."""

    hint = "The API does not accept this request; check the values given."


class RateLimitError(PaperspaceError):
    """429: too many requests, also after waiting."""

    hint = "Wait some minutes and try again; for an inventory, a cache saves requests."
    refused = True
    passing = True


class ServerError(PaperspaceError):
    """5xx: the fault lies with the service."""

    hint = f"The fault is on Paperspace's side: see {STATUS_PAGE} and try again later."
    passing = True


class ConnectionFailedError(PaperspaceError):
    """No whole answer came: refused, reset, timed out, name not resolved."""

    hint = "Check this machine's network and proxy settings (HTTPS_PROXY), then try again."
    passing = True


class TlsError(PaperspaceError):
    """The server could not prove that it is the right one."""

    hint = (
        "Check this machine's clock and whether a proxy opens TLS connections; "
        "a private certificate authority is trusted by SSL_CERT_FILE=/path/to/ca.pem."
    )


class AnswerError(PaperspaceError):
    """An answer came that the API document does not allow: HTML, broken JSON, another shape, a loop of pages."""

    hint = f"Check that the API's address is {DEFAULT_URL} (PAPERSPACE_API_URL or the option api_url), and try again."


class EventError(PaperspaceError):
    """An operation was accepted and then failed, or did not end in time."""

    hint = "See the machine's events in the Paperspace console."


# --- The HTTP seam


class Response(NamedTuple):
    """What came back. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends one request and returns the response whatever its status.

    timeout: seconds for the whole exchange. Raises TlsError and ConnectionFailedError.
    """

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Response: ...


def open_url_transport(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
) -> Response:
    """Transport over ansible's own urls: proxies and certificates as everywhere in Ansible.

    Redirects are not followed, so that the key goes nowhere but to the address it was given for; ~/.netrc is not
    read, because a machine entry there would replace the key.
    """
    deadline = time.monotonic() + timeout
    try:
        try:
            reply: Any = open_url(
                url,
                method=method,
                data=body,
                headers=dict(headers),
                timeout=timeout,
                http_agent="muster.training",
                follow_redirects="none",
                use_netrc=False,
                decompress=False,
            )
        except urllib.error.HTTPError as error:
            reply = error
        with reply:
            answer = {name.lower(): value for name, value in reply.headers.items()}
            return Response(int(reply.code), answer, _read_body(reply, answer, deadline, timeout))
    except (OSError, http.client.HTTPException, UrlsConnectionError, ValueError) as error:
        raise _transport_error(error, timeout) from error


def _read_body(reply: Any, headers: Mapping[str, str], deadline: float, timeout: float) -> bytes:
    """The body up to its announced length: the socket's own timeout restarts with every byte, the deadline does not."""
    parts = []
    size = 0
    while True:
        part = reply.read1(65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise AnswerError(f"the answer is larger than {MAX_BODY_BYTES // 1024 // 1024} MiB")
        if time.monotonic() > deadline:
            raise _timed_out(timeout)
    announced = headers.get("content-length", "")
    if announced.isdigit() and size < int(announced):
        raise ConnectionFailedError(f"the connection ended after {size} of {announced} bytes")
    return b"".join(parts)


def _timed_out(timeout: float) -> ConnectionFailedError:
    return ConnectionFailedError(f"no whole answer within {timeout:g} s", hint="Try again, or raise the timeout.")


def _transport_error(error: BaseException, timeout: float) -> PaperspaceError:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, (ssl.SSLError, SSLValidationError)):
        return TlsError(f"the TLS connection failed: {one_line(reason)}")
    if isinstance(reason, (socket.timeout, TimeoutError)):
        return _timed_out(timeout)
    text = one_line(getattr(reason, "strerror", None) or reason) or type(reason).__name__
    if isinstance(reason, socket.gaierror):
        failure = ConnectionFailedError(f"the name of the server cannot be resolved: {text}")
        failure.passing = False  # seconds of waiting do not mend a misspelt name or a missing network
        return failure
    return ConnectionFailedError(f"the connection failed: {text}")


# --- Where the key comes from


def find_api_key(given: str | None, environment: Mapping[str, str], home: str) -> str:
    """The API key: as given, else PAPERSPACE_API_KEY, else what `pspace login` wrote, else the old command-line tool's.

    The file ~/.paperspace/credentials.toml holds a key a team; ~/.paperspace/config.toml says which team is current.
    Raises KeyMissingError, which names what was looked at.
    """
    key = (given or "").strip() or environment.get("PAPERSPACE_API_KEY", "").strip()
    if not key:
        directory = os.path.join(home, ".paperspace")
        key = _key_of_team(directory) or _key_of_old_tool(os.path.join(directory, "config.json"))
    if not key:
        raise KeyMissingError(
            "no API key: the option api_key, PAPERSPACE_API_KEY, ~/.paperspace/credentials.toml and "
            "~/.paperspace/config.json give none"
        )
    if not (key.isascii() and key.isprintable()) or " " in key:
        # Otherwise the HTTP library refuses the header with a message that quotes it.
        raise KeyMissingError("the API key holds a space or a character that no key has; it was copied wrongly")
    return key


def _key_of_team(directory: str) -> str:
    path = os.path.join(directory, "credentials.toml")
    credentials = _read_toml(path)
    keys = credentials.get("keys") if credentials else None
    if not isinstance(keys, dict) or not keys:
        return ""
    team = _read_toml(os.path.join(directory, "config.toml")).get("team")
    if team not in keys:
        if len(keys) > 1:
            teams = ", ".join(sorted(one_line(name, 60) for name in keys))
            raise KeyMissingError(
                f"{path} holds keys of several teams ({teams}) and none is chosen",
                hint="Choose one with `pspace config set team NAME`, or set PAPERSPACE_API_KEY.",
            )
        team = next(iter(keys))
    return str(keys[team]).strip()


def _read_toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            if tomllib is None:
                raise KeyMissingError(f"reading {path} needs Python 3.11", hint="Set PAPERSPACE_API_KEY instead.")
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None


def _key_of_old_tool(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = json.load(file)
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    return str(content.get("apiKey") or "").strip() if isinstance(content, dict) else ""


def _unreadable(path: str, error: Exception) -> KeyMissingError:
    # The parser's own message may quote the file, and with it the key.
    why = (error.strerror or "") if isinstance(error, OSError) else "it is malformed"
    return KeyMissingError(
        f"{path} cannot be read: {why}", hint="Repair or remove the file, or set PAPERSPACE_API_KEY instead."
    )


# --- The client


class Change(NamedTuple):
    """Reply to a request that changes something: the event to wait for (None: done at once) and the object."""

    event: dict[str, Any] | None
    data: dict[str, Any]


class Client:
    """The API as its document describes it, for one key.

    timeout: seconds for one request. retries: how often a request is sent again after a passing failure; requests that
    change something are sent again only when the API refused them (429), never when it may have carried them out.
    notify: called with one line before each wait. sleep, clock, transport: seams for tests.
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

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """The parsed JSON of one request. path starts with "/" and its parts are quoted (see quoted()).

        Raises a PaperspaceError subclass.
        """
        tries = 0
        while True:
            try:
                return self._send(method, path, query, body)
            except PaperspaceError as error:
                wait = self._wait_before_next(error, method, tries)
                if wait is None:
                    raise
                tries += 1
                self._notify(f"{error.what}; trying again in {wait:g} s ({tries} of {self._retries})")
                self._sleep(wait)

    def _wait_before_next(self, error: PaperspaceError, method: str, tries: int) -> float | None:
        """Seconds to wait, None to give up. A server that asks for more than LONGEST_WAIT is not asked again."""
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
            # Exactly this type, and none without a body: with a charset the body stays unread, without one it fails.
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        asked = f"{method} {path}"
        try:
            response = self._transport(method, url, headers, data, self._timeout)
        except PaperspaceError as error:
            where = urllib.parse.urlsplit(self._base_url).netloc
            again = type(error)(self._without_key(f"{asked} at {where}: {error.what}"), hint=error.hint)
            again.passing = error.passing
            raise again from None
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
        elif status >= 500 or status == 408:
            kind = ServerError
        else:
            kind = RequestError
        hint = kind.hint
        retry_after = _retry_after(response.headers)
        if kind.passing and retry_after is not None and retry_after > LONGEST_WAIT:
            hint = f"The API asks to wait {retry_after:.0f} s: try again then."
        if 300 <= status < 400:
            message = f"redirected to {one_line(response.headers.get('location', 'nowhere'), 200)}"
            hint = NotFoundError.hint
        what = f"{asked}: HTTP {status}{' ' + code if code else ''}: {message}"
        return kind(self._without_key(what), hint=hint, status=status, code=code or None, retry_after=retry_after)

    def _without_key(self, text: str) -> str:
        """A server, or a proxy before it, may quote the request that it refuses."""
        return text.replace(self._key, "(key)") if self._key else text

    def list_all(self, path: str, query: Mapping[str, str | int] | None = None) -> list[dict[str, Any]]:
        """All items of a list, in the order of the pages, each id once.

        Oldest first, so that what is created meanwhile comes last and shifts no page. Raises AnswerError where the
        pages do not come to an end: part of a list is never returned.
        """
        items: dict[str, dict[str, Any]] = {}
        cursors: set[str] = set()
        wanted: dict[str, str | int] = {"limit": PAGE_SIZE, "orderBy": "dtCreated", "order": "asc", **(query or {})}
        while True:
            page = self.request("GET", path, wanted)
            has_more, cursor = self._read_page(path, page, items)
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

    def _read_page(self, path: str, page: Any, items: dict[str, dict[str, Any]]) -> tuple[bool, str]:
        """Add the items of a page by their id; return (more follows, where)."""
        if not isinstance(page, dict) or not isinstance(page.get("items"), list):
            raise AnswerError(f"GET {path}: HTTP 200, but not a page of a list")
        for item in page["items"]:
            if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not item["id"]:
                raise AnswerError(f"GET {path}: HTTP 200, but an item of the list has no id")
            items.setdefault(item["id"], item)
        return bool(page.get("hasMore")), str(page.get("nextPage") or "")

    def change(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Change:
        """Send a request that changes something. Replies come as `{event, data}` or as the bare object."""
        reply = self.request(method, path, None, body)
        if not isinstance(reply, dict):
            raise AnswerError(f"{method} {path}: HTTP 200, but not an object")
        if isinstance(reply.get("data"), dict):
            event = reply.get("event")
            return Change(event if isinstance(event, dict) else None, reply["data"])
        return Change(None, reply)

    def wait_for(self, event: Mapping[str, Any], *, timeout: float = 1800.0, interval: float = 5.0) -> dict[str, Any]:
        """Poll an event until it ends and return it as it is then. timeout and interval in seconds.

        The API is known to end an event with the state "error", no error text and a finishing time although the
        operation succeeded. Such an event is returned: whoever waits looks at the machine's state next.
        Raises EventError where the event failed, was cancelled, or has not ended in time.
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
    """An id as one part of a path: what is special in a path is escaped."""
    return urllib.parse.quote(part, safe="")


def checked_base_url(url: str) -> str:
    """The base URL without its last "/". Raises RequestError where the key must not be sent there."""
    url = url.strip().rstrip("/")
    hint = f"Leave PAPERSPACE_API_URL and the option api_url out, or give {DEFAULT_URL}."
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname or ""
        secret = parts.username or parts.password
    except ValueError:
        host, secret = "", None
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment or secret:
        # The URL is not quoted: it may hold a password.
        raise RequestError("the API's address is not of the form https://HOST/PATH", hint=hint)
    if parts.scheme == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise RequestError(f"http://{one_line(host, 100)} would carry the API key unencrypted", hint=hint)
    return url


def _looks_like_error(content: Any) -> bool:
    """The official client treats `{code, message}` as an error whatever the status, and so do we."""
    return isinstance(content, dict) and "code" in content and "message" in content and "id" not in content


def _api_message(content: Any) -> str:
    """`{message, code, issues?}` as text; issues name the fields that were not accepted."""
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
    """What a body that is not JSON says: the title of an HTML page, else its beginning."""
    if not text.strip():
        return "an empty body"
    if re.search(r"<(!doctype html|html|head|body)\b", text[:2000], re.IGNORECASE):
        title = re.search(r"<title[^>]*>([^<]*)", text[:20000], re.IGNORECASE)
        return f'an HTML page, "{one_line(title.group(1), 100)}"' if title else "an HTML page"
    return f'text that begins "{one_line(text[:200], 60)}"'


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from a number or from a date (counted from the server's own clock where it tells it)."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    when = email.utils.parsedate_tz(value) if value else None
    if when is None:
        return None
    sent = email.utils.parsedate_tz(headers.get("date", ""))
    now = email.utils.mktime_tz(sent) if sent else time.time()
    return max(0.0, float(email.utils.mktime_tz(when) - now))


# --- What the API is known to say in more than one way


def integer(value: Any) -> int | None:
    """Sizes and counts come as integers or as decimal strings. None where the value is neither."""
    if isinstance(value, bool):
        return None
    try:
        return int(str(value)) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def region_code(region: str) -> str:
    """ "East Coast (NY2)", "NY2" and "ny2" are all "ny2"."""
    inner = re.search(r"\(([^()]+)\)\s*$", region)
    return (inner.group(1) if inner else region).strip().lower()


def gpu_count(machine: Mapping[str, Any]) -> int:
    """GPUs of a machine: the sum of its accelerators, else the xN that its type ends with, else 1; 0 for C1, C2 ..."""
    accelerators = machine.get("accelerators")
    counted = sum(
        max(0, integer(accelerator.get("count")) or 0)
        for accelerator in (accelerators if isinstance(accelerators, list) else [])
        if isinstance(accelerator, dict)
    )
    if counted > 0:
        return counted
    machine_type = str(machine.get("machineType") or "")
    if not machine_type or re.fullmatch(r"C\d+", machine_type, re.IGNORECASE):
        return 0
    suffix = re.search(r"x(\d{1,3})$", machine_type)
    return int(suffix.group(1)) if suffix else 1

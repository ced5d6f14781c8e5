# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The client: tested with a scripted transport for time-dependent behavior, and with the test server for everything
else.
"""

from __future__ import annotations

import datetime
import json
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import client as paperspace_client
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace import errors as paperspace
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.client import Client, quote_path
from ansible_collections.muster.training.plugins.plugin_utils._clouds.paperspace.transport import (
    Response,
    transport_error,
)
from tests.support.paperspace_server.account import EventOutcome, PaperspaceAccount, cursor
from tests.support.paperspace_server.document import DOCUMENT
from tests.support.paperspace_server.faults import PaperspaceFault
from tests.support.paperspace_server.objects import machine
from tests.support.paperspace_server.server import PaperspaceServer

KEY = "s3cret-0123456789abcdef"


class Script:
    """A transport that returns prepared replies, and a clock that advances only by sleeping."""

    def __init__(self, *replies: Response | paperspace.PaperspaceError) -> None:
        self.replies = list(replies)
        self.sent: list[tuple[str, str, Mapping[str, str], bytes | None]] = []
        self.slept: list[float] = []
        self.notes: list[str] = []

    def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> Response:
        self.sent.append((method, url, headers, body))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        return reply

    def client(self, **options: Any) -> Client:
        return Client(
            KEY,
            transport=self,
            sleep=self.slept.append,
            clock=lambda: sum(self.slept),
            notify=self.notes.append,
            **options,
        )


def make_response(content: Any = None, status: int = 200, **headers: str) -> Response:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def refusal(status: int, code: str, message: str = "No.", **headers: str) -> Response:
    return make_response({"message": message, "code": code}, status, **headers)


LIVE_401 = refusal(401, "UNAUTHORIZED", "You must be logged in to access this method.")
BUSY = refusal(429, "TOO_MANY_REQUESTS", "Slow down.")


# --- Errors


@pytest.mark.parametrize(
    ("response", "kind", "texts"),
    [
        (LIVE_401, paperspace.AuthenticationError, ["HTTP 401 UNAUTHORIZED: You must be logged in", "key is wrong"]),
        (refusal(403, "FORBIDDEN"), paperspace.ForbiddenError, ["HTTP 403 FORBIDDEN", "belongs to one team"]),
        (refusal(404, "NOT_FOUND", "Not found"), paperspace.NotFoundError, ["404 NOT_FOUND: Not found", "api_url"]),
        (refusal(409, "CONFLICT"), paperspace.RequestError, ["HTTP 409 CONFLICT: No", "Check its values"]),
        (
            BUSY,
            paperspace.RateLimitError,
            ["HTTP 429 TOO_MANY_REQUESTS: Slow down", "a cache reduces the number of requests"],
        ),
        (refusal(500, "INTERNAL_SERVER_ERROR"), paperspace.ServerError, ["HTTP 500", "in Paperspace's service"]),
        (make_response(b"", 502), paperspace.ServerError, ["HTTP 502: an empty body"]),
        (
            make_response(b"<!DOCTYPE html><html><head><title>Just a\n moment...</title>", 503),
            paperspace.ServerError,
            ['HTTP 503: an HTML page, "Just a moment..."'],
        ),
        (
            make_response(b"<html><body>hi", 200),
            paperspace.InvalidReplyError,
            ["HTTP 200, but not the expected JSON: an HTML page"],
        ),
        (
            make_response(b'{"items": [', 200),
            paperspace.InvalidReplyError,
            ["not the expected JSON", 'begins "{"items": ["'],
        ),
        (make_response(b"[" * 100000, 200), paperspace.InvalidReplyError, ["not the expected JSON"]),
        (make_response(b"upstream \x1b[31mbad", 504), paperspace.ServerError, ['text that begins "upstream [31mbad"']),
        (
            make_response(b"", 302, location="https://login.example.org/"),
            paperspace.RequestError,
            ["HTTP 302: redirected to https://login.example.org/", "PAPERSPACE_API_URL"],
        ),
        # The official client treats this as an error, regardless of the status.
        (refusal(200, "UNAUTHORIZED", "Log in."), paperspace.AuthenticationError, ["Log in."]),
        (
            make_response(
                {"message": "Input validation failed", "code": "BAD_REQUEST", "issues": [
                    {"code": "invalid_type", "path": ["name"], "message": "Required"}]}, 400
            ),
            paperspace.RequestError,
            ["HTTP 400 BAD_REQUEST: Input validation failed (name: Required)"],
        ),
    ],
)  # fmt: skip
def test_error_replies_become_typed_one_line_errors(
    response: Response, kind: type[paperspace.PaperspaceError], texts: list[str]
) -> None:
    with pytest.raises(kind) as caught:
        Script(response).client(retries=0).request("GET", "/machines")
    message = str(caught.value)
    assert message.startswith("GET /machines: ")
    for text in texts:
        assert text in message
    assert message.isprintable()


def test_an_error_keeps_status_and_code() -> None:
    with pytest.raises(paperspace.PaperspaceError) as caught:
        Script(LIVE_401).client().request("GET", "/machines")
    assert (caught.value.status, caught.value.code) == (401, "UNAUTHORIZED")


@pytest.mark.parametrize("status", [200, 400, 401, 500])
@pytest.mark.parametrize("as_json", [True, False])
def test_key_quoted_by_the_server_is_kept_out_of_the_error(status: int, as_json: bool) -> None:
    text = f"bad header Authorization: Bearer {KEY}"
    body = refusal(status, "BAD_REQUEST", text).body if as_json else text.encode()
    with pytest.raises(paperspace.PaperspaceError) as caught:
        Script(Response(status, {}, body)).client(retries=0).request("GET", "/machines")
    assert KEY not in str(caught.value)
    assert KEY not in repr(caught.value.__dict__)


@given(st.text(), st.integers(200, 599))
def test_any_api_message_becomes_one_printable_line(text: str, status: int) -> None:
    with pytest.raises(paperspace.PaperspaceError) as caught:
        Script(refusal(status, text, 50 * text)).client(retries=0).request("GET", "/machines")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


@given(st.binary())
def test_any_body_is_a_reply_or_a_paperspace_error(body: bytes) -> None:
    try:
        Script(make_response(body)).client(retries=0).list_all("/machines")
    except paperspace.PaperspaceError as error:
        assert str(error).isprintable()


# --- Retries


def test_busy_or_broken_server_is_retried_with_growing_delays() -> None:
    script = Script(
        BUSY, make_response(b"<html>", 502), paperspace.ConnectionFailedError("reset"), BUSY, make_response({"id": "a"})
    )
    assert script.client().request("GET", "/machines/a") == {"id": "a"}
    assert script.slept == [1, 2, 4, 8]
    assert script.notes[0] == "GET /machines/a: HTTP 429 TOO_MANY_REQUESTS: Slow down.; retrying in 1 s (1 of 4)"


def test_retries_are_limited_and_delays_are_capped() -> None:
    script = Script(BUSY)
    with pytest.raises(paperspace.RateLimitError):
        script.client(retries=8).request("GET", "/machines")
    assert script.slept == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(script.sent) == 9


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7),
        ({"retry_after": "0"}, 0),
        ({"retry_after": "Wed, 21 Oct 2026 07:28:05 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 5),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry_after": "soon"}, 1),
        ({"retry_after": "-3"}, 1),
    ],
)
def test_retry_after_is_honored(headers: dict[str, str], seconds: float) -> None:
    script = Script(refusal(429, "TOO_MANY_REQUESTS", **headers), make_response({}))
    script.client().request("GET", "/machines")
    assert script.slept == [seconds]


def test_retry_after_of_an_hour_fails_immediately() -> None:
    script = Script(refusal(503, "X", retry_after="3600"))
    with pytest.raises(paperspace.ServerError, match="requests a wait of 3600 s before the next attempt"):
        script.client().request("GET", "/machines")
    assert script.slept == []


@pytest.mark.parametrize("method", ["POST", "PATCH", "PUT", "DELETE"])
def test_change_that_may_have_been_made_is_not_retried(method: str) -> None:
    for failure in (
        refusal(500, "X"),
        refusal(200, "INTERNAL_SERVER_ERROR"),
        make_response(b"", 504),
        make_response(b"<html>", 200),
        paperspace.ConnectionFailedError("reset"),
    ):
        script = Script(failure)
        with pytest.raises(paperspace.LostReplyError, match=r"may have been executed anyway: check") as caught:
            script.client().request(method, "/machines/a")
        assert len(script.sent) == 1
        assert caught.value.status == caught.value.cause.status
    script = Script(BUSY, make_response({"id": "a"}))
    script.client().request(method, "/machines/a")
    assert len(script.sent) == 2


@pytest.mark.parametrize("failure", [LIVE_401, refusal(409, "X"), refusal(404, "X"), make_response(b"", 302), BUSY])
def test_refused_change_is_not_treated_as_a_lost_reply(failure: Response) -> None:
    with pytest.raises(paperspace.PaperspaceError) as caught:
        Script(failure).client(retries=0).request("POST", "/machines")
    assert not isinstance(caught.value, paperspace.LostReplyError)


@pytest.mark.parametrize("failure", [LIVE_401, refusal(403, "X"), refusal(404, "X"), make_response(b"<html>", 200)])
def test_permanent_errors_are_not_retried(failure: Response) -> None:
    script = Script(failure)
    with pytest.raises(paperspace.PaperspaceError):
        script.client().request("GET", "/machines")
    assert len(script.sent) == 1


# --- Requests


def test_content_type_is_json_with_a_body_and_absent_without() -> None:
    script = Script(make_response({}))
    script.client().request("POST", "/machines", None, {"name": "a"})
    script.client().request("PATCH", "/machines/a/start")
    (with_body, body), (without, empty_body) = (sent[2:] for sent in script.sent)
    assert (with_body["Content-Type"], body) == ("application/json", b'{"name": "a"}')
    assert "Content-Type" not in without
    assert empty_body is None
    assert with_body["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.paperspace.com/v1",
        "ftp://api.paperspace.com/v1",
        "https://",
        "https://me:pa55word@api.paperspace.com/v1",
        "https://api.paperspace.com/v1?key=pa55word",
        "https://[::1/v1",
    ],
)
def test_invalid_api_urls_are_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(paperspace.RequestError, match="does not have the form https://HOST/PATH") as caught:
        Client(KEY, url)
    assert "pa55word" not in str(caught.value)


def test_the_key_is_not_sent_unencrypted() -> None:
    with pytest.raises(paperspace.RequestError, match="http://api.paperspace.com would send the API key unencrypted"):
        Client(KEY, "http://api.paperspace.com/v1")


# --- Lists


def page(*ids: str, cursor: str | None = None) -> Response:
    return make_response({"items": [{"id": i} for i in ids], "hasMore": cursor is not None, "nextPage": cursor})


def test_all_pages_are_read_and_duplicate_items_dropped() -> None:
    script = Script(page("a", "b", cursor="1"), page("b", "c", cursor="2"), page("d"))
    assert [item["id"] for item in script.client().list_all("/machines")] == ["a", "b", "c", "d"]
    assert [sent[1].partition("after=")[2] for sent in script.sent] == ["", "1", "2"]
    assert "limit=120&orderBy=dtCreated&order=asc" in script.sent[0][1]


def test_list_order_and_key_can_be_chosen() -> None:
    content = {"items": [{"ip": "198.18.0.1"}, {"ip": "198.18.0.2"}, {"ip": "198.18.0.1"}], "hasMore": False}
    script = Script(make_response(content))
    assert len(script.client().list_all("/public-ips", key="ip")) == 2
    script.client().list_all("/os-templates", order_by="name", key="ip")
    script.client().list_all("/os-templates", order_by=None, key="ip")
    queries = [sent[1].partition("?")[2] for sent in script.sent]
    assert queries == ["limit=120&orderBy=dtCreated&order=asc", "limit=120&orderBy=name&order=asc", "limit=120"]
    with pytest.raises(paperspace.InvalidReplyError, match="an item in the list has no id"):
        script.client().list_all("/public-ips")


@pytest.mark.parametrize(
    ("pages", "text"),
    [
        ([page("a", cursor="1"), page("b", cursor="2"), page("a", cursor="1")], "form a loop: page 3 points to"),
        ([page("a", cursor="1")], "form a loop: page 2 points to"),
        ([page("a", cursor="")], "page 1 has more pages after it, but no cursor"),
        ([make_response([{"id": "a"}])], "not a page of a list"),
        ([make_response(None)], "not a page of a list"),
        ([make_response({"items": [{"name": "a"}], "hasMore": False})], "an item in the list has no id"),
        ([page("a", cursor="1"), refusal(500, "X")], "HTTP 500"),
    ],
)
def test_incomplete_list_is_an_error(pages: list[Response | paperspace.PaperspaceError], text: str) -> None:
    with pytest.raises(paperspace.PaperspaceError, match=text):
        Script(*pages).client(retries=0).list_all("/machines")


def test_endless_paging_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paperspace_client, "MAX_PAGES", 5)
    with pytest.raises(paperspace.InvalidReplyError, match="more than 5 pages"):
        Script(*[page(str(n), cursor=str(n)) for n in range(9)]).client().list_all("/machines")


# --- Events


def event(state: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": "ev1",
        "name": "create",
        "state": state,
        "machineId": "ps1",
        "error": None,
        "dtFinished": None,
    } | changes


def test_event_is_polled_until_it_ends() -> None:
    script = Script(
        make_response(event("new")), make_response(event("in progress")), make_response(event("done", dtFinished="x"))
    )
    assert script.client().wait_for_event(event("new"))["state"] == "done"
    assert script.slept == [5, 5, 5]
    assert script.sent[0][1].endswith("/machine-events/ev1")


def test_finished_event_with_error_state_but_no_text_is_returned() -> None:
    ended = event("error", dtFinished="2026-01-01T00:00:00Z")
    assert Script(make_response(ended)).client().wait_for_event(event("new")) == ended


@pytest.mark.parametrize(
    ("last", "text"),
    [
        (
            event("error", error="Out of \x1b[31mcapacity"),
            r"create \(ev1\) of machine ps1 failed: Out of \[31mcapacity",
        ),
        (event("error"), "failed without a reason"),
        (event("cancelled"), "was cancelled without a reason"),
    ],
)
def test_failed_or_cancelled_event_raises_an_error(last: dict[str, Any], text: str) -> None:
    with pytest.raises(paperspace.EventError, match=text):
        Script(make_response(last)).client().wait_for_event(event("new"))


def test_event_timeout_reports_the_last_state() -> None:
    script = Script(make_response(event("in progress")))
    with pytest.raises(paperspace.EventError, match="not finished after 12 s; its last state is in progress"):
        script.client().wait_for_event(event("new"), timeout=12)
    assert script.slept == [5, 5, 2]


def test_change_without_an_event_is_complete_immediately() -> None:
    assert Script(make_response({"id": "nw1"})).client().change("POST", "/private-networks", {}) == (
        None,
        {"id": "nw1"},
    )
    with pytest.raises(paperspace.LostReplyError, match="not an object"):
        Script(make_response(None)).client().change("POST", "/private-networks", {})


# --- Over real HTTP


@pytest.fixture(autouse=True)
def no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip loading the system's CA certificates, which takes most of a test's time even without TLS."""
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)


@pytest.fixture
def server() -> Iterator[PaperspaceServer]:
    with PaperspaceServer(PaperspaceAccount([machine(n) for n in range(300)])) as running:
        yield running


def live(server: PaperspaceServer, **options: Any) -> Client:
    settings: dict[str, Any] = {"retries": 0, "sleep": lambda seconds: None, **options}
    return Client(server.key, server.url, **settings)


def test_server_is_as_strict_as_the_official_specification() -> None:
    if not DOCUMENT.exists():
        pytest.skip("the official API document is not beside the checkout: the test server is not held to it")
    with PaperspaceServer(PaperspaceAccount([machine(0)])) as server:
        with pytest.raises(paperspace.RequestError, match="color: no such parameter"):
            live(server).request("GET", "/machines", {"color": "red"})
        with pytest.raises(paperspace.RequestError, match="limit: 121 is greater than the maximum"):
            live(server).request("GET", "/machines", {"limit": 121})
        with pytest.raises(paperspace.RequestError, match="templateId' is a required property"):
            live(server).change(
                "POST", "/machines", {"name": "a", "machineType": "C5", "diskSize": 50, "region": "ny2"}
            )
        server.account.machines[0]["cpus"] = "sixteen"
        live(server).request("GET", "/machines")
        assert "'sixteen' is not of type 'number'" in server.violations[0]
        server.violations.clear()


def test_all_pages_are_read_over_http(server: PaperspaceServer) -> None:
    ids = [item["id"] for item in live(server).list_all("/machines")]
    assert ids == [m["id"] for m in server.account.machines]
    assert len(server.requests) == 3


def test_wrong_key_and_unknown_path_or_method_raise_typed_errors(server: PaperspaceServer) -> None:
    with pytest.raises(paperspace.AuthenticationError, match="You must be logged in to access this method"):
        Client("wrong", server.url).request("GET", "/machines")
    with pytest.raises(paperspace.NotFoundError, match="HTTP 404 NOT_FOUND: Not found"):
        live(server).request("GET", "/nothing")
    with pytest.raises(paperspace.NotFoundError):
        live(server).request("PUT", "/machines")


def test_machine_is_created_started_stopped_and_deleted() -> None:
    with PaperspaceServer(PaperspaceAccount([])) as server:
        client = live(server)
        body = {
            "name": "a",
            "machineType": "A6000x2",
            "templateId": "t0nspur5",
            "diskSize": 50,
            "region": "East Coast (NY2)",
        }
        created = client.change("POST", "/machines", {**body, "startOnCreate": False})
        assert created.event is not None
        assert created.data["state"] == "provisioning"
        assert client.wait_for_event(created.event)["state"] == "done"
        path = "/machines/" + quote_path(created.data["id"])
        for action, state in (("start", "ready"), ("restart", "ready"), ("stop", "off")):
            change = client.change("PATCH", f"{path}/{action}")
            assert change.event is not None
            client.wait_for_event(change.event)
            assert client.request("GET", path)["state"] == state
        with pytest.raises(paperspace.RequestError, match="currently off"):
            client.change("PATCH", f"{path}/stop")
        server.account.outcomes["start"] = EventOutcome(state="error", error="Out of capacity")
        change = client.change("PATCH", f"{path}/start")
        assert change.event is not None
        with pytest.raises(paperspace.EventError, match="Out of capacity"):
            client.wait_for_event(change.event)
        deletion = client.change("DELETE", path)
        assert deletion.event is not None
        client.wait_for_event(deletion.event)
        with pytest.raises(paperspace.NotFoundError):
            client.request("GET", path)


def test_network_is_created_without_an_event_and_unknown_network_is_null(server: PaperspaceServer) -> None:
    created = live(server).change("POST", "/private-networks", {"name": "mine", "region": "ny2"})
    assert created.event is None
    assert live(server).request("GET", "/private-networks/" + created.data["id"])["name"] == "mine"
    assert live(server).request("GET", "/private-networks/none") is None
    assert live(server).change("DELETE", "/private-networks/" + created.data["id"]).data == {"id": created.data["id"]}


@pytest.mark.parametrize(
    ("injected", "kind", "text"),
    [
        (
            PaperspaceFault(drop=True),
            paperspace.ConnectionFailedError,
            "the connection failed: Remote end closed connection",
        ),
        (PaperspaceFault(delay=30), paperspace.ConnectionFailedError, "no complete response within 0.5 s"),
        # Each byte arrives in time, but the reply never completes.
        (PaperspaceFault(drip=0.1), paperspace.ConnectionFailedError, "no complete response within 0.5 s"),
        (PaperspaceFault(truncate=20), paperspace.ConnectionFailedError, r"the connection ended after 20 of \d+ bytes"),
        (PaperspaceFault(body='{"items": ['), paperspace.InvalidReplyError, "not the expected JSON"),
        (PaperspaceFault(next_page=cursor("ps000077")), paperspace.InvalidReplyError, "form a loop: page 2 points to"),
        (
            PaperspaceFault(status=302, headers={"Location": "/v2"}),
            paperspace.RequestError,
            "HTTP 302: redirected to /v2",
        ),
    ],
)
def test_connection_faults_become_typed_errors(
    server: PaperspaceServer, injected: PaperspaceFault, kind: type[paperspace.PaperspaceError], text: str
) -> None:
    server.faults = [injected]
    timeout = 0.5 if injected.delay or injected.drip else 30  # even an immediate reply may be slow on a busy machine
    with pytest.raises(kind, match=text) as caught:
        live(server, timeout=timeout).list_all("/machines")
    assert str(caught.value).startswith("GET /machines")


def test_server_that_recovers_is_retried(server: PaperspaceServer) -> None:
    server.faults = [
        PaperspaceFault(drop=True, times=1),
        PaperspaceFault(status=503, times=1),
        PaperspaceFault(status=429, times=1),
    ]
    slept: list[float] = []
    assert len(live(server, retries=3, sleep=slept.append).list_all("/private-networks")) == 1
    assert slept == [1, 2, 4]


def test_netrc_login_does_not_replace_the_api_key(
    server: PaperspaceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    live(server).list_all("/machines")
    assert server.requests[0].headers["authorization"] == f"Bearer {server.key}"


def test_refused_connection_and_unresolvable_name_are_reported() -> None:
    with PaperspaceServer() as server:
        url = server.url
    # Nothing was sent, so no reply is lost.
    for method in ("GET", "POST"):
        with pytest.raises(
            paperspace.ConnectionFailedError, match=r"at 127.0.0.1:\d+: the connection failed: .*refused"
        ):
            Client(KEY, url, retries=0).request(method, "/machines")
    slept: list[float] = []
    with pytest.raises(paperspace.ConnectionFailedError, match="cannot resolve the server's name"):
        Client(KEY, "https://nothing.invalid/v1", sleep=slept.append).request("POST", "/machines")
    assert slept == []


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Create a self-signed certificate for localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "certificate.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return tmp_path / "certificate.pem", tmp_path / "key.pem"


def test_tls_certificate_and_host_name_are_verified(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    with PaperspaceServer(
        PaperspaceAccount([machine(0)]), certificate=certificate[0], private_key=certificate[1]
    ) as server:
        localhost_url = server.url.replace("127.0.0.1", "localhost")
        client: Callable[[str], Client] = lambda url: Client(server.key, url, sleep=slept.append)  # noqa: E731
        with pytest.raises(paperspace.TlsError, match=r"TLS connection failed: .*self.signed.*SSL_CERT_FILE"):
            client(localhost_url).request("GET", "/machines")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        assert len(client(localhost_url).list_all("/machines")) == 1
        with pytest.raises(paperspace.TlsError, match="IP address mismatch, certificate is not valid for '127.0.0.1'"):
            client(server.url).request("GET", "/machines")
    assert slept == []
    assert isinstance(transport_error(ssl.SSLError("x"), 1), paperspace.TlsError)

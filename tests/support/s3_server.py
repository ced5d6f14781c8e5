"""An S3 server for tests: moto's buckets behind checks that refuse requests as Amazon does, on any local address.

    with S3Server("10.89.0.1", buckets=["data"]) as s3:
        s3.client().put_object(Bucket="data", Key="a.txt", Body=b"a")
        # clients need s3.url, s3.region, s3.access_key, s3.secret_key and path style

Keys, signatures (version 4), the region of a signature, and on demand clocks are checked; moto itself accepts
anything. The buckets live as long as the object: `stop` and `start` imitate an outage.
From a shell: python -m tests.support.s3_server --address 127.0.0.1 --port 9000 --bucket data
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import hmac
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote, unquote_plus

import boto3
from botocore.config import Config
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.lab.virtual_machine import free_port

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, ?SignedHeaders=([^,]+), ?Signature=(\w+)"
)
REFUSALS = {
    "InvalidAccessKeyId": (403, "The AWS Access Key Id you provided does not exist in our records."),
    "SignatureDoesNotMatch": (
        403,
        "The request signature we calculated does not match the signature you provided.",
    ),
    "AccessDenied": (403, "Access Denied"),
    "RequestTimeTooSkewed": (403, "The difference between the request time and the current time is too large."),
    "AuthorizationHeaderMalformed": (
        400,
        "The authorization header is malformed; the region '{given}' is wrong; expecting '{region}'",
    ),
    "SlowDown": (503, "Please reduce your request rate."),
}
"""Amazon's error codes with their HTTP statuses and messages."""


class _QuietRequestHandler(WSGIRequestHandler):
    """Reuses connections, as in HTTP/1.1, and does not log requests to the terminal."""

    protocol_version = "HTTP/1.1"

    def log(self, *_arguments: Any) -> None:
        """Log nothing."""


class S3Server:
    """An S3 server; `with` starts and stops it.

    Attributes to read or change while it runs:
        refuse: A code of REFUSALS with which to refuse every request, "" for none.
        hangs: Whether requests are accepted but get no response.
        read_only: Whether requests that write are denied.
        requests: Method and path of all requests, in order.
    """

    def __init__(  # noqa: PLR0913
        self,
        address: str = "127.0.0.1",
        *,
        port: int = 0,
        region: str = "us-east-1",
        buckets: Sequence[str] = (),
        access_key: str = "AKIATESTTESTTESTTEST",
        secret_key: str = "test/secret+key=",
    ) -> None:
        self.address = address
        self.port = port
        self.region = region
        self.buckets = tuple(buckets)
        self.keys = {access_key: secret_key}
        self.access_key = access_key
        self.secret_key = secret_key
        self.refuse = ""
        self.hangs = False
        self.read_only = False
        self.requests: list[tuple[str, str]] = []
        self._released = threading.Event()
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        os.environ["S3_IGNORE_SUBDOMAIN_BUCKETNAME"] = "1"
        self._moto = DomainDispatcherApplication(create_backend_app)

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://{self.address}:{self.port}"

    def client(self) -> Any:
        """Return a boto3 S3 client with valid keys."""
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.keys[self.access_key],
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def __enter__(self) -> S3Server:
        self.start()
        for bucket in self.buckets:
            configuration = {} if self.region == "us-east-1" else {"LocationConstraint": self.region}
            self.client().create_bucket(
                Bucket=bucket, **({"CreateBucketConfiguration": configuration} if configuration else {})
            )
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, on the same port as before."""
        self.port = self.port or free_port(self.address)
        deadline = time.monotonic() + 60
        while True:
            try:
                self._server = make_server(
                    self.address, self.port, self._serve, threaded=True, request_handler=_QuietRequestHandler
                )
                break
            except (OSError, SystemExit):  # a recently forked process may still hold the previous socket
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Refuse new connections; open ones end with their next request."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def release(self) -> None:
        """Respond to the requests held back by `hangs`, and stop holding back."""
        self.hangs = False
        self._released.set()
        self._released = threading.Event()

    def _serve(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        self.requests.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        if self.hangs:
            self._released.wait(600)
        if self._server is None:
            with contextlib.suppress(OSError):  # the client may have closed it
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        code, values = self._judge(environ)
        if code:
            status, message = REFUSALS[code]
            text = (
                f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
                f"<Message>{message.format(**values)}</Message>"
                + (f"<Region>{self.region}</Region>" if values else "")
                + "<RequestId>0</RequestId></Error>"
            ).encode()
            # the body of a rejected request is not read, so close the connection
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(text))), ("Connection", "close")]
            start_response(f"{status} {code}", [*headers, ("x-amz-bucket-region", self.region)])
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [text]
        return self._moto(environ, start_response)

    def _judge(self, environ: Environ) -> tuple[str, dict[str, str]]:
        """Return the error code for refusing a request, or "" to accept it, and the values for the error message."""
        if self.refuse:
            return self.refuse, {}
        match = AUTHORIZATION.match(environ.get("HTTP_AUTHORIZATION", ""))
        if not match:
            return "AccessDenied", {}
        key, date, region, names, signature = match.groups()
        if key not in self.keys:
            return "InvalidAccessKeyId", {}
        if region != self.region:
            return "AuthorizationHeaderMalformed", {"given": region, "region": self.region}
        if not hmac.compare_digest(signature, _signature(environ, self.keys[key], date, region, names)):
            return "SignatureDoesNotMatch", {}
        if self.read_only and environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return "AccessDenied", {}
        return "", {}


def _signature(environ: Environ, secret: str, date: str, region: str, names: str) -> str:
    """Return the version 4 signature that a request must have."""
    path, _mark, query = environ["RAW_URI"].partition("?")
    path = re.sub(r"^https?://[^/]+", "", path)
    pairs = sorted(
        tuple(quote(unquote_plus(part), safe="-_.~") for part in (*pair.split("=", 1), "")[:2])
        for pair in query.split("&")
        if pair
    )

    def header(name: str) -> str:
        key = name.upper().replace("-", "_")
        value = environ.get(key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}", "")
        return " ".join(str(value).split())

    request = "\n".join(
        [
            environ["REQUEST_METHOD"],
            path,
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{header(name)}" for name in names.split(";")),
            "",
            names,
            header("x-amz-content-sha256"),
        ]
    )
    scope = f"{date}/{region}/s3/aws4_request"
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", header("x-amz-date"), scope, digest])
    key = f"AWS4{secret}".encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.s3_server", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) selects a free one")
    parser.add_argument("--region", default="us-east-1")
    parser.add_argument("--bucket", action="append", default=[])
    arguments = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with S3Server(arguments.address, port=arguments.port, region=arguments.region, buckets=arguments.bucket) as s3:
        print(f"{s3.url} AWS_ACCESS_KEY_ID={s3.access_key} AWS_SECRET_ACCESS_KEY={s3.secret_key}", flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()

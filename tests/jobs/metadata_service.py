"""The metadata service of an EC2 instance (IMDSv2): it announces the instance's termination once FILE exists.

metadata_service.py FILE
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ACTION = "/latest/meta-data/spot/instance-action"
SECONDS = 120.0


class Handler(BaseHTTPRequestHandler):
    """Reply with a token, and with the notice to clients that send the token."""

    def reply(self, status: int, body: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_PUT(self) -> None:
        has_lifetime = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "").isdigit()
        self.reply(200, "token") if self.path == "/latest/api/token" and has_lifetime else self.reply(400)

    def do_GET(self) -> None:
        if self.headers.get("X-aws-ec2-metadata-token") != "token":
            self.reply(401)
        elif self.path == ACTION and Path(sys.argv[1]).exists():
            moment = Path(sys.argv[1]).stat().st_mtime + SECONDS
            text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
            self.reply(200, json.dumps({"action": "terminate", "time": text}))
        else:
            self.reply(404)


ThreadingHTTPServer(("169.254.169.254", 80), Handler).serve_forever()

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Notices from cloud providers that a machine will be taken away, read from the provider's metadata service.

A child process of the supervisor asks, since a metadata service may hang: see cloud_watch. A source is a class with the
methods of MetadataSource and an entry in SOURCES.
"""

from __future__ import annotations

import calendar
import time

from ansible_collections.muster.training.plugins.module_utils._files.bounded import parse_json
from ansible_collections.muster.training.plugins.module_utils._run.timeouts import (
    METADATA_CONNECT_TIMEOUT,
    METADATA_READ_TIMEOUT,
)

TYPE_CHECKING = False
if TYPE_CHECKING:  # the name that type checkers know; importing typing would cost each node a few milliseconds
    from typing import Any, Callable, Dict, Tuple

    Announcement = Dict[str, Any]  # text, ends, seconds
    Response = Tuple[int, str]
    Request = Callable[..., Response]
    Clock = Callable[[], float]

MAX_RESPONSE = 65536  # bytes
DMI = "/sys/class/dmi/id"
AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"  # every Azure machine has it, but not other Hyper-V machines


class MetadataSource:
    """The interface of all sources; request(method, path, headers) returns status and body."""

    name = ""
    address = ""  # address of the metadata service, as HOST:PORT

    def is_here(self, dmi: Callable[[str], str]) -> bool:
        """Return whether this machine belongs to the provider. dmi: reads a file of the kernel's DMI directory."""
        raise NotImplementedError

    def poll(self, request: Request, clock: Clock) -> Announcement | None:
        """Return the current announcement, or None if there is none. Raise OSError if the service does not respond."""
        raise NotImplementedError


def announcement(text: str, seconds: float, ends: bool = True) -> Announcement:
    """Return an announcement. seconds: until the machine is taken away, 0 if unknown; ends: whether it will be."""
    return {"text": text, "ends": ends, "seconds": seconds}


def seconds_until(text: str, pattern: str, now: float, default: float) -> float:
    """Return the seconds from now until a UTC time in a provider's format; at least 1, and at most the default."""
    try:
        moment = calendar.timegm(time.strptime(text, pattern))
    except (ValueError, OverflowError):
        return default
    return min(default, max(1.0, moment - now))


class Ec2(MetadataSource):
    """Amazon EC2, using IMDSv2: spot interruptions two minutes ahead, and earlier rebalance recommendations."""

    name = "ec2"
    address = "169.254.169.254:80"
    token_seconds = 21600

    def __init__(self) -> None:
        self.token = ""
        self.token_due = 0.0

    def is_here(self, dmi: Callable[[str], str]) -> bool:
        return dmi("sys_vendor") == "Amazon EC2" or dmi("bios_vendor") == "Amazon EC2"

    def poll(self, request: Request, clock: Clock) -> Announcement | None:
        now = clock()
        if now >= self.token_due:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": str(self.token_seconds)}
            status, token = request("PUT", "/latest/api/token", headers)
            if status != 200 or not token.isprintable():
                return None
            self.token, self.token_due = token, now + self.token_seconds / 2
        interruption = self.read(request, "spot/instance-action")
        if interruption.get("action") in ("terminate", "stop", "hibernate"):
            seconds = seconds_until(str(interruption.get("time")), "%Y-%m-%dT%H:%M:%SZ", now, 120.0)
            text = f"Amazon EC2 will {interruption['action']} it in {seconds:.0f} s (spot interruption)"
            return announcement(text, seconds)
        if self.read(request, "events/recommendations/rebalance").get("noticeTime"):
            return announcement("Amazon EC2 may soon interrupt it (rebalance recommendation)", 0.0, ends=False)
        return None

    def read(self, request: Request, path: str) -> Announcement:
        """Return a JSON object from the metadata service, or {} if it does not exist."""
        status, body = request("GET", f"/latest/meta-data/{path}", {"X-aws-ec2-metadata-token": self.token})
        if status == 401:  # the token has expired
            self.token_due = 0.0
        return parse_object(body) if status == 200 else {}


class Gcp(MetadataSource):
    """Google Compute Engine: preemption of spot instances, 30 s ahead."""

    name = "gcp"
    address = "169.254.169.254:80"

    def is_here(self, dmi: Callable[[str], str]) -> bool:
        return dmi("product_name") == "Google Compute Engine"

    def poll(self, request: Request, clock: Clock) -> Announcement | None:
        headers = {"Metadata-Flavor": "Google"}
        status, body = request("GET", "/computeMetadata/v1/instance/preempted", headers)
        if status == 200 and body.strip() == "TRUE":
            return announcement("Google Cloud will stop it in 30 s (preemption)", 30.0)
        return None


class Azure(MetadataSource):
    """Microsoft Azure: scheduled events, at least 30 s ahead for the eviction of a spot instance."""

    name = "azure"
    address = "169.254.169.254:80"
    kinds = {"Preempt": "evict", "Terminate": "delete", "Reboot": "reboot", "Redeploy": "redeploy"}

    def __init__(self) -> None:
        self.machine = ""

    def is_here(self, dmi: Callable[[str], str]) -> bool:
        return dmi("chassis_asset_tag") == AZURE_ASSET_TAG

    def poll(self, request: Request, clock: Clock) -> Announcement | None:
        headers = {"Metadata": "true"}
        if not self.machine:  # a scale set's events name several machines
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            status, body = request("GET", path, headers)
            self.machine = body.strip() if status == 200 else ""
        status, body = request("GET", "/metadata/scheduledevents?api-version=2020-07-01", headers)
        events = parse_object(body).get("Events") if status == 200 else None
        for event in events if isinstance(events, list) else []:
            action = self.kinds.get(str(event.get("EventType"))) if isinstance(event, dict) else None
            if action and self.machine and self.machine in as_list(event.get("Resources")):
                seconds = seconds_until(str(event.get("NotBefore")), "%a, %d %b %Y %H:%M:%S GMT", clock(), 900.0)
                seconds = seconds if event.get("NotBefore") else 30.0  # "" once it has started
                return announcement(f"Azure will {action} it in {seconds:.0f} s (scheduled event)", seconds)
        return None


SOURCES: dict[str, Callable[[], MetadataSource]] = {source.name: source for source in (Ec2, Gcp, Azure)}


def parse_object(text: str) -> Announcement:
    """Return a JSON object, or {} if the text is not one."""
    try:
        value = parse_json(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def read_dmi(name: str) -> str:
    """Return the content of a file in the kernel's DMI directory, or "" if it cannot be read."""
    try:
        with open(f"{DMI}/{name}", encoding="utf-8", errors="replace") as stream:
            return stream.read(256).strip()
    except OSError:
        return ""


def sources_here(addresses: dict[str, str]) -> list[tuple[MetadataSource, str]]:
    """Return this machine's sources, each with the address of its metadata service.

    addresses: HOST:PORT by source, for tests; they replace the detection of the provider.
    """
    if addresses:
        return [(SOURCES[name](), address) for name, address in sorted(addresses.items()) if name in SOURCES]
    sources = [make() for make in SOURCES.values()]
    return [(source, source.address) for source in sources if source.is_here(read_dmi)]


def make_requester(address: str) -> Request:
    """Return a function that sends one request to a metadata service, without proxies or redirects."""
    import http.client  # imported here because the supervisor imports this file, too

    host, _colon, port = address.rpartition(":")

    def request(method: str, path: str, headers: dict[str, str]) -> Response:
        connection = http.client.HTTPConnection(host, int(port), timeout=METADATA_CONNECT_TIMEOUT)
        try:
            connection.connect()
            if connection.sock is not None:
                connection.sock.settimeout(METADATA_READ_TIMEOUT)
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_RESPONSE).decode("utf-8", "replace")
        except http.client.HTTPException as error:
            raise OSError(str(error)) from None
        finally:
            connection.close()

    return request


def poll_once(source: MetadataSource, address: str, clock: Clock = time.time) -> Announcement | None:
    """Return a source's current announcement, or None if there is none or its service does not reply."""
    try:
        return source.poll(make_requester(address), clock)
    except (OSError, ValueError):
        return None

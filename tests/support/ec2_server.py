"""An EC2 server for tests: moto's machines behind a front end that adds what moto lacks, on any address of this
machine.

    with EC2Server(hosts=[Host("10.89.0.2", "10.89.0.2")]) as ec2:
        ec2.client().run_instances(...)
        # clients take ec2.url, ec2.region, ec2.access_key and ec2.secret_key

It simulates the EC2 API of one region, and the few related responses of SSM, Pricing and Service Quotas. The front end
adds to moto: client tokens (a repeated request with the same token is executed once, a different one is refused),
placement groups, eventual consistency of lists, states that last (pending, shutting-down), refusal of unknown types,
refusal to delete groups, subnets, gateways and networks in use, refusals on demand by zone, type and market, current
dates of spot prices, responses lost on purpose, a cost meter, and foreign resources to compare. It has not been
compared with the live service.
moto keeps its state in the process: a server starts with an empty account, which a second server in the same process
would share.
By hand: python -m tests.support.ec2_server --address 127.0.0.1 --port 9000
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import dataclasses
import datetime
import functools
import hashlib
import io
import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple
from unittest import mock
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import boto3
from botocore.config import Config
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami
from moto.ec2.models.instance_types import INSTANCE_TYPES
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.lab.virtual_machine import free_port

Environ = dict[str, Any]
Parameters = dict[str, str]

# User agent of the meter's requests, which do not advance states and are not recorded.
METER = "muster-meter"

# HTTP statuses of codes that are not 400.
STATUSES = {
    "InsufficientInstanceCapacity": 500,
    "InsufficientHostCapacity": 500,
    "InternalError": 500,
    "Unavailable": 503,
    "RequestLimitExceeded": 503,
    "UnauthorizedOperation": 403,
}

# US dollars per hour; other types cost 1, and a spot instance a third. gp3: per GB and month for a volume. Made up,
# but close to real prices.
PRICES = {"g4dn.xlarge": 0.526, "g5.xlarge": 1.006, "gp3": 0.08}
VOLUME_GIB = 0.0001
ADDRESS = 0.005


DEEP_LEARNING = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04)"
# Images from which instances can be created: id, name, owner and date.
IMAGES = (
    ("ami-0dee90000000000a1", f"{DEEP_LEARNING} 20250101", "898082745236", "2025-01-01"),
    ("ami-0dee90000000000a2", f"{DEEP_LEARNING} 20260101", "898082745236", "2026-01-01"),
    ("ami-0aaaa0000000000b1", "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server", "099720109477", "2026-01-01"),
)
# The public SSM parameters that contain image IDs.
PARAMETERS = {
    "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id": IMAGES[1][0],
}


class Host(NamedTuple):
    """Addresses of a test host that can stand in for an instance."""

    private: str
    public: str


class Cost(NamedTuple):
    """A billed resource. usd: US dollars per hour."""

    kind: str
    key: str
    usd: float


@dataclasses.dataclass
class Fault:
    """A fault injected into requests. code: EC2's error code in the response; empty: the response is lost.

    action, zone, market (spot, on-demand) and instance_type select the requests, None selects all. skip: matching
    requests to let pass first. times: how many to affect, None for all. carried_out: whether the request takes effect.
    """

    code: str = ""
    action: str | None = "RunInstances"
    zone: str | None = None
    market: str | None = None
    instance_type: str | None = None
    skip: int = 0
    times: int | None = 1
    carried_out: bool = False
    message: str = "Refused on purpose."

    def applies(self, action: str, zone: str, market: str, instance_type: str) -> bool:
        """Return whether the fault affects this request, and count it in skip or times."""
        criteria = (
            (self.action, action),
            (self.zone, zone),
            (self.market, market),
            (self.instance_type, instance_type),
        )
        if any(expected not in (None, is_) for expected, is_ in criteria) or self.times == 0:
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


def broken_off(skip: int, *, carried_out: bool) -> list[Fault]:
    """Return faults that cut off the client from EC2 after `skip` requests. carried_out: whether the next one takes
    effect.
    """
    return [Fault(action=None, skip=skip, carried_out=carried_out), Fault(action=None, skip=skip, times=None)]


# Listings that may be outdated: moto's attribute with the listed resources, and the prefix of their IDs.
_LISTED = {
    "DescribeInstances": ("reservations", "r-"),
    "DescribeVpcs": ("vpcs", "vpc-"),
    "DescribeSubnets": ("subnets", "subnet-"),
    "DescribeInternetGateways": ("internet_gateways", "igw-"),
}


class Refused(Exception):
    """The response to the request is an EC2 error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Response(NamedTuple):
    """A response. body None: the connection ends without a response."""

    status: int
    body: bytes | None
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/xml"),)


class _Quiet(WSGIRequestHandler):
    """Reuses connections, as in HTTP/1.1, and does not log requests to the terminal."""

    protocol_version = "HTTP/1.1"

    def log(self, *_arguments: Any) -> None:
        """Log nothing."""


class EC2Server:
    """An EC2 server; `with` starts and ends it.

    Attributes to read or change while it runs:
        faults: the first that applies to a request affects it.
        hidden: number of lists of instances, networks, subnets and gateways that do not show a new resource yet.
        pending, shutting_down: number of lists for which an instance stays in that state.
        prices, quotas, parameters: responses of Pricing (by type), Service Quotas (by code) and SSM (by name).
        requests: action and parameters of all requests, in order, without the meter's own.
    """

    def __init__(
        self,
        address: str = "127.0.0.1",
        *,
        port: int = 0,
        region: str = "us-east-1",
        hosts: Sequence[Host] | None = None,
    ) -> None:
        self.address = address
        self.port = port
        self.region = region
        self.hosts = hosts
        self.access_key = "AKIATESTTESTTESTTEST"
        self.secret_key = "test/secret+key="
        self._clients: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._server: BaseWSGIServer | None = None
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._empty()

    def _empty(self) -> None:
        """Reset the state to that of an unused account."""
        self.faults: list[Fault] = []
        # the instances' network nodes, assigned in turn in order of launch index
        self.network_nodes: list[list[str]] = []
        self.hidden = 0
        self.pending = 0
        self.shutting_down = 1
        self.prices = dict(PRICES)
        self.quotas: dict[str, float] = {}
        self.parameters = dict(PARAMETERS)
        self.requests: list[tuple[str, Parameters]] = []
        self.foreign: set[str] = set()
        self._tokens: dict[str, tuple[Parameters, Response]] = {}
        self._groups: dict[str, dict[str, Any]] = {}
        self._group_of: dict[str, str] = {}
        self._needs: dict[str, set[str]] = {}
        self._lists_left: dict[str, int] = {}
        self._host_of: dict[str, Host] = {}
        self._changing: dict[str, list[Any]] = {}

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://{self.address}:{self.port}"

    @property
    def backend(self) -> Any:
        """moto's state of the region."""
        return ec2_backends[DEFAULT_ACCOUNT_ID][self.region]

    def client(self, service: str = "ec2", **options: Any) -> Any:
        """A boto3 client without retries, shared by all callers with the same arguments."""
        settings = {"retries": {"total_max_attempts": 1}, **options}
        name = f"{service} {settings}"
        if name not in self._clients:
            self._clients[name] = self._made_client(service, settings)
        return self._clients[name]

    def _made_client(self, service: str, settings: dict[str, Any]) -> Any:
        return _session().client(
            service,
            endpoint_url=self.url,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(**settings),
        )

    def __enter__(self) -> EC2Server:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def start(self) -> None:
        """Listen, with an empty account."""
        self.port = self.port or free_port(self.address)
        self._server = make_server(self.address, self.port, self._serve, threaded=True, request_handler=_Quiet)
        self._server.daemon_threads = True  # type: ignore[attr-defined]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.reset(self.hosts)

    def reset(self, hosts: Sequence[Host] | None = None) -> None:
        """Reset to a new account with a network, a subnet per zone, a security group, and images."""
        with self._lock:
            self._empty()
            self.hosts = hosts
            with mock.patch.dict(os.environ, MOTO_EC2_LOAD_DEFAULT_AMIS="false"):  # 1300 unneeded images
                self.backend.reset()
            for image_id, name, owner, day in IMAGES:
                self.backend.amis[image_id] = Ami(
                    self.backend,
                    image_id,
                    name=name,
                    description=name,
                    owner_id=owner,
                    owner_alias="amazon",
                    public=True,
                    virtualization_type="hvm",
                    architecture="x86_64",
                    creation_date=datetime.datetime.fromisoformat(day),
                    root_device_type="ebs",
                    root_device_name="/dev/sda1",
                )
        self.mark_foreign()

    # --- The meter, and foreign resources

    def everything(self) -> dict[str, Any]:
        """Return everything that has an ID, by ID, as described by the API."""
        ec2 = self.client(user_agent_extra=METER)
        instances = [i for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
        result = {item["InstanceId"]: item for item in instances if item["State"]["Name"] != "terminated"}
        for part, key, describe in (
            ("Volumes", "VolumeId", ec2.describe_volumes),
            ("SecurityGroups", "GroupId", ec2.describe_security_groups),
            ("Subnets", "SubnetId", ec2.describe_subnets),
            ("Vpcs", "VpcId", ec2.describe_vpcs),
            ("KeyPairs", "KeyPairId", ec2.describe_key_pairs),
            ("Addresses", "AllocationId", ec2.describe_addresses),
            ("PlacementGroups", "GroupId", ec2.describe_placement_groups),
            ("InternetGateways", "InternetGatewayId", ec2.describe_internet_gateways),
            ("RouteTables", "RouteTableId", ec2.describe_route_tables),
        ):
            result |= {item[key]: item for item in describe()[part]}
        for item in result.values():
            item.pop("AvailableIpAddressCount", None)  # changes when others use the subnet
        return result

    def mark_foreign(self) -> None:
        """Declare all existing resources to be foreign."""
        self.foreign = set(self.everything())

    def foreign_bytes(self, everything: dict[str, Any] | None = None) -> bytes:
        """Return all foreign resources as bytes to compare. everything: the result of everything() just before."""
        everything = self.everything() if everything is None else everything
        foreign = {key: everything.get(key) for key in sorted(self.foreign)}
        return json.dumps(foreign, sort_keys=True, default=str).encode()

    def left_over(self) -> list[str]:
        """Return the IDs of all resources that are not foreign: empty once a cluster is completely removed."""
        return sorted(set(self.everything()) - self.foreign)

    def costs(self, everything: dict[str, Any] | None = None) -> list[Cost]:
        """Return all billed resources that are not foreign: instances unless stopped, volumes, addresses."""
        result = []
        for key, item in (self.everything() if everything is None else everything).items():
            if key in self.foreign:
                continue
            if key.startswith("i-") and item["State"]["Name"] not in ("stopped", "shutting-down"):
                usd = self.prices.get(item["InstanceType"], 1.0)
                result.append(Cost("instance", key, usd / 3 if item.get("InstanceLifecycle") == "spot" else usd))
            elif key.startswith("vol-"):
                result.append(Cost("volume", key, VOLUME_GIB * item["Size"]))
            elif key.startswith("eipalloc-"):
                result.append(Cost("address", key, ADDRESS))
        return result

    def usd_per_hour(self) -> float:
        """Return the current cost of all resources that are not foreign, in US dollars per hour."""
        return sum(cost.usd for cost in self.costs())

    # --- Changes of instances without a request

    def interrupt(self, instance_id: str) -> None:
        """Reclaim a spot instance, as the service does."""
        with self._lock:
            instance = self.backend.get_instance(instance_id)
            instance.terminate()
            instance.state_reason.code = "Server.SpotInstanceTermination"
            instance.state_reason.message = "Server.SpotInstanceTermination: Instance terminated by the service"
            self._change(instance, "shutting-down", 32, self.shutting_down, "terminated", 48)

    def guest_powers_off(self, instance_id: str) -> None:
        """Power off from inside the instance, as by `poweroff`."""
        with self._lock:
            instance = self.backend.get_instance(instance_id)
            if instance.instance_initiated_shutdown_behavior == "terminate":
                instance.terminate()
                self._change(instance, "shutting-down", 32, self.shutting_down, "terminated", 48)
            else:
                instance.stop()

    def an_hour_passes(self) -> None:
        """Remove terminated instances from all lists."""
        with self._lock:
            reservations = self.backend.reservations
            for key in [
                key for key, item in reservations.items() if all(i.state == "terminated" for i in item.instances)
            ]:
                for instance in reservations.pop(key).instances:
                    for of_instances in (self._group_of, self._needs, self._host_of, self._changing):
                        of_instances.pop(instance.id, None)

    def _change(self, instance: Any, state: str, code: int, lists: int, then: str, then_code: int) -> None:  # noqa: PLR0913
        """Keep an instance in a state for a number of lists, then change it."""
        if lists > 0:
            instance._state.name, instance._state.code = state, code
            self._changing[instance.id] = [lists, instance, then, then_code]

    def _time_passes(self) -> None:
        """Count one listing of an instance, and apply the state changes that are due."""
        for key, entry in list(self._changing.items()):
            entry[0] -= 1
            if entry[0] < 0:
                _left, instance, name, code = self._changing.pop(key)
                instance._state.name, instance._state.code = name, code

    # --- Requests

    def _serve(self, environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = io.BytesIO(body)
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        with self._lock:
            response = self._aside(target, body) or self._ec2(environ, body)
        if response.body is None:
            with contextlib.suppress(OSError):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            return []
        start_response(f"{response.status} X", [*response.headers, ("Content-Length", str(len(response.body)))])
        return [response.body]

    def _pass_on(self, environ: Environ) -> Response:
        """Return moto's response."""
        messages: list[Any] = []

        def start_response(status: str, headers: list[tuple[str, str]], _error: Any = None) -> Callable[[bytes], None]:
            messages.extend([int(status.split()[0]), headers])
            return lambda _data: None

        body = b"".join(self._moto(environ, start_response))
        headers = tuple((name, value) for name, value in messages[1] if name.lower() != "content-length")
        return Response(messages[0], body, headers)

    def _aside(self, target: str, body: bytes) -> Response | None:
        """Return one of the few replies from SSM, Pricing and Service Quotas; None if the request is for another
        service.
        """
        request = json.loads(body) if target else {}
        content: Any
        if target == "AmazonSSM.GetParameter" and request["Name"] in self.parameters:
            name = request["Name"]
            content = {"Parameter": {"Name": name, "Type": "String", "Value": self.parameters[name], "Version": 1}}
        elif target == "AWSPriceListService.GetProducts":
            expected = {item["Field"]: item["Value"] for item in request.get("Filters", [])}
            price = self.prices.get(expected.get("instanceType") or expected.get("volumeApiName") or "")
            content = {"FormatVersion": "aws_v1", "PriceList": [] if price is None else [_product(expected, price)]}
        elif target == "ServiceQuotasV20190624.GetServiceQuota":
            if request["QuotaCode"] not in self.quotas:
                problem = {"__type": "NoSuchResourceException", "Message": "No such quota"}
                return Response(400, json.dumps(problem).encode(), (("Content-Type", "application/x-amz-json-1.1"),))
            content = {"Quota": {"QuotaCode": request["QuotaCode"], "Value": self.quotas[request["QuotaCode"]]}}
        else:
            return None
        return Response(200, json.dumps(content).encode(), (("Content-Type", "application/x-amz-json-1.1"),))

    def _ec2(self, environ: Environ, body: bytes) -> Response:
        parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
        action = parameters.get("Action", "")
        if METER in environ.get("HTTP_USER_AGENT", ""):
            return self._placement_group(action, parameters) or self._pass_on(environ)
        self.requests.append((action, parameters))
        injected = next(
            (injected for injected in self.faults if injected.applies(action, *self._of_launch(parameters))), None
        )
        try:
            if injected and injected.code and not injected.carried_out:
                raise Refused(injected.code, injected.message)
            response = self._carry_out(action, parameters, environ) if not injected or injected.carried_out else None
            if injected and injected.code:
                raise Refused(injected.code, injected.message)
        except Refused as refused:
            return _error(refused)
        return response if response and not injected else Response(200, None)

    def _of_launch(self, parameters: Parameters) -> tuple[str, str, str]:
        """Return the zone, market and type of a launch; zone and type are empty if not specified."""
        zone = parameters.get("Placement.AvailabilityZone", "")
        subnet = parameters.get("SubnetId") or parameters.get("NetworkInterface.1.SubnetId")
        if subnet:
            zones = [zone for zone, subnets in self.backend.subnets.items() if subnet in subnets]
            zone = zones[0] if zones else zone
        market = "spot" if parameters.get("InstanceMarketOptions.MarketType") == "spot" else "on-demand"
        return zone, market, parameters.get("InstanceType", "")

    def _carry_out(self, action: str, parameters: Parameters, environ: Environ) -> Response:
        if parameters.get("DryRun") == "true":
            return self._pass_on(environ)
        if action == "RunInstances":
            return self._run(parameters, environ)
        if action == "DescribeSpotPriceHistory":
            return self._with_current_prices(environ)
        if action == "DescribeInstances":
            self._time_passes()
        if action in _LISTED:
            return self._without_hidden(action, environ)
        if action == "TerminateInstances":
            ids = [value for name, value in parameters.items() if name.startswith("InstanceId.")]
            existing = [i for i in ids if (result := self._instance(i)) and result._state.name != "terminated"]
            changing = [i for i in existing if self._changing.get(i, [0, 0, ""])[2] == "terminated"]
            response = self._pass_on(environ)
            if response.status == 200:
                for key in existing:
                    lists = self._changing[key][0] if key in changing else self.shutting_down
                    self._change(self._instance(key), "shutting-down", 32, lists, "terminated", 48)
                if self.shutting_down and existing:
                    body = (response.body or b"").replace(b"<code>48</code>", b"<code>32</code>")
                    response = response._replace(
                        body=body.replace(b"<name>terminated</name>", b"<name>shutting-down</name>")
                    )
            return response
        if action in ("DeleteSecurityGroup", "DeleteSubnet", "DeleteVpc", "DetachInternetGateway"):
            self._check_needed(parameters)
        before_it = self._of_networks()
        response = self._placement_group(action, parameters) or self._pass_on(environ)
        if action.startswith("Create"):
            self._lists_left |= dict.fromkeys(self._of_networks() - before_it, self.hidden)
        return response

    def _with_current_prices(self, environ: Environ) -> Response:
        """Return moto's spot prices with the current time; moto dates them 2006."""
        response = self._pass_on(environ)
        now = datetime.datetime.now(datetime.UTC).strftime("<timestamp>%Y-%m-%dT%H:%M:%S.000Z</timestamp>")
        return response._replace(body=re.sub(rb"<timestamp>[^<]*</timestamp>", now.encode(), response.body or b""))

    def _of_networks(self) -> set[str]:
        """Return the IDs of all networks, subnets and gateways."""
        subnets = {key for of_zone in self.backend.subnets.values() for key in of_zone}
        return {*self.backend.vpcs, *self.backend.internet_gateways, *subnets}

    def _instance(self, instance_id: str) -> Any:
        """Return moto's instance, or None if it does not exist."""
        for reservation in self.backend.reservations.values():
            for instance in reservation.instances:
                if instance.id == instance_id:
                    return instance
        return None

    def _without_hidden(self, action: str, environ: Environ) -> Response:
        """Return a list without resources that are still hidden."""
        name, prefix = _LISTED[action]
        state = getattr(self.backend, name)
        visible = copy.copy(state)
        if action == "DescribeSubnets":  # filtered by zone
            visible.update({zone: copy.copy(of_zone) for zone, of_zone in state.items()})
        for key in [key for key, lists in self._lists_left.items() if lists > 0 and key.startswith(prefix)]:
            for item in visible.values() if action == "DescribeSubnets" else [visible]:
                item.pop(key, None)
            self._lists_left[key] -= 1
        setattr(self.backend, name, visible)
        try:
            return self._pass_on(environ)
        finally:
            setattr(self.backend, name, state)

    def _run(self, parameters: Parameters, environ: Environ) -> Response:
        token = parameters.get("ClientToken", "")
        settings = {
            name: value for name, value in parameters.items() if name not in ("ClientToken", "Version", "Action")
        }
        if token in self._tokens:
            before, response = self._tokens[token]
            if before != settings:
                raise Refused("IdempotentParameterMismatch", f"The client token {token} was used for another request")
            return response
        if parameters.get("InstanceType") not in INSTANCE_TYPES:
            raise Refused(
                "InvalidParameterValue", f"Invalid value '{parameters.get('InstanceType')}' for InstanceType."
            )
        if int(parameters.get("MinCount", 1)) > int(parameters.get("MaxCount", 1)):
            raise Refused("InvalidParameterCombination", "MinCount is greater than MaxCount")
        group = parameters.get("Placement.GroupName", "")
        if group and group not in self._groups:
            raise Refused("InvalidPlacementGroup.Unknown", f"The placement group '{group}' is unknown.")
        free = self._free_hosts()
        if free is not None and len(free) < int(parameters.get("MinCount", 1)):
            raise Refused("InsufficientInstanceCapacity", "There is no capacity for this instance type at the moment.")
        before_it = set(self.backend.reservations)
        response = self._pass_on(environ)
        created = [self.backend.reservations[key] for key in self.backend.reservations if key not in before_it]
        for reservation in created:
            self._lists_left[reservation.id] = self.hidden
            for instance in reservation.instances:
                groups = {group.id for nic in instance.nics.values() for group in nic.group_set}
                self._needs[instance.id] = {*groups, str(instance.subnet_id), str(instance.vpc_id)}
                if group:
                    self._group_of[instance.id] = group
                if free:
                    response = self._settle(instance, free.pop(0), response)
                self._change(instance, "pending", 0, self.pending, "running", 16)
        if token and response.status == 200:
            self._tokens[token] = (settings, response)
        return response

    def _free_hosts(self) -> list[Host] | None:
        if self.hosts is None:
            return None
        for key in list(self._host_of):
            if self._instance(key)._state.name == "terminated":
                del self._host_of[key]
        return [host for host in self.hosts if host not in self._host_of.values()]

    def _settle(self, instance: Any, host: Host, response: Response) -> Response:
        """Give an instance the test host's addresses, in moto's response too."""
        nic = instance.nics[0]
        former = str(nic.private_ip_address).encode()
        nic.private_ip_address, nic.public_ip = host.private, host.public
        nic.private_ip_addresses = [{"Primary": True, "PrivateIpAddress": host.private}]
        self._host_of[instance.id] = host
        return response._replace(
            body=(response.body or b"").replace(b">" + former + b"<", f">{host.private}<".encode())
        )

    def _check_needed(self, parameters: Parameters) -> None:
        """Refuse to delete resources that a live instance needs, groups that others refer to, and non-empty
        networks.
        """
        expected = parameters.get("GroupId") or parameters.get("SubnetId") or parameters.get("VpcId") or ""
        detached = parameters.get("InternetGatewayId")
        needing = [
            key
            for key, needs in self._needs.items()
            if expected in needs and self._instance(key)._state.name != "terminated"
        ]
        groups = [group for groups in self.backend.groups.values() for group in groups.values()]
        for group in groups:
            rules = [*group.ingress_rules, *group.egress_rules]
            referenced = {(rule.source_group or {}).get("GroupId") for rule in rules}
            if expected in referenced and group.id != expected and not detached:
                needing.append(group.id)
        if "VpcId" in parameters and not detached:
            needing += [
                key for key, item in self.backend.internet_gateways.items() if item.vpc and item.vpc.id == expected
            ]
            needing += [
                key for subnets in self.backend.subnets.values() for key, s in subnets.items() if s.vpc_id == expected
            ]
            needing += [group.id for group in groups if group.vpc_id == expected and group.name != "default"]
        if needing:
            raise Refused("DependencyViolation", f"resource {expected} has a dependent object")

    def _placement_of(self, key: str) -> str:
        """Where an instance is in the network; nothing unless a test has said so, as with types that lack it."""
        if not self.network_nodes:
            return ""
        nodes = self.network_nodes[int(self._instance(key).ami_launch_index) % len(self.network_nodes)]
        items = "".join(f"<item>{node}</item>" for node in nodes)
        return f"<item><instanceId>{key}</instanceId><networkNodeSet>{items}</networkNodeSet></item>"

    # --- Placement groups

    def _placement_group(self, action: str, parameters: Parameters) -> Response | None:
        """Execute the actions on placement groups and topology, which moto lacks; return None for other actions."""
        name = parameters.get("GroupName", "")
        if action == "DescribeInstanceTopology":
            ids = [value for name, value in parameters.items() if name.startswith("InstanceId.")]
            return _xml(action, f"<instanceSet>{''.join(map(self._placement_of, ids))}</instanceSet>")
        if action == "CreatePlacementGroup":
            if name in self._groups:
                raise Refused("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
            key = "pg-" + hashlib.sha256(f"{name}{time.monotonic_ns()}".encode()).hexdigest()[:17]
            self._groups[name] = {
                "id": key,
                "strategy": parameters.get("Strategy", "cluster"),
                "tags": _tags(parameters),
            }
            return _xml(action, f"<placementGroup>{self._describe_group(name)}</placementGroup>")
        if action == "DescribePlacementGroups":
            names = [value for key, value in parameters.items() if key.startswith("GroupName.")]
            unknown = [item for item in names if item not in self._groups]
            if unknown:
                return _error(
                    Refused("InvalidPlacementGroup.Unknown", f"The placement group '{unknown[0]}' is unknown.")
                )
            items = "".join(
                f"<item>{self._describe_group(name)}</item>"
                for name, group in self._groups.items()
                if (not names or name in names) and all(_passes(name, group, *item) for item in _filters(parameters))
            )
            return _xml(action, f"<placementGroupSet>{items}</placementGroupSet>")
        if action == "DeletePlacementGroup":
            if name not in self._groups:
                raise Refused("InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown.")
            if any(
                self._instance(i)._state.name != "terminated" for i, group in self._group_of.items() if group == name
            ):
                raise Refused("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use.")
            del self._groups[name]
            return _xml(action, "<return>true</return>")
        return None

    def _describe_group(self, name: str) -> str:
        group = self._groups[name]
        tags = "".join(
            f"<item><key>{escape(key)}</key><value>{escape(value)}</value></item>"
            for key, value in group["tags"].items()
        )
        arn = f"arn:aws:ec2:{self.region}:{DEFAULT_ACCOUNT_ID}:placement-group/{name}"
        return (
            f"<groupName>{escape(name)}</groupName><strategy>{group['strategy']}</strategy><state>available</state>"
            f"<groupId>{group['id']}</groupId><groupArn>{escape(arn)}</groupArn><tagSet>{tags}</tagSet>"
        )


@functools.cache
def _session() -> Any:
    """Return one session for all clients: EC2's service description is large, and each session reads it once."""
    return boto3.Session()


def _tags(parameters: Parameters) -> dict[str, str]:
    keys = {
        name: value for name, value in parameters.items() if re.fullmatch(r"TagSpecification\.\d+\.Tag\.\d+\.Key", name)
    }
    return {value: parameters.get(name[: -len("Key")] + "Value", "") for name, value in keys.items()}


def _filters(parameters: Parameters) -> list[tuple[str, list[str]]]:
    numbers = sorted({name.split(".")[1] for name in parameters if name.startswith("Filter.")})
    return [
        (parameters[f"Filter.{n}.Name"], [v for name, v in parameters.items() if name.startswith(f"Filter.{n}.Value.")])
        for n in numbers
    ]


def _passes(name: str, group: dict[str, Any], expected: str, values: list[str]) -> bool:
    properties = {"group-name": name, "strategy": group["strategy"], "state": "available", "group-id": group["id"]}
    properties |= {f"tag:{key}": value for key, value in group["tags"].items()}
    return properties.get(expected) in values


def _xml(action: str, content: str) -> Response:
    space = "http://ec2.amazonaws.com/doc/2016-11-15/"
    return Response(
        200, f'<{action}Response xmlns="{space}"><requestId>0</requestId>{content}</{action}Response>'.encode()
    )


def _error(refused: Refused) -> Response:
    error = f"<Error><Code>{refused.code}</Code><Message>{escape(refused.message)}</Message></Error>"
    text = f"<Response><Errors>{error}</Errors><RequestID>0</RequestID></Response>"
    return Response(STATUSES.get(refused.code, 400), text.encode())


def _product(expected: dict[str, str], price: float) -> str:
    """Return a product in Pricing's format: JSON in JSON."""
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
    return json.dumps(
        {
            "product": {"productFamily": "Compute Instance", "attributes": expected, "sku": "TEST"},
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {"TEST.T": {"priceDimensions": {"TEST.T.D": dimension}, "sku": "TEST"}}},
            "publicationDate": "2026-01-01T00:00:00Z",
        }
    )


def main() -> None:
    """Serve until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.ec2_server", description=__doc__)
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 (the default) takes a free one")
    parser.add_argument("--region", default="us-east-1")
    arguments = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with EC2Server(arguments.address, port=arguments.port, region=arguments.region) as ec2:
        keys = f"AWS_ACCESS_KEY_ID={ec2.access_key} AWS_SECRET_ACCESS_KEY={ec2.secret_key}"
        print(f"AWS_ENDPOINT_URL={ec2.url} AWS_REGION={ec2.region} {keys}", flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()

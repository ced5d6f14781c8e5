# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The examples for Hetzner, DigitalOcean, Google, OpenStack and Azure, each on responses as their API documents them.

Hetzner's and DigitalOcean's plugins read them over HTTP. The libraries of the others are large or accept no other
server, so these examples are evaluated by ansible.builtin.constructed on the variables that their plugins set.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.muster.training.plugins.plugin_utils._cluster.lambda_instances import (
    ResponseError,
    parse_instances,
)
from tests.unit.inventories.listing import EXAMPLES, contract, list_training, run_inventory

RESPONSES = json.loads((Path(__file__).parents[1] / "fixtures" / "inventories" / "responses.json").read_text())


class Api(BaseHTTPRequestHandler):
    """Responds with the recorded response for a path."""

    def do_GET(self) -> None:
        """Send the response, or 404 for an unknown path."""
        path, _mark, query = self.path.partition("?")
        response = RESPONSES["http"].get(path, {"error": {"code": "not_found", "message": path}})
        if "status=running" in query:  # the only filter that an example sends
            running = [server for server in response["servers"] if server["status"] == "running"]
            response = {**response, "servers": running}
        text = json.dumps(response).encode()
        self.send_response(401 if path.startswith("/refused") else 200 if path in RESPONSES["http"] else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_hetzner_servers_in_a_private_network_are_the_cluster(tmp_path: Path, url: str) -> None:
    text = (EXAMPLES / "hcloud.yml").read_text()
    hosts = list_training(tmp_path, "hcloud.yml", text, HCLOUD_TOKEN="x" * 64, HCLOUD_ENDPOINT=f"{url}/hcloud")
    assert contract(hosts) == {
        "bert-1": {
            "ansible_host": "203.0.113.1",
            "ansible_user": "root",
            "node_address": "10.0.0.2",
            "node_rank": 0,
        },
        "bert-2": {"ansible_host": "10.0.0.3", "ansible_user": "root", "node_address": "10.0.0.3", "node_rank": 1},
    }


def test_gpu_droplets_are_the_cluster(tmp_path: Path, url: str) -> None:
    text = (EXAMPLES / "digitalocean.yml").read_text() + f"\nbaseurl: {url}/digitalocean\n"
    hosts = list_training(tmp_path, "digitalocean.yml", text, DO_API_TOKEN="x")
    assert contract(hosts) == {
        "bert-1": {
            "ansible_host": "203.0.113.1",
            "ansible_user": "root",
            "node_address": "10.116.0.2",
            "node_rank": 0,
            "node_slots": 8,
            "node_price_per_hour": 23.92,
        },
        "bert-2": {
            "ansible_host": "10.116.0.3",
            "ansible_user": "root",
            "node_address": "10.116.0.3",
            "node_rank": 1,
            "node_slots": 1,
            "node_price_per_hour": 3.39,
        },
    }


LAMBDA = (EXAMPLES / "lambda_cloud.yml").read_text()


def test_active_lambda_instances_are_the_cluster(tmp_path: Path, url: str) -> None:
    text = f"{LAMBDA}\nregion: us-east-1\napi_url: {url}/lambda\n"
    hosts = list_training(tmp_path, "lambda_cloud.yml", text, LAMBDA_API_KEY="secret-key")
    assert contract(hosts) == {
        "bert-2": {
            "ansible_host": "203.0.113.2",
            "ansible_user": "ubuntu",
            "node_address": "10.19.0.2",
            "node_rank": 0,
            "node_slots": 8,
            "node_price_per_hour": 23.92,
        },
        "bert-10": {
            "ansible_host": "203.0.113.3",
            "ansible_user": "ubuntu",
            "node_address": "10.19.0.3",
            "node_rank": 1,
            "node_slots": 1,
            "node_price_per_hour": 0.75,
        },
    }
    assert set(list_training(tmp_path, "lambda_cloud.yml", text.replace("region:", "#"), LAMBDA_API_KEY="x")) == {
        *hosts,
        "west",
    }


@pytest.mark.parametrize(
    ("settings", "key", "message"),
    [
        ("", "", "no API key. Create one at https://cloud.lambda.ai/api-keys and export LAMBDA_API_KEY"),
        ("api_url: http://cloud.example.com/v1", "secret-key", "the key is sent only over https"),
        ("api_url: {url}/missing", "secret-key", "HTTP 404"),
        ("api_url: {url}/refused", "secret-key", "the API key is not accepted. Create one at"),
        ("api_url: http://127.0.0.1:1", "secret-key", "no connection:"),
    ],
)
def test_failing_request_to_lambda_is_explained(
    tmp_path: Path, url: str, settings: str, key: str, message: str
) -> None:
    text = f"{LAMBDA}\n{settings.format(url=url)}\n"
    completed = run_inventory(tmp_path, "lambda_cloud.yml", text, LAMBDA_API_KEY=key)
    assert completed.returncode != 0
    assert message in " ".join(completed.stderr.split()), completed.stderr
    assert "secret-key" not in completed.stdout + completed.stderr and "Traceback" not in completed.stderr


def test_unexpected_response_from_lambda_is_treated_as_data() -> None:
    same = {"status": "active", "name": "same", "ip": "x; rm", "private_ip": 7, "instance_type": [], "region": None}
    odd = [{**same, "id": "a"}, {**same, "id": "b"}, None, {"status": "active", "id": "{{ 1 }}\n"}]
    assert [(host.name, host.variables) for host in parse_instances({"data": odd})] == [
        ("1", {"lambda_id": "{{ 1 }}"}),
        ("same-a", {"lambda_id": "a"}),
        ("same-b", {"lambda_id": "b"}),
    ]
    documents: list[Any] = [[], {}, {"data": {}}, None]
    for document in documents:
        with pytest.raises(ResponseError):
            parse_instances(document)


def evaluate(directory: Path, example: str, compose: str, groups: str) -> dict[str, dict[str, Any]]:
    """Return the hosts of an example, whose plugin sets the recorded variables of each host."""
    settings = yaml.safe_load((EXAMPLES / f"{example}.yml").read_text())
    hosts = RESPONSES["hosts"][example]
    (directory / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts}}))
    constructed = {
        "plugin": "ansible.builtin.constructed",
        "strict": False,
        "compose": settings[compose],
        "groups": settings[groups],
    }
    return list_training(directory, "cloud.yml", json.dumps(constructed), directory / "hosts.yml")


@pytest.mark.parametrize(
    ("example", "compose", "groups", "expected"),
    [
        (
            "gcp_compute",
            "compose",
            "groups",
            {
                "bert-1": {
                    "ansible_host": "203.0.113.1",
                    "node_address": "10.128.0.2",
                    "node_rank": 0,
                    "node_slots": 8,
                },
                "bert-2": {
                    "ansible_host": "10.128.0.3",
                    "node_address": "10.128.0.3",
                    "node_rank": 1,
                    "node_slots": 2,
                },
            },
        ),
        (
            "openstack",
            "compose",
            "groups",
            {
                "bert-1": {
                    "ansible_host": "203.0.113.1",
                    "ansible_user": "ubuntu",
                    "node_address": "10.0.0.2",
                    "node_rank": 0,
                }
            },
        ),
        (
            "azure_rm",
            "hostvar_expressions",
            "conditional_groups",
            {
                "bert-1": {
                    "ansible_host": "203.0.113.1",
                    "ansible_user": "azureuser",
                    "node_address": "10.0.0.4",
                    "node_rank": 0,
                    "node_slots": 8,
                },
                "bert-2": {
                    "ansible_host": "10.0.0.5",
                    "ansible_user": "azureuser",
                    "node_address": "10.0.0.5",
                    "node_rank": 1,
                },
            },
        ),
    ],
)
def test_gpu_machines_are_the_cluster(
    tmp_path: Path, example: str, compose: str, groups: str, expected: dict[str, dict[str, Any]]
) -> None:
    assert contract(evaluate(tmp_path, example, compose, groups)) == expected

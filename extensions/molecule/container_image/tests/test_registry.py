"""A real registry with logins: one node pulls once, refusals are reported, and no password remains on a node."""

from __future__ import annotations

import base64
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.support.image_hosts import ImageHosts

USER, PASSWORD = "reader", "pa55-of-the-registry"
REPOSITORY = "team/pulled"
PORT = 5000
CONFIGURATION = """version: 0.1
storage: {filesystem: {rootdirectory: /srv/registry}}
http: {addr: ':5000', tls: {certificate: /etc/docker/registry/tls.crt, key: /etc/docker/registry/tls.key}}
auth: {htpasswd: {realm: team, path: /etc/docker/registry/htpasswd}}
"""
INSTALL = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get install -qq -y --no-install-recommends docker-registry apache2-utils openssl
cd /etc/docker/registry
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=registry -addext subjectAltName=IP:ADDRESS \\
  -keyout tls.key -out tls.crt 2> /dev/null
htpasswd -cbB htpasswd USER PASSWORD
printf '%s' CONFIGURATION > config.yml
mkdir -p /srv/registry
chown docker-registry /srv/registry tls.key htpasswd
chmod 600 tls.key htpasswd
systemctl restart docker-registry
mkdir -p /etc/docker/certs.d/ADDRESS:5000
cp tls.crt /etc/docker/certs.d/ADDRESS:5000/ca.crt
mkdir /var/tmp/push && cd /var/tmp/push
for part in 1 2; do head -c 5000000 /dev/urandom > part$part; done
printf 'FROM scratch\\nCOPY part1 /\\nCOPY part2 /\\n' > Dockerfile
docker build --quiet --tag NAME .
until docker --config . login --username USER --password PASSWORD ADDRESS:5000 2> /dev/null; do sleep 0.2; done
docker --config . push --quiet NAME
docker rmi NAME
rm -r /var/tmp/push
"""
# Watches all processes' command lines for the strings in a file until another file exists.
WATCH = """
: > /var/tmp/seen
while [ ! -e /var/tmp/enough ]; do
  cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\0' ' ' | grep -oF -f /var/tmp/words >> /var/tmp/seen
done
"""


@dataclass
class Registry:
    """The hosts, with a registry running on the last one."""

    hosts: ImageHosts
    address: str
    name: str

    def log(self) -> str:
        """Return the registry's log since the last call."""
        self.hosts.root("node3", "journalctl --sync")
        read = "journalctl --unit docker-registry --output cat --cursor-file /var/tmp/cursor"
        return self.hosts.root("node3", read)

    def load(self, password: str = PASSWORD, **more: str) -> tuple[int | None, str]:
        """Load an image from the registry onto all hosts; return the result and the output."""
        login = {
            "container_image_registry_user": USER,
            "container_image_registry_password": "{{ lookup('ansible.builtin.env', 'REGISTRY_PASSWORD') }}",
        }
        settings = {"container_image_name": self.name, **login, **more}
        play = self.hosts.image("-vvv", "--diff", env={"REGISTRY_PASSWORD": password}, **settings)
        assert password not in play.output
        return play.rc, " ".join(play.output.split())


@pytest.fixture(scope="module")
def registry(docker: ImageHosts) -> Iterator[Registry]:
    """Yield a registry with an image; node1 trusts its certificate. It is stopped after the tests of this file."""
    location = f"{docker.address('node3')}:{PORT}"
    name = f"{location}/{REPOSITORY}:1"
    script = INSTALL.replace("CONFIGURATION", shlex.quote(CONFIGURATION)).replace("NAME", name)
    script = script.replace("ADDRESS", docker.address("node3")).replace("USER", USER).replace("PASSWORD", PASSWORD)
    docker.root("node3", script)
    certificate = docker.root("node3", "cat /etc/docker/registry/tls.crt")
    folder = f"/etc/docker/certs.d/{location}"
    docker.root("node1", f"mkdir -p {folder} && printf '%s' {shlex.quote(certificate)} > {folder}/ca.crt")
    item = Registry(docker, location, name)
    item.log()
    yield item
    docker.root("node3", "systemctl stop docker-registry")
    docker.root("node1", f"rm -r {folder}")
    for node in docker.names:
        docker.root(node, f"docker rmi --force {name}")


def test_registry_refusals_are_reported_with_remedy(registry: Registry) -> None:
    """The message contains the registry's error, the node that sent the request, and a remedy."""
    pulls = f"node1: {registry.name} from node1 to docker: "

    rc, output = registry.load("not-this-7Qf3")
    assert rc == 2 and f"{pulls}{registry.address} rejects the login of {USER}: " in output, output[-4000:]
    assert "401 Unauthorized" in output
    assert "Correct container_image_registry_user, container_image_registry_password, or the image's name" in output

    rc, output = registry.load(container_image_base=f"{registry.address}/{REPOSITORY}:2")
    assert rc == 2 and f"{registry.address}/{REPOSITORY}:2 cannot be pulled: " in output, output[-4000:]
    assert "manifest unknown. Correct the image's name and tag: the registry does not have this image" in output

    registry.hosts.root("node3", "systemctl stop docker-registry")
    rc, output = registry.load()
    registry.hosts.root("node3", "systemctl start docker-registry")
    assert rc == 2 and "connection refused" in output and pulls in output, output[-4000:]
    remedy = (
        f"whether {registry.address} is running, and whether this node can reach it with `curl "
        f"https://{registry.address}/v2/`"
    )
    assert f"Check {remedy}" in output
    assert "node2: " in output and "node1, which provides the image, has failed" in output


def test_image_is_pulled_once_and_password_is_removed(registry: Registry) -> None:
    hosts = registry.hosts
    registry.log()
    for node in hosts.names:
        hosts.root(node, f"rm -f /var/tmp/enough; printf 'password-stdin\\n{PASSWORD}\\n' > /var/tmp/words")
        hosts.root(node, f"systemd-run --quiet --unit watch-arguments bash -c {shlex.quote(WATCH)}")
    rc, output = registry.load()
    for node in hosts.names:
        hosts.root(node, "touch /var/tmp/enough; rm /var/tmp/words")
    assert rc == 0 and len(hosts.ids(registry.name)) == 1, output[-4000:]

    downloads = re.findall(r'(\S+) - \S+ \[[^]]*\] "GET \S*/blobs/(sha256:\w+) HTTP/[\d.]+" 200', registry.log())
    blobs = Counter(blob for _address, blob in downloads)
    assert len(blobs) == 3 and set(blobs.values()) == {1}, "a configuration and two layers, once each"
    assert {address.rpartition(":")[0] or address for address, _blob in downloads} == {hosts.address("node1")}

    observed = {node: set(hosts.root(node, "cat /var/tmp/seen").split()) for node in hosts.names}
    assert observed == {"node1": {"password-stdin"}, "node2": set(), "node3": set()}, (
        "of one node it has seen the login"
    )
    encoded = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    directories = "/etc /home /root /run /tmp /var/log /var/tmp /var/lib/muster /var/lib/systemd /usr/local"
    for node in hosts.names:
        for word in (PASSWORD, encoded):
            result = hosts.root(node, f"grep -rslF -- {shlex.quote(word)} {directories} || true")
            assert result == "", f"{node}: {word} is in {result}"
        journal = hosts.root(node, "journalctl --no-pager --output cat")
        assert journal and PASSWORD not in journal and encoded not in journal

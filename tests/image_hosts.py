"""Test hosts that get an image and a model by site.yml, and run jobs in it: by one engine, and nothing from outside."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import drive
from tests.cluster import Cluster
from tests.hub_server.server import HubServer
from tests.image_layer import make_layer

IMAGE = "team/torch-job:1"
MODEL = "org/tiny"
WEIGHTS = bytes(range(256)) * 20000
ARCHIVE = "/var/tmp/base.tar"
# overlayfs is not for who lies on one already; the other two are podman's own for root, who needs them in such a file
VFS = '[storage]\\ndriver="vfs"\\nrunroot="/run/containers/storage"\\ngraphroot="/var/lib/containers/storage"\\n'
# An archive as of `docker save`, made without an engine.
MAKE_ARCHIVE = """
set -e
[ ! -e /var/tmp/base.tar ] || exit 0
rm -rf /var/tmp/archive; mkdir /var/tmp/archive
cd /var/tmp/archive
LAYER
python3 - << 'END'
import hashlib, json
with open("layer.tar", "rb") as layer:
    digest = hashlib.file_digest(layer, "sha256").hexdigest()
path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
image = {"architecture": "amd64", "os": "linux", "config": {"Env": [path]}, "history": [{"created_by": "import"}]}
config = json.dumps({**image, "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]}})
name = hashlib.sha256(config.encode()).hexdigest() + ".json"
open(name, "w").write(config)
manifest = [{"Config": name, "RepoTags": ["localhost/base:latest"], "Layers": ["layer.tar"]}]
open("manifest.json", "w").write(json.dumps(manifest))
END
tar -cf /var/tmp/base.tar *
chmod 644 /var/tmp/base.tar
rm -r /var/tmp/archive
"""


@dataclass
class ImageHosts(Cluster):
    """The hosts, the engine that they have, and what site.yml is told for the image and the model."""

    engine: str = field(kw_only=True)
    hub: HubServer = field(kw_only=True)
    given: dict[str, Any] = field(kw_only=True)

    def root(self, name: str, script: str, seconds: int = 600) -> str:
        """Run a script as root on a host; it must succeed, and may take long."""
        done = self.lab.exec(name, ["bash", "-c", script], timeout=seconds)
        assert done.returncode == 0, f"{name}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def ask(self, name: str, *words: str) -> str:
        """What the engine says: docker to root, podman to the user in a login, whose directories in /run it keeps."""
        words = (self.engine, *words)
        if self.engine == "docker":
            return self.root(name, shlex.join(words))
        done = subprocess.run(
            self.lab.ssh(name, shlex.join(words)), capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def id(self, name: str, image: str = IMAGE) -> str:
        """The digest that a host has."""
        return self.ask(name, "image", "inspect", "--format", "{{.Id}}", image).strip().removeprefix("sha256:")

    def ids(self, image: str = IMAGE) -> set[str]:
        """The digests that the hosts have."""
        return {self.id(name, image) for name in self.names}

    def containers(self) -> list[int]:
        """How many containers each host has, of those that have ended too."""
        return [len(self.ask(name, "ps", "--all", "--quiet").split()) for name in self.names]

    def site(self, *options: str, **more: Any) -> drive.Play:
        """site.yml, whole, with the image and the model."""
        return drive.run("site.yml", self.lab.inventory, options=options, timeout=1500, **{**self.given, **more})

    def image(self, *options: str, env: dict[str, str] | None = None, **more: Any) -> drive.Play:
        """site.yml, of its roles the one that brings images, with another image than the jobs' where `more` says so."""
        return self.start_image(*options, env=env, **more).wait(900)

    def start_image(self, *options: str, env: dict[str, str] | None = None, **more: Any) -> drive.Play:
        """The same, and do not wait for it."""
        words = ("--tags", "container_image", *options)
        own = {name: value for name, value in self.given.items() if name.startswith("container_image_")}
        if "container_image_name" in more:
            own = {"container_image_reserve_gib": 0}
        given = {"container_image_name": IMAGE, "container_image_engine": self.engine, **own, **more}
        return drive.start("site.yml", self.lab.inventory, options=words, env=env, **given)

    def launch(self, run_id: str, job: str, *arguments: str, **extra: Any) -> drive.Play:
        """Start one of tests/jobs in the image, on all hosts, as site.yml was told of it."""
        settings = {
            **{name: value for name, value in self.given.items() if name.startswith(("job", "hugging_face_"))},
            "nodes": ",".join(self.names),
            "nproc_per_node": 1,
            "launch_container_ulimits": [],
            "launch_script": str(drive.JOBS / job),
            "launch_args": list(arguments),
            **extra,
        }
        return drive.start("launch.yml", self.lab.inventory, run_id=run_id, **settings)

    def job_reads_the_model(self, run_id: str, launcher: str) -> list[str]:
        """Run the job with the image's own Python; return what each of its ranks has said of the model's files.

        launcher: with deepspeed's own after a hyphen.
        """
        self.hub.requests.clear()
        launcher, _hyphen, remote = launcher.partition("-")
        words: dict[str, Any] = {
            "launch_launcher": launcher,
            "launch_deepspeed_launcher": remote,
            "launch_python": "python3",
        }
        play = self.launch(run_id, "reads_model.py", **words).wait()
        assert play.rc == 0, play.output
        assert self.hub.requests == [], "nobody asks the hub"
        said = [
            self.root(
                name,
                f"find ~muster/.muster/runs/{run_id}/node{rank} -name launcher.log -o -name stdout.log | xargs cat",
            )
            for rank, name in enumerate(self.names)
        ]
        assert [f"rank {rank} of {self.names}: 42, " in one for rank, one in enumerate(said)] == [True] * 3, said
        return [re.findall(r"model\.safetensors': \d+", one)[0] for one in said]

    def brought(self, play: drive.Play) -> dict[str, int]:
        """The MB that came to each host from the others, of those that have the image now."""
        said = " ".join(play.output.split())
        told = r"ok: \[(\w+)\] => msg: [^;\]]*; ([\d.]+) MB came from the other nodes"
        return {name: round(float(size)) for name, size in re.findall(told, said)}


@contextlib.contextmanager
def image_hosts(name: str, engine: str, requirements: Path) -> Iterator[ImageHosts]:
    """Three untouched hosts, of which the first has an archive with an image; a hub beside them has a model."""
    with drive.own_lab(name, nodes=3) as lab:
        gateway = str(ipaddress.ip_network(f"{lab.nodes[0].address}/24", strict=False)[1])
        with HubServer(gateway) as hub:
            hub.add("model", MODEL, {"config.json": b"{}", "model.safetensors": WEIGHTS})
            requirements.write_text("--no-index\n--find-links /wheels\nprobe==1.0\n")
            hosts = ImageHosts(lab, engine=engine, hub=hub, given=settings(engine, hub.url, requirements))
            hosts.root("node1", MAKE_ARCHIVE.replace("LAYER", make_layer("layer.tar")))
            for node in hosts.names if engine == "podman" else ():
                hosts.sh(node, f"mkdir -p /etc/containers; printf '{VFS}' > /etc/containers/storage.conf")
            yield hosts


def settings(engine: str, hub: str, requirements: Path) -> dict[str, Any]:
    """What site.yml and launch.yml are told: a job in an image, with what it requires and the model that it reads."""
    docker = {"docker_engine_enabled": True, "docker_engine_settings": {"storage-driver": "vfs"}}
    mounts = [f"{path}:{path}:ro" for path in (str(drive.CHECKOUT), sys.base_prefix)]
    return {
        "job": {"image": IMAGE, "container_engine": engine, "container_mounts": [*mounts, "/srv/hub:/srv/hub"]},
        "container_image_archive": ARCHIVE,
        "container_image_requirements": str(requirements),
        "container_image_reserve_gib": 1,
        "hugging_face_models": [MODEL],
        "hugging_face_endpoint": hub,
        "hugging_face_home": "/srv/hub",
        "hugging_face_reserve_gib": 0,
        # what the job needs is in its image
        "pytorch_enabled": False,
        "python_env_enabled": False,
        # a test host shares its kernel with this machine, but for settings of the network
        "base_packages_sysctl": {"net.core.somaxconn": 5000},
        **(docker if engine == "docker" else {}),
    }

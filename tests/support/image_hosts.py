"""Test hosts that get an image and a model through site.yml and run jobs in the image, with one container engine,
offline.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support import drive
from tests.support.cluster import Cluster
from tests.support.hub_server.server import HubServer
from tests.support.image_layer import MOUNTS, make_layer

IMAGE = "team/torch-job:1"
MODEL = "org/tiny"
WEIGHTS = bytes(range(256)) * 20000
ARCHIVE = "/var/tmp/base.tar"
# overlayfs cannot be stacked here; the other two are podman's defaults for root, which such a file must repeat
VFS = '[storage]\\ndriver="vfs"\\nrunroot="/run/containers/storage"\\ngraphroot="/var/lib/containers/storage"\\n'
# An archive like the one that `docker save` writes, made without an engine.
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
    """The hosts, their engine, and site.yml's settings for the image and the model."""

    engine: str = field(kw_only=True)
    hub: HubServer = field(kw_only=True)
    variables: dict[str, Any] = field(kw_only=True)

    def root(self, name: str, script: str, seconds: int = 600) -> str:
        """Run a script as root on a host; it must succeed, and may take long."""
        completed = self.lab.exec(name, ["bash", "-c", script], timeout=seconds)
        assert completed.returncode == 0, f"{name}: {script}\n{completed.stdout}{completed.stderr}"
        return completed.stdout

    def run_engine(self, name: str, *arguments: str) -> str:
        """Return the engine's output: docker as root, podman in the user's login session, for its files in /run."""
        arguments = (self.engine, *arguments)
        if self.engine == "docker":
            return self.root(name, shlex.join(arguments))
        completed = subprocess.run(
            self.lab.ssh(name, shlex.join(arguments)), capture_output=True, text=True, check=False, timeout=300
        )
        assert completed.returncode == 0, f"{name}: {completed.stdout}{completed.stderr}"
        return completed.stdout

    def id(self, name: str, image: str = IMAGE) -> str:
        """Return the digest of a host's image."""
        return self.run_engine(name, "image", "inspect", "--format", "{{.Id}}", image).strip().removeprefix("sha256:")

    def ids(self, image: str = IMAGE) -> set[str]:
        """Return the digests of the hosts' images."""
        return {self.id(name, image) for name in self.names}

    def containers(self) -> list[int]:
        """Return the number of containers on each host, including ended ones."""
        return [len(self.run_engine(name, "ps", "--all", "--quiet").split()) for name in self.names]

    def site(self, *options: str, **more: Any) -> drive.Play:
        """Run all of site.yml, with the image and the model."""
        return drive.run("site.yml", self.lab.inventory, options=options, timeout=1500, **{**self.variables, **more})

    def image(self, *options: str, env: dict[str, str] | None = None, **more: Any) -> drive.Play:
        """Run only site.yml's role for images, with a different image if `more` names one."""
        return self.start_image(*options, env=env, **more).wait(900)

    def start_image(self, *options: str, env: dict[str, str] | None = None, **more: Any) -> drive.Play:
        """Start the same without waiting."""
        arguments = ("--tags", "container_image", *options)
        defaults = {name: value for name, value in self.variables.items() if name.startswith("container_image_")}
        if "container_image_name" in more:
            defaults = {"container_image_reserve_gib": 0}
        variables = {"container_image_name": IMAGE, "container_image_engine": self.engine, **defaults, **more}
        return drive.start("site.yml", self.lab.inventory, options=arguments, env=env, **variables)

    def launch(self, run_id: str, job: str, *arguments: str, **extra: Any) -> drive.Play:
        """Start one of tests/jobs in the image on all hosts, with site.yml's settings."""
        settings = {
            **{name: value for name, value in self.variables.items() if name.startswith(("job", "hugging_face_"))},
            "nodes": ",".join(self.names),
            "nproc_per_node": 1,
            "launch_container_ulimits": [],
            "launch_script": str(drive.JOBS / job),
            "launch_args": list(arguments),
            **extra,
        }
        return drive.start("launch.yml", self.lab.inventory, run_id=run_id, **settings)

    def job_reads_the_model(self, run_id: str, launcher: str) -> list[str]:
        """Run the job with the image's own Python; return each rank's output about the model's files.

        launcher: deepspeed's own launcher follows a hyphen.
        """
        self.hub.requests.clear()
        launcher, _hyphen, remote = launcher.partition("-")
        arguments: dict[str, Any] = {
            "launch_launcher": launcher,
            "launch_deepspeed_launcher": remote,
            "launch_python": "python3",
        }
        play = self.launch(run_id, "reads_model.py", **arguments).wait()
        assert play.rc == 0, play.output
        assert self.hub.requests == [], "nobody asks the hub"
        messages = [
            self.root(
                name,
                f"find ~muster/.muster/runs/{run_id}/node{rank} -name launcher.log -o -name stdout.log | xargs cat",
            )
            for rank, name in enumerate(self.names)
        ]
        assert [f"rank {rank} of {self.names}: 42, " in item for rank, item in enumerate(messages)] == [True] * 3, (
            messages
        )
        return [re.findall(r"model\.safetensors': \d+", item)[0] for item in messages]

    def brought(self, play: drive.Play) -> dict[str, int]:
        """Return the MB that each host with the image received from the others."""
        message = " ".join(play.output.split())
        output = r"ok: \[(\w+)\] => msg: [^;\]]*; ([\d.]+) MB came from the other nodes"
        return {name: round(float(size)) for name, size in re.findall(output, message)}


@contextlib.contextmanager
def image_hosts(name: str, engine: str, requirements: Path) -> Iterator[ImageHosts]:
    """Provide three fresh hosts, the first with an archive of an image, and a hub with a model."""
    with drive.own_lab(name, nodes=3) as lab:
        gateway = str(ipaddress.ip_network(f"{lab.nodes[0].address}/24", strict=False)[1])
        with HubServer(gateway) as hub:
            hub.add("model", MODEL, {"config.json": b"{}", "model.safetensors": WEIGHTS})
            requirements.write_text("--no-index\n--find-links /wheels\nprobe==1.0\n")
            hosts = ImageHosts(lab, engine=engine, hub=hub, variables=settings(engine, hub.url, requirements))
            hosts.root("node1", MAKE_ARCHIVE.replace("LAYER", make_layer("layer.tar")))
            for node in hosts.names if engine == "podman" else ():
                hosts.sh(node, f"mkdir -p /etc/containers; printf '{VFS}' > /etc/containers/storage.conf")
            yield hosts


def settings(engine: str, hub: str, requirements: Path) -> dict[str, Any]:
    """Return settings of site.yml and launch.yml: a job in an image, its requirements and its model."""
    docker = {"docker_engine_enabled": True, "docker_engine_settings": {"storage-driver": "vfs"}}
    return {
        "job": {"image": IMAGE, "container_engine": engine, "container_mounts": [*MOUNTS, "/srv/hub:/srv/hub"]},
        "container_image_archive": ARCHIVE,
        "container_image_requirements": str(requirements),
        "container_image_reserve_gib": 1,
        "hugging_face_models": [MODEL],
        "hugging_face_endpoint": hub,
        "hugging_face_home": "/srv/hub",
        "hugging_face_reserve_gib": 0,
        # the image contains all that the job needs
        "pytorch_enabled": False,
        "python_env_enabled": False,
        # a test host shares this machine's kernel, except for network settings
        "base_packages_sysctl": {"net.core.somaxconn": 5000},
        **(docker if engine == "docker" else {}),
    }

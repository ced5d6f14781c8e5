"""Helpers for scenarios with rented machines: a project as written by init, and commands typed in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.lab import Lab
from tests.support import drive

# How this machine logs in to the test hosts; on rented machines, the owner's key is enough.
LOGIN = ("ansible_ssh_private_key_file", "ansible_ssh_common_args", "ansible_python_interpreter", "launch_python")


class Project:
    """A directory made by muster.training.init, and commands typed in it."""

    def __init__(self, directory: Path, source: str, access: Mapping[str, str]) -> None:
        """source: in init's form. access: environment variables for the cloud."""
        self.directory = directory
        self.source = source
        self.environment = {
            **os.environ,
            "ANSIBLE_NOCOLOR": "1",
            "PATH": f"{drive.CHECKOUT}/.venv/bin:{os.environ['PATH']}",
            **access,
        }
        # Use the project's ansible.cfg, not the checkout's.
        self.environment.pop("ANSIBLE_CONFIG", None)

    def run(self, command: str) -> str:
        completed = subprocess.run(
            command.split(),
            check=False,
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=540,
        )
        assert completed.returncode == 0, completed.stdout
        return completed.stdout

    def set_up(self, lab: Lab, settings: dict[str, Any], inventory: Callable[[str, str], str]) -> None:
        """Let init write the project, and configure the login to the test hosts and the job.

        settings: more group variables. inventory: returns the inventory, given the one that init wrote and the user
        name on the test hosts.
        """
        self.run(f"ansible-playbook muster.training.init -e source={self.source}")
        hosts = yaml.safe_load(lab.inventory.read_text())["training"]["vars"]
        login = {name: hosts[name] for name in LOGIN if name in hosts}
        (self.directory / "group_vars" / "training.yml").write_text(yaml.safe_dump({**login, **settings}))
        written = self.directory / f"{self.source}.yml"
        written.write_text(inventory(written.read_text(), hosts["ansible_user"]))


# torch is already installed; the scenario `site` tests that site.yml installs it. A test host shares this machine's
# kernel, except for network settings.
SETTINGS: dict[str, Any] = {
    "launch_script": str(drive.JOBS / "loop.py"),
    "launch_args": ["--steps", "5"],
    "base_packages_sysctl": {"net.core.somaxconn": 5000},
    "python_env_enabled": False,
    "pytorch_enabled": False,
}
WATCH: dict[str, Any] = {
    "idle_watch_enabled": True,
    "idle_watch_after": "45m",
    "idle_watch_ttl": "off",  # the hosts have been up as long as this machine
}
QUICK_ROLES = "hosts_file,ssh_mesh"
"""The quick roles of site.yml, as a value for --tags."""

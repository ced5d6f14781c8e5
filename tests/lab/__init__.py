"""Test hosts: machines as rented ones are, made of containers on this machine.

`python -m tests.lab --help` is the command line; `Lab` is the same for tests.
"""

from __future__ import annotations

from tests.lab.files import Node
from tests.lab.hosts import Lab, Process
from tests.lab.machine import LabError

__all__ = ["Lab", "LabError", "Node", "Process"]

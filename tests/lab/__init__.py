"""Test hosts: containers on this machine that behave like rented machines.

`python -m tests.lab --help` shows the command line; tests use `Lab`.
"""

from __future__ import annotations

from tests.lab.files import Node
from tests.lab.hosts import Lab, Process
from tests.lab.machine import LabError

__all__ = ["Lab", "LabError", "Node", "Process"]

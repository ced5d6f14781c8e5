# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controller side of the module live_page: serves the live page until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from ansible import context
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.muster.training.plugins.plugin_utils._command_line.command_hints import adapt_commands
from ansible_collections.muster.training.plugins.plugin_utils._command_line.unused_options import (
    reject_unused_options,
)
from ansible_collections.muster.training.plugins.plugin_utils._experiments.sequence.preconditions import find_obstacle
from ansible_collections.muster.training.plugins.plugin_utils._page.api import PageApi
from ansible_collections.muster.training.plugins.plugin_utils._page.commands import Commands
from ansible_collections.muster.training.plugins.plugin_utils._page.node_caller import NodeCaller
from ansible_collections.muster.training.plugins.plugin_utils._page.run_list import RunList
from ansible_collections.muster.training.plugins.plugin_utils._page.server import PageServer
from ansible_collections.muster.training.plugins.plugin_utils._record.record_paths import (
    find_record,
    records_directory,
)
from ansible_collections.muster.training.plugins.plugin_utils._text.output_reader import end_play_without_reader
from ansible_collections.muster.training.plugins.plugin_utils._user_error import UserError

ARGUMENT_SPEC = {
    "run_id": {"type": "str", "default": ""},
    "directory": {"type": "path", "default": ""},
    "group": {"type": "str", "default": "training"},
    "runs_directory": {"type": "str", "default": "~/.muster/runs"},
    "user": {"type": "str", "default": ""},
    "port": {"type": "str", "default": "0"},  # checked by parse_port(), which names the option to type
}
CHECK_INTERVAL = 1.0  # seconds between checks of whether the terminal still exists


def tunnel_hint(port: int) -> list[str]:
    """Return instructions for opening the page from another machine, if the user is logged in from one."""
    if not os.environ.get("SSH_CONNECTION"):
        return []
    name = f"{os.environ.get('USER', 'USER')}@{os.uname().nodename}"
    return [f"first, on the machine with the browser: ssh -N -L {port}:127.0.0.1:{port} {name}"]


def parse_port(text: str) -> int:
    """Return a port; 0 selects a free one. Raise AnsibleActionFail with the option to type."""
    if re.fullmatch(r"[0-9]{1,5}", text, re.ASCII) and int(text) <= 65535:
        return int(text)
    raise AnsibleActionFail(
        adapt_commands(
            f"the port of the page is {ascii(text)[:60]}: use a number from 1024 to 65535, as in "
            "ansible-playbook page.yml -e page_port=8765, or omit it to use any free port"
        )
    )


@contextlib.contextmanager
def serving(server: PageServer) -> Iterator[None]:
    """Serve the page in a thread until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class ActionModule(ActionBase):
    """Action plugin that serves the page on this machine, and connects to the nodes of the runs being viewed."""

    _supports_check_mode = True
    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Serve the page; return when the terminal is closed. Ctrl-C ends the process."""
        task_vars = task_vars or {}
        super().run(tmp, task_vars)
        _result, args = self.validate_argument_spec(argument_spec=ARGUMENT_SPEC)
        port = parse_port(args["port"])
        reject_unused_options(task_vars)
        directory = records_directory(args["directory"], args["group"], task_vars)
        run_id = find_record(directory, args["run_id"]).name if args["run_id"] else ""
        if self._task.check_mode:
            return {"changed": False, "skipped": True}  # nothing is served
        caller = NodeCaller(self, task_vars, args["user"], args["runs_directory"])
        commands = Commands(sys.argv[1:], context.CLIARGS.get("args") or (), find_obstacle(context.CLIARGS))
        server = self.open_server(PageApi(RunList(directory), caller, commands), port)
        with serving(server):
            self.show(server, run_id)
            parent = os.getppid()
            while os.getppid() == parent:
                end_play_without_reader(parent)
                time.sleep(CHECK_INTERVAL)
        return {"changed": False, "port": server.port}

    @staticmethod
    def open_server(api: PageApi, port: int) -> PageServer:
        """Return a listening server. Raise UserError if the port cannot be used."""
        try:
            return PageServer(api, port)
        except OSError as error:
            message = f"port {port} on this machine cannot be used: {error.strerror}; to use any free port: "
            raise UserError(message + adapt_commands("ansible-playbook page.yml"), result={"changed": False}) from error

    @staticmethod
    def show(server: PageServer, run_id: str) -> None:
        """Print the URL."""
        for line in tunnel_hint(server.port):
            Display().display(line)
        # not into ANSIBLE_LOG_PATH, which others may be able to read: the URL contains the token
        Display().display(f"page: {server.url(run_id)}", screen_only=True)
        Display().display(
            "Only someone who has this URL can open the page. Ctrl-C stops its server but does not stop any run."
        )

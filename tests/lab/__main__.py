"""Command line of the test hosts."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import yaml

from tests.lab.files import CHECKOUT
from tests.lab.hosts import MOST_NODES, VENV, Lab, down, status
from tests.lab.image import SUITES
from tests.lab.machine import LabError


def main() -> int:
    """Execute the command line; return 1, with a message, if that is impossible."""
    args = _parser().parse_args()
    try:
        return _act(args)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description="Test hosts: containers on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring up a lab, or complete it")
    up.add_argument("--nodes", type=int, default=4, help=f"1 to {MOST_NODES}; default %(default)s")
    up.add_argument("--suite", help=f"release: {', '.join(SUITES)}; default is this machine's own")
    up.add_argument("--slots", default="", metavar="2,1,1", help="node_slots of the first nodes; all others 1")
    commands.add_parser("down", help="remove all that up made")
    commands.add_parser("status", help="show the nodes")
    for name, text in {
        "power-off": "pull the plug of a node",
        "power-on": "start a node again",
        "cut-off": "drop all traffic between a node and its peers",
        "restore": "end cut-off",
    }.items():
        commands.add_parser(name, help=text).add_argument("node")
    execute = commands.add_parser("exec", help="run a command as root in a node, without its network")
    execute.add_argument("node")
    execute.add_argument("argv", nargs="+", metavar="word", help="put -- before the command")
    for command in commands.choices.values():
        command.add_argument("--name", default="lab", help="which lab; default %(default)s")
    return parser


def launch_command(inventory: Path, text: str) -> str:
    """Return the command, to be typed in the checkout, that starts the example on all nodes; "" if they have no torch.

    text: the inventory's, which names the example.
    """
    training = yaml.safe_load(text)["training"]
    if "launch_python" not in training["vars"]:
        return ""
    program = VENV / "bin" / "ansible-playbook"
    arguments = [str(program.relative_to(CHECKOUT)), "playbooks/launch.yml", "-i", str(inventory.relative_to(CHECKOUT))]
    return shlex.join([*arguments, "-e", f"nnodes={len(training['hosts'])}"])


def _act(args: argparse.Namespace) -> int:
    if args.command == "up":
        if not all(part.isdigit() for part in args.slots.split(",") if args.slots):
            raise LabError(f"--slots {args.slots}: whole numbers with commas between, as in 2,1,1.")
        slots = [int(part) for part in args.slots.split(",") if part]
        start = time.monotonic()
        # an absolute path: it is the same on the nodes, whose jobs start in the user's home directory
        lab = Lab.up(args.nodes, args.name, args.suite, slots, CHECKOUT / "examples" / "ddp" / "train_ddp.py")
        addresses = ", ".join(f"{node.name} {node.address}" for node in lab.nodes)
        print(f"Lab {lab.name!r} is up ({time.monotonic() - start:.1f} s): {addresses}\n{lab.inventory}")
        if command := launch_command(lab.inventory, lab.inventory.read_text()):
            print(f"Train on it: {command}")
    elif args.command == "down":
        down(args.name)
    elif args.command == "status":
        rows = status(args.name)
        lines = [f"{node:8}{address:16}{state}" for node, address, state in rows]
        print("\n".join(lines) or f"Lab {args.name!r} is not up.")
    elif args.command == "exec":
        completed = Lab.load(args.name).exec(args.node, args.argv, timeout=600)
        print(completed.stdout, end="")
        print(completed.stderr, end="", file=sys.stderr)
        return completed.returncode
    else:
        getattr(Lab.load(args.name), args.command.replace("-", "_"))(args.node)
    return 0


if __name__ == "__main__":
    sys.exit(main())

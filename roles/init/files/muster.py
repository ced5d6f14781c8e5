"""Short words for the playbooks beside this file: ./muster help. Each command is printed before it is run.

What this file does not know is handed to ansible-playbook as it is: ./muster site --tags code --check --diff
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = {"": "run_id"}  # what stands alone is the name of a run
JOB = {
    "-n": "nnodes",
    "--nnodes": "nnodes",
    "--nproc-per-node": "nproc_per_node",
    "--launcher": "launch_launcher",
    "--image": "launch_image",
    "--run-id": "run_id",
    "--as-user": "launch_user",
    "--directory": "launch_working_directory",
    "--python": "launch_python",
    "--detach": "detach=true",
    "--replace": "replace=true",
    "--debug": "debug=true",
}
JOB_FILE = ("site", "preflight", "launch")  # may be given a file: ./muster launch job.yml
# A word: its playbook, the role that says what can be set, what it does, and which options are which variables. Those
# with "=" have no value of their own.
WORDS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "site": ("site", "", "make the machines ready, or bring them up to date", {}),
    "ping": ("ping", "", "show which machines are there, and with which GPUs", {}),
    "preflight": ("preflight", "preflight", "name all that would keep a job from running", {"-n": "nnodes"}),
    "launch": ("launch", "launch", "run a job: ./muster launch job.yml, or launch -n 4 train.py --epochs 3", JOB),
    "status": ("status", "launch", "show where a run stands: ./muster status [RUN]", RUN),
    "logs": ("logs", "launch", "show the output of a rank", {**RUN, "--rank": "rank", "--fetch": "fetch=true"}),
    "stop": ("stop", "launch", "stop a run: ./muster stop [RUN]", RUN),
    "runs": ("runs", "launch", "list runs, and remove old ones", {"--keep": "keep", "--older-than": "older_than"}),
    "stage-data": (
        "stage_data",
        "stage_data",
        "bring a bucket to the disks of the machines",
        {"": "stage_data_bucket"},
    ),
    "checkpoints": ("checkpoints", "checkpoints", "copy what runs save to S3, or back", {"": "checkpoints_bucket"}),
    "bucket-move": ("bucket_move", "", "copy a bucket to another region", {"--from": "source", "--to": "target"}),
}
# Those of ansible-playbook that take a value.
THEIRS = {
    *("-e", "--extra-vars", "-i", "--inventory", "-l", "--limit", "-t", "--tags", "--skip-tags", "-f", "--forks"),
    *(
        "--become-user",
        "--become-method",
        "--become-password-file",
        "--connection-password-file",
        "-M",
        "--module-path",
    ),
    *("-u", "--user", "-T", "--timeout", "--private-key", "--key-file", "--ssh-common-args", "--ssh-extra-args"),
    *("--sftp-extra-args", "--scp-extra-args", "--task-timeout"),
    *("--vault-id", "--vault-password-file", "--start-at-task", "-c", "--connection"),
}


class UsageError(Exception):
    """What is wrong with what was typed, and what is right."""


def help_of(word: str) -> str:
    """Return what can be typed for a word, or for all."""
    if word not in (*WORDS, "shell", ""):
        raise UsageError(f"there is no word {word!r}: ./muster help lists them")
    if word in WORDS:
        options = [f"  {option or 'WORD':<18}{name}" for option, name in WORDS[word][3].items()]
        return "\n".join(
            [f"./muster {word}: {WORDS[word][2]}", *options, "  -e NAME=VALUE     any variable of the roles"]
        )
    lines = [f"  {name:<13}{about}" for name, (_playbook, _role, about, _options) in WORDS.items()]
    lines += [
        "  shell        log in to a node, where a rank would be: ./muster shell NODE",
        "  help WORD    what can be set",
    ]
    return "\n".join(["./muster WORD ...", *lines])


def translate(word: str, words: list[str]) -> list[str]:
    """Return the words of the ansible-playbook command for what was typed. Raise UsageError."""
    playbook, _role, _about, options = WORDS[word]
    command, rest = ["ansible-playbook", f"{playbook}.yml"], list(words)
    variables: dict[str, str | list[str]] = {}
    while rest:
        one = rest.pop(0)
        name, joined, value = one.partition("=") if one.startswith("--") else (one, "", "")
        if name in options and name:
            variable, switch, on = options[name].partition("=")
            if not switch and not joined and not rest:
                raise UsageError(f"{name} needs a value: {name} {variable.upper()}")
            if joined and not value:
                raise UsageError(f"{name}= needs a value")
            variables[variable] = value if joined else on if switch else rest.pop(0)
        elif one.startswith("-") and one != "--":
            command.append(one)
            if one in THEIRS and rest:
                command.append(from_here(rest.pop(0)))
        elif word in JOB_FILE and one.endswith((".yml", ".yaml")):
            command += ["-e", from_here(f"@{one}")]
        elif word == "launch":
            script = rest.pop(0) if one == "--" and rest else one
            variables["launch_script"], variables["launch_args"] = script, rest
            break
        elif "" in options and options[""] not in variables:
            variables[options[""]] = one
        else:
            raise UsageError(f"{one!r} was not expected. What can be typed:\n{help_of(word)}")
    for name, given in variables.items():
        plain = isinstance(given, str) and re.fullmatch(r"[\w./:-]+", given, re.ASCII)
        # what is no plain word Ansible would split, or YAML read as something else
        command += ["-e", f"{name}={given}" if plain else f'{{"{name}": {as_yaml(given)}}}']
    return command


def as_yaml(given: str | list[str]) -> str:
    """Return a text, or a list of them, as YAML that Ansible takes as it is: braces in it are not its templates."""
    if isinstance(given, list):
        return f"[{', '.join(as_yaml(one) for one in given)}]"
    return ("!unsafe " if "{" in given else "") + json.dumps(given, ensure_ascii=False)


def from_here(value: str) -> str:
    """Return the value of an option; of a file that is not beside this one, its whole path: commands run there."""
    mark, path = ("@", value[1:]) if value.startswith("@") else ("", value)
    return mark + os.path.abspath(path) if os.getcwd() != HERE and os.path.exists(path) else value


def login(node: str) -> list[str]:
    """Return the words of an ssh command that gives a shell where a rank of a node would be. Raise UsageError."""
    asked = subprocess.run(["ansible-inventory", "--host", node], cwd=HERE, capture_output=True, text=True, check=False)
    if asked.returncode != 0:
        raise UsageError(asked.stderr.strip() or f"ansible-inventory does not know {node}")
    known = json.loads(asked.stdout)
    for name in ("ansible_host", "ansible_port", "ansible_user", "launch_python", "launch_working_directory"):
        if "{{" in str(known.get(name, "")):
            raise UsageError(
                f"{name} of {node} is a template, {known[name]}, which only a playbook can read: ssh to it yourself"
            )
    python = str(known.get("launch_python", "/opt/muster/env/bin/python")).partition(":")[0]
    lines = [f"PATH={on_node(os.path.dirname(python))}:$PATH" if "/" in python else "", "export PATH"]
    if known.get("launch_working_directory"):
        lines.append(f"cd {on_node(str(known['launch_working_directory']))}")
    words = ["ssh", "-t", *shlex.split(str(known.get("ansible_ssh_common_args", "")))]
    for option, name in (("-p", "ansible_port"), ("-i", "ansible_ssh_private_key_file"), ("-l", "ansible_user")):
        if known.get(name):
            words += [option, os.path.expanduser(str(known[name]))]
    script = "; ".join([line for line in lines if line] + ['exec "$SHELL" -i'])
    if known.get("ansible_connection") == "local":
        return ["sh", "-c", script]
    return [*words, str(known.get("ansible_host", node)), f"sh -c {shlex.quote(script)}"]


def on_node(path: str) -> str:
    """Return a path as a shell on the node reads it, with the home of the user there."""
    return '"$HOME"/' + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)


def main(arguments: list[str]) -> int:
    """Print and run what was typed; return the exit status."""
    word, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    try:
        if word in ("help", "-h", "--help"):
            print(help_of(rest[0] if rest else ""))
            role = WORDS[rest[0]][1] if rest and rest[0] in WORDS else ""
            if role:
                print(f"All that can be set with -e: ansible-doc -t role muster.training.{role}")
            return 0
        if word == "shell" and len(rest) != 1:
            raise UsageError("./muster shell NODE: the name of one node of the inventory")
        if word not in (*WORDS, "shell"):
            raise UsageError(f"there is no word {word!r}.\n{help_of('')}")
        command = translate(word, rest) if word in WORDS else []
        if not shutil.which("ansible-playbook"):
            raise UsageError("ansible-playbook is not found: activate the environment in which Ansible is installed")
        command = command or login(rest[0])
    except UsageError as error:
        print(f"muster: {error}", file=sys.stderr)
        return 2
    print("+ " + shlex.join(command), flush=True)
    os.chdir(HERE)
    os.execvp(command[0], command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

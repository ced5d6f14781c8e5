"""Short commands for the playbooks beside this file: ./muster help. Each ansible-playbook command is printed first."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
RUN = {"": "run_id"}  # a word without an option is the name of a run
REPORT = {**RUN, "--runs": "runs", "--fetch": "fetch=true"}
IMAGE, RUNS = {"": "cluster", "--name": "template"}, {"--grep": "grep", "--keep": "keep", "--older-than": "older_than"}
DOCKER = {"--data-root": "docker_data_root_path", "--delete-old": "docker_data_root_delete_old=true"}
BENCHMARK = {"-n": "nnodes", "--baseline": "baseline"}
JOB_OPTIONS = """
    -n:nnodes --nnodes:nnodes --nproc-per-node:nproc_per_node --launcher:launch_launcher --image:launch_image
    --name:launch_name --run-id:run_id --as-user:launch_user --directory:launch_working_directory --python:launch_python
    --detach:detach=true --replace:replace=true --debug:debug=true
"""
JOB = dict(re.findall(r"(\S+):(\S+)", JOB_OPTIONS))
SHELL = {"": "nodes", "--image": "launch_image", "--run-id": "run_id", "--as-user": "launch_user"}
JOB_FILE_COMMANDS = ("site", "preflight", "launch", "shell", "fit", "sweep", "rehearse")  # accept files: launch job.yml
# Command: (playbook, role with its variables, summary, options and their variables; "=" sets a fixed value).
COMMANDS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "site": ("site", "", "set up the machines, or update them", {}),
    "docker": ("docker", "docker_engine", "install Docker, or move its data to another disk", DOCKER),
    "ping": ("ping", "", "show which machines respond, and their GPUs", {}),
    "preflight": ("preflight", "preflight", "check for problems that would make a job fail", {"-n": "nnodes"}),
    "launch": ("launch", "launch", "run a job: ./muster launch job.yml, or launch -n 4 train.py --epochs 3", JOB),
    "status": ("status", "launch", "show the state of a run: ./muster status [RUN]", RUN),
    "logs": ("logs", "launch", "show the output of a rank", {**RUN, "--rank": "rank", "--fetch": "fetch=true"}),
    "fetch": ("fetch", "launch", "copy a job's output files: ./muster fetch [RUN]", {**RUN, "--yes": "confirm=true"}),
    "report": ("report", "launch", "write a report on a run, or compare runs: ./muster report --runs A,B", REPORT),
    "shell": ("shell", "launch", "log in to a node, as a rank: ./muster shell NODE [--run-id RUN]", SHELL),
    "stop": ("stop", "launch", "stop a run: ./muster stop [RUN]", RUN),
    "runs": ("runs", "launch", "list runs, and remove old ones: ./muster runs --grep TEXT", RUNS),
    "provision": ("provision", "", "create machines: ./muster provision bert -n 4", {"": "cluster", "-n": "nnodes"}),
    "cost": ("cost", "", "show what all clusters of the account cost", {"": "cluster"}),
    "teardown": ("teardown", "", "remove the machines of a cluster: ./muster teardown bert", {"": "cluster"}),
    "image": ("image", "", "create a template from a machine: ./muster image bert --name golden", IMAGE),
    "benchmark": ("benchmark", "benchmark", "measure GPUs and network, and report slow parts", BENCHMARK),
    "fit": ("fit", "fit", "find the largest batch that fits into memory", {"-n": "nnodes"}),
    "sweep": ("sweep", "sweep", "compare variants: ./muster sweep job.yml variants.yml", {"--run-id": "run_id"}),
    "rehearse": ("rehearse", "rehearse", "try a job first: ./muster rehearse job.yml rehearsal.yml", RUN),
    "stage-data": ("stage_data", "stage_data", "copy a bucket to the machines' disks", {"": "stage_data_bucket"}),
    "checkpoints": ("checkpoints", "checkpoints", "copy checkpoints to S3, or back", {"": "checkpoints_bucket"}),
    "bucket-move": ("bucket_move", "", "copy a bucket to another region", {"--from": "source", "--to": "target"}),
}
# ansible-playbook's options that take a value.
VALUE_OPTIONS = """
    -e --extra-vars -i --inventory -l --limit -t --tags --skip-tags -f --forks -M --module-path -u --user -T --timeout
    -c --connection --become-user --become-method --become-password-file --connection-password-file --private-key
    --key-file --ssh-common-args --ssh-extra-args --sftp-extra-args --scp-extra-args --task-timeout --vault-id
    --vault-password-file --vault-pass-file --conn-pass-file --become-pass-file --inventory-file --start-at-task
"""
KNOWN_OPTIONS = f"""{VALUE_OPTIONS}
    -v --verbose -C --check -D --diff -b --become -K --ask-become-pass -k --ask-pass -J --ask-vault-password
    --ask-vault-pass --step --force-handlers --flush-cache --list-hosts --list-tags --list-tasks --syntax-check
"""


class UsageError(Exception):
    """Invalid arguments; the message says what is wrong and how to correct it."""


def suggest_similar(name: str, candidates: list[str]) -> str:
    """Return a suggestion of the most similar candidate, or an empty string."""
    close = difflib.get_close_matches(name, candidates, 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


def format_help(command: str) -> str:
    """Return the help of a command, or the list of commands if its name is empty. Raise UsageError."""
    if command not in (*COMMANDS, ""):
        raise UsageError(f"unknown command {command!r}: see ./muster help{suggest_similar(command, [*COMMANDS])}")
    if command in COMMANDS:
        lines = [f"  {option or 'NAME':<18}{name}" for option, name in COMMANDS[command][3].items()]
        return "\n".join([f"./muster {command}: {COMMANDS[command][2]}", *lines, "  -e NAME=VALUE     any variable"])
    lines = [f"  {name:<13}{summary}" for name, (_playbook, _role, summary, _options) in COMMANDS.items()]
    return "\n".join(["./muster COMMAND ...", *lines, "  help COMMAND options of COMMAND"])


def translate(command: str, typed: list[str]) -> list[str]:
    """Translate typed arguments into an ansible-playbook command. Raise UsageError."""
    playbook, _role, _summary, options = COMMANDS[command]
    argv, remaining = ["ansible-playbook", f"{playbook}.yml"], list(typed)
    variables: dict[str, str | list[str]] = {}
    while remaining:
        argument = remaining.pop(0)
        name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        if name in options and name:
            variable, set_by, constant = options[name].partition("=")
            if not (value if equals else set_by or remaining):
                raise UsageError(f"{name} needs a value: {name} {variable.upper()}")
            variables[variable] = value if equals else constant if set_by else remaining.pop(0)
        elif argument.startswith("-") and argument != "--":
            if not any(opt.startswith(name) if name[:2] == "--" else opt == name[:2] for opt in KNOWN_OPTIONS.split()):
                suggestion = suggest_similar(name, [*options, *KNOWN_OPTIONS.split()])
                hint = "; options for the script go after its name" if command == "launch" else ""
                raise UsageError(f"{name} is not an option of {command}: ./muster help {command}{hint}{suggestion}")
            argv.append(argument)
            if argument in VALUE_OPTIONS.split() and remaining:
                argv.append(resolve_path(remaining.pop(0)))
        elif command in JOB_FILE_COMMANDS and argument.endswith((".yml", ".yaml")):
            argv += ["-e", resolve_path(f"@{argument}")]
        elif command == "launch":
            script = remaining.pop(0) if argument == "--" and remaining else argument
            variables.update(launch_script=script, launch_args=remaining)
            break
        elif "" in options and options[""] not in variables:
            variables[options[""]] = argument
        else:
            raise UsageError(f"{argument!r} was not expected. Usage: ./muster help {command}")
    for name, content in variables.items():
        is_plain = isinstance(content, str) and re.fullmatch(r"[\w./:-]+", content, re.ASCII)
        # Ansible would split other values, or YAML would read them as something else
        argv += ["-e", f"{name}={content}" if is_plain else f'{{"{name}": {format_yaml(content)}}}']
    return argv


def format_yaml(value: str | list[str]) -> str:
    """Return strings as YAML that Ansible reads literally, without templating braces."""
    if isinstance(value, list):
        return f"[{', '.join(format_yaml(item) for item in value)}]"
    return ("!unsafe " if "{" in value else "") + json.dumps(value, ensure_ascii=False)


def resolve_path(value: str) -> str:
    """Return an option's value with an absolute path for an existing file: commands run in this file's directory."""
    mark, path = ("@", value[1:]) if value.startswith("@") else ("", value)
    return mark + os.path.abspath(path) if os.getcwd() != HERE and os.path.exists(path) else value


def check_files_and_values(command: list[str]) -> None:
    """Raise UsageError for a missing file after -e or -i, and for invalid JSON or YAML after -e."""
    for option, value in zip(command, command[1:]):
        variables = option in ("-e", "--extra-vars")
        file = value.startswith("@") if variables else option in ("-i", "--inventory") and "," not in value
        path = os.path.expandvars(os.path.expanduser(value[value.startswith("@") :]))
        if file and not os.path.exists(os.path.join(HERE, path)):
            raise UsageError(f"{os.path.abspath(path)} does not exist. Correct its name")
        try:
            import yaml

            yaml.compose(value if variables and value.startswith(("{", "[")) else "")
        except ImportError:
            continue  # Ansible reports errors itself
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            position = f" at character {mark.index + 1}, after {value[: mark.index][-30:]}" if mark else ""
            reason = " ".join(str(getattr(error, "problem", error)).split())
            raise UsageError(f"-e cannot be parsed: {reason}{position}. Write JSON, as in -e '{{\"a\": 1}}'") from None


def login(command: list[str]) -> list[str]:
    """Return the argv, from a playbook's output, of a shell in the environment of a node's rank. Raise UsageError."""
    with tempfile.TemporaryDirectory() as directory:
        argv = [*command, "-e", f"json={directory}/words"]
        completed = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            raise UsageError(f"cannot open this shell:\n{completed.stdout}{completed.stderr}")
        with open(f"{directory}/words", encoding="utf-8") as stream:
            return [str(word) for word in json.load(stream)]


def main(arguments: list[str]) -> int:
    """Print and run the typed command; return the exit status."""
    command, options = (arguments[0], arguments[1:]) if arguments and arguments[0] else ("help", [])
    command, options = ("help", [command]) if options[:1] in (["-h"], ["--help"]) else (command, options)
    try:
        if command in ("help", "-h", "--help"):
            print(format_help(options[0] if options else ""))
            role = COMMANDS[options[0]][1] if options and options[0] in COMMANDS else ""
            if role:
                print(f"All variables for -e: ansible-doc -t role muster.training.{role}")
            return 0
        format_help(command)  # raises UsageError for an unknown command
        argv = translate(command, options)
        check_files_and_values(argv)
        if command == "shell" and not any(re.fullmatch(r"nodes=[^,]+", argument) for argument in argv):
            raise UsageError("./muster shell NODE: the name of one node of the inventory")
        if not shutil.which("ansible-playbook"):
            raise UsageError("ansible-playbook was not found. Activate the environment in which Ansible is installed")
        argv = login(argv) if command == "shell" else argv
    except UsageError as error:
        print(f"muster: {error}", file=sys.stderr)
        return 2
    print("+ " + shlex.join(argv), flush=True)
    os.chdir(HERE)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

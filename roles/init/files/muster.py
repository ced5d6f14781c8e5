"""Short words for the playbooks beside this file: ./muster help. Each command is printed before it is run."""

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
RUN_OPTIONS = {"": "run_id"}  # a lone word is the name of a run
REPORT_OPTIONS = {**RUN_OPTIONS, "--runs": "runs", "--fetch": "fetch=true"}
IMAGE_OPTIONS = {"": "cluster", "--name": "template"}
DOCKER_OPTIONS = {"--data-root": "docker_data_root_path", "--delete-old": "docker_data_root_delete_old=true"}
BENCHMARK_OPTIONS = {"-n": "nnodes", "--baseline": "baseline"}
JOB_OPTION_PAIRS = """
    -n:nnodes --nnodes:nnodes --nproc-per-node:nproc_per_node --launcher:launch_launcher --image:launch_image
    --run-id:run_id --as-user:launch_user --directory:launch_working_directory --python:launch_python
    --detach:detach=true --replace:replace=true --debug:debug=true
"""
JOB_OPTIONS = dict(re.findall(r"(\S+):(\S+)", JOB_OPTION_PAIRS))
SHELL_OPTIONS = {"": "nodes", "--image": "launch_image", "--run-id": "run_id", "--as-user": "launch_user"}
JOB_FILE_COMMANDS = ("site", "preflight", "launch", "shell", "fit", "sweep", "rehearse")  # accept files: launch job.yml
# For each word: its playbook, the role with its settings, what it does, options and variables ("=": with the value).
COMMANDS: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "site": ("site", "", "make the machines ready, or bring them up to date", {}),
    "docker": ("docker", "docker_engine", "install Docker, or move its data to another disk", DOCKER_OPTIONS),
    "ping": ("ping", "", "show which machines answer, and their GPUs", {}),
    "preflight": ("preflight", "preflight", "check for all that would keep a job from running", {"-n": "nnodes"}),
    "launch": (
        "launch",
        "launch",
        "run a job: ./muster launch job.yml, or launch -n 4 train.py --epochs 3",
        JOB_OPTIONS,
    ),
    "status": ("status", "launch", "show the state of a run: ./muster status [RUN]", RUN_OPTIONS),
    "logs": ("logs", "launch", "show the output of a rank", {**RUN_OPTIONS, "--rank": "rank", "--fetch": "fetch=true"}),
    "fetch": (
        "fetch",
        "launch",
        "copy what a job wrote: ./muster fetch [RUN]",
        {**RUN_OPTIONS, "--yes": "confirm=true"},
    ),
    "report": (
        "report",
        "launch",
        "write a report on a run, or compare runs: ./muster report --runs A,B",
        REPORT_OPTIONS,
    ),
    "shell": ("shell", "launch", "log in to a node, as a rank: ./muster shell NODE [--run-id RUN]", SHELL_OPTIONS),
    "stop": ("stop", "launch", "stop a run: ./muster stop [RUN]", RUN_OPTIONS),
    "runs": ("runs", "launch", "list runs, and remove old ones", {"--keep": "keep", "--older-than": "older_than"}),
    "provision": ("provision", "", "create machines: ./muster provision bert -n 4", {"": "cluster", "-n": "nnodes"}),
    "cost": ("cost", "", "show what all clusters of the account cost", {"": "cluster"}),
    "teardown": ("teardown", "", "remove the machines of a cluster: ./muster teardown bert", {"": "cluster"}),
    "image": ("image", "", "create a template from a machine: ./muster image bert --name golden", IMAGE_OPTIONS),
    "benchmark": ("benchmark", "benchmark", "measure GPUs and network, and name what is slow", BENCHMARK_OPTIONS),
    "fit": ("fit", "fit", "find the largest batch that fits into memory", {"-n": "nnodes"}),
    "sweep": ("sweep", "sweep", "compare variants: ./muster sweep job.yml variants.yml", {"--run-id": "run_id"}),
    "rehearse": ("rehearse", "rehearse", "try a job first: ./muster rehearse job.yml rehearsal.yml", RUN_OPTIONS),
    "stage-data": ("stage_data", "stage_data", "copy a bucket to the machines' disks", {"": "stage_data_bucket"}),
    "checkpoints": ("checkpoints", "checkpoints", "copy what runs save to S3, or back", {"": "checkpoints_bucket"}),
    "bucket-move": ("bucket_move", "", "copy a bucket to another region", {"--from": "source", "--to": "target"}),
}
# ansible-playbook's options that take a value.
ANSIBLE_VALUE_OPTIONS = """
    -e --extra-vars -i --inventory -l --limit -t --tags --skip-tags -f --forks -M --module-path -u --user -T --timeout
    -c --connection --become-user --become-method --become-password-file --connection-password-file --private-key
    --key-file --ssh-common-args --ssh-extra-args --sftp-extra-args --scp-extra-args --task-timeout --vault-id
    --vault-password-file --vault-pass-file --conn-pass-file --become-pass-file --inventory-file --start-at-task
"""
ANSIBLE_OPTIONS = f"""{ANSIBLE_VALUE_OPTIONS}
    -v --verbose -C --check -D --diff -b --become -K --ask-become-pass -k --ask-pass -J --ask-vault-password
    --ask-vault-pass --step --force-handlers --flush-cache --list-hosts --list-tags --list-tasks --syntax-check
"""


class UsageError(Exception):
    """What is wrong with the typed words, and what is right."""


def suggest_similar(name: str, candidates: list[str]) -> str:
    """Return a question that suggests the most similar known word, "" if none is similar."""
    close = difflib.get_close_matches(name, candidates, 1, 0.75)
    return f"; did you mean {close[0]}?" if close else ""


def format_help(command: str) -> str:
    """Return the help for a word, or for all words."""
    if command not in (*COMMANDS, ""):
        raise UsageError(
            f"there is no command {command!r}: ./muster help lists them{suggest_similar(command, list(COMMANDS))}"
        )
    if command in COMMANDS:
        options = [f"  {option or 'WORD':<18}{name}" for option, name in COMMANDS[command][3].items()]
        return "\n".join(
            [f"./muster {command}: {COMMANDS[command][2]}", *options, "  -e NAME=VALUE     any variable of a role"]
        )
    lines = [f"  {name:<13}{summary}" for name, (_playbook, _role, summary, _options) in COMMANDS.items()]
    return "\n".join(["./muster WORD ...", *lines, "  help WORD    options of WORD"])


def translate(command: str, typed: list[str]) -> list[str]:
    """Translate the typed words into those of an ansible-playbook command. Raise UsageError."""
    playbook, _role, _about, options = COMMANDS[command]
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
            if not any(
                option.startswith(name) if name[:2] == "--" else option == name[:2]
                for option in ANSIBLE_OPTIONS.split()
            ):
                suggestion = suggest_similar(name, [*options, *ANSIBLE_OPTIONS.split()])
                hint = "; options for the script go after its name" if command == "launch" else ""
                raise UsageError(f"{name} is not an option of {command}: ./muster help {command}{hint}{suggestion}")
            argv.append(argument)
            if argument in ANSIBLE_VALUE_OPTIONS.split() and remaining:
                argv.append(resolve_path(remaining.pop(0)))
        elif command in JOB_FILE_COMMANDS and argument.endswith((".yml", ".yaml")):
            argv += ["-e", resolve_path(f"@{argument}")]
        elif command == "launch":
            script = remaining.pop(0) if argument == "--" and remaining else argument
            variables["launch_script"], variables["launch_args"] = script, remaining
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
    """Return a text, or a list of texts, as YAML that Ansible takes literally, without templating braces."""
    if isinstance(value, list):
        return f"[{', '.join(format_yaml(item) for item in value)}]"
    return ("!unsafe " if "{" in value else "") + json.dumps(value, ensure_ascii=False)


def resolve_path(value: str) -> str:
    """Return an option's value, with an absolute path for a file, since commands run in this file's directory."""
    mark, path = ("@", value[1:]) if value.startswith("@") else ("", value)
    return mark + os.path.abspath(path) if os.getcwd() != HERE and os.path.exists(path) else value


def check_files_and_values(command: list[str]) -> None:
    """Raise UsageError for a missing file after -e or -i, and for an unreadable text after -e."""
    for option, value in zip(command, command[1:]):
        variables = option in ("-e", "--extra-vars")
        file = value.startswith("@") if variables else option in ("-i", "--inventory") and "," not in value
        path = os.path.expandvars(os.path.expanduser(value[value.startswith("@") :]))
        if file and not os.path.exists(os.path.join(HERE, path)):
            raise UsageError(f"there is no file {os.path.abspath(path)}. Correct its name")
        try:
            import yaml

            yaml.compose(value if variables and value.startswith(("{", "[")) else "")
        except ImportError:
            continue  # Ansible reports it itself
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            position = f" at character {mark.index + 1}, behind {value[: mark.index][-30:]}" if mark else ""
            reason = " ".join(str(getattr(error, "problem", error)).split())
            raise UsageError(f"-e cannot be read: {reason}{position}. Needed: JSON, as in -e '{{\"a\": 1}}'") from None


def login(command: list[str]) -> list[str]:
    """Return the words, from a playbook's output, that open a shell where a node's rank would run. Raise UsageError."""
    with tempfile.TemporaryDirectory() as directory:
        argv = [*command, "-e", f"json={directory}/words"]
        completed = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            raise UsageError(f"cannot open this shell:\n{completed.stdout}{completed.stderr}")
        with open(f"{directory}/words", encoding="utf-8") as stream:
            return [str(word) for word in json.load(stream)]


def main(arguments: list[str]) -> int:
    """Print and run what was typed; return the exit status."""
    command, options = (arguments[0], arguments[1:]) if arguments and arguments[0] else ("help", [])
    command, options = ("help", [command]) if options[:1] in (["-h"], ["--help"]) else (command, options)
    try:
        if command in ("help", "-h", "--help"):
            print(format_help(options[0] if options else ""))
            role = COMMANDS[options[0]][1] if options and options[0] in COMMANDS else ""
            if role:
                print(f"All variables for -e: ansible-doc -t role muster.training.{role}")
            return 0
        format_help(command)  # refuses an unknown word
        argv = translate(command, options)
        check_files_and_values(argv)
        if command == "shell" and not any(re.fullmatch(r"nodes=[^,]+", argument) for argument in argv):
            raise UsageError("./muster shell NODE: the name of one node of the inventory")
        if not shutil.which("ansible-playbook"):
            raise UsageError("ansible-playbook is not found: activate the environment in which Ansible is installed")
        argv = login(argv) if command == "shell" else argv
    except UsageError as error:
        print(f"muster: {error}", file=sys.stderr)
        return 2
    print("+ " + shlex.join(argv), flush=True)
    os.chdir(HERE)
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Evidence about launchers: arguments that they reject, variables that are empty or not expanded, and wrong ranks."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import MPI_NETWORK
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.files import is_not_rank_0
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.network import is_foreign_address
from ansible_collections.muster.training.plugins.plugin_utils._failures.evidence.rule import EvidenceRule
from ansible_collections.muster.training.plugins.plugin_utils._failures.facts import RunFacts

TOPIC = "What is wrong with a launcher's command"
ARGUMENTS = ("arguments-rejected", "local-rank-unknown", "trainer-arguments-unknown", "rank-failed")
LAUNCHER = (
    r"(?P<launcher>torchrun|launch\.py|run\.py|accelerate(?: <command>)?|Accelerate CLI tool|deepspeed|runner\.py)"
)
VARIABLE = r"[^'\"\n]{0,60}(?:\$\{?[A-Za-z_]\w{0,60}\}?|\{\{[^\n}]{1,60}\}\}|%[A-Z_]{2,40}%)[^'\"\n]{0,60}"
STARTS_RANKS = (
    "Leave these values out of launch_args, and launch_launcher out of the job: muster starts torchrun on each "
    "node with them"
)
UNDER_SLURM = r"\bsrun: |\bslurmstepd: |\bSLURM_\w"
STORE = r"TCPStore\(|_create_c10d_store|_tcp_rendezvous_handler|_env_rendezvous_handler|init_process_group"
IN_USE = r"[Aa]ddress already in use|EADDRINUSE|errno: 98\b"
SEVERAL_RANK_0 = (
    "Only rank 0 listens on the port, and this process is not the only one that believes it is rank 0: the rank "
    "numbers were not passed on to the processes, so several try to listen"
)
OWN_RANKS = (
    "let muster start the ranks (leave launch_launcher out), and make the script read RANK, LOCAL_RANK and "
    "WORLD_SIZE from the environment"
)
NO_LOCAL_RANK = (
    "launch with torchrun, which does not pass --local_rank (leave launch_launcher out); to make deepspeed leave "
    "it out, use -e launch_deepspeed_local_rank=false (deepspeed --no_local_rank)"
)


def is_rank_out_of_range(groups: Mapping[str, str], _facts: RunFacts) -> bool:
    """Return whether a rank number is greater than or equal to the number of ranks."""
    return int(groups["number"]) >= int(groups["size"])


RULES: tuple[EvidenceRule, ...] = (
    EvidenceRule(
        id="launcher-variable-literal",
        entries=ARGUMENTS,
        shows=(
            rf"error: argument (?P<option>--?[\w/ -]{{1,80}}): invalid \w{{1,20}} value: "
            rf"['\"](?P<value>{VARIABLE})['\"]",
        ),
        cause=(
            "The option {option} received the text {value}, a variable that was not expanded. No shell read the "
            "command, or the variable was in single quotes, in YAML or in a list of arguments."
        ),
        remedy=(
            "run the command through a shell on each node, with the variable unquoted there: srun bash -c 'torchrun "
            "--node_rank=$SLURM_NODEID ...'. Or use a launcher that starts torchrun on every node itself (in "
            f"NeMo-Run, the SlurmExecutor instead of the LocalExecutor). {STARTS_RANKS}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="launcher-no-address",
        entries=ARGUMENTS,
        shows=(r"Using IP address of {1,3}for node (?P<node>[\w.:-]{1,255})",),
        cause=(
            "The launcher's own arguments are wrong, not the script's: deepspeed found no address for the master "
            "{node}, since `hostname -I`, which it runs there over SSH, printed nothing. --master_addr= is therefore "
            "empty."
        ),
        remedy=(
            "specify the address with deepspeed --master_addr {first_address} ... (muster does so); or make `ssh "
            "{node} hostname -I` print it (the image needs a hostname command that supports -I)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="scontrol-missing",
        entries=(*ARGUMENTS, "rendezvous-endpoint-invalid", "shell-variable-unset", "rendezvous-unreached"),
        shows=(r"scontrol: (?:command )?not found",),
        cause=(
            "The address of the first node is empty because the command that should find it, scontrol, does not "
            "exist where it runs, usually inside a container."
        ),
        remedy=(
            "find the address outside the container, in the batch script before srun, with export "
            "MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1). muster does not need scontrol "
            "on the nodes"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="endpoint-none",
        entries=("rendezvous-endpoint-invalid",),
        shows=(r"rendezvous endpoint '(?P<endpoint>None:\w{1,10}|\w{1,60}:None)'",),
        cause=(
            "The launcher received no address or port for the first node ({endpoint}). With accelerate, either "
            "an option that takes no value, such as --same_network or --multi_gpu, was given one, so that all "
            "options after it went to the script, or main_process_ip is missing from its configuration."
        ),
        remedy=(
            "do not pass values to accelerate's switches (--same_network, not --same_network true), and pass "
            "--main_process_ip {first_address} --main_process_port 29500; or let muster start torchrun (leave "
            "launch_launcher out)"
        ),
    ),
    EvidenceRule(
        id="endpoint-without-host",
        entries=("rendezvous-endpoint-invalid",),
        shows=(r"rendezvous endpoint '(?P<endpoint>:\d{1,7}|[\w.-]{1,255}:)'",),
        cause="The rendezvous endpoint is '{endpoint}': the variable for its host or its port is empty or not set on "
        "this "
        "node.",
        remedy=(
            "set it before the command, to the same value on all nodes: --rdzv_endpoint={first_address}:29500 (under "
            "Slurm, use export MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)); muster sets "
            "it, so leave it out of launch_args"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="variable-unset",
        entries=("shell-variable-unset",),
        shows=(r"line \d{1,6}: (?P<variable>[A-Za-z_]\w{0,80}): (?:unbound|parameter)",),
        cause="The shell script uses the variable {variable}, which is not set on this node.",
        remedy=(
            'set it for the job with -e \'{{"launch_environment": {{"{variable}": "VALUE"}}}}\', or give it a '
            "default in the script: ${{{variable}:-VALUE}}. muster sets MASTER_ADDR, MASTER_PORT, RANK, LOCAL_RANK "
            "and WORLD_SIZE for each rank"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="variable-empty",
        entries=("error-in-script", "package-failed", "package-refused"),
        shows=(
            r"int\(os\.(?:environ(?:\.get)?[\[(]|getenv\()['\"](?P<variable>\w{1,80})['\"]",
            r"invalid literal for int\(\) with base 10: ''",
        ),
        cause=(
            "The variable {variable} is set on this node, but empty: the command that should fill it printed nothing."
        ),
        remedy=(
            'give it a value with -e \'{{"launch_environment": {{"{variable}": "VALUE"}}}}\'. torchrun sets RANK, '
            "LOCAL_RANK, WORLD_SIZE and MASTER_PORT for each rank (leave launch_launcher out), so remove them from "
            "the script and the image"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="launcher-missing",
        entries=("rank-variables-missing",),
        shows=(r"environment variable (?P<variable>MASTER_ADDR|MASTER_PORT) expected, but not set",),
        cause=(
            "The process has no {variable}: it was started directly by python, srun or mpirun, not by a launcher "
            "that sets the rendezvous variables."
        ),
        remedy=(
            "leave launch_launcher out: torchrun starts one process per GPU and sets all of these variables. If "
            "you call srun or mpirun yourself, run export MASTER_ADDR={first_address} MASTER_PORT=29500 before it"
        ),
    ),
    EvidenceRule(
        id="launcher-address-empty",
        entries=ARGUMENTS,
        shows=(
            r"--master[-_]addr(?:=(?= )| {1,4}(?=--))|argument --master[-_]addr(?:/--master[-_]addr)?: expected one",
        ),
        cause=(
            "--master_addr has no value: the variable in its place is empty or not set on this node, so the "
            "launcher reads the next argument as its value. The script's arguments are not to blame."
        ),
        remedy=(
            "set the variable before the command, on each node, with export MASTER_ADDR={first_address}; under "
            f"Slurm, use MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1). {STARTS_RANKS}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="launcher-value-empty",
        entries=ARGUMENTS,
        shows=(
            rf"{LAUNCHER}[^\n]{{0,40}}: error: argument (?P<option>--?[\w/ -]{{1,80}}): (?:invalid \w{{1,20}} value: "
            r"(?:''|\"\"|'-{1,2}[^'\n]{1,60}')|expected one argument)",
        ),
        cause="The option {option} of {launcher} has no value: the variable in its place is empty or not set in this "
        "shell, on this node.",
        remedy="print the command before it runs (set -x), and set the variable on each node: `srun` and `ssh` do not "
        f"source ~/.bashrc, and sudo drops variables. {STARTS_RANKS}",
        certain=True,
    ),
    EvidenceRule(
        id="nproc-unsupported",
        entries=ARGUMENTS,
        shows=(r"Unsupported nproc_per_node value: (?P<value>[^\n]{0,100})",),
        cause=(
            "--nproc_per_node received '{value}', which is not a number, auto, gpu or cpu: a variable is empty or "
            "was not expanded."
        ),
        remedy=f"give --nproc_per_node the number of GPUs per node, or gpu. {STARTS_RANKS}",
        certain=True,
    ),
    EvidenceRule(
        id="launcher-value-invalid",
        entries=ARGUMENTS,
        shows=(
            rf"{LAUNCHER}[^\n]{{0,40}}: error: argument (?P<option>--?[\w/ -]{{1,80}}): invalid (?P<kind>\w{{1,20}}) "
            rf"value: "
            r"'(?P<value>[^'\n]{1,100})'",
        ),
        cause=(
            "The option {option} of {launcher} received '{value}', which is not of type {kind}: it is a "
            "placeholder that was not replaced, a variable that contains something else, or a list of nodes."
        ),
        remedy=(
            "give {option} a number that is the same on all nodes (only --node_rank differs: 0, 1, ...). "
            f"{STARTS_RANKS}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="deepspeed-local-rank-first",
        entries=ARGUMENTS,
        shows=(
            r"'--local[-_]rank=\d{1,5}', '(?P<config>[^'\n]{1,300}\.(?:ya?ml|json|toml))'",
            r"error: |not used by the HfArgumentParser",
        ),
        cause=(
            "deepspeed puts --local_rank=N before the script's arguments, and this script reads a configuration "
            "file only if the file is the first and only argument: it ignored {config} and lacks the settings in "
            "it."
        ),
        remedy=NO_LOCAL_RANK,
        certain=True,
    ),
    EvidenceRule(
        id="local-rank-hyphen",
        entries=ARGUMENTS,
        shows=(r"unrecognized arguments: [^\n]{0,200}--local-rank\b", r"--local_rank\b"),
        unless=r"--local_rank=\d",
        cause=(
            "torch.distributed.launch in torch 2 passes --local-rank (with a hyphen), and the script's parser "
            "accepts only --local_rank (with an underscore)."
        ),
        remedy="start the script with torchrun in place of python -m torch.distributed.launch, and let it read "
        "int(os.environ['LOCAL_RANK']); muster uses torchrun (leave launch_launcher out). Or let it accept both: "
        "parser.add_argument('--local_rank', '--local-rank', type=int, default=0)",
        certain=True,
    ),
    EvidenceRule(
        id="local-rank-of-launch",
        entries=ARGUMENTS,
        shows=(
            r"unrecognized arguments: [^\n]{0,200}(?P<option>--local[-_]rank)|"
            r"HfArgumentParser: \['(?P<other>--local[-_]rank)",
            r"--local-rank=\d|torch/distributed/launch\.py|torch\.distributed\.launch\b",
        ),
        cause=(
            "python -m torch.distributed.launch passes {option}{other}=N to each process, and the script's parser "
            "does not recognize it."
        ),
        remedy=(
            "start the script with torchrun, which does not pass such an argument but sets LOCAL_RANK (muster does "
            "so: leave launch_launcher out); or add parser.add_argument('--local-rank', '--local_rank', type=int, "
            "default=0)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="local-rank-required",
        entries=ARGUMENTS,
        shows=(r"arguments are required: [^\n]{0,100}--local[-_]rank",),
        cause="The script requires --local_rank, which torch.distributed.launch and deepspeed pass and torchrun does "
        "not.",
        remedy=(
            "add to the script: parser.add_argument('--local_rank', type=int, "
            "default=int(os.environ.get('LOCAL_RANK', 0)))"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="launcher-script-missing",
        entries=ARGUMENTS,
        shows=(rf"{LAUNCHER}[^\n]{{0,40}}: error: the following arguments are required: training_script",),
        cause=(
            "{launcher} found no script in its arguments: an option without a value consumed it (an empty "
            "variable), or the command ended before the script's name, usually because of a space after the "
            "backslash at the end of a continued line."
        ),
        remedy=(
            "print the command before it runs (set -x), give each option its value with = (--nnodes=2), and remove "
            f"spaces after a backslash at the end of a line. {STARTS_RANKS}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="argument-blank",
        entries=ARGUMENTS,
        shows=(r"unrecognized arguments: (?:[^\n]{1,200} )?\\?[ \t]{0,8}$",),
        cause=(
            "An argument consists of only a space: there is a space after the backslash at the end of a line of the "
            "command, so the command ends there."
        ),
        remedy=r"remove the spaces after each \ at the end of a line: sed -i 's/\\ *$/\\/' SCRIPT.sh",
        certain=True,
    ),
    EvidenceRule(
        id="launcher-arguments-rejected",
        entries=ARGUMENTS,
        shows=(rf"{LAUNCHER}[^\n]{{0,40}}: error: (?P<what>[^\n]{{1,160}})",),
        unless=r"training_script\.py: error: ",
        cause=(
            "The launcher {launcher} rejected its own arguments before the script started: {what}. The option "
            "belongs to a different version of the launcher, is misspelled, or is one of the script's own "
            "options, placed before the script's name."
        ),
        remedy=(
            "put the launcher's options before the script's name and the script's options after it, and compare "
            "the former with the launcher's --help output in the job's environment (older torchrun versions "
            "spell the options with _). With muster, leave the launcher's options out"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="ssh-port-closed",
        entries=("ssh-refused",),
        shows=(r"ssh: connect to host (?P<host>\S{1,255}) port (?P<port>\d{1,5}): Connection refused",),
        cause=(
            "No SSH server is listening on port {port} of {host}: it is not running (as in most containers), or uses "
            "another port."
        ),
        remedy=(
            "leave launch_launcher out: torchrun needs no SSH between nodes. Otherwise, start sshd there; if it "
            "uses another port, put `Port N` for {host} into ~/.ssh/config on the first node (deepspeed "
            "--ssh_port N)"
        ),
    ),
    EvidenceRule(
        id="ssh-unreachable",
        entries=("ssh-refused",),
        shows=(
            r"ssh: connect to host (?P<host>\S{1,255}) port (?P<port>\d{1,5}): (?P<reason>Connection timed out|"
            r"No route to host|Network is unreachable)",
        ),
        cause=(
            "The first node cannot reach {host}, port {port} ({reason}): the machine is down, the address is "
            "wrong, or a firewall or security group is blocking the port."
        ),
        remedy=(
            "run ansible-playbook preflight.yml to test the connections between all nodes; open the port, or leave "
            "launch_launcher out, since torchrun needs no SSH between nodes"
        ),
    ),
    EvidenceRule(
        id="ssh-host-unknown",
        entries=("ssh-refused",),
        shows=(r"Host key verification failed",),
        cause=(
            "The first node does not have the other node's host key, and nobody can answer ssh's prompt; or the "
            "machine was reinstalled and has a different key."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags ssh_mesh to write the host keys of all nodes. To do this by hand, "
            "run ssh-keyscan HOST >> ~/.ssh/known_hosts (after ssh-keygen -R HOST for a reinstalled node)"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="ssh-to-host",
        entries=("ssh-refused",),
        shows=(r"host=(?P<host>[\w.:-]{1,255}) was not reachable via ssh",),
        cause=(
            "The first node cannot log in to {host} over SSH without a password: it has no key there (even if "
            "{host} is the first node itself), the name is unknown, or the SSH server uses another port. "
            "deepspeed hides ssh's message."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags ssh_mesh to set up SSH keys among the nodes, including for "
            "themselves; to see ssh's message, run `ssh {host} hostname` on the first node. torchrun needs no SSH "
            "between nodes (leave launch_launcher out)"
        ),
    ),
    EvidenceRule(
        id="mpi-daemon-connects-back",
        entries=("mpi-daemon-missing",),
        shows=(
            r"tcp_peer_(?:send|recv)_blocking: |"
            r"tcp_peer_\w{1,40}: [^\n]{0,80}(?:refused|timed out|reset|[Bb]roken pipe)|"
            r"complete_connect: [^\n]{0,80}connection failed",
        ),
        cause=(
            "Open MPI's daemon started on the other node but could not keep a connection to mpirun: mpirun announces "
            "an address at which the daemon cannot reach it, such as one on Docker's bridge (172.17.0.0/16), or a "
            "firewall blocks its ports."
        ),
        remedy=(
            "start containers with the host's network (--network=host), and "
            f"{MPI_NETWORK}. To test the connections, run ansible-playbook preflight.yml"
        ),
    ),
    EvidenceRule(
        id="mpi-address-of-bridge",
        entries=("mpi-network",),
        # Bridges of Docker and libvirt have the first address of their network, and no route leads to it from outside.
        shows=(
            r"connect\(\) to (?P<address>(?:172\.(?:1[7-9]|2\d|3[01])|192\.168)\.\d{1,3}\.\d{1,3})\b"
            r"[^\n]{0,20} failed",
            r"No route to host|Network is unreachable|Connection refused",
        ),
        condition=is_foreign_address,
        cause=(
            "Open MPI tried {address}, most likely the address of a virtual network on the other node (virbr0, "
            "docker0), to which this node has no route."
        ),
        remedy=(
            f"{MPI_NETWORK}. If {{address}} is a node's own address, a firewall is blocking it: run "
            "ansible-playbook preflight.yml"
        ),
    ),
    EvidenceRule(
        id="ray-disk-full",
        entries=("package-failed",),
        shows=(
            r"(?P<path>/[\w./-]{1,200}) is over 9\d(?:\.\d{1,3})?% full",
            r"(?:ActorDiedError|RayActorError|WorkerCrashedError|ObjectStoreFullError|OutOfDiskError)\b",
        ),
        cause=(
            "A Ray worker died after its disk had filled up ({path} is over 95% full): Ray then stops creating "
            "objects on that node."
        ),
        remedy=(
            "free space there (remove old sessions with rm -r /tmp/ray/session_* while Ray is stopped), or start Ray "
            "with a larger disk: ray start --temp-dir=/DISK/ray. To see whether the worker had an error of its own, "
            "run `ray logs`"
        ),
    ),
    EvidenceRule(
        id="ray-worker-died",
        entries=("package-failed",),
        shows=(
            r"(?:ActorDiedError|RayActorError|WorkerCrashedError)\b",
            r"[Ww]orker unexpectedly exits with a connection error code 2\. End of file",
        ),
        cause=(
            "A Ray worker process ended without a Python error: it was killed, usually because the node ran out of "
            "memory, or it crashed in native code."
        ),
        remedy=(
            "run `sudo dmesg -T | grep -iE 'killed process|segfault|xid'` on its node to see which of these it "
            "was; its own log (/tmp/ray/session_latest/logs/worker-*PID*) ends with the reason. If memory ran "
            "out, use fewer workers per node and smaller batches, and disable CPU offload"
        ),
    ),
    EvidenceRule(
        id="launcher-waits-for-nodes",
        entries=("store-time-out", "ranks-missing"),
        # The launcher itself, before it starts any rank; afterwards it waits in _exit_barrier.
        shows=(
            r'elastic/agent/server/api\.py", line \d{1,9}, in (?:_assign_worker_ranks|_share_and_gather|_rendezvous)\b',
        ),
        unless=r"\b_exit_barrier\b",
        cause=(
            "The launcher (torchrun, accelerate) started no rank: it waited in vain for the launchers of the other "
            "nodes. Either one is missing, or two have the same --node_rank (accelerate: --machine_rank), for "
            "example under srun if $SLURM_NODEID or $SLURM_PROCID is expanded in the batch script, where it is 0."
        ),
        remedy=(
            "start one launcher per node, each with its own --node_rank, starting from 0, and the same --nnodes; "
            "with srun, use srun --ntasks-per-node=1 bash -c 'torchrun --node_rank=$SLURM_NODEID ...' in single "
            "quotes. muster numbers the nodes itself (leave --node_rank and --machine_rank out)"
        ),
    ),
    EvidenceRule(
        id="slurm-starts-too-few",
        entries=("ranks-missing",),
        shows=(
            UNDER_SLURM,
            r"GLOBAL_RANK: \d{1,6}, MEMBER: \d{1,6}/\d",
            r"world_size=(?P<size>\d{1,6}), worker_count=(?P<count>\d{1,6})\b",
        ),
        cause=(
            "Only {count} of {size} processes joined: under Slurm, Lightning starts no processes itself, so the job "
            "must have as many tasks as the Trainer's devices x num_nodes."
        ),
        remedy=(
            "use #SBATCH --nodes=N (num_nodes) and --ntasks-per-node=M (devices) in the batch script, and start "
            "with srun python ...; in an interactive shell, run unset SLURM_NTASKS SLURM_JOB_NAME. If the number "
            "of tasks was right, one of them ended early: run ansible-playbook logs.yml -e fetch=true"
        ),
    ),
    EvidenceRule(
        id="rank-beyond-world",
        entries=(
            "rendezvous-unreached",
            "ranks-missing",
            "store-time-out",
            "nccl-start-waits",
            "nccl-invalid-argument",
            "gloo-timed-out",
            "package-failed",
        ),
        shows=(r"GLOBAL_RANK: (?P<number>\d{1,6}), MEMBER: \d{1,6}/(?P<size>\d{1,6})",),
        cause=(
            "The ranks are numbered incorrectly: this process is rank {number} of {size}, so no process is rank "
            "0, and all of them wait for it. Lightning multiplies the variable NODE_RANK (or GROUP_RANK), which "
            "is set in the environment, by the number of devices, as if this node were one of several."
        ),
        remedy=(
            "run unset NODE_RANK GROUP_RANK before starting the script (env -u NODE_RANK -u GROUP_RANK python "
            "...); with several nodes, Trainer(num_nodes=N) must match the number of nodes, and NODE_RANK must "
            "start at 0"
        ),
        condition=is_rank_out_of_range,
        certain=True,
    ),
    EvidenceRule(
        id="ranks-twice",
        entries=(
            "rendezvous-unreached",
            "ranks-missing",
            "store-time-out",
            "nccl-start-waits",
            "address-in-use",
            "store-reused",
        ),
        shows=(
            r"GLOBAL_RANK: (?P<number>\d{1,6}), MEMBER: \d{1,6}/(?P<size>\d{1,6})\n(?:[^\n]{0,300}\n){0,12}?[^\n]{0,60}"
            r"GLOBAL_RANK: (?P=number), MEMBER: ",
        ),
        cause="Two processes are rank {number} of {size}: the scheduler started one task per node (or per GPU), and "
        "Lightning started its own processes in each of them, as on a single node.",
        remedy=(
            "under Slurm, use #SBATCH --ntasks-per-node=GPUS and --nodes as in Trainer(devices=GPUS, "
            "num_nodes=NODES), and start with srun; or let muster start the ranks with torchrun"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="torchrun-per-task",
        entries=("address-in-use",),
        shows=(
            IN_USE,
            r"static_tcp_rendezvous\.py|launcher/api\.py|torch/distributed/run\.py|c10d_rendezvous_backend\.py|"
            r"bin/torchrun\b",
            rf"{UNDER_SLURM}|\[\d{{1,5}},\d{{1,5}}\]<std(?:err|out)>|horovodrun|\bmpirun\b",
        ),
        cause=(
            "Several torchrun processes on the same node are listening on one port: srun, mpirun or horovodrun "
            "starts a torchrun in each of its tasks, and there is more than one task per node. If there is only "
            "one task per node, another job holds the port."
        ),
        remedy=(
            "start one torchrun per node: use #SBATCH --ntasks-per-node=1 (mpirun --map-by ppr:1:node), with "
            "--nproc_per_node=GPUS and --node_rank=$SLURM_NODEID; or start the script without torchrun, one task per "
            "GPU. If another job holds the port, use -e launch_master_port=29600"
        ),
    ),
    EvidenceRule(
        id="deepspeed-without-hostfile",
        entries=("address-in-use",),
        shows=(IN_USE, STORE, r"Unable to find hostfile, will proceed with training with local resources only"),
        condition=is_not_rank_0,
        cause=(
            "deepspeed found no hostfile on this node, so it started a job on this node alone (node rank 0), as "
            "it did on every other node: each job acts as the first node, and only one of them can listen on the "
            "port."
        ),
        remedy=(
            "start each node with its own node rank: in accelerate's configuration, set "
            "deepspeed_multinode_launcher: standard under deepspeed_config, with a different machine_rank on each "
            "node (its default, pdsh, starts all nodes from the first and needs deepspeed_hostfile). Or use "
            "deepspeed --hostfile FILE on the first node only. With muster, leave launch_launcher out"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="several-rank-0-deepspeed",
        entries=("address-in-use",),
        shows=(IN_USE, STORE, r"deepspeed"),
        condition=is_not_rank_0,
        cause=(
            f"{SEVERAL_RANK_0}. With a single node, deepspeed starts the script directly, even inside each of "
            "Slurm's tasks, so every process believes that it is the only one."
        ),
        remedy=(
            "start deepspeed once per node with srun --ntasks-per-node=1 (it starts the ranks itself); or use "
            f"deepspeed --force_multi with a launcher of its own (--launcher slurm). With muster: {OWN_RANKS}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="several-rank-0-mpi",
        entries=("address-in-use",),
        shows=(IN_USE, STORE, r"mpirun|mpiexec|\bOMPI_|\bMPI_|\bmpi\b|node_id: 0, local_rank: 0, (?:dist_)?rank: 0"),
        condition=is_not_rank_0,
        cause=(
            f"{SEVERAL_RANK_0}. mpirun passes a process its rank only in OMPI_COMM_WORLD_RANK (PMI_RANK), and a "
            "script that does not read this variable uses the default node and rank 0."
        ),
        remedy=(
            "pass each process its own number: use --node_id $OMPI_COMM_WORLD_RANK with one process per node (the "
            "option that this script has for it), or RANK=$OMPI_COMM_WORLD_RANK and "
            f"WORLD_SIZE=$OMPI_COMM_WORLD_SIZE. With muster: {OWN_RANKS}"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="several-rank-0",
        entries=("address-in-use",),
        shows=(IN_USE, STORE),
        condition=is_not_rank_0,
        cause=f"{SEVERAL_RANK_0}.",
        remedy=(
            f"{OWN_RANKS}. With your own launcher, use --node_rank 0, 1, ... on the nodes, RANK=$SLURM_PROCID "
            "under srun (or one task per node if it starts torchrun), or RANK=$OMPI_COMM_WORLD_RANK under mpirun"
        ),
        certain=True,
    ),
    EvidenceRule(
        id="several-rank-0-slurm",
        entries=("address-in-use",),
        shows=(IN_USE, STORE, UNDER_SLURM),
        cause=(
            "Most likely several tasks believe that they are rank 0, and only one of them can listen on the "
            "port: each received the same RANK or --node_rank 0. Otherwise, another job on the node is using the "
            "port."
        ),
        remedy=(
            "give each task its own rank: set RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS "
            "in the task (srun bash -c '...'), or use one task per node with torchrun --node_rank=$SLURM_NODEID. Use "
            "a separate port for each job: export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))"
        ),
    ),
    EvidenceRule(
        id="slurm-tasks-missing",
        entries=("slurm-variables-missing",),
        shows=(r"KeyError: ['\"](?P<variable>SLURM_(?:NTASKS|NPROCS))['\"]",),
        cause=(
            "Slurm sets {variable} only for a job that requests a number of tasks (--ntasks), and this job does not: "
            "--ntasks-per-node alone does not always set it."
        ),
        remedy=(
            "add #SBATCH --ntasks=N (nodes x tasks per node), or run export {variable}=$((SLURM_NNODES * "
            "SLURM_NTASKS_PER_NODE)) before starting the script. Outside Slurm, let the script read WORLD_SIZE, "
            "which torchrun sets"
        ),
    ),
    EvidenceRule(
        id="slurm-option-missing",
        entries=("slurm-variables-missing",),
        shows=(
            r"KeyError: ['\"](?P<variable>SLURM_(?:NTASKS_PER_NODE|CPUS_PER_TASK|GPUS_PER_NODE|GPUS_PER_TASK|GPUS|"
            r"CPUS_PER_GPU|MEM_PER_NODE|MEM_PER_CPU|MEM_PER_GPU))['\"]",
        ),
        cause="Slurm sets {variable} only if the job uses the corresponding option, and this job does not.",
        remedy=(
            "add the option to the batch script, in lower case with hyphens: for SLURM_NTASKS_PER_NODE, use #SBATCH "
            "--ntasks-per-node=N, and for SLURM_CPUS_PER_TASK, use --cpus-per-task=N; only for SLURM_MEM_PER_NODE, the "
            "option has another name: --mem=SIZE. Or give the script a default (os.environ.get)"
        ),
    ),
    EvidenceRule(
        id="slurm-plugin-of-lightning",
        entries=("slurm-variables-missing",),
        shows=(r"KeyError: ['\"](?P<variable>SLURM_\w{1,40})['\"]", r"environments/slurm\w{0,20}\.py|SLURMEnvironment"),
        cause=(
            "Lightning treats this as a Slurm job, because of plugins=[SLURMEnvironment(...)] or an allocation's "
            "variables (SLURM_NTASKS), but srun did not start the process: {variable} is not set."
        ),
        remedy=(
            "remove plugins=[SLURMEnvironment(...)] from the Trainer; inside an allocation, run unset SLURM_NTASKS "
            "SLURM_JOB_NAME first, or start the script with srun"
        ),
        certain=True,
    ),
)

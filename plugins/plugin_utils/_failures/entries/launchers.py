# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Failures of launchers, and of scripts that expect a different launcher."""

from __future__ import annotations

from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.entry import CatalogueEntry
from ansible_collections.muster.training.plugins.plugin_utils._failures.entries.shared_remedies import MPI_NETWORK

TOPIC = "Launchers"
ENTRIES: tuple[CatalogueEntry, ...] = (
    CatalogueEntry(
        id="ssh-refused",
        title="A launcher cannot log in to a node over SSH",
        example="host=... was not reachable via ssh. If you are running with a single node please remove ... or "
        "setup passwordless ssh",
        texts=(
            r"was not reachable via ssh",
            r"'ssh -o PasswordAuthentication=no [^'\n]{1,255}' returned non-zero exit status",
            r"ssh: connect to host \S{1,255} port \d{1,5}: ",
            r"Permission denied \((?:password|keyboard-interactive|gssapi)",
            r"ssh exited with exit code 255",
            r"(?<!git@github\.com: )(?<!git@gitlab\.com: )Permission denied \(publickey",
            r"Host key verification failed",
        ),
        cause=(
            "This launcher starts ranks over SSH, and the first node cannot log in to another node, or to itself, "
            "with an SSH key."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags ssh_mesh to set up SSH keys among the nodes, including for "
            "themselves; or use torchrun (leave launch_launcher out), which needs no SSH between nodes"
        ),
        source="hpcac/2023-APAC-HPC-AI#1",
    ),
    CatalogueEntry(
        id="remote-path-missing",
        title="Another node has Python or the code at a different path",
        example="bash: /home/user/env/bin/python: No such file or directory",
        texts=(
            r"bash: line \d{1,4}: cd: [^\n]{1,200}: No such file or directory",
            r"bash: [^\n]{1,200}/python[\d.]{0,5}: (?:bad interpreter: )?No such file or directory",
            r"bad interpreter: No such file or directory",
            r"ssh exited with exit code 127",
            r"execvp error on file [^\n]{1,255} \(No such file or directory\)",
            r"was unable to launch the specified application as it could not access",
            r"was unable to find the specified executable file",
        ),
        cause=(
            "The launcher uses the first node's paths on every node, but another node does not have this directory "
            "or this Python at the same path."
        ),
        remedy=(
            "use the same paths on all nodes: run ansible-playbook site.yml --tags code,python_env to install both "
            "at the same path on every node; or use torchrun (leave launch_launcher out), which muster starts on "
            "each node with that node's own paths"
        ),
        source="deepspeedai/DeepSpeed#4254",
    ),
    CatalogueEntry(
        id="mpi-daemon-missing",
        title="Open MPI does not start on another node",
        example="bash: orted: command not found",
        texts=(
            r"orted: (?:command not found|not found|No such file or directory)",
            r"prted: (?:command not found|not found|No such file or directory)",
            r"(?:ORTE|PRTE) was unable to reliably start one or more daemons",
            r"An? (?:ORTE|PRTE) daemon has unexpectedly failed after launch",
        ),
        cause=(
            "The first node can reach the other node, but Open MPI's daemon does not start there: it is not "
            "installed, is a different version, or is not in the PATH of a non-interactive login."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags open_mpi -e open_mpi_enabled=true to install the same Open MPI at "
            "the same path on all nodes. With your own installation, use mpirun --prefix DIRECTORY, or set PATH "
            "before the line in ~/.bashrc that exits for non-interactive shells"
        ),
        source="open-mpi/ompi#8870",
    ),
    CatalogueEntry(
        id="colossalai-node-unreached",
        title="colossalai cannot log in to a node",
        example="Error: failed to run torchrun --nproc_per_node=4 ... train.py on node2, is localhost: False, "
        "exception: No authentication methods available",
        texts=(r"is localhost: False, exception: (?!Encountered a bad command exit code)",),
        cause=(
            "colossalai run starts the job on the other nodes over SSH. That failed on the node that the message "
            "names before `is localhost`, so the first node is waiting for that node in vain. If the message "
            "says No authentication methods available, or not a valid RSA private key file, colossalai has no "
            "key that it can use."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags ssh_mesh to set up SSH keys among the nodes; to do so by hand, "
            "run ssh-keygen -t rsa -m PEM && ssh-copy-id NODE. Or launch with torchrun, which needs no SSH (leave "
            "launch_launcher out)"
        ),
        source="hpcaitech/ColossalAI#3066",
        refines=("rendezvous-unreached", "ranks-missing", "store-time-out"),
    ),
    CatalogueEntry(
        id="mpi-slots",
        title="Open MPI counts fewer slots than processes",
        example="There are not enough slots available in the system to satisfy the 2 slots that were requested",
        texts=(r"There are not enough slots available in the system",),
        cause="The number of processes requested is greater than the number of slots in the hostfile.",
        remedy="leave nproc_per_node out, or set node_slots in the inventory; do not add -np or --hostfile yourself",
        source="h5py/h5py#2627",
    ),
    CatalogueEntry(
        id="rank-variables-missing",
        title="The script expects a launcher that starts its ranks",
        example="KeyError: 'LOCAL_RANK'",
        texts=(
            r"KeyError: '(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|MASTER_ADDR|MASTER_PORT)'",
            r"environment variable (?:RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT) expected, but not set",
        ),
        cause=(
            "With launch_launcher: env, muster starts one process per node, without RANK and LOCAL_RANK. "
            "Lightning starts the other processes itself; most scripts do not."
        ),
        remedy="leave launch_launcher out, so that torchrun starts one process per GPU and sets these variables",
        source="a run on one H200",
    ),
    CatalogueEntry(
        id="debugger-without-terminal",
        title="A breakpoint was reached",
        example="bdb.BdbQuit",
        texts=(r"\bbdb\.BdbQuit\b",),
        cause=(
            "breakpoint() or pdb.set_trace() reads commands from a terminal, but the ranks of a run have no terminal."
        ),
        remedy=(
            "remove the call and print what you want to see. To debug by hand, run ansible-playbook shell.yml -e "
            "nodes=NODE to see how to log in to a node with the job's environment; run the script there with one "
            "process (MASTER_ADDR=127.0.0.1 MASTER_PORT=29600 WORLD_SIZE=1 RANK=0 LOCAL_RANK=0 python -m pdb "
            "train.py), or call torch.distributed.breakpoint() there"
        ),
        source="torch 2.13.0 on a CPU",
    ),
    CatalogueEntry(
        id="rank-failed",
        title="The launcher reports a failed rank",
        example="torch.distributed.elastic.multiprocessing.errors.ChildFailedError",
        texts=(
            r"ChildFailedError\b",
            r"elastic\.multiprocessing\.api:failed \(exitcode",
            r"multiprocessing/api\.py:\d{1,5}\] failed \(exitcode",
            r"mpirun noticed that process rank \d",
            r"MPI_ABORT was invoked on rank \d",
        ),
        cause="A rank on this node failed. The rank's own output says why.",
        remedy="read the log of the rank named under 'Root Cause' (ansible-playbook logs.yml -e rank=N)",
        source="Facico/Chinese-Vicuna#113",
        kind="consequence",
        summary=True,
    ),
    CatalogueEntry(
        id="mpi-as-root",
        title="Open MPI does not run as root by default",
        example="mpirun has detected an attempt to run as root.",
        texts=(r"(?:mpirun|mpiexec|orterun|prterun|prted?|orted) has detected an attempt to run as root",),
        cause=("The job is running as root, usually in a container, but mpirun does not allow this by default."),
        remedy=(
            'launch with -e \'{"launch_environment": {"OMPI_ALLOW_RUN_AS_ROOT": "1", '
            '"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}}\' to allow it; or run as another user (launch_user)'
        ),
        source="FedML-AI/FedML#456",
    ),
    CatalogueEntry(
        id="deepspeed-launcher-missing",
        title="The DeepSpeed launcher is not installed",
        example="RuntimeError: launcher 'pdsh' not installed.",
        texts=(r"launcher '\w{1,20}' not installed",),
        cause="deepspeed starts the other nodes' processes with pdsh, which is not installed on the first node.",
        remedy=(
            "leave launch_launcher out, since torchrun works with DeepSpeed and does not need pdsh. To keep this "
            'launcher, run ansible-playbook site.yml --tags base_packages -e \'{"base_packages_extra": ["pdsh"]}\''
        ),
        source="deepspeedai/DeepSpeedExamples#150",
    ),
    CatalogueEntry(
        id="deepspeed-slot-unknown",
        title="DeepSpeed was told to use a GPU that a host does not have",
        example="ValueError: No slot '1' specified on host 'localhost'",
        texts=(r"No slot '\d{1,4}' specified on host '", r"Hostname '[^'\n]{1,255}' not found in hostfile"),
        cause=(
            "CUDA_VISIBLE_DEVICES, --include or --exclude specifies a GPU or a host that the hostfile, or the first "
            "node alone, does not have."
        ),
        remedy=(
            "remove CUDA_VISIBLE_DEVICES and --include; set the nodes to use with -e nodes=..., and the number "
            "of GPUs to use on each with -e nproc_per_node=N"
        ),
        source="01-ai/Yi#392",
    ),
    CatalogueEntry(
        id="deepspeed-no-gpu",
        title="DeepSpeed cannot find a GPU to start a process on",
        example="RuntimeError: Unable to proceed, no GPU resources available",
        texts=(r"Unable to proceed, no (?:GPU )?resources available",),
        cause=(
            "deepspeed sees no GPU on the first node: the driver is not loaded, torch is a CPU-only build, or the "
            "hostfile is empty."
        ),
        remedy=(
            "run ansible-playbook ping.yml to see the GPUs of each node. On nodes without GPUs, leave "
            "launch_launcher out, since torchrun starts the processes there as well"
        ),
        source="deepspeedai/DeepSpeed#535",
    ),
    CatalogueEntry(
        id="slurm-cancelled",
        title="Slurm ended the job",
        example="slurmstepd: error: *** JOB 168885 ON node1 CANCELLED AT 2023-08-31T18:04:42 ***",
        texts=(r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S{1,60} ON \S{1,255} CANCELLED AT",),
        cause=(
            "Slurm stopped the processes because the job reached its time limit (DUE TO TIME LIMIT), a "
            "higher-priority job preempted it (PREEMPTION), somebody canceled it, or another of its tasks failed."
        ),
        remedy=(
            "run `sacct -j JOB -o State,Elapsed,Timelimit,ExitCode` to see the reason. If it was the time limit, "
            "raise #SBATCH --time or resume from the last checkpoint; if a task failed, its own log says why"
        ),
        source="Lightning-AI/torchmetrics#2300",
        kind="consequence",
    ),
    CatalogueEntry(
        id="program-not-found",
        title="The launcher is not installed in the job's environment",
        example="bash: torchrun: command not found",
        texts=(
            r"torchrun: (?:command )?not found",
            r"accelerate: (?:command )?not found",
            r"deepspeed: (?:command )?not found",
            r"python3?: (?:command )?not found",
            r"exec: \"[^\"\n]{1,200}\": executable file not found in \$PATH",
        ),
        cause=(
            "The command is not in the job's PATH on that node: the job's Python environment is not activated, "
            "torch is not installed in it, or the image has neither."
        ),
        remedy=(
            "install the environment on all nodes (ansible-playbook site.yml --tags python_env,pytorch), "
            "or specify your own with launch_python=/path/to/env/bin/python. In your own script, use python -m "
            "torch.distributed.run instead of torchrun"
        ),
        source="AndyJZhao/GLEM#11",
    ),
    CatalogueEntry(
        id="session-closed",
        title="The session that started torchrun was closed",
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 8665 got signal: 1",
        texts=(
            r"SignalException: Process \d{1,10} got sig(?:nal|val): ?1\b(?!\d)",
            r"closing signal SIGHUP",
            r"Received 1 death signal",
            r"was killed by SIGHUP",
        ),
        cause=(
            "torchrun received SIGHUP because the terminal or SSH connection in which it was started has ended. "
            "nohup does not protect against this, since torchrun handles the signal itself."
        ),
        remedy=(
            "launch the job with ansible-playbook launch.yml, since muster's runs continue without a session; or "
            "start it inside tmux"
        ),
        source="zai-org/ChatGLM2-6B#238",
    ),
    CatalogueEntry(
        id="pdsh-without-ssh",
        title="pdsh uses rsh instead of SSH",
        example="pdsh@node1: node2: rcmd: socket: Permission denied",
        texts=(
            r"rcmd: (?:socket: Permission denied|poll: protocol failure)",
            r"xpoll: protocol failure in circuit setup",
        ),
        cause=(
            "The script calls pdsh, which uses rsh to log in by default, and only root can use rsh. DeepSpeed's own "
            "launcher makes pdsh use SSH."
        ),
        remedy=(
            'launch with -e \'{"launch_environment": {"PDSH_RCMD_TYPE": "ssh"}}\', or call pdsh -R ssh; '
            "or let torchrun start the ranks without pdsh (leave launch_launcher out)"
        ),
        source="chaos/pdsh#127",
    ),
    CatalogueEntry(
        id="mpi-network",
        title="Open MPI cannot connect between two nodes",
        example="A process or daemon was unable to complete a TCP connection",
        texts=(
            r"process or daemon was unable to complete a TCP connection",
            r"Open MPI failed to TCP connect to a peer MPI process",
            r"At least one pair of MPI processes are unable to reach each other",
            r"mca_btl_tcp_endpoint_recv_connect_ack\] received unexpected process identifier",
            r"ORTE does not know how to route a message to the specified daemon",
        ),
        cause=(
            "A port between the nodes is closed, or Open MPI chose an interface that has no route to the other node, "
            "such as docker0 or a second network."
        ),
        remedy=f"{MPI_NETWORK}. Run ansible-playbook preflight.yml to test the connections",
        source="open-mpi/ompi#4963",
        weak=True,
    ),
    CatalogueEntry(
        id="lightning-slurm-tasks",
        title="Lightning and Slurm disagree about the number of processes",
        example="You set `--ntasks=8` in your SLURM bash script, but this variable is not supported. HINT: Use "
        "`--ntasks-per-node=8` instead.",
        texts=(
            r"in your SLURM bash script, but this variable is not supported",
            r"number of (?:tasks per node|nodes) configured in SLURM [^\n]{1,60} does not match",
        ),
        cause=(
            "Lightning takes the number of processes from Slurm's variables, which differ from Trainer(devices=..., "
            "num_nodes=...)."
        ),
        remedy=(
            "set #SBATCH --nodes to num_nodes and --ntasks-per-node to the number of devices, without --ntasks; "
            "or launch with torchrun, which needs --ntasks-per-node=1"
        ),
        source="Lightning-AI/pytorch-lightning#15011",
    ),
    CatalogueEntry(
        id="slurm-pmi",
        title="srun starts an MPI program without PMI",
        example='The application appears to have been direct launched using "srun", but OMPI was not built with '
        "SLURM's PMI support and therefore cannot execute",
        texts=(
            r"OMPI was not built with SLURM's PMI support",
            r"PMI2_Init failed to intialize",
        ),
        cause=(
            "srun starts the ranks itself, but the job's Open MPI cannot communicate with this Slurm: srun was not "
            "told which PMI type to use, or Slurm and Open MPI were built with different PMI versions."
        ),
        remedy=(
            "run `srun --mpi=list` to list the PMI types that this Slurm supports, and use srun --mpi=pmix for "
            "Open MPI 4 and later, or --mpi=pmi2 for MPICH and Intel MPI; or start the ranks with mpirun inside "
            "the allocation; or use the cluster's own MPI module (module avail openmpi). If the program does not "
            "need MPI, torchrun can start it, with one torchrun per node"
        ),
        source="open-mpi/ompi#4338",
    ),
    CatalogueEntry(
        id="lightning-cuda-started",
        title="Lightning cannot fork processes after CUDA was used",
        example="RuntimeError: Lightning can't create new processes if CUDA is already initialized.",
        texts=(r"Lightning can't create new processes if CUDA is already initialized",),
        cause="strategy='ddp_notebook' or 'ddp_fork' forks the script's process, but something before trainer.fit has "
        "already used the GPU: torch.cuda.*, .to('cuda'), or an imported package.",
        remedy=(
            "use strategy='ddp', which starts separate processes (muster's launcher has already started them). Or "
            "move all code that uses CUDA into the LightningModule"
        ),
        source="Lightning-AI/pytorch-lightning#21561",
    ),
    CatalogueEntry(
        id="slurm-program-missing",
        title="Slurm cannot find the program on a node",
        example="slurmstepd: error: execve(): python: No such file or directory",
        texts=(r"slurmstepd: error: execve\(\): [^\n]{1,300}: (?:No such file or directory|Permission denied)",),
        cause=(
            "srun looks up the program by name in the PATH on each node, but the program does not exist on this "
            "node: its environment is not activated, or is on a disk that the node does not mount."
        ),
        remedy=(
            "activate the environment before srun in the batch script, or give the full path of a program on a "
            "shared drive, as in srun /shared/env/bin/python train.py; run `srun --nodes=N ls -l PROGRAM` to find "
            "the nodes that lack the program"
        ),
        source="firelab/windninja#624",
    ),
    CatalogueEntry(
        id="slurm-memory-request",
        title="Slurm cannot give a job step the requested memory",
        example="srun: error: Unable to create step for job 29986033: Memory required by task is not available",
        texts=(
            r"Unable to create step for job \S{1,40}: Memory required by task is not available",
            r"error: Memory specification can not be satisfied",
        ),
        cause=(
            "The step or job requests more memory than the allocation or any node has; or another srun of the same "
            "job is still holding all of the memory."
        ),
        remedy=(
            "give each srun a share of the memory (--mem=..., --exact), or use --overlap if steps run side by "
            "side; do not request more memory than `sinfo -o '%n %m'` lists for a node"
        ),
        source="eth-cscs/DLA-Future#337",
    ),
    CatalogueEntry(
        id="mpich-unreached",
        title="MPICH's daemons cannot reach the first node",
        example='HYDU_sock_connect (utils/sock/sock.c:145): unable to connect from "node2" to "node1" (Connection '
        "refused)",
        texts=(
            r"HYDU_sock_connect \([^\n)]{1,200}\): (?:unable to connect from|unable to get host address|connect "
            r"error)",
            r"unable to connect to server \S{1,255} at port \d{1,5} \(check for firewalls!\)",
        ),
        cause=(
            "The mpiexec command of MPICH or Intel MPI starts a proxy on each node, which connects back to the "
            "first node's name on a random port. Either the name is unknown on the node or resolves to a "
            "loopback address, or the port is closed."
        ),
        remedy=(
            "run ansible-playbook site.yml --tags hosts_file, so that each node resolves the first node's name to "
            "its address in the cluster; open all TCP ports between the nodes; choose the network with mpiexec "
            "-iface NAME; run ansible-playbook preflight.yml to test the connections"
        ),
        source="pmodels/mpich#4599",
    ),
    CatalogueEntry(
        id="ucx-no-transport",
        title="UCX cannot find a network that two ranks have in common",
        example="UCX ERROR no active messages transport to <no debug data>: Unsupported operation",
        texts=(r"UCX {1,4}ERROR {1,4}no active messages transport to",),
        cause=(
            "Open MPI uses UCX, but UCX cannot find a transport that both ranks can use: UCX_TLS or UCX_NET_DEVICES "
            "specifies a transport or device that a node does not have, the container hides the network devices, or "
            "the nodes have different adapters."
        ),
        remedy=(
            'use TCP with -e \'{"launch_environment": {"UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "all"}}\', '
            'or do without UCX by setting "OMPI_MCA_pml": "ob1". Run `ucx_info -d` on each node to list its '
            "transports; give a container access to /dev/infiniband"
        ),
        source="openucx/ucx#8440",
    ),
    CatalogueEntry(
        id="input-without-terminal",
        title="The script asks a question",
        example="EOFError: EOF when reading a line",
        texts=(
            r"EOFError: EOF when reading a line",
            r"Do you wish to run the custom code\? \[y/N\]",
        ),
        cause=(
            "input() is waiting for a reply, but the ranks of a run have no terminal. A package is asking for "
            "consent, as transformers does for a model with its own code, or for a login."
        ),
        remedy="provide the reply in the script: from_pretrained(..., trust_remote_code=True) if you trust the model's "
        "code, WANDB_API_KEY or WANDB_MODE=offline for wandb, HF_TOKEN for the Hub; for other programs, look for an "
        "option such as --yes",
        source="chatchat-space/Langchain-Chatchat#3533",
        recoverable=True,
    ),
    CatalogueEntry(
        id="slurm-variables-missing",
        title="The script expects to be started by srun",
        example="KeyError: 'SLURM_PROCID'",
        texts=(r"KeyError: ['\"](?:Required environment variable ['\"])?SLURM_\w{1,40}['\"]",),
        cause=(
            "The script or its framework reads the rank from Slurm's variables, which only tasks started by srun "
            "have, but it was started by another launcher, or by the batch script itself."
        ),
        remedy=(
            "make the script use torchrun's variables: set --launcher pytorch instead of slurm (MMEngine, DeCLIP and "
            "others), use launch_from_torch instead of launch_from_slurm (Colossal-AI), or do not use the "
            "SLURMEnvironment plugin in Lightning's Trainer; or start the script with srun --ntasks-per-node=GPUS "
            "python train.py"
        ),
        source="ModelTC/mqbench-paper#1",
    ),
    CatalogueEntry(
        id="launcher-terminated",
        title="torchrun was told to stop",
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 293812 got signal: 15",
        texts=(
            r"SignalException: Process \d{1,10} got signal: (?:2|10|12|15)\b",
            r"Received (?:2|10|12|15) death signal, shutting down workers",
        ),
        cause=(
            "Something sent torchrun SIGTERM or SIGINT: muster or another launcher, because another node had "
            "failed; a scheduler (time limit, preemption, eviction); a cloud provider's notice; or a person."
        ),
        remedy=(
            "run ansible-playbook logs.yml -e fetch=true to see what ended first; if no node shows an error, the "
            "scheduler's log says why it ended the job (for Slurm, run sacct -j JOB -o State,Reason; for "
            "Kubernetes, run kubectl describe pod)"
        ),
        source="NVIDIA/nvidia-resiliency-ext#18",
        kind="consequence",
        weak=True,
    ),
)

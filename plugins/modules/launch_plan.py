# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: launch_plan
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Plan a run across several nodes
description:
  - Plans a run from nodes, their facts and a job. The plan consists of the rank table, hostfiles, and for each node the
    command, the environment and the files that M(muster.training.training_run) writes there.
  - Runs on the controller, connects to nothing and changes nothing. Only the plan defines the order, addresses and
    numbers of processes.
  - Shows the plan on the terminal. If anything prevents the run, such as a port in use, a script missing on some nodes,
    or a node busy with another run, fails with all findings at once.
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller
  - muster.training._cluster_check
  - muster.training._job
  - muster.training._job.container
  - muster.training._job.container_options
options:
  checkpoints:
    description:
      - Directory or URL of the job's checkpoints. C({run_directory}) and C({run_id}) are replaced. If empty, the
        directory that O(args), or a configuration file in them, names as C(output_dir), C(save_dir), C(dirpath) or
        the like.
    type: str
    default: ""
  resume_args:
    description:
      - Arguments to add to O(args) if there is a checkpoint. C({checkpoint}) is replaced by its path.
    type: list
    elements: str
    default: []
  nodes:
    description:
      - The nodes in rank order, as RV(muster.training.choose_nodes#module:nodes) returns them.
      - Each has C(name) (of its host in the inventory), C(address) (at which the other nodes reach it) and, unless
        O(nproc_per_node) is set, C(slots) (processes to start). Without slots, one process per GPU is started.
      - C(node_rank) sets their order. The module warns if the launcher uses a different one.
    type: list
    elements: dict
    required: true
  facts:
    description:
      - Registered result of M(muster.training.node_facts) for each node, by node name. A node without facts counts as
        unreachable.
    type: dict
    default: {}
  prices:
    description:
      - Cost per hour of each node, by node name, as RV(muster.training.choose_nodes#module:prices) returns it. It is
        stored in the plan, and shown with it if all prices are known.
    type: dict
    default: {}
  currency:
    description: Currency of O(prices).
    type: str
    default: USD
  run_id:
    description:
      - Name of the run, at most 63 letters, digits, C(.), C(_) and C(-), starting with a letter or digit. Each run
        needs a new name.
      - If empty, a name is generated from O(name), the time and four random digits.
    type: str
    default: ""
  name:
    description:
      - Beginning of a generated O(run_id), of at most 40 characters. Characters other than letters, digits, C(.), C(_)
        and C(-)
        are replaced. If empty, the script's name.
    type: str
    default: ""
  debug:
    description:
      - Enable NCCL's debug log (C(NCCL_DEBUG=INFO), in C(nccl.*.log) in the run directory), and torch's flight
        recorder, which dumps the collectives of each rank when one times out (C(flight_recorder_rank_*) there).
    type: bool
    default: false
  module:
    description: Name of a Python module to run instead of a script, as C(python -m) does.
    type: str
    default: ""
  deepspeed_local_rank:
    description:
      - For O(launcher=deepspeed), whether DeepSpeed passes C(--local_rank) to each rank.
      - V(auto) passes it if the script, or a module of the job that it imports, has such an option or cannot be read.
        Other parsers would refuse it.
    type: str
    choices: [auto, "true", "false"]
    default: auto
  pass_environment:
    description:
      - Names and patterns of variables in the controller's environment that are part of O(environment), as
        P(muster.training.own_environment#lookup) accepts them.
      - Fails if a name is not set on the controller.
    type: raw
    default: []
  max_restarts:
    description:
      - Maximum number of restarts of failed ranks by torchrun. Defaults to 0, or to 3 in an elastic run, where each
        lost node consumes one.
    type: int
  restarts:
    description:
      - How often the whole run may restart automatically on the same machines, without the controller, from the newest
        checkpoint that the script loads. Each restart is an attempt.
    type: int
    default: 0
  restart_when:
    description:
      - Classes of an attempt's end after which the run restarts.
      - V(node_lost) is a node that fell silent, V(hardware) a failing GPU, V(interrupted) the announced end of a
        machine, V(hang) a job without progress, V(rank_failed) a rank that was killed, V(deterministic) an error that
        the next attempt would have as well, such as an exception in the script.
    type: list
    elements: str
    choices: [node_lost, hardware, interrupted, hang, rank_failed, deterministic]
    default: [node_lost, hardware, interrupted, hang]
  restart_min_nodes:
    description: Minimum number of nodes for a restart. By default as many as at the start.
    type: int
  restart_wait:
    description:
      - How long a restart waits for new nodes if there are fewer than O(restart_min_nodes), such as V(30m). By default,
        the run ends immediately.
      - The playbook C(keep.yml) adds nodes to a run. Requires O(restarts).
    type: raw
    default: ""
  spares:
    description:
      - Number of nodes, taken from the end, that wait until a node is lost and then take part. Requires O(restarts).
    type: int
    default: 0
  start_timeout:
    description: Timeout until all nodes have checked in and the ranks have found each other, in seconds. At least 5.
    type: int
    default: 120
  silence_timeout:
    description: Seconds of silence after which a node counts as lost. At least 5.
    type: int
    default: 10
  stop_grace:
    description: Seconds between SIGTERM and SIGKILL when a run ends.
    type: int
    default: 5
  records:
    description:
      - Directory of the run records, which is searched for how long the job's last run took to save a checkpoint.
        Defaults to C(runs) beside the inventory.
    type: str
    default: ""
  group:
    description: Inventory group of the nodes.
    type: str
    default: training
  outputs:
    description:
      - Paths or patterns of files that the job writes outside its run directory, for M(muster.training.run_outputs).
        Relative paths are resolved against O(working_directory).
    type: list
    elements: str
    default: []
  metrics:
    description:
      - Regular expressions for metrics in lines that the first rank prints, for M(muster.training.run_report). Each
        named group is a metric; the groups C(step) and C(epoch) are the position of the others.
      - Common formats are recognized without it.
    type: list
    elements: str
    default: []
  stacks:
    description:
      - Let the Python processes of the job offer their stacks, so that a hang can be explained. It takes less than a
        millisecond at the start of each process.
    type: bool
    default: true
  hang_timeout:
    description:
      - Seconds without progress of any rank after which the stacks of all ranks are compared, to report a hang.
        Progress is output, or a written file. Once the job has written output, the timeout is five times its longest
        silence so far, but at least 2 minutes, or this value if it is shorter or O(on_hang=stop).
      - V(0) turns it off.
    type: int
    default: 600
  on_hang:
    description:
      - What to do when the job hangs. V(report) shows for which ranks the others wait, V(stop) ends the run, too.
    type: str
    choices: [report, stop]
    default: report
  numa_binding:
    description:
      - Bind each rank, with the threads and processes that it starts, to the CPUs of its GPU's NUMA node.
      - V(auto) binds them if the job's GPUs span all NUMA nodes of a node, so that no CPU stays unused. V(node) always
        binds them, V(none) never.
      - Ranks are not bound if their number differs from that of the GPUs, if the script starts the ranks itself, if
        they are already bound by another program, or with O(stacks=false). Only Python processes are bound.
    type: str
    choices: [auto, node, none]
    default: auto
  log_limit:
    description:
      - Maximum size of the logs of a run on a node, in GB. Beyond that, the middle of the longest log is removed and
        the job continues. V(0) means no limit.
    type: int
    default: 10
  notice_signal:
    description:
      - Signal that asks the ranks to save when a notice ends the run. Sent only to ranks that have a handler for it. In
        any case, the file that C(MUSTER_NOTICE_FILE) names appears.
    type: str
    choices: [SIGTERM, SIGUSR1, SIGUSR2, none]
    default: SIGTERM
  notice_grace:
    description: Seconds that the ranks have to save and end before they are ended. At least 1.
    type: int
    default: 100
  time_limit:
    description:
      - How long the run may take, in seconds or as V(90m), V(12h) or V(2d). The run is asked to save before that, and
        has then ended. If empty, there is no limit.
    type: raw
    default: ""
  cost_limit:
    description:
      - What the run may cost on all nodes together, in O(currency). Requires O(prices) of all nodes. The run is asked
        to save before that, and has then ended. V(0) means no limit.
    type: float
    default: 0
  stall_limit:
    description:
      - How long a run that was reported as hanging may continue, in seconds or as V(30m), before it is asked to save,
        and is ended. If empty, there is no limit.
    type: raw
    default: ""
  node_exporter_directory:
    description:
      - Directory of the textfile collector of node_exporter, into which each node writes metrics of the run while it is
        active. If empty, none are written.
    type: str
    default: ""
  debug_rank:
    description:
      - Rank that waits at its start for a debugger, which requires the package debugpy in the job's environment. The
        timeouts of collectives are extended to a day, and no hang is reported.
    type: int
  debug_port:
    description: Port on the loopback address of that rank's node on which debugpy listens.
    type: int
    default: 5678
  notify:
    description:
      - URLs to report events of the run to, which are checked here and used by
        O(muster.training.training_run#module:notify). They are secrets, and the plan does not contain them.
      - A list of URLs and of dictionaries with C(url), C(kind) and C(events), or a string with spaces between the URLs.
    type: raw
    default: []
  replace:
    description:
      - Plan the run even if other runs are active on the nodes. Use it with
        O(muster.training.training_run#module:replace), which stops them first.
    type: bool
    default: false
  scheduler:
    description:
      - What starts the run. Some options have no effect on a Slurm job, and are refused.
    type: str
    choices: [ssh, slurm]
    default: ssh
seealso:
  - module: muster.training.check_cluster
  - module: muster.training.choose_nodes
  - module: muster.training.node_facts
  - module: muster.training.training_run
"""

EXAMPLES = r"""
# A complete launch without the role, in a play over the nodes of the run.
# The role muster.training.launch does the same and shows the run.
- name: Choose the nodes
  muster.training.choose_nodes:
    nnodes: 4
  register: chosen
  run_once: true

- name: Read the facts of each node
  muster.training.node_facts:
    address: "{{ chosen.addresses[inventory_hostname] }}"
    ports: [29499, 29500]
    interpreter: /opt/venv/bin/python
    script: train.py
    working_directory: /srv/project
  register: node
  ignore_unreachable: true

- name: Plan the run
  muster.training.launch_plan:
    nodes: "{{ chosen.nodes }}"
    facts_from: node
    nproc_per_node: 8
    interpreter: /opt/venv/bin/python
    script: train.py
    args: [--epochs, "10", --note, "no shell: $HOME stays as it is"]
    working_directory: /srv/project
    environment:
      NCCL_DEBUG: INFO
  register: planned
  run_once: true

- name: Start the run on each node
  muster.training.training_run:
    state: started
    plan: "{{ planned.nodes[inventory_hostname].plan }}"
    environment:
      NCCL_DEBUG: INFO
    token: "{{ token }}"

# An elastic run of a Python module, which continues while two nodes are alive.
- name: Plan an elastic run
  muster.training.launch_plan:
    nodes: "{{ chosen.nodes }}"
    facts_from: node
    nnodes: "2:4"
    module: project.train
    run_id: first-try
  register: planned
  run_once: true
"""

RETURN = r"""
run_id:
  description: Name of the run.
  returned: always
  type: str
  sample: train-20261121-040806-b5e0
findings:
  description:
    - The findings of the checks. On an error, the module fails and the findings appear only on the terminal.
      M(muster.training.check_cluster) returns them, errors included, and writes them to a file.
  returned: success
  type: list
  elements: dict
  contains:
    severity:
      description: V(error), V(warning), or V(note), which is merely informative.
      type: str
      sample: error
    id:
      description: Short name of the check, such as V(busy), V(port-in-use), V(script-missing) or V(unreachable).
      type: str
      sample: port-in-use
    nodes:
      description: Names of the affected nodes.
      type: list
      elements: str
      sample: [node0]
    problem:
      description: What was found.
      type: str
      sample: the rendezvous port 29500 is taken by process 4711 (python3 serve.py)
    requirement:
      description: The expected state.
      type: str
      sample: a free TCP port 29500 on the node of rank 0
    remedy:
      description: The remedy.
      type: str
      sample: kill that process, or choose another port with launch_master_port
nnodes:
  description: Number of nodes.
  returned: success
  type: int
  sample: 2
world_size:
  description: Total number of processes on all nodes.
  returned: success
  type: int
  sample: 16
master:
  description: Name of the rank 0 node.
  returned: success
  type: str
  sample: node0
all_nodes:
  description: The nodes in rank order, and the spare ones after them, with the fields of RV(rank_table).
  returned: success
  type: list
  elements: dict
  sample: [{name: node1, address: 10.0.0.11, slots: 8}]
rank_table:
  description: The nodes in rank order.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the host in the inventory.
      type: str
      sample: node1
    address:
      description: Its address among the nodes.
      type: str
      sample: 10.0.0.11
    slots:
      description: Number of processes to start on it.
      type: int
      sample: 8
    node_rank:
      description: Rank of the node, from 0.
      type: int
      sample: 1
    first_rank:
      description: Global rank of its first process.
      type: int
      sample: 8
origin:
  description: Where the job, its code and requirements are on this machine, for the record.
  returned: success
  type: dict
  sample:
    job_file: /home/me/toy/job.yml
    source: /home/me/toy
    commit: 3f786850e387550fdab836ed7e6dc881de23001b
    dirty: false
    requirements: requirements.txt
    requirements_digest: 9a3a45d01531a20e89ac6ae10b0b0beb0492acd7216a368aa062d1a5fecaf9cd
hostfiles:
  description:
    - The rank table as a hostfile for C(deepspeed), C(openmpi) and C(mpich). A format that cannot express it is
      omitted.
  returned: success
  type: dict
  sample:
    deepspeed: "node0 slots=8\nnode1 slots=8\n"
    openmpi: "node0 slots=8\nnode1 slots=8\n"
    mpich: "node0:8\nnode1:8\n"
nodes:
  description: The part of each node, by node name.
  returned: success
  type: dict
  contains:
    NAME:
      description: The part of one node.
      type: dict
      contains:
        command:
          description: The launcher's command, one argument per item.
          type: list
          elements: str
          sample: [/usr/bin/python3, train.py]
        environment:
          description: Variables that the plan sets, in addition to the user's environment.
          type: dict
          sample: {GLOO_SOCKET_IFNAME: ens5, NCCL_SOCKET_IFNAME: =ens5}
        files:
          description:
            - Names of the files that are written to the run directory before the start, readable only by the run's
              user.
          type: list
          elements: str
          sample: [environment.json, plan.json, supervisor.py, token]
        plan:
          description: The value of O(muster.training.training_run#module:plan). Contains no secrets.
          type: dict
"""

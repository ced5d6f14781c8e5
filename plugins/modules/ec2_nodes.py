# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: ec2_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Make, stop and remove the machines of a cluster at EC2
description:
  - Makes a security group, a placement group, and as many instances as are missing, and waits until all run. What is
    there is left as it is. Surplus is never removed, and no instance is given another type.
  - All or nothing. One request makes the whole set in one subnet; where it is refused, the next zone, the next of
    O(machine_types) and the next market is tried.
  - Nothing is made before all is checked and the price is known to be at most O(max_usd_per_hour).
  - What belongs to a cluster is told by tags that are there from birth (C(muster:cluster), C(muster:made-by),
    C(muster:numbers)), and an instance by its client token and its security group as well. All else is left alone,
    whatever it is called.
  - What is asked for is recorded before the request in C(.muster/clusters/CLUSTER.json), and has a client token that is
    made of this record. Interrupted at any moment and run again, it goes on, and makes nothing twice.
  - With O(own_network) the cluster has a network of its own, which goes with it. Without it, it lies in the default
    network of the region, or in O(subnet_id).
  - The security group is open among the nodes, and to SSH from O(ssh_from) alone.
  - In check mode only requests are sent that read. The plan is exact but for capacity.
  - Was tested against moto behind a server that adds what moto lacks, and never against AWS itself.
notes:
  - Security group, placement group and network are made here and not by modules of C(amazon.aws), since they are part
    of the transaction. They must be recorded before they are made, go again where no machine is to be had, and
    wait for the last machine at the end; and C(amazon.aws.ec2_instance) terminates and retypes running instances where
    counts or types differ.
  - A machine that is switched off from inside is terminated, and its disk with it. Spot machines cannot be stopped.
  - The spot price may rise after the machines are made, up to the price on demand.
  - A machine has one network interface. Types with several network cards, such as V(p4d.24xlarge), use the first alone,
    with EFA as well.
requirements:
  - boto3 in the Python of C(ansible-playbook); with O(own_network) netaddr as well
extends_documentation_fragment:
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller_diff
  - muster.training._cluster_record
  - muster.training._idle_watch
options:
  cluster:
    description:
      - Name of the cluster. A lower-case letter, then up to 30 lower-case letters, digits and hyphens.
    type: str
    required: true
  state:
    description:
      - V(present), all O(nnodes) machines are there and run. Those that are off are started.
      - V(stopped), all machines are off. Their disks go on costing.
      - V(absent), nothing of the cluster is left, which is looked at twice.
    type: str
    choices: [present, stopped, absent]
    default: present
  nnodes:
    description: Number of machines. Needed for O(state=present).
    type: int
    default: 0
  machine_types:
    description:
      - Instance types in the order of preference, for example V([g5.xlarge, g4dn.xlarge]). All machines are of one
        type. Needed for O(state=present).
    type: list
    elements: str
    default: []
  region:
    description: Region. If empty, the one of the environment (E(AWS_DEFAULT_REGION)) or of the profile.
    type: str
    default: ""
  zones:
    description:
      - Zones in the order in which to try them. All machines lie in one.
      - If empty, all that have the type, the cheapest first.
    type: list
    elements: str
    default: []
  market:
    description:
      - V(spot), machines that AWS may take back at two minutes' notice.
      - V(spot-else-on-demand), all types and zones are tried on the spot market, and then on demand.
    type: str
    choices: [on-demand, spot, spot-else-on-demand]
    default: on-demand
  image:
    description:
      - What the disks begin with. Id of an image, or name of a parameter of SSM that holds one.
      - Machines that are added to a cluster have the image that it has, unless an id is given.
    type: str
    default: /aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id
  disk_gb:
    description: Size of each machine's disk in GB, of type gp3. It goes with its machine.
    type: int
    default: 150
  subnet_id:
    description:
      - Id of the subnet, whose machines must reach the internet. If empty, the subnet that the default network of the
        region has in the zone.
    type: str
    default: ""
  own_network:
    description:
      - Whether the cluster is made in a network of its own, a VPC with an internet gateway, a route to it, and a subnet
        in each zone that is tried. O(state=absent) removes it. None of this costs anything.
      - Its addresses are the first private block with a C(/16) that overlaps no network of the region, none that this
        machine is in, and none of those that Docker takes.
      - A cluster that is there is never moved. One that has a network of its own keeps it without this option.
    type: bool
    default: false
  efa:
    description:
      - Whether network interfaces are Elastic Fabric Adapters (EFA), over which NCCL reaches other machines faster.
      - V(auto), of types that have it. V(required), types without it are not taken. V(none), never.
      - The image must have EFA's software, as AWS's Deep Learning AMIs have. Machines that are added to a cluster have
        what it has.
    type: str
    choices: [auto, required, none]
    default: auto
  ssh_public_key:
    description:
      - Public key that is let in as the image's user, or the path of its file. It is given to cloud-init; no key pair
        is made.
    type: str
    default: ""
  key_name:
    description:
      - Name of a key pair that EC2 has in the region. This or O(ssh_public_key) is needed for O(state=present).
    type: str
    default: ""
  ssh_from:
    description:
      - Addresses and networks from which SSH is open, for example V([203.0.113.7, 198.51.100.0/24]).
      - If empty, the address that this machine has on the internet, as U(https://checkip.amazonaws.com) tells it. Where
        that has changed since, the rule of before is taken away.
    type: list
    elements: str
    default: []
  power_off:
    description:
      - Whether machines power themselves off when nobody uses them, from their first boot on, and never during a run.
        That is what the role C(idle_watch) does, which keeps it up to date. No key of AWS is on a machine.
      - A machine that powers itself off is terminated, and its disk with it, so that nothing of it costs any longer.
      - At the first boot cloud-init sets it up. An image without cloud-init, systemd or Python 3 does not watch itself.
    type: bool
    default: false
  max_usd_per_hour:
    description: What the cluster may cost an hour, in US dollars. Needed for O(state=present), except in check mode.
    type: float
  price_per_hour:
    description: What one machine costs an hour, in US dollars, where AWS's price list cannot be read.
    type: float
  on_shortage:
    description: What to do where no way has capacity. V(rollback), end. V(wait), try all ways again each minute.
    type: str
    choices: [rollback, wait]
    default: rollback
  wait_minutes:
    description: Minutes to wait for capacity with O(on_shortage=wait).
    type: float
    default: 20.0
  group_id:
    description: Id of the cluster's security group, where several networks have one of its name.
    type: str
    default: ""
  force:
    description: >-
      description:
        - description: - Whether machines may be stopped or removed while a run may be alive on them, which is one whose
          record in O(runs_directory) has no end.
    type: bool
    default: false
seealso:
  - module: muster.training.ec2_nodes_info
  - module: muster.training.paperspace_cluster
"""

EXAMPLES = r"""
- name: Ensure four machines, on the spot market where it has them
  muster.training.ec2_nodes:
    cluster: bert
    nnodes: 4
    region: us-east-1
    machine_types: [g5.xlarge, g4dn.xlarge]
    market: spot-else-on-demand
    ssh_public_key: ~/.ssh/id_ed25519.pub
    max_usd_per_hour: 5

- name: Ensure two machines in a network of their own
  muster.training.ec2_nodes:
    cluster: gpt
    nnodes: 2
    region: us-east-1
    machine_types: [g5.xlarge]
    own_network: true
    ssh_public_key: ~/.ssh/id_ed25519.pub
    max_usd_per_hour: 3

- name: Remove all of the first cluster
  muster.training.ec2_nodes:
    cluster: bert
    region: us-east-1
    state: absent
"""

RETURN = r"""
cluster:
  description: Name of the cluster.
  returned: success
  type: str
  sample: bert
group:
  description: Id of its security group, empty where there is none.
  returned: success
  type: str
  sample: sg-0123456789abcdef0
nodes:
  description:
    - The machines that are there, with C(name), C(id), C(state) (V(ready), V(coming), V(going), V(off)), C(private_ip),
      C(public_ip) and C(machine_type).
  returned: success
  type: list
  elements: dict
steps:
  description: What was done; in check mode, what would be.
  returned: success
  type: list
  elements: str
  sample: [make security group muster-bert, make placement group muster-bert, make machine bert-0]
cost:
  description:
    - What the cluster costs in US dollars, with C(per_hour), C(per_day), C(disks_per_month) (on or off; V(null) where a
      price is not known), C(unknown) (what has no known price), C(source) and C(date) of the price of an hour, and
      C(disk_source).
  returned: success
  type: dict
left:
  description: What could not be removed, and why.
  returned: success
  type: list
  elements: str
msg:
  description: What is left of the cluster.
  returned: when O(state) is V(stopped) or V(absent)
  type: str
  sample: nothing of bert is left, 0 USD an hour
"""

# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: ec2_nodes
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Create, stop and remove the machines of a cluster on EC2
description:
  - Creates a security group, a placement group and the missing instances, and waits until all are running. Existing
    resources are left unchanged. Surplus instances are never removed, and no instance changes its type.
  - All or nothing. One request creates the whole set in one subnet; if it is refused, the next zone, the next of
    O(machine_types) and the next market are tried.
  - Nothing is created until all checks have passed and the price is known not to exceed O(max_usd_per_hour).
  - Resources of a cluster are identified by tags set at creation (C(muster:cluster), C(muster:made-by),
    C(muster:numbers)), and instances also by their client token and security group. All other resources are left alone,
    whatever their names.
  - Each request is first written to the journal C(.muster/clusters/CLUSTER.json), and has a client token derived from
    it. After an interruption at any point, the next run continues and creates nothing twice.
  - With O(own_network), the cluster has a network of its own, which is removed with it. Otherwise it uses the region's
    default network, or O(subnet_id).
  - The security group allows all traffic between the nodes, and otherwise only SSH from O(ssh_from).
  - In check mode, only read requests are sent. The plan is exact except for capacity.
  - Tested against moto behind a server that adds what moto lacks, never against AWS itself.
notes:
  - Security group, placement group and network are created here rather than by modules of C(amazon.aws), since they are
    part of the transaction. They must be in the journal before they are created, removed again if no machine is
    available, and outlive the last machine; and C(amazon.aws.ec2_instance) terminates and retypes running instances if
    counts or types differ.
  - A machine that is shut down from inside is terminated along with its disk. Spot machines cannot be stopped.
  - The spot price may rise after the machines are created, up to the on-demand price.
  - A machine has one network interface. Types with several network cards, such as V(p4d.24xlarge), use only the first,
    also with EFA.
requirements:
  - boto3 in the Python of C(ansible-playbook); with O(own_network) also netaddr
extends_documentation_fragment:
  - muster.training._attributes.ec2
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller_diff
  - muster.training._cluster_record
  - muster.training._idle_watch
options:
  cluster:
    description:
      - Name of the cluster. A lower-case letter followed by up to 30 lower-case letters, digits and hyphens.
    type: str
    required: true
  state:
    description:
      - V(present) ensures that all O(nnodes) machines exist and are running. Those that are off are started.
      - V(stopped) ensures that all machines are off. Their disks still cost money.
      - V(absent) removes all resources of the cluster, and checks twice that none remain.
    type: str
    choices: [present, stopped, absent]
    default: present
  nnodes:
    description: Number of machines. Required for O(state=present).
    type: int
    default: 0
  machine_types:
    description:
      - Instance types in order of preference, for example V([g5.xlarge, g4dn.xlarge]). All machines have the same type.
        Required for O(state=present).
    type: list
    elements: str
    default: []
  region:
    description: AWS region. If empty, taken from the environment (E(AWS_DEFAULT_REGION)) or the profile.
    type: str
    default: ""
  zones:
    description:
      - Availability zones in the order in which to try them. All machines are in the same zone.
      - If empty, defaults to all zones that offer the type, cheapest first.
    type: list
    elements: str
    default: []
  market:
    description:
      - V(on-demand) requests machines at the regular price. V(spot) requests machines that AWS may reclaim at two
        minutes' notice.
      - V(spot-else-on-demand) tries all types and zones on the spot market, then on demand.
    type: str
    choices: [on-demand, spot, spot-else-on-demand]
    default: on-demand
  image:
    description:
      - Initial content of the disks, as the ID of an image or the name of an SSM parameter that contains one.
      - Machines added to a cluster get the cluster's image, unless an ID is given.
    type: str
    default: /aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id
  disk_gb:
    description: Size of each machine's disk in GB, of type gp3. It is removed with its machine.
    type: int
    default: 150
  subnet_id:
    description:
      - ID of the subnet, from which machines must reach the internet. If empty, defaults to the zone's subnet of the
        region's default network.
    type: str
    default: ""
  own_network:
    description:
      - Create the cluster in a network of its own, a VPC with an internet gateway, a route to it, and a subnet in each
        zone that is tried. O(state=absent) removes it. All of this is free of charge.
      - Its addresses are the first private C(/16) that does not overlap with any network of the region, of the
        controller, or of Docker.
      - An existing cluster is never moved. One with its own network keeps it without this option.
    type: bool
    default: false
  efa:
    description:
      - Use Elastic Fabric Adapters (EFA) as network interfaces, which speed up NCCL between machines.
      - V(auto) uses EFA for types that support it. V(required) excludes types that do not. V(none) never uses it.
      - The image must contain the EFA software, as AWS's Deep Learning AMIs do. Machines added to a cluster use the
        same interfaces as its existing ones.
    type: str
    choices: [auto, required, none]
    default: auto
  ssh_public_key:
    description:
      - Public key authorized for the image's user, or the path of its file. It is passed to cloud-init; no key pair is
        created.
    type: str
    default: ""
  key_name:
    description:
      - Name of an existing EC2 key pair in the region. Either this or O(ssh_public_key) is required for
        O(state=present).
    type: str
    default: ""
  ssh_from:
    description:
      - Addresses and networks from which SSH is allowed, for example V([203.0.113.7, 198.51.100.0/24]).
      - If empty, defaults to the controller's public address as reported by U(https://checkip.amazonaws.com). If that
        has changed, the old rule is removed.
    type: list
    elements: str
    default: []
  power_off:
    description:
      - Let machines power themselves off when nobody uses them, from their first boot on, but never during a run. The
        role C(idle_watch) does the same and keeps it up to date. No AWS key is stored on a machine.
      - A machine that powers itself off is terminated along with its disk, so that it no longer costs anything.
      - cloud-init sets this up at the first boot. On an image without cloud-init, systemd or Python 3, the option has
        no effect.
    type: bool
    default: false
  max_usd_per_hour:
    description:
      - Maximum cost of the cluster per hour, in US dollars. Required for O(state=present), except in check mode.
    type: float
  price_per_hour:
    description: Cost of one machine per hour, in US dollars. Used if AWS's price list cannot be read.
    type: float
  on_shortage:
    description:
      - Reaction to a lack of capacity everywhere. V(rollback) gives up. V(wait) retries everything each minute.
    type: str
    choices: [rollback, wait]
    default: rollback
  wait_minutes:
    description: Minutes to wait for capacity with O(on_shortage=wait).
    type: float
    default: 20.0
  group_id:
    description: ID of the cluster's security group. Required only if several networks have one of that name.
    type: str
    default: ""
  force:
    description: >-
      Stop or remove machines even if a run may still be running on them, that is, if its record in O(runs_directory)
      has no end.
    type: bool
    default: false
seealso:
  - module: muster.training.ec2_nodes_info
  - module: muster.training.paperspace_cluster
"""

EXAMPLES = r"""
- name: Ensure four machines, on the spot market if available
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
  description: ID of its security group. Empty if there is none.
  returned: success
  type: str
  sample: sg-0123456789abcdef0
nodes:
  description:
    - The existing machines, with C(name), C(id), C(state) (V(ready), V(coming), V(going), V(off)), C(private_ip),
      C(public_ip) and C(machine_type).
  returned: success
  type: list
  elements: dict
steps:
  description: The steps that were taken, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [make security group muster-bert, make placement group muster-bert, make machine bert-0]
cost:
  description:
    - What the cluster costs in US dollars, with C(per_hour), C(per_day), C(disks_per_month) (on or off; V(null) if a
      price is not known), C(unknown) (items without a known price), C(source) and C(date) of the hourly price, and
      C(disk_source).
  returned: success
  type: dict
left:
  description: Resources that could not be removed, and the reasons.
  returned: success
  type: list
  elements: str
msg:
  description: Summary of the remaining resources and their cost.
  returned: when O(state) is V(stopped) or V(absent)
  type: str
  sample: nothing of bert is left, 0 USD an hour
"""

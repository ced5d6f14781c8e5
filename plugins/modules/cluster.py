# Copyright (c) 2026, the muster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# All the work is done by the action plugin of the same name.

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster
author: muster contributors (@muster)
version_added: 0.1.0
short_description: Create, stop and remove the machines of a cluster at Paperspace or EC2
description:
  - Creates the cluster's network and the missing machines, and waits until all are ready. Existing resources are left
    unchanged. Surplus machines are never removed, and no machine changes its type.
  - All or nothing. If there is no capacity for one of the machines, the newly created ones are removed again, and the
    next of O(machine_types) is tried; at EC2 also the next zone and market.
  - Nothing is created until all checks have passed and the price is known not to exceed O(max_usd_per_hour).
  - Each request is first written to the journal C(.muster/clusters/CLUSTER.json), and its result is looked up if the
    response is lost. After an interruption at any point, the next run continues and creates nothing twice.
  - In check mode, only read requests are sent. The plan is exact except for capacity.
  - Paperspace has no tags; the private network C(muster-CLUSTER) serves as one. A machine belongs to the cluster if it
    is in this network and is named C(CLUSTER-0), C(CLUSTER-1) and so on.
  - At EC2, resources of a cluster are identified by tags set at creation (C(muster:cluster), C(muster:made-by),
    C(muster:numbers)), and instances also by their client token and security group.
  - All other resources are left alone, whatever their names.
  - Tested against a server that follows Paperspace's API documentation, and against moto behind a server that adds what
    moto lacks, never against Paperspace or AWS itself.
notes:
  - At EC2, security group, placement group and network are created here rather than by modules of C(amazon.aws), since
    they are part of the transaction. They must be in the journal before they are created, removed again if no machine
    is available, and outlive the last machine; and C(amazon.aws.ec2_instance) terminates and retypes running instances
    if counts or types differ.
  - At EC2, a machine that is shut down from inside is terminated along with its disk. Spot machines cannot be stopped,
    and their price may rise after they are created, up to the on-demand price.
  - An EC2 machine has one network interface. Types with several network cards, such as V(p4d.24xlarge), use only the
    first, also with EFA.
requirements:
  - for EC2, boto3 in the Python of C(ansible-playbook); with O(dedicated_network) also netaddr
extends_documentation_fragment:
  - muster.training._attributes.cloud
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.flow
  - ansible.builtin.action_common_attributes.conn
  - muster.training._attributes.controller_diff
  - muster.training._paperspace
  - muster.training._cluster_record
  - muster.training._idle_watch
options:
  provider:
    description: Provider of the machines, V(ec2) or V(paperspace). Others are refused.
    type: str
    required: true
  cluster:
    description:
      - Name of the cluster. A lower-case letter followed by up to 30 lower-case letters, digits and hyphens.
    type: str
    required: true
  state:
    description:
      - V(present) ensures that all O(nnodes) machines exist and are ready. Those that are off are started.
      - V(stopped) ensures that all machines are off. Their disks and static addresses still cost money.
      - V(absent) removes all resources of the cluster, and checks twice that none remain. The drive and its network are
        kept unless O(remove_drive) is set.
    type: str
    choices: [present, stopped, absent]
    default: present
  nnodes:
    description: Number of machines. Required for O(state=present).
    type: int
    default: 0
  machine_types:
    description:
      - Machine types in order of preference, for example V([A6000x2, A5000x2]) at Paperspace or V([g5.xlarge,
        g4dn.xlarge]) at EC2. All machines have the same type. Required for O(state=present).
    type: list
    elements: str
    default: []
  region:
    description:
      - Region of the machines. At Paperspace, V(ny2), V(ca1) or V(ams1), required for O(state=present).
      - At EC2, an AWS region. If empty, taken from the environment (E(AWS_DEFAULT_REGION)) or the profile.
    type: str
    default: ""
  template:
    description:
      - Initial content of the disks.
      - At Paperspace, the ID of a template, the name of one of the team's templates, or part of the name or operating
        system of one of Paperspace's. Of several matches, the newest that supports the machine type is used. If empty,
        defaults to V(ML-in-a-Box).
      - At EC2, the ID of an image or the name of an SSM parameter that contains one. If empty, defaults to AWS's newest
        Deep Learning Base image with Ubuntu 22.04. Machines added to a cluster get the cluster's image, unless an ID is
        given.
    type: str
    default: ""
  disk_gb:
    description:
      - Size of each machine's disk in GB. It is removed with its machine.
      - At Paperspace 50, 100, 250, 500, 1000 or 2000, and 250 if omitted. At EC2 of type gp3, and 150 if omitted.
    type: int
  drive_gb:
    description:
      - Size in GB of a network drive for all machines, at Paperspace. V(0) means none. Its size cannot be changed
        later.
    type: int
    default: 0
  public_ip:
    description:
      - Public addresses of the machines, at Paperspace.
      - V(dynamic) gives a machine a public address while it is on, which changes with each start.
      - V(static) gives it a fixed address, which costs money as long as it is kept. It is released with the machine.
      - V(none) makes machines reachable from their private network only.
    type: str
    choices: [dynamic, static, none]
    default: dynamic
  zones:
    description:
      - Availability zones in the order in which to try them, at EC2. All machines are in the same zone.
      - If empty, defaults to all zones that offer the type, cheapest first.
    type: list
    elements: str
    default: []
  market:
    description:
      - Market of the machines, at EC2. V(on-demand) requests machines at the regular price. V(spot) requests machines
        that AWS may reclaim at two minutes' notice.
      - V(spot-else-on-demand) tries all types and zones on the spot market, then on demand.
    type: str
    choices: [on-demand, spot, spot-else-on-demand]
    default: on-demand
  subnet_id:
    description:
      - ID of the subnet, at EC2, from which machines must reach the internet. If empty, defaults to the zone's subnet
        of the region's default network.
    type: str
    default: ""
  dedicated_network:
    description:
      - At EC2, create the cluster in a network of its own, a VPC with an internet gateway, a route to it, and a subnet
        in each zone that is tried. O(state=absent) removes it. All of this is free of charge.
      - Its addresses are the first private C(/16) that does not overlap with any network of the region, of the
        controller, or of Docker.
      - An existing cluster is never moved. One with its own network keeps it without this option.
    type: bool
    default: false
  efa:
    description:
      - Use Elastic Fabric Adapters (EFA) as network interfaces, at EC2, which speed up NCCL between machines.
      - V(auto) uses EFA for types that support it. V(required) excludes types that do not. V(none) never uses it.
      - V(all) requires EFA on all network cards of the machine type, which types with several cards need for their full
        bandwidth. AWS assigns no public address to machines with several interfaces, so O(subnet_id) must be a subnet
        with a NAT gateway, and the controller must be able to reach its private addresses.
      - The image must contain the EFA software, as AWS's Deep Learning AMIs do. Machines added to a cluster use the
        same interfaces as its existing ones.
    type: str
    choices: [auto, required, all, none]
    default: auto
  ssh_public_key:
    description:
      - Public key authorized for the image's user, C(paperspace) at Paperspace, or the path of its file.
      - Paperspace stores a startup script that contains it. If empty, the keys of the account are authorized, which the
        API does not show.
      - At EC2, it is passed to cloud-init; no key pair is created.
    type: str
    default: ""
  key_name:
    description:
      - Name of an existing EC2 key pair in the region. At EC2, either this or O(ssh_public_key) is required for
        O(state=present).
    type: str
    default: ""
  ssh_from:
    description:
      - Addresses and networks from which SSH is allowed, at EC2, for example V([203.0.113.7, 198.51.100.0/24]). All
        other traffic is allowed only between the nodes.
      - If empty, defaults to the controller's public address as reported by U(https://checkip.amazonaws.com). If that
        has changed, the old rule is removed.
    type: list
    elements: str
    default: []
  power_off:
    description:
      - Let machines power themselves off when nobody uses them, from their first boot on, but never during a run. The
        role C(idle_watch) does the same and keeps it up to date. No API key is stored on a machine.
      - At Paperspace, whether a C(poweroff) inside a machine ends its hourly fee has not been tested. Its disk still
        costs money.
      - At EC2, a machine that powers itself off is terminated along with its disk, so that it no longer costs anything.
        cloud-init sets this up at the first boot. On an image without cloud-init, systemd or Python 3, the option has
        no effect.
    type: bool
    default: false
  max_usd_per_hour:
    description:
      - Maximum cost of the cluster per hour, in US dollars. Required for O(state=present), except in check mode.
    type: float
  price_per_hour:
    description: Cost of one machine per hour, in US dollars. Used if the price of its type is not known.
    type: float
  on_shortage:
    description:
      - Reaction to a lack of capacity for some of the machines. V(rollback) removes those that were created.
      - V(wait) tries again each minute, for O(wait_minutes). Paperspace's machines are kept off in the meantime, so
        that only their disks cost money; at EC2 none exist.
    type: str
    choices: [rollback, wait]
    default: rollback
  wait_minutes:
    description: Minutes to wait for capacity with O(on_shortage=wait).
    type: float
    default: 20.0
  network_id:
    description:
      - ID of the cluster's network, at EC2 of its security group. Required only if several have its name.
    type: str
    default: ""
  remove_drive:
    description: Also remove the network drive and its data with O(state=absent).
    type: bool
    default: false
  remove_templates:
    description:
      - Also remove the templates made from the cluster's machines with O(state=absent). They are always reported.
    type: bool
    default: false
  force:
    description: >-
      Stop or remove machines even if a run may still be running on them, that is, if its record in O(runs_directory)
      has no end.
    type: bool
    default: false
  retries:
    description:
      - Number of retries of a request to Paperspace after a temporary failure. Requests that may have taken effect are
        not repeated.
    type: int
    default: 4
seealso:
  - module: muster.training.cluster_info
  - plugin: muster.training.paperspace
    plugin_type: inventory
"""

EXAMPLES = r"""
- name: Ensure four machines
  muster.training.cluster:
    provider: paperspace
    cluster: bert
    nnodes: 4
    machine_types: [A6000x2, A5000x2]
    region: ny2
    ssh_public_key: ~/.ssh/id_ed25519.pub
    max_usd_per_hour: 16

- name: Stop them over the weekend
  muster.training.cluster:
    provider: paperspace
    cluster: bert
    state: stopped

- name: Ensure two machines at EC2 in a network of their own, on the spot market if available
  muster.training.cluster:
    provider: ec2
    cluster: gpt
    nnodes: 2
    region: us-east-1
    machine_types: [g5.xlarge, g4dn.xlarge]
    market: spot-else-on-demand
    dedicated_network: true
    ssh_public_key: ~/.ssh/id_ed25519.pub
    max_usd_per_hour: 3

- name: Remove all of the first cluster
  muster.training.cluster:
    provider: paperspace
    cluster: bert
    state: absent
"""

RETURN = r"""
cluster:
  description: Name of the cluster.
  returned: success
  type: str
  sample: bert
network:
  description: ID of its network, at EC2 of its security group. Empty if there is none.
  returned: success
  type: str
  sample: nwhoe4ox
nodes:
  description:
    - The existing machines, with C(name), C(id), C(state) (V(ready), V(coming), V(going), V(off)), C(private_ip),
      C(public_ip) and C(machine_type).
  returned: success
  type: list
  elements: dict
drive:
  description: The network drive with C(name), C(id), C(size_gb), C(share) and C(username). V(null) if there is none.
  returned: success
  type: dict
steps:
  description: The steps that were taken, or in check mode would be.
  returned: success
  type: list
  elements: str
  sample: [make network muster-bert, make machine bert-0]
cost:
  description:
    - What the cluster costs in US dollars, with C(per_hour), C(per_day), C(disks_per_month) (on or off; V(null) if a
      price is not known), C(unknown) (items without a known price), C(source) and C(date) of the hourly price, and
      C(disk_source).
  returned: success
  type: dict
not_removed:
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

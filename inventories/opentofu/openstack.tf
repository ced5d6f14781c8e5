# Servers in an OpenStack cloud, in one network. Use it with terraform.yml beside it:
#
#   export OS_CLOUD=...
#   tofu init; tofu apply -var machine_type=FLAVOR -var image=IMAGE -var network=NETWORK -var nodes=4
terraform {
  required_providers {
    openstack = { source = "terraform-provider-openstack/openstack", version = "~> 3.0" }
  }
}

variable "cluster" { default = "bert" }
variable "nodes" { default = 2 }
variable "machine_type" {}
variable "image" {}
# An existing network whose servers you can log in to.
variable "network" {}
variable "public_key" { default = "~/.ssh/id_ed25519.pub" }
# Addresses that may log in, such as "203.0.113.7/32" for your own.
variable "login_from" { default = "0.0.0.0/0" }

resource "openstack_compute_keypair_v2" "login" {
  name       = var.cluster
  public_key = file(pathexpand(var.public_key))
}

resource "openstack_networking_secgroup_v2" "training" {
  name = var.cluster
}

resource "openstack_networking_secgroup_rule_v2" "nodes" {
  direction         = "ingress"
  ethertype         = "IPv4"
  remote_group_id   = openstack_networking_secgroup_v2.training.id
  security_group_id = openstack_networking_secgroup_v2.training.id
}

resource "openstack_networking_secgroup_rule_v2" "login" {
  direction         = "ingress"
  ethertype         = "IPv4"
  protocol          = "tcp"
  port_range_min    = 22
  port_range_max    = 22
  remote_ip_prefix  = var.login_from
  security_group_id = openstack_networking_secgroup_v2.training.id
}

resource "openstack_compute_instance_v2" "node" {
  count           = var.nodes
  name            = "${var.cluster}-${count.index}"
  flavor_name     = var.machine_type
  image_name      = var.image
  key_pair        = openstack_compute_keypair_v2.login.name
  security_groups = [openstack_networking_secgroup_v2.training.name]
  metadata        = { cluster = var.cluster }

  network {
    name = var.network
  }
}

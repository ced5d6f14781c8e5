# Machines at Hetzner Cloud in one private network. Use it with terraform.yml beside it:
#
#   export HCLOUD_TOKEN=...
#   tofu init; tofu apply -var nodes=4
terraform {
  required_providers {
    hcloud = { source = "hetznercloud/hcloud", version = "~> 1.48" }
  }
}

variable "cluster" { default = "bert" }
variable "nodes" { default = 2 }
variable "machine_type" { default = "ccx63" }
variable "image" { default = "ubuntu-24.04" }
variable "location" { default = "fsn1" }
variable "public_key" { default = "~/.ssh/id_ed25519.pub" }

resource "hcloud_ssh_key" "login" {
  name       = var.cluster
  public_key = file(pathexpand(var.public_key))
}

resource "hcloud_network" "training" {
  name     = var.cluster
  ip_range = "10.0.0.0/16"
}

resource "hcloud_network_subnet" "training" {
  network_id   = hcloud_network.training.id
  type         = "cloud"
  network_zone = "eu-central"
  ip_range     = "10.0.1.0/24"
}

resource "hcloud_server" "node" {
  count       = var.nodes
  name        = "${var.cluster}-${count.index}"
  server_type = var.machine_type
  image       = var.image
  location    = var.location
  ssh_keys    = [hcloud_ssh_key.login.id]
  labels      = { cluster = var.cluster }

  network {
    network_id = hcloud_network.training.id
    ip         = "10.0.1.${count.index + 10}"
  }

  depends_on = [hcloud_network_subnet.training]
}

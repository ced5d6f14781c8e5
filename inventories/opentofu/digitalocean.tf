# GPU droplets at DigitalOcean in one VPC. Use it with terraform.yml beside it:
#
#   export DIGITALOCEAN_TOKEN=...
#   tofu init; tofu apply -var nodes=4
terraform {
  required_providers {
    digitalocean = { source = "digitalocean/digitalocean", version = "~> 2.43" }
  }
}

variable "cluster" { default = "bert" }
variable "nodes" { default = 2 }
variable "machine_type" { default = "gpu-h100x8-640gb" }
variable "image" { default = "gpu-h100x8-base" }
variable "region" { default = "nyc2" }
variable "public_key" { default = "~/.ssh/id_ed25519.pub" }

resource "digitalocean_ssh_key" "login" {
  name       = var.cluster
  public_key = file(pathexpand(var.public_key))
}

resource "digitalocean_vpc" "training" {
  name   = var.cluster
  region = var.region
}

resource "digitalocean_droplet" "node" {
  count    = var.nodes
  name     = "${var.cluster}-${count.index}"
  size     = var.machine_type
  image    = var.image
  region   = var.region
  vpc_uuid = digitalocean_vpc.training.id
  ssh_keys = [digitalocean_ssh_key.login.id]
  tags     = [var.cluster]
}

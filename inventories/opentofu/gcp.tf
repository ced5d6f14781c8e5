# GPU instances at Google Cloud in one zone and network. Use it with terraform.yml beside it:
#
#   gcloud auth application-default login
#   tofu init; tofu apply -var project=my-project -var nodes=4
terraform {
  required_providers {
    google = { source = "hashicorp/google", version = "~> 6.0" }
  }
}

variable "project" {}
variable "cluster" { default = "bert" }
variable "nodes" { default = 2 }
variable "machine_type" { default = "a2-highgpu-8g" }
variable "image" { default = "ubuntu-os-cloud/ubuntu-2404-lts-amd64" }
variable "zone" { default = "us-central1-a" }
variable "user" { default = "ubuntu" }
variable "public_key" { default = "~/.ssh/id_ed25519.pub" }
# Addresses that may log in, such as "203.0.113.7/32" for your own.
variable "login_from" { default = ["0.0.0.0/0"] }

provider "google" {
  project = var.project
  zone    = var.zone
  region  = replace(var.zone, "/-[a-z]$/", "")
}

resource "google_compute_network" "training" {
  name = var.cluster
}

resource "google_compute_firewall" "nodes" {
  name        = "${var.cluster}-nodes"
  network     = google_compute_network.training.name
  source_tags = [var.cluster]
  target_tags = [var.cluster]

  allow {
    protocol = "all"
  }
}

resource "google_compute_firewall" "login" {
  name          = "${var.cluster}-login"
  network       = google_compute_network.training.name
  source_ranges = var.login_from
  target_tags   = [var.cluster]

  allow {
    protocol = "tcp"
    ports    = ["22"]
  }
}

resource "google_compute_instance" "node" {
  count        = var.nodes
  name         = "${var.cluster}-${count.index}"
  machine_type = var.machine_type
  tags         = [var.cluster]
  labels       = { cluster = var.cluster }
  metadata     = { ssh-keys = "${var.user}:${file(pathexpand(var.public_key))}" }

  boot_disk {
    initialize_params {
      image = var.image
      size  = 200
    }
  }

  network_interface {
    network = google_compute_network.training.name
    access_config {}
  }

  # GPU machines cannot be migrated.
  scheduling {
    on_host_maintenance = "TERMINATE"
    automatic_restart   = false
  }
}

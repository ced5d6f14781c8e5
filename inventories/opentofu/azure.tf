# GPU virtual machines at Azure in one network. Use it with terraform.yml beside it:
#
#   az login
#   tofu init; tofu apply -var nodes=4
terraform {
  required_providers {
    azurerm = { source = "hashicorp/azurerm", version = "~> 4.0" }
  }
}

provider "azurerm" {
  features {}
}

variable "cluster" { default = "bert" }
variable "nodes" { default = 2 }
variable "machine_type" { default = "Standard_ND96isr_H100_v5" }
variable "location" { default = "eastus" }
variable "user" { default = "azureuser" }
variable "public_key" { default = "~/.ssh/id_rsa.pub" }
# Addresses that may log in, such as "203.0.113.7/32" for your own.
variable "login_from" { default = "*" }

resource "azurerm_resource_group" "training" {
  name     = var.cluster
  location = var.location
}

resource "azurerm_virtual_network" "training" {
  name                = var.cluster
  location            = azurerm_resource_group.training.location
  resource_group_name = azurerm_resource_group.training.name
  address_space       = ["10.0.0.0/16"]
}

resource "azurerm_subnet" "training" {
  name                 = var.cluster
  resource_group_name  = azurerm_resource_group.training.name
  virtual_network_name = azurerm_virtual_network.training.name
  address_prefixes     = ["10.0.1.0/24"]
}

resource "azurerm_network_security_group" "training" {
  name                = var.cluster
  location            = azurerm_resource_group.training.location
  resource_group_name = azurerm_resource_group.training.name

  security_rule {
    name                       = "login"
    priority                   = 100
    direction                  = "Inbound"
    access                     = "Allow"
    protocol                   = "Tcp"
    source_port_range          = "*"
    destination_port_range     = "22"
    source_address_prefix      = var.login_from
    destination_address_prefix = "*"
  }
}

resource "azurerm_subnet_network_security_group_association" "training" {
  subnet_id                 = azurerm_subnet.training.id
  network_security_group_id = azurerm_network_security_group.training.id
}

resource "azurerm_public_ip" "node" {
  count               = var.nodes
  name                = "${var.cluster}-${count.index}"
  location            = azurerm_resource_group.training.location
  resource_group_name = azurerm_resource_group.training.name
  allocation_method   = "Static"
}

resource "azurerm_network_interface" "node" {
  count               = var.nodes
  name                = "${var.cluster}-${count.index}"
  location            = azurerm_resource_group.training.location
  resource_group_name = azurerm_resource_group.training.name

  ip_configuration {
    name                          = "private"
    subnet_id                     = azurerm_subnet.training.id
    private_ip_address_allocation = "Dynamic"
    public_ip_address_id          = azurerm_public_ip.node[count.index].id
  }
}

resource "azurerm_linux_virtual_machine" "node" {
  count                 = var.nodes
  name                  = "${var.cluster}-${count.index}"
  location              = azurerm_resource_group.training.location
  resource_group_name   = azurerm_resource_group.training.name
  size                  = var.machine_type
  admin_username        = var.user
  network_interface_ids = [azurerm_network_interface.node[count.index].id]
  tags                  = { cluster = var.cluster }

  admin_ssh_key {
    username   = var.user
    public_key = file(pathexpand(var.public_key))
  }

  os_disk {
    caching              = "ReadWrite"
    storage_account_type = "Premium_LRS"
    disk_size_gb         = 200
  }

  source_image_reference {
    publisher = "microsoft-dsvm"
    offer     = "ubuntu-hpc"
    sku       = "2204"
    version   = "latest"
  }
}

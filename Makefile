# `make` alone prints the targets. Needs GNU make >= 4 and bash.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# The interpreter that .venv is made of: the first of these that is Python >= 3.11. Another one: make demo PYTHON=/path/to/python3
PYTHON ?=
# Further arguments of pip, e.g. an index with CPU builds of torch: make demo PIP_TORCH_ARGS="--extra-index-url URL"
PIP_TORCH_ARGS ?=
# make lab-up N=8
N ?= 4
# make molecule SCENARIO=default; without it all scenarios
SCENARIO ?=
# Name of molecule's test hosts; another one lets two runs stand side by side: make molecule LAB=second
LAB ?= molecule
NAMED = $(if $(filter-out file default undefined,$(origin LAB)),--name $(LAB))
# make demo ARGS="-e run_id=first": handed to ansible-playbook
ARGS ?=
# make unit PYTEST_ARGS="-k rank_table"
PYTEST_ARGS ?=
# More than cores: processes of pytest, and scenarios at once. They wait for processes, ports, packages and time-outs. With
# more, and with unit tests beside scenarios, all takes longer: what waits asks more often, and cores are full as it is.
PROCESSES ?= $(shell expr $$(nproc) + 2)
AT_ONCE ?= $(shell expr $$(nproc) + 1)
# make bench BENCH_ARGS="launch --rounds 9": which ones (launch, preflight, ...), and arguments for launch
BENCH_ARGS ?=

# That of Debian takes half as long again.
PIP := pip==26.3

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
MADE := $(VENV)/.made
RUN_READY := $(VENV)/.run-ready
TEST_READY := $(VENV)/.test-ready
# The newest ansible-core, for Pythons that .venv need not have.
NEWEST := build/newest
NEWEST_READY := $(NEWEST)/.ready
# What looks whether a page can be used by everybody; a test has it look at reports. It has no dependencies.
AXE_CORE := 4.14.1
AXE := build/axe-$(AXE_CORE)/node_modules/axe-core/axe.min.js
# What an example requires beside accelerate, without that and torch, which .venv has; the rows of make test-all run it.
TRANSFORMERS := build/transformers-5.24.0
TRANSFORMERS_NEEDS := transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 regex==2026.11.19
# Sphinx and its theme, for make docs.
DOCS_VENV := build/docs-venv
DOCS_READY := $(DOCS_VENV)/.ready
# A tree in which type checkers find the checkout under its import name.
TREE := build/tree/ansible_collections/muster/training
# Without bytecode: Python makes that of what it imports, and most of this is never imported. Where it may not, each start
# of ansible-playbook takes 0.3 s more of a core, and each of torch 1 s.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL = -m pip install --no-compile --quiet --disable-pip-version-check

# The targets of `make test` run one after the other, also with -j; what runs side by side says so.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Set-up -----------------------------------------------------------------------------------------------------------

$(MADE):
	@tests/make_venv "$(VENV)" "$(PYTHON)"
	@touch $@

$(RUN_READY): requirements.txt $(MADE)
	@echo "Installing requirements.txt into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) $(PIP)
	@$(BIN)/python $(PIP_INSTALL) --requirement requirements.txt $(PIP_TORCH_ARGS)
	@touch $@

$(TEST_READY): requirements-test.txt $(RUN_READY)
	@echo "Installing requirements-test.txt into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) --requirement requirements-test.txt $(PIP_TORCH_ARGS)
	@touch $@

$(NEWEST_READY): tests/requirements-newest.txt
	@python=$$(tests/newest_python); echo "Making $(NEWEST) with $$python"; "$$python" -m venv --clear $(NEWEST)
	@$(NEWEST)/bin/python $(PIP_INSTALL) --requirement tests/requirements-newest.txt
	@touch $@

$(AXE):
	@if command -v npm >/dev/null; then \
	  echo "Installing axe-core $(AXE_CORE) into build"; \
	  npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix build/axe-$(AXE_CORE) axe-core@$(AXE_CORE); \
	else \
	  echo "axe-core: not run: it is installed by npm, and none was found"; \
	fi

$(TRANSFORMERS)/.ready: $(TEST_READY)
	@echo "Installing $(notdir $(TRANSFORMERS)) into build"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(@D) $(TRANSFORMERS_NEEDS)
	@touch $@

$(DOCS_READY): tests/requirements-docs.txt $(MADE)
	@echo "Making $(DOCS_VENV)"; $(BIN)/python -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python $(PIP_INSTALL) --requirement tests/requirements-docs.txt
	@touch $@

.PHONY: venv
venv: $(TEST_READY) ## Make .venv with all that demo, lint and tests need

.PHONY: system-packages
system-packages: ## Install what the test hosts need (as root on Debian or Ubuntu), or say what to install
	@tests/system_packages

.PHONY: clean
clean: ## Remove test hosts, .venv and build
	@if [ -x $(BIN)/python ] && [ -d build/lab ]; then $(BIN)/python -m tests.lab down; fi
	rm -rf $(VENV) build

# --- Use --------------------------------------------------------------------------------------------------------------

.PHONY: demo
demo: $(RUN_READY) ## Train on this machine: two nodes of two ranks each, CPU only
	@$(BIN)/ansible-playbook playbooks/launch.yml -i inventories/local.yml \
	  -e nnodes=2 -e nproc_per_node=2 -e launch_script=$(CURDIR)/examples/ddp/train_ddp.py $(ARGS)

.PHONY: lab-up
lab-up: system-packages $(RUN_READY) ## Start N test hosts on this machine; inventory in build/lab/inventory.yml
	@$(BIN)/python -m tests.lab up --nodes $(N) $(NAMED)

.PHONY: lab-down
lab-down: $(RUN_READY) ## Remove the test hosts and all that came with them
	@$(BIN)/python -m tests.lab down $(NAMED)

.PHONY: bench
bench: system-packages $(TEST_READY) ## Measure against mpirun, deepspeed and parallel ssh; writes docs/benchmarks.md
	@$(BIN)/python -m tests.bench $(BENCH_ARGS)

.PHONY: pages
pages: $(TEST_READY) $(TREE) ## Write the pages of docs/ that are made of the code
	@PYTHONPATH=build/tree $(BIN)/python -m tests.make_pages

.PHONY: pictures
pictures: $(TEST_READY) ## Record what commands print, as root, and draw it anew in docs/pictures
	@$(BIN)/python -m tests.make_pictures record

# Warnings are errors, nothing is fetched, and the site loads nothing from elsewhere.
.PHONY: docs
docs: $(TEST_READY) $(DOCS_READY) $(TREE) ## Make the documentation site in build/docs, and look that it stands alone
	@rm -rf build/site; mkdir -p -m 755 build/site/reference
	@PATH=$(BIN):$$PATH ANSIBLE_COLLECTIONS_PATH=build/tree $(BIN)/antsibull-docs collection --use-current --squash-hierarchy \
	  --fail-on-error --dest-dir build/site/reference muster.training
	@$(BIN)/python -m tests.make_site build/site/reference build/site/tree
	@$(DOCS_VENV)/bin/sphinx-build --builder html --fail-on-warning --keep-going --quiet --jobs auto \
	  --doctree-dir build/site/doctrees build/site/tree build/docs
	@$(BIN)/python -m pytest --quiet tests/site
	@echo "The site: build/docs/index.html"

# --- Tests ------------------------------------------------------------------------------------------------------------

.PHONY: test
test: system-packages environments lint-units-and-sanity molecule ## Everything: lint, unit tests, sanity, molecule on test hosts

.PHONY: test-all
test-all: export ROWS := all
test-all: test docs ## The same with the rows that are marked `thorough`, and the documentation site: before a release, or after work on what they test

.PHONY: environments
environments: # both at once: pip keeps one core busy
	@$(MAKE) --no-print-directory --jobs SIDE_BY_SIDE=yes $(TEST_READY) $$(tests/newest_python >/dev/null && echo $(NEWEST_READY))

# What fails most often comes first, and takes the least time.
.PHONY: lint-and-pylint
lint-and-pylint: $(TEST_READY) $(TREE)
	@$(MAKE) --no-print-directory --jobs --output-sync SIDE_BY_SIDE=yes lint-python lint-ansible lint-docs sanity-pylint

.PHONY: lint
lint: $(TEST_READY) $(TREE) ## All of lint; make -k lint goes on after the first that fails
	@$(MAKE) --no-print-directory --jobs --output-sync SIDE_BY_SIDE=yes lint-python lint-ansible lint-docs

.PHONY: lint-python
lint-python: $(TEST_READY) $(TREE) ## ruff, mypy
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	cd build/tree && MYPYPATH=.:$(CURDIR) $(BIN)/mypy --config-file $(CURDIR)/pyproject.toml $(addprefix ansible_collections/muster/training/,plugins tests examples molecule roles)

# The plays of molecule/ are run, which finds out most of what there is to find.
.PHONY: lint-ansible
lint-ansible: $(TEST_READY) ## yamllint, ansible-lint
	$(BIN)/yamllint --strict .
	PATH=$(BIN):$$PATH $(BIN)/ansible-lint $(if $(filter all,$(ROWS)),,--exclude molecule)

.PHONY: lint-docs
lint-docs: $(TEST_READY) ## antsibull-docs, antsibull-changelog
	PATH=$(BIN):$$PATH $(BIN)/antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=dependent \
	  --disallow-unknown-collection-refs --check-extra-docs-refs .
	PATH=$(BIN):$$PATH $(BIN)/antsibull-changelog lint

$(TREE):
	@mkdir -p $(@D)
	@ln -sfn $(CURDIR) $@

.PHONY: house
house: $(TEST_READY) ## The measures of the code: the longest classes, functions and files, import circles
	$(BIN)/python -m tests.house

.PHONY: changelog
changelog: $(TEST_READY) ## Enter changelogs/fragments and new plugins under the version of galaxy.yml
	PATH=$(BIN):$$PATH $(BIN)/antsibull-changelog release --update-existing --reload-plugins --refresh-plugins

.PHONY: unit
unit: $(TEST_READY) $(AXE) $(if $(filter all,$(ROWS)),$(TRANSFORMERS)/.ready) ## Unit tests; ROWS=all: those marked `thorough`, too
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal $(if $(filter all,$(ROWS)),,-m "not thorough") $(PYTEST_ARGS)

# mypy takes one core at the end of lint, and unit tests wait at times: the rest of sanity has what they leave. Unit tests of
# the two cores take the same ports: not side by side.
.PHONY: lint-units-and-sanity lint-then-units
lint-units-and-sanity: $(TEST_READY)
	@$(MAKE) --no-print-directory --jobs SIDE_BY_SIDE=yes lint-then-units sanity-others
lint-then-units:
	@$(MAKE) --no-print-directory SIDE_BY_SIDE= lint-and-pylint unit unit-newest

# Without what does not know of ansible-core: other programs that judge our output, what runs on the nodes by itself, what
# needs other collections, and what is marked one_core.
.PHONY: unit-newest
unit-newest: WITHOUT := $(addprefix --ignore=tests/unit/,oracles roles plugins/module_utils inventories test_examples.py test_pictures.py \
  $(addprefix plugins/plugin_utils/,checks cluster experiments failures plan report software/test_driver.py text) \
  plugins/plugin_utils/clouds/paperspace $(addsuffix _server.py,test_ec2 test_hub test_paperspace))
unit-newest: ## Unit tests on the newest ansible-core, where a Python is found that runs it
	@if tests/newest_python >/dev/null; then \
	  $(MAKE) --no-print-directory $(NEWEST_READY); \
	  $(NEWEST)/bin/python -m pytest --numprocesses $(PROCESSES) --dist worksteal -m "not one_core and not thorough" $(WITHOUT) $(PYTEST_ARGS); \
	else \
	  echo "unit-newest: not run: $$(grep ansible-core= tests/requirements-newest.txt) needs Python 3.12 or 3.13, and none was found"; \
	fi

.PHONY: sanity sanity-pylint sanity-others
sanity: sanity-pylint sanity-others ## ansible-test sanity; of the newest ansible-core, where a Python is found that runs it, what differs by it

sanity-pylint: $(TEST_READY)
	@$(BIN)/python tests/sanity.py pylint $(VENV)

sanity-others: $(TEST_READY)
	@newest=; if tests/newest_python >/dev/null; then \
	  $(MAKE) --no-print-directory $(NEWEST_READY); newest=$(NEWEST); \
	else \
	  echo "sanity: not run with $$(grep ansible-core= tests/requirements-newest.txt): it needs Python 3.12 or 3.13, and none was found"; \
	fi; \
	nice $(BIN)/python tests/sanity.py others $(VENV) $$newest

.PHONY: molecule
molecule: system-packages $(TEST_READY) ## Molecule on test hosts: all scenarios, or SCENARIO=... with every row
ifdef SCENARIO
	PATH=$(BIN):$$PATH tests/molecule $(SCENARIO) $(LAB)
else
	@$(MAKE) --no-print-directory --keep-going --jobs $(AT_ONCE) SIDE_BY_SIDE=yes $$(tests/molecule --list | sed 's/[^ ]*/molecule-&/g')
endif

# Those that last come first: who is free takes the next.
molecule-%:
	@PATH=$(BIN):$$PATH $(if $(filter all,$(ROWS)),,PYTEST_ADDOPTS="-m 'not thorough' $${PYTEST_ADDOPTS:-}") \
	  tests/named $* tests/molecule $*

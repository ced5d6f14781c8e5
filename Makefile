# `make` alone prints the targets. Needs GNU make >= 4 and bash.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# Interpreter for .venv; by default, the first Python >= 3.11 in PATH. To choose another one: make demo PYTHON=/path/to/python3
PYTHON ?=
# Extra arguments for pip, such as an index with CPU builds of torch: make demo PIP_TORCH_ARGS="--extra-index-url URL"
PIP_TORCH_ARGS ?=
# make lab-up N=8
N ?= 4
# make molecule SCENARIO=default; all scenarios if empty
SCENARIO ?=
# Name of molecule's test hosts. A different name allows a second run at the same time: make molecule LAB=second
LAB ?= molecule
LAB_NAME_OPTION = $(if $(filter-out file default undefined,$(origin LAB)),--name $(LAB))
# Extra arguments for ansible-playbook: make demo ARGS="-e run_id=first"
ARGS ?=
# Extra arguments for pytest: make unit PYTEST_ARGS="-k rank_table"
PYTEST_ARGS ?=
# Number of pytest processes and of concurrent scenarios. Both exceed the number of cores because tests wait for processes, ports,
# packages and timeouts. Higher values, or unit tests alongside scenarios, take longer: waiting tests poll, and the cores are busy.
PROCESSES ?= $(shell expr $$(nproc) + 2)
SCENARIO_JOBS ?= $(shell expr $$(nproc) + 1)
# Benchmarks to run (launch, preflight, ...), and arguments for launch: make bench BENCH_ARGS="launch --rounds 9"
BENCH_ARGS ?=

# Pinned because Debian's pip takes 1.5 times as long.
PIP := pip==26.3

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
VENV_READY := $(VENV)/.made
RUN_READY := $(VENV)/.run-ready
TEST_READY := $(VENV)/.test-ready
# The newest ansible-core, which may need a different Python than .venv.
NEWEST_VENV := build/newest
NEWEST_READY := $(NEWEST_VENV)/.ready
# Accessibility checker for report pages; it has no dependencies.
AXE_CORE := 4.14.1
AXE := build/axe-$(AXE_CORE)/node_modules/axe-core/axe.min.js
# Prometheus's checker of metrics, without the server that its package would start.
PROMTOOL := build/promtool/usr/bin/promtool
# Requirements of an example, except accelerate and torch, which are in .venv. Only `thorough` tests use them (make test-all).
TRANSFORMERS := build/transformers-5.24.0
TRANSFORMERS_REQUIREMENTS := transformers==5.24.0 tokenizers==0.23.3 safetensors==0.8.0 regex==2026.11.19
# Sphinx and its theme, for make docs.
DOCS_VENV := build/docs-venv
DOCS_READY := $(DOCS_VENV)/.ready
# galaxy-importer and ansible-builder, which check the package as Galaxy does.
GALAXY_VENV := build/galaxy-venv
GALAXY_READY := $(GALAXY_VENV)/.ready
# A directory tree with the checkout under its import name, for type checkers.
IMPORT_TREE := build/tree/ansible_collections/muster/training
# pip does not compile bytecode: Python compiles the modules that it imports, and most are never imported. If Python cannot write
# bytecode, each start of ansible-playbook takes 0.3 s more CPU time, and each import of torch takes 1 s more.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL = -m pip install --no-compile --quiet --disable-pip-version-check
# In CI, Python searches for unreachable cycles less often: with its default thresholds, that takes a tenth of the CPU time of
# ansible-playbook and pytest. It does not search everything again when it exits, which takes 0.17 s of each ansible-playbook.
# Call as: $(call FEWER_COLLECTIONS,VENV)
FEWER_COLLECTIONS = echo 'import atexit, gc, os; "CI" in os.environ and (gc.set_threshold(100_000, 50, 1_000), atexit.register(gc.freeze))' \
  >"$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/fewer_collections.pth"

# The targets of `make test` run one after another, even with -j. CONCURRENT is set for targets that run concurrently.
ifndef CONCURRENT
.NOTPARALLEL:
endif

.PHONY: help
help: ## Print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- Setup ------------------------------------------------------------------------------------------------------------

$(VENV_READY):
	@tests/make_venv "$(VENV)" "$(PYTHON)"
	@touch $@

$(RUN_READY): requirements.txt $(VENV_READY)
	@echo "Installing requirements.txt into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) $(PIP)
	@$(BIN)/python $(PIP_INSTALL) --requirement requirements.txt $(PIP_TORCH_ARGS)
	@touch $@

$(TEST_READY): requirements-test.txt $(RUN_READY)
	@echo "Installing requirements-test.txt into $(VENV)"
	@$(BIN)/python $(PIP_INSTALL) --requirement requirements-test.txt $(PIP_TORCH_ARGS)
	@$(call FEWER_COLLECTIONS,$(VENV))
	@touch $@

$(NEWEST_READY): tests/requirements-newest.txt
	@python=$$(tests/newest_python); echo "Creating $(NEWEST_VENV) with $$python"; "$$python" -m venv --clear $(NEWEST_VENV)
	@$(NEWEST_VENV)/bin/python $(PIP_INSTALL) --requirement tests/requirements-newest.txt
	@$(call FEWER_COLLECTIONS,$(NEWEST_VENV))
	@touch $@

$(AXE):
	@if command -v npm >/dev/null; then \
	  echo "Installing axe-core $(AXE_CORE) into build"; \
	  npm install --silent --no-save --no-package-lock --no-audit --no-fund --prefix build/axe-$(AXE_CORE) axe-core@$(AXE_CORE); \
	else \
	  echo "axe-core: not run: npm, which installs it, is missing"; \
	fi

$(PROMTOOL):
	@if command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null; then \
	  echo "Extracting promtool into build"; \
	  mkdir -p build/promtool; cd build/promtool; \
	  apt-get download --quiet=2 prometheus && dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb \
	    || echo "promtool: not run: its package cannot be fetched (sudo apt-get update may help)"; \
	else \
	  echo "promtool: not run: apt-get, which fetches it, is missing"; \
	fi

$(TRANSFORMERS)/.ready: $(TEST_READY)
	@echo "Installing $(notdir $(TRANSFORMERS)) into build"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(@D) $(TRANSFORMERS_REQUIREMENTS)
	@touch $@

$(DOCS_READY): tests/requirements-docs.txt $(VENV_READY)
	@echo "Creating $(DOCS_VENV)"; $(BIN)/python -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python $(PIP_INSTALL) --requirement tests/requirements-docs.txt
	@touch $@

$(GALAXY_READY): tests/requirements-galaxy.txt $(VENV_READY)
	@echo "Creating $(GALAXY_VENV)"; $(BIN)/python -m venv --clear $(GALAXY_VENV)
	@$(GALAXY_VENV)/bin/python $(PIP_INSTALL) --requirement tests/requirements-galaxy.txt
	@touch $@

.PHONY: venv
venv: $(TEST_READY) ## Create .venv with everything that demo, lint and tests need

.PHONY: system-packages
system-packages: ## Install the packages that test hosts need (as root on Debian or Ubuntu), or list them
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
	@$(BIN)/python -m tests.lab up --nodes $(N) $(LAB_NAME_OPTION)

.PHONY: lab-down
lab-down: $(RUN_READY) ## Remove the test hosts and everything created with them
	@$(BIN)/python -m tests.lab down $(LAB_NAME_OPTION)

.PHONY: bench
bench: system-packages $(TEST_READY) ## Benchmark against mpirun, deepspeed and parallel ssh; writes docs/benchmarks.md
	@$(BIN)/python -m tests.bench $(BENCH_ARGS)

# make explain CASES=cases.json EXPLAIN_ARGS="--launch --verbose"
CASES ?=
EXPLAIN_ARGS ?=
.PHONY: explain
explain: $(TEST_READY) $(IMPORT_TREE) ## Measure how well failed runs are explained, on a file of real failures: CASES=FILE
	@$(if $(CASES),,$(error set CASES to a JSON file of failures: see tests/explain/cases.py))
	@PYTHONPATH=build/tree $(BIN)/python -m tests.explain $(CASES) $(EXPLAIN_ARGS)

.PHONY: pages
pages: $(TEST_READY) $(IMPORT_TREE) ## Write the pages in docs/ that are generated from the code
	@PYTHONPATH=build/tree $(BIN)/python -m tests.make_pages

.PHONY: pictures
pictures: $(TEST_READY) $(IMPORT_TREE) ## Record the output of commands, as root, and redraw docs/pictures
	@$(BIN)/python -m tests.make_pictures record
	@PYTHONPATH=build/tree $(BIN)/python -m tests.make_page_pictures

# Warnings are errors, nothing is downloaded, and the site loads no external resources.
.PHONY: docs
docs: $(TEST_READY) $(DOCS_READY) $(IMPORT_TREE) ## Build the documentation site in build/docs, and check that it is self-contained
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
test-all: test docs ## make test, plus tests marked `thorough` and the documentation site: before a release, or after a change to the code that they test

.PHONY: environments
environments: # concurrently: each pip keeps one core busy
	@$(MAKE) --no-print-directory --jobs CONCURRENT=yes $(TEST_READY) $(GALAXY_READY) $$(tests/newest_python >/dev/null && echo $(NEWEST_READY))

# first, because it fails most often and takes the least time
.PHONY: lint-and-pylint
lint-and-pylint: $(TEST_READY) $(GALAXY_READY) $(IMPORT_TREE)
	@$(MAKE) --no-print-directory --jobs --output-sync CONCURRENT=yes lint-python lint-ansible lint-docs lint-galaxy sanity-pylint \
	  compiled-tests

# pytest rewrites the assertions of each file, which takes as long as all else that it does before the first test. Its processes would otherwise
# do so at the same time, each for all files.
.PHONY: compiled-tests
compiled-tests: $(TEST_READY)
	@errors=$$($(BIN)/python -m pytest --collect-only --quiet --quiet 2>&1) || { echo "$$errors"; exit 1; }

.PHONY: lint
lint: $(TEST_READY) $(GALAXY_READY) $(IMPORT_TREE) ## All linters; make -k lint continues after a failure
	@$(MAKE) --no-print-directory --jobs --output-sync CONCURRENT=yes lint-python lint-ansible lint-docs lint-galaxy

.PHONY: lint-python
lint-python: $(TEST_READY) $(IMPORT_TREE) ## ruff, mypy
	$(BIN)/python -m tests.commit_subjects
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	cd build/tree && MYPYPATH=.:$(CURDIR) $(BIN)/mypy --config-file $(CURDIR)/pyproject.toml $(addprefix ansible_collections/muster/training/,plugins tests examples extensions roles)

# make test does not lint the plays in extensions/molecule/, since running them finds most errors.
.PHONY: lint-ansible
lint-ansible: $(TEST_READY) ## yamllint, ansible-lint
	$(BIN)/yamllint --strict .
	PATH=$(BIN):$$PATH $(BIN)/ansible-lint $(if $(filter all,$(ROWS)),,--exclude extensions)

.PHONY: lint-docs
lint-docs: $(TEST_READY) ## antsibull-docs, antsibull-changelog, licenses
	PATH=$(BIN):$$PATH $(BIN)/antsibull-docs lint-collection-docs --plugin-docs --skip-rstcheck --validate-collection-refs=dependent \
	  --disallow-unknown-collection-refs --check-extra-docs-refs .
	PATH=$(BIN):$$PATH $(BIN)/antsibull-changelog lint
	$(BIN)/reuse lint --quiet

.PHONY: lint-galaxy
lint-galaxy: $(VENV_READY) $(GALAXY_READY) ## Build the package and check it with galaxy-importer and ansible-builder
	$(BIN)/python -m tests.galaxy $(GALAXY_VENV)

$(IMPORT_TREE):
	@mkdir -p $(@D)
	@ln -sfn $(CURDIR) $@

.PHONY: house
house: $(TEST_READY) ## Code metrics: the longest classes, functions and files, import cycles
	$(BIN)/python -m tests.house

.PHONY: changelog
changelog: $(TEST_READY) ## Add changelogs/fragments and new plugins to the version in galaxy.yml
	PATH=$(BIN):$$PATH $(BIN)/antsibull-changelog release --update-existing --reload-plugins --refresh-plugins

.PHONY: unit
unit: $(TEST_READY) $(AXE) $(PROMTOOL) $(if $(filter all,$(ROWS)),$(TRANSFORMERS)/.ready) ## Unit tests; with ROWS=all also those marked `thorough`
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist worksteal $(if $(filter all,$(ROWS)),,-m "not thorough") $(PYTEST_ARGS)

# The rest of sanity uses the CPU time left by lint, whose mypy occupies only one core at the end, and by unit tests, which sometimes wait.
# The unit tests of the two ansible-core versions use the same ports, so they run one after another.
.PHONY: lint-units-and-sanity lint-then-units
lint-units-and-sanity: $(TEST_READY)
	@$(MAKE) --no-print-directory --jobs CONCURRENT=yes lint-then-units sanity-others
lint-then-units:
	@$(MAKE) --no-print-directory CONCURRENT= lint-and-pylint unit unit-newest

# Skips tests that do not depend on the ansible-core version (oracles, programs on nodes, code that uses nothing from Ansible except
# its errors, tests marked one_core), and tests that need other collections. Each process imports all tests, which takes longer than the
# few that run, so there is no more than one for each core.
.PHONY: unit-newest
unit-newest: IGNORED := $(addprefix --ignore=tests/unit/,oracles roles plugins/module_utils inventories \
  $(addprefix plugins/plugin_utils/,checks cluster clouds experiments failures keep page plan profile project record report s3 \
    script_check slurm software text) \
  $(addprefix test_,$(addsuffix .py,examples explain interrupted_commands make_venv pictures ec2_server hub_server paperspace_server)))
unit-newest: ## Unit tests with the newest ansible-core, if a suitable Python is installed
	@if tests/newest_python >/dev/null; then \
	  $(MAKE) --no-print-directory $(NEWEST_READY); \
	  $(NEWEST_VENV)/bin/python -m pytest --numprocesses $$(nproc) --dist worksteal -m "not one_core and not thorough" $(IGNORED) $(PYTEST_ARGS); \
	else \
	  echo "unit-newest: not run: $$(grep ansible-core= tests/requirements-newest.txt) needs Python 3.12 or 3.13, which is missing"; \
	fi

.PHONY: sanity sanity-pylint sanity-others
sanity: sanity-pylint sanity-others ## ansible-test sanity; tests that depend on the ansible-core version also with the newest, if a suitable Python is installed

sanity-pylint: $(TEST_READY)
	@$(BIN)/python tests/sanity.py pylint $(VENV)

sanity-others: $(TEST_READY)
	@newest=; if tests/newest_python >/dev/null; then \
	  $(MAKE) --no-print-directory $(NEWEST_READY); newest=$(NEWEST_VENV); \
	else \
	  echo "sanity: not run with $$(grep ansible-core= tests/requirements-newest.txt): it needs Python 3.12 or 3.13, which is missing"; \
	fi; \
	nice $(BIN)/python tests/sanity.py others $(VENV) $$newest

.PHONY: molecule
molecule: system-packages $(TEST_READY) ## Molecule on test hosts: all scenarios, or one with all its tests: SCENARIO=...
ifdef SCENARIO
	PATH=$(BIN):$$PATH tests/molecule $(SCENARIO) $(LAB)
else
	@$(MAKE) --no-print-directory --keep-going --jobs $(SCENARIO_JOBS) CONCURRENT=yes $$(tests/molecule --list | sed 's/[^ ]*/molecule-&/g')
endif

# `tests/molecule --list` puts the longest scenarios first; a free job takes the next one.
molecule-%:
	@PATH=$(BIN):$$PATH $(if $(filter all,$(ROWS)),,PYTEST_ADDOPTS="-m 'not thorough' $${PYTEST_ADDOPTS:-}") \
	  tests/named $* tests/molecule $*

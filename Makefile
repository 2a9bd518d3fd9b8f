# Every target makes what it needs, from nothing: a Python >= 3.11 is enough. Works with GNU make 3.81.
# A virtual environment is made anew when its lock file changes; the project is installed again when pyproject.toml does.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:

PYTHONS ?= python3.13 python3.12 python3.11 python3
BIN := .venv/bin
PIP_QUIET := -qq --disable-pip-version-check --no-input
PYTEST_ARGS ?=
SEED ?= 7
PEERS ?= ../shared/peers
PEERS_ARGS ?=
COST_ARGS ?=
LEASES ?= 300
KILLS ?= 50
KILL_SEED ?= 1

# Only the folders that exist are given to mypy: it refuses a missing one.
TYPED := layers/core/python/gpulease cli/gpulease_cli local/gpulease_local simulator/gpulease_sim tests \
         $(wildcard functions) $(wildcard bench)

# An environment is stale too when its interpreter is gone or the checkout was moved (its scripts hold full paths).
stale = $(shell [ -x $(1)/bin/python ] && [ "`cat $(1)/.locked 2>/dev/null`" = "`pwd -P`" ] || echo FORCE)

# A command that merely exists is not enough (a version manager's stand-in may refuse to run, a system Python may lack
# venv), so each is tried by running it.
define make_venv
	@set -e; found=; \
	for candidate in $(PYTHONS); do \
	  if "$$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; \
	  then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "No usable Python 3.11 or newer (with venv) among: $(PYTHONS)." >&2; \
	  echo "Install one, or name it: make PYTHONS=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; \
	fi; \
	echo "Making $(1) with $$found from $(2)"; \
	"$$found" -m venv --clear $(1); \
	$(1)/bin/python -m pip install $(PIP_QUIET) -r $(2); \
	pwd -P > $(1)/.locked
endef

.PHONY: help
help: ## list the targets
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-12s %s\n", $$1, $$2 }'

.PHONY: demo
demo: .venv/.installed ## one lease's whole life on this computer, against a simulated cloud
	@$(BIN)/python -m gpulease_local.demo

.PHONY: simulate
simulate: .venv/.installed ## many whole lifecycles in virtual time, with faults (LEASES=300 SEED=7)
	@$(BIN)/gpulease simulate --leases $(LEASES) --seed $(SEED) --faults default --json

.PHONY: simulate-long
simulate-long: .venv/.installed ## ten seeds of 10,000 lifecycles with all faults, and all crash points (hours)
	@for seed in 1 2 3 4 5 6 7 8 9 10; do \
	  $(BIN)/gpulease simulate --leases 10000 --seed $$seed --faults all --json || exit 1; \
	done
	@$(BIN)/gpulease simulate --crash-points --pairs 2000 --seed $(SEED) --json

.PHONY: bench
bench: .venv/.installed ## measure the figures that the documentation quotes
	@$(BIN)/python -m bench

.PHONY: bench-peers
bench-peers: peers-are-there .venv/.installed .venv-peers/.locked ## side by side with dstack, against one simulator (35 min; PEERS=folder)
	@$(BIN)/python -m bench.bench_peers --harness "$(PEERS)/dstack" --harness-python .venv-peers/bin/python $(PEERS_ARGS)

.PHONY: peers-are-there
peers-are-there:
	@if [ ! -f "$(PEERS)/dstack/run.py" ] || [ ! -f "$(PEERS)/dstack/requirements.txt" ]; then \
	  echo "bench-peers needs the harness that drives dstack: no run.py and requirements.txt in $(PEERS)/dstack." >&2; \
	  echo "It is no part of this repository. Say where it is: make bench-peers PEERS=/path/to/peers" >&2; \
	  echo "(docs/peers.md says what it must offer)" >&2; exit 2; \
	fi

.PHONY: test
test: .venv/.installed .venv-ministack/.locked ## run the tests (PYTEST_ARGS="-k name" for some)
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal $(PYTEST_ARGS)

.PHONY: check
check: lint types imports test ## everything that must pass: lint, types, imports, test

.PHONY: bench-cold
bench-cold: .venv/.installed ## what a cold start of each function costs, as built for this computer
	@$(BIN)/python -m bench.bench_cold

.PHONY: bench-cost
bench-cost: .venv/.installed ## what the control plane costs in AWS, per lease and per month (2 min; COST_ARGS=--json)
	@$(BIN)/python -m bench.bench_cost $(COST_ARGS)

.PHONY: deploy-check
deploy-check: .venv/.installed .venv-ministack/.locked .venv-sam/.locked .venv-checkov/.locked ## deploy into a stand-in of AWS, run leases there (3 min)
	@$(BIN)/python -m tests.e2e.deploy_check

.PHONY: fuzz-api
fuzz-api: .venv/.installed .venv-fuzz/.locked ## requests from the API's own description, and rude ones (SEED=7)
	@$(BIN)/python -m tests.e2e.fuzz_api --seed $(SEED)

.PHONY: kill-test
kill-test: .venv/.installed ## the demo's leases on a server that is killed at random moments (KILLS=50 KILL_SEED=1)
	@$(BIN)/python -m tests.e2e.kill_demo --kills $(KILLS) --seed $(KILL_SEED)

.PHONY: lint
lint: .venv/.installed ## ruff: rules and formatting
	@$(BIN)/python -m ruff check --quiet .
	@$(BIN)/python -m ruff format --check --quiet . || \
	  { $(BIN)/python -m ruff format --diff --quiet . ; echo "Run: make format" >&2; exit 1; }

.PHONY: format
format: .venv/.installed ## let ruff mend what it can
	@$(BIN)/python -m ruff check --quiet --fix .
	@$(BIN)/python -m ruff format --quiet .

.PHONY: types
types: .venv/.installed ## mypy, strict
	@$(BIN)/python -m mypy --no-error-summary $(TYPED)

.PHONY: imports
imports: .venv/.installed ## which package may import which
	@$(BIN)/lint-imports --no-logo > .venv/imports.log 2>&1 || { cat .venv/imports.log; exit 1; }

.PHONY: lock
lock: ## pin the newest versions that fit, into requirements/*.txt (with Python 3.11)
	@$(MAKE) --no-print-directory .venv-lock/.locked PYTHONS="python3.11"
	@for target in "--extra dev --output-file requirements/dev.txt pyproject.toml" \
	  "--output-file requirements/ministack.txt requirements/ministack.in" \
	  "--output-file requirements/sam.txt requirements/sam.in" \
	  "--output-file requirements/fuzz.txt requirements/fuzz.in" \
	  "--output-file requirements/checkov.txt requirements/checkov.in" \
	  "--output-file requirements/lock.txt requirements/lock.in" \
	  "--constraint requirements/dev.txt --output-file layers/deps/requirements.txt layers/deps/requirements.in"; do \
	  CUSTOM_COMPILE_COMMAND="make lock" .venv-lock/bin/python -m piptools compile --quiet --upgrade --strip-extras \
	    --allow-unsafe --no-emit-index-url --no-emit-find-links --no-emit-trusted-host $$target || exit 1; \
	done

.PHONY: clean
clean: ## remove environments, caches and built files
	@rm -rf .venv .venv-ministack .venv-sam .venv-checkov .venv-fuzz .venv-peers .venv-lock .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
	  .aws-sam build dist
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: FORCE
FORCE:

.venv/.locked: requirements/dev.txt $(call stale,.venv)
	$(call make_venv,.venv,requirements/dev.txt)

# Without dependencies: they are what the lock says. `pip check` tells when pyproject.toml asks for more than that.
.venv/.installed: .venv/.locked pyproject.toml
	@$(BIN)/python -m pip install $(PIP_QUIET) --no-deps --editable .
	@$(BIN)/python -m pip check --disable-pip-version-check > .venv/check.log || \
	  { cat .venv/check.log; echo "The lock does not fit pyproject.toml. Run: make lock" >&2; exit 1; }
	@touch $@

.venv-ministack/.locked: requirements/ministack.txt $(call stale,.venv-ministack)
	$(call make_venv,.venv-ministack,requirements/ministack.txt)

.venv-peers/.locked: $(PEERS)/dstack/requirements.txt $(call stale,.venv-peers)
	$(call make_venv,.venv-peers,$(PEERS)/dstack/requirements.txt)

.venv-sam/.locked: requirements/sam.txt $(call stale,.venv-sam)
	$(call make_venv,.venv-sam,requirements/sam.txt)

.venv-checkov/.locked: requirements/checkov.txt $(call stale,.venv-checkov)
	$(call make_venv,.venv-checkov,requirements/checkov.txt)

.venv-fuzz/.locked: requirements/fuzz.txt $(call stale,.venv-fuzz)
	$(call make_venv,.venv-fuzz,requirements/fuzz.txt)

.venv-lock/.locked: requirements/lock.txt $(call stale,.venv-lock)
	$(call make_venv,.venv-lock,requirements/lock.txt)

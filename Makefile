# Everything a person or CI does here. Each target works from a fresh clone with Python 3.11 or newer;
# what needs Kafka also needs Java 17+ and Maven, or Docker.

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.tracklog-installed
ROOTS := schemas infra producers processors consumers
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
with_python = $(foreach d,$(1),$(if $(shell find $(d) -name '*.py' -print -quit 2>/dev/null),$(d)))

.PHONY: help setup demo demo-kafka test prometheus alerts test-faults test-kubernetes image test-image crash-matrix bench-peers bench-cold airline simulate model check sbom audit docs bench stack-up stack-down fmt constraints

help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1 ## /' | \
		awk -F ' ## ' '{ printf "  make %-16s %s\n", $$1, $$2 }'

setup: $(STAMP) ## Makes .venv with Tracklog, every extra and the tools; nothing to do when it is up to date.

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none found. Say which: make setup PYTHON=..."; exit 1; }
	@echo "== installing Tracklog, all extras and tools into $(VENV)"
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@# uv is many times faster; pip where only pip is told of the index or proxy to use
	$(VENV)/bin/uv pip install --quiet --python $(PY) -c constraints.txt -e '.[all,dev]' || \
		$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: setup ## Imports recorded runs into a local log, folds, shows, verifies and replays them. No service needed.
	@echo "== demo on the embedded log"
	$(VENV)/bin/tracklog demo

demo-kafka: setup ## The same on Apache Kafka and Redis, which it starts.
	@echo "== demo on Apache Kafka and Redis"
	$(VENV)/bin/tracklog demo --kafka

# Most tests wait, for brokers and other processes, so there are more of them at work than cores.
TEST_PROCESSES ?= 3

test: setup ## All tests but the slow ones that kill processes; starts the services it needs.
	@echo "== tests"
	$(PY) -m pytest -m 'not faults' -n $(TEST_PROCESSES) --dist loadfile

prometheus: setup ## Dashboards and alerts over a running system, as a real Prometheus (Debian) sees them.
	@echo "== prometheus"
	$(PY) -m pytest -q tests/alerts tests/faults/test_prometheus.py

alerts: setup ## The condition of every alert made true on real services until it fires, and undone until it clears (10 minutes).
	@echo "== alerts"
	$(PY) -m benchmarks.alerts --keep

test-faults: setup ## Tests that kill and freeze real processes.
	@echo "== fault tests"
	$(PY) -m pytest -m faults

test-kubernetes: setup ## The chart with every example: linted, scored, installed into a real API server (TRACKLOG_K8S_BIN).
	@echo "== the chart"
	$(PY) -m pytest tests/kubernetes

BASE ?= python:3.13-slim
TAG ?= 0.1.0

image: ## Builds the image and the example on it with buildah: make image BASE=... TAG=... (TRACKLOG_EXTRAS names extras).
	@echo "== image"
	scripts/image.sh "$(BASE)" "$(TAG)"

BASE_MADE := localhost/tracklog-base:bookworm

test-image: setup ## Builds the image on a base of Debian packages, says how large it is, and runs its commands (buildah, debootstrap).
	@echo "== image on a base of its own"
	scripts/base.sh $(BASE_MADE)
	TRACKLOG_TEST_IMAGE_BASE=$(BASE_MADE) $(PY) -m pytest tests/kubernetes/test_image.py

MATRIX ?=

crash-matrix: setup ## Kills and freezes agents and dispatchers at every point (an hour): make crash-matrix MATRIX="--of dispatchers".
	@echo "== crash matrix"
	$(PY) -m benchmarks.crash_matrix $(MATRIX)

bench-cold: setup ## A million events exported while exporters are killed at random, to disk and to an S3 server (half an hour).
	@echo "== cold tier under kills"
	$(PY) -m benchmarks.cold

bench-peers: setup ## One effect, killed and frozen around it, by Tracklog, DBOS and Restate, which it installs into .tracklog/peers.
	@echo "== peers"
	$(PY) -m benchmarks.peers

airline: setup ## The 120 recorded airline runs done again by workers that are killed all the time.
	@echo "== airline runs under a killer"
	$(PY) -m benchmarks.airline

SEEDS ?= 1000
FIRST_SEED ?= 0

simulate: setup ## Dispatch under a thousand seeds of faults, without real time: make simulate SEEDS=N FIRST_SEED=M.
	@echo "== simulation"
	$(PY) -m benchmarks.simulate --seeds $(SEEDS) --first-seed $(FIRST_SEED)

MODEL ?=

model: setup ## Searches the models of the protocol with Spin, as built and with each rule taken out: make model MODEL="--only ledger".
	@echo "== models"
	$(PY) -m scripts.model $(MODEL)

check: setup ## Format, lint, types, import rules, and that docs and tree are in order.
	@echo "== format and lint"
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	@echo "== types"
	$(PY) -m mypy $(call with_python,$(ROOTS) tests scripts benchmarks examples)
	@echo "== imports go one way"
	$(VENV)/bin/lint-imports --no-cache
	@echo "== docs are current, the tree is tidy"
	$(PY) -m pytest -q $(wildcard tests/tidy tests/docs) tests/unit/infra/test_settings_doc.py tests/unit/infra/test_metrics_doc.py \
		tests/unit/consumers/test_cli_doc.py

sbom: setup ## Writes build/sbom.cdx.json: every package of .venv with version and licence (CycloneDX).
	@echo "== bill of materials"
	$(PY) -m scripts.sbom

audit: setup ## Known weaknesses of all pinned packages, as osv.dev knows them; a report, into build/audit.json.
	@echo "== known weaknesses"
	$(PY) -m scripts.audit

docs: setup ## Writes the generated pages anew.
	@echo "== generated docs"
	$(PY) -m scripts.settings_doc
	$(PY) -m scripts.metrics_doc
	$(PY) -m scripts.dashboards
	$(PY) -m scripts.cli_doc
	$(PY) -m scripts.events_doc
	$(PY) -m scripts.lifecycle_doc
	$(PY) -m scripts.chart_doc

bench: setup ## Measures against the raw client and disk in the same run.
	@echo "== benchmarks"
	$(PY) -m benchmarks

stack-up: setup ## Starts the local stack: Kafka and Valkey or Redis.
	@echo "== local stack"
	$(VENV)/bin/tracklog stack up

stack-down: setup ## Stops it.
	@echo "== local stack"
	$(VENV)/bin/tracklog stack down

fmt: setup ## Formats and repairs what can be repaired by itself.
	@echo "== format"
	$(PY) -m ruff check --fix-only --quiet .
	$(PY) -m ruff format .

constraints: setup ## Writes constraints.txt anew from .venv (after installing newer versions into it).
	@echo "== constraints.txt"
	@sed -n '/^#/p' constraints.txt > constraints.tmp
	@$(PY) -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' >> constraints.tmp
	@mv constraints.tmp constraints.txt
	@touch $(STAMP)

# stream-dp: every target makes and uses the virtual environment .venv of this checkout.
#
#   make demo                              live demo with a page (DEMO_ARGS=--keep-running leaves it up)
#   make test                              lint, then the ordinary tests (TEST_ARGS="-k ledger" chooses, TEST_JOBS= runs them
#                                          one after another; by default four files at a time, on one Kafka)
#   make quick                             the unit, kinds and pipeline tests that need no Kafka
#   make reproduce                         the papers' tables and figures again (PAPER=topk for one, FOLDER=... for the
#                                          pictures, REPRODUCE_ARGS="--runs 1000" for options of that paper, or --help)
#   make slow                              what continuous integration runs besides: every case, where no Kafka is needed
#   make nightly                           everything that `make test` leaves out: every case on Kafka, chaos, soak
#   make docs                              the documentation as a site, in build/site
#   make package                           the wheel and stock Kafka clients, in .venv-wheel and .venv-stock
#   make pythons                           `make quick` under every Python of PYTHONS that is installed, each in an
#                                          environment of its own
#   make kafkas                            the ordinary tests on a local Kafka of every version of KAFKAS
#   make containers                        builds the image of deploy/Dockerfile and runs it by podman, as root
#   make PYTHON=/path/to/python3.12 test   another interpreter, when .venv is made

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.SUFFIXES:

PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
QUICK ?= tests/unit tests/kinds tests/pipeline
KAFKAS ?= 3.4.1 3.9.1 4.3.0
DEMO_ARGS ?=
TEST_ARGS ?=
PAPER ?= all
FOLDER ?= reproduced
REPRODUCE_ARGS ?=
TEST_SECONDS ?= 600
NIGHTLY_SECONDS ?= 7200
TEST_JOBS ?= -n 4 --dist loadfile --no-loadscope-reorder

# Modules are compiled once, not by each of some hundred processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCK := -c constraints.txt

.PHONY: help demo test quick slow nightly reproduce docs package pythons kafkas containers lint lint-ruff lint-format lint-mypy lint-imports clean

help:
	@echo "make demo       install, start a broker, replay a year of flights, watch three audiences  (DEMO_ARGS="--open --keep-running")"
	@echo "make test       install, lint, run the ordinary tests; 5 to 10 minutes on two cores  (TEST_ARGS=\"-k name\")"
	@echo "make quick      the unit, kinds and pipeline tests that need no Kafka  (TEST_ARGS=\"-k name\")"
	@echo "make slow       more cases of what make test shows, without Kafka; 20 to 40 minutes  (TEST_ARGS=\"-k name\")"
	@echo "make nightly    all that make test leaves out: every case on Kafka, chaos, soak; two hours  (TEST_ARGS=\"-k name\")"
	@echo "make reproduce  the papers' tables and figures: PAPER=lossless, topk, gap, subset, finite or all; now: $(PAPER)"
	@echo "                (FOLDER=... for the pictures; now: $(FOLDER); REPRODUCE_ARGS=--help explains one paper)"
	@echo "make docs       the documentation as a site, in build/site"
	@echo "make package    the wheel, and stock Kafka clients, in empty environments"
	@echo "make pythons    make quick under several Pythons; now: $(PYTHONS)"
	@echo "make kafkas     the ordinary tests on Kafka, with several versions of it; now: $(KAFKAS)"
	@echo "make containers the image, built and run by podman (Debian: apt install podman runc debootstrap), as root"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make clean      remove .venv*, caches and build output; the Kafka cache and state stay"
	@echo "PYTHON=...      the Python (3.11 to 3.14) that makes .venv; now: $(PYTHON)"

demo: $(VENV)/demo.stamp
	@$(BIN)/stream-dp demo $(DEMO_ARGS)

test: lint
	@echo "test: pytest, the ordinary tests: unit, statistical, pipeline, broker; 5 to 10 minutes on two cores"
	@$(BIN)/python -m pytest --timeout $(TEST_SECONDS) $(TEST_JOBS) $(TEST_ARGS)

quick: $(VENV)/dev.stamp
	@echo "quick: pytest, $(QUICK), without Kafka"
	@$(BIN)/python -m pytest $(QUICK) -m "not broker and not slow and not nightly" $(TEST_JOBS) $(TEST_ARGS)

slow: $(VENV)/dev.stamp
	@echo "slow: pytest, more cases of what the ordinary tests show, without Kafka; 20 to 40 minutes on two cores"
	@$(BIN)/python -m pytest -m "slow and not broker and not nightly" --timeout $(TEST_SECONDS) $(TEST_JOBS) $(TEST_ARGS)

nightly: $(VENV)/dev.stamp
	@echo "nightly: pytest, everything that make test leaves out; about two hours on two cores"
	@$(BIN)/python -m pytest -v -m "slow or nightly" --durations 30 --timeout $(NIGHTLY_SECONDS) $(TEST_JOBS) $(TEST_ARGS)

reproduce: $(VENV)/plots.stamp
	@$(BIN)/python -m experiments $(PAPER) --folder "$(FOLDER)" $(REPRODUCE_ARGS)

docs: $(VENV)/dev.stamp
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "docs: open build/site/index.html; its search needs a server: $(BIN)/python -m http.server -d build/site"

package: $(VENV)/dev.stamp
	@echo "package: pytest, the wheel and stock clients in environments of their own (.venv-wheel, .venv-stock)"
	@$(BIN)/python -m pytest tests/package -m "slow or not slow" $(TEST_ARGS)

pythons:
	@passed=; failed=; for python in $(PYTHONS); do \
	  version=$$("$$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { \
	    echo "pythons: skipped: $$python is not installed"; continue; }; \
	  echo "pythons: $$("$$python" --version), in .venv-$$version"; \
	  if $(MAKE) VENV=.venv-$$version PYTHON="$$python" quick; \
	  then passed="$$passed $$version"; else failed="$$failed $$version"; fi; \
	done; \
	test -z "$$failed" || { echo "pythons: failed:$$failed" >&2; exit 1; }; \
	test -n "$$passed" || { echo "pythons: none of $(PYTHONS) is installed" >&2; exit 1; }; \
	echo "pythons: passed:$$passed"

kafkas: $(VENV)/dev.stamp
	@failed=; for version in $(KAFKAS); do \
	  echo "kafkas: pytest, the ordinary tests on Kafka $$version"; \
	  env -u STREAM_DP_BROKER STREAM_DP_KAFKA_VERSION=$$version $(BIN)/python -m pytest \
	    -m "broker and not slow and not nightly" --timeout $(TEST_SECONDS) $(TEST_JOBS) $(TEST_ARGS) \
	    || failed="$$failed $$version"; \
	done; \
	test -z "$$failed" || { echo "kafkas: failed:$$failed" >&2; exit 1; }; \
	echo "kafkas: passed: $(KAFKAS)"

containers: $(VENV)/dev.stamp
	@echo "containers: pytest, the image of deploy/Dockerfile; some minutes, most of them for the first build"
	@$(BIN)/python -m pytest tests/container -m container --timeout $(NIGHTLY_SECONDS) $(TEST_ARGS)

lint: lint-ruff lint-format lint-mypy lint-imports

lint-ruff: $(VENV)/dev.stamp
	@echo "lint: ruff check"
	@$(BIN)/ruff check

lint-format: $(VENV)/dev.stamp
	@echo "lint: ruff format"
	@$(BIN)/ruff format --check

lint-mypy: $(VENV)/dev.stamp
	@echo "lint: mypy"
	@$(BIN)/mypy

lint-imports: $(VENV)/dev.stamp
	@echo "lint: import-linter"
	@$(BIN)/lint-imports

clean:
	@echo "clean: removing .venv*, caches and build output"
	@rm -rf .venv .venv-* build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Everything is pinned, the build too: setuptools comes from the lock, not from an isolated build environment.
$(VENV)/demo.stamp: $(VENV)/base.stamp
	@echo "install: stream-dp with what the demo needs, into $(VENV)"
	@$(PIP) install $(LOCK) --no-build-isolation -e '.[demo]'
	@touch $@

$(VENV)/dev.stamp: $(VENV)/base.stamp experiments/requirements.txt
	@echo "install: stream-dp with what the demo, the tests and the linters need, into $(VENV)"
	@$(PIP) install $(LOCK) --no-build-isolation -e '.[demo,dev]' -r experiments/requirements.txt
	@touch $@ $(VENV)/demo.stamp $(VENV)/plots.stamp

$(VENV)/plots.stamp: $(VENV)/base.stamp experiments/requirements.txt
	@echo "install: stream-dp with what the experiments need, into $(VENV)"
	@$(PIP) install $(LOCK) --no-build-isolation -e . -r experiments/requirements.txt
	@touch $@

$(VENV)/base.stamp: pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || { \
	  echo "stream-dp needs Python 3.11 to 3.14; '$(PYTHON)' is $$("$(PYTHON)" --version 2>/dev/null | head -1 | grep Python || echo 'not one')." >&2; \
	  echo "Name another one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || { \
	  echo "install: making the virtual environment $(VENV) with $$("$(PYTHON)" --version)"; \
	  "$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "The venv module failed; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; }
	@$(PIP) install $(LOCK) setuptools
	@touch $@

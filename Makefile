# `make` alone prints what there is. Every target brings along what it needs; nothing has to be run before it.
#
# The one thing a machine must have is Python 3.11 or newer. uv is used where it is on the PATH, because it is
# quicker; without it, `python -m venv` and pip do the same work with the same pinned and hashed requirements.

.DEFAULT_GOAL := help
.PHONY: help setup run test test-unit test-fast test-package test-all check coverage sim zoo chaos compat compatibility test-groups-all test-spark-all test-exactly-once bench bench-growth bench-fairness bench-cluster docs proto check-proto lock
.DELETE_ON_ERROR:

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.trioka-setup
WORKERS ?= 2
UV      := $(shell command -v uv 2>/dev/null)

# The packages that decide and touch nothing, and every folder of tests that `make test-package` takes.
PURE_TESTS := tests/protocol tests/storage tests/cluster tests/coordinator
PACKAGES   := $(sort $(foreach file,$(wildcard tests/*/test_*.py),$(word 2,$(subst /, ,$(file)))))

# A name on the PATH is not yet an interpreter: version managers leave shims behind that only complain, and some
# distributions ship Python without venv. So each candidate is asked to run, and of those that answer the quickest is
# taken: how an interpreter was compiled counts for more than its version. One that was compiled without a profile, as
# version managers do it, needs a sixth more for a request and a quarter more for a start (docs/PERFORMANCE.md). uv needs
# no venv module, hence two probes.
PROBE   := import sys; assert sys.version_info >= (3, 11)$(if $(UV),,; import ensurepip, venv)
PACE    := from timeit import repeat; print(min(repeat("d[i & 7] = (i, d)", "d, i = {}, 5", number=20000, repeat=20)), sys.executable)
PYTHON  ?= $(shell for name in python3.13 python3.12 python3.11 python3; do which -a "$$name" || command -v "$$name"; done 2>/dev/null | \
               while read -r found; do "$$found" -c '$(PROBE); $(PACE)' 2>/dev/null; done | sort -n | sed -n '1s/^[^ ]* //p')

help: ## print these targets
	@echo 'make <target>, where <target> is one of:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(STAMP) ## make .venv with everything in it, the trioka command too
	@:

# The stamp is older than its sources only after the requirements or the project's description changed, so the
# second `make setup` does nothing and says nothing.
$(STAMP): requirements/dev.txt pyproject.toml hatch_build.py protocol/_record_walk.c
	@$(BIN)/python -c '$(PROBE)' >/dev/null 2>&1 || $(MAKE) --no-print-directory fresh-venv
ifneq ($(UV),)
	@uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
else
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
endif
	@touch $@
	@echo 'ready: $(BIN)/trioka'

.PHONY: fresh-venv
fresh-venv:
	@rm -rf $(VENV)
ifneq ($(UV),)
	@found="$(PYTHON)"; uv venv --quiet --python "$${found:-3.11}" $(VENV)
else
	@found="$(PYTHON)"; test -n "$$found" || { echo 'trioka needs Python 3.11 or newer with its venv module, or uv, and found neither on the PATH (Debian, Ubuntu: apt install python3-venv); another interpreter is named by `make PYTHON=/path/to/python`.' >&2; exit 1; }; \
	echo "making $(VENV) with $$found: a minute or two, once"; "$$found" -m venv $(VENV)
endif

run: $(STAMP) ## start trioka
	@$(BIN)/trioka dev

test: check ## everything that must hold: check, then all tests and compat tests
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests compat-tests

test-unit: $(STAMP) ## all of our own tests, without check and without the compat tests
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests $(ARGS)

test-fast: $(STAMP) ## the pure packages without their slow tests: the loop while you write (under two minutes)
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m 'not slow' $(PURE_TESTS) $(ARGS)

test-package: $(STAMP) ## the tests of one package: PACKAGE=storage
	@test -n "$(PACKAGE)" || { echo 'make test-package needs a package: make test-package PACKAGE=storage; there are: $(PACKAGES).' >&2; exit 2; }
	@case ' $(PACKAGES) ' in *' $(PACKAGE) '*) ;; *) echo 'make test-package knows no package $(PACKAGE); there are: $(PACKAGES).' >&2; exit 2;; esac
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests/$(PACKAGE) $(ARGS)

coverage: $(STAMP) ## which lines test-fast runs, per pure package (4 minutes, in one process)
	@$(BIN)/coverage run -m pytest -q -n 0 -m 'not slow' $(PURE_TESTS) $(ARGS); tested=$$?; \
	    $(BIN)/python tests/style/coverage_table.py && exit $$tested

test-all: check ## the same with the cases marked nightly, all groups, all Sparks, longer copies (over an hour)
	@TRIOKA_NIGHTLY=1 TRIOKA_ALL_GROUPS=1 TRIOKA_EXACTLY_ONCE=1 TRIOKA_SPARK_ALL=1 TRIOKA_SPARK_KILLS=10 \
	    $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile tests compat-tests $(ARGS)

check: $(STAMP) ## what is known without running: ruff, mypy --strict, import-linter, tidy
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy --strict
	@$(BIN)/mypy --strict tests
	@$(BIN)/mypy --strict compat-tests
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest -q tests/test_tidy.py tests/style/test_documents.py

sim: $(STAMP) ## simulated worlds, SEEDS=200 of each; says how many promises were broken
	@$(BIN)/python tests/simulation/simulate.py --seeds $(or $(SEEDS),200) $(ARGS)

zoo: $(STAMP) ## planted mistakes, and the seed at which the simulation finds each (minutes)
	@$(BIN)/python tests/mutants/catalog.py $(ARGS)

chaos: $(STAMP) ## real nodes under load, killed, paused, cut off, by a seed; says what was lost (half an hour; ARGS=--planted: mistakes)
	@$(BIN)/python tests/chaos/run.py $(or $(ARGS),--kills 100 --pauses 30 --partitions 30 --stops 20 --full-disks 10 --slow-disks 10)

compat: $(STAMP) ## only the compat tests: other people's clients and files, unmodified
	@$(BIN)/python -m pytest -q compat-tests $(ARGS)

compatibility: $(STAMP) ## write docs/COMPATIBILITY.md anew, from the tests of clients (minutes)
	@$(BIN)/python compat-tests/compatibility.py

test-groups-all: $(STAMP) ## every client in groups with every one of its assignors, killed now and then (minutes)
	@TRIOKA_ALL_GROUPS=1 $(BIN)/python -m pytest -q compat-tests/test_clients_groups.py

test-spark-all: $(STAMP) ## the Spark tests with the other PySparks that have a connector, and more mistakes and kills of pipelines (minutes, a gigabyte)
	@$(BIN)/python compat-tests/spark/versions.py $(ARGS)
	@TRIOKA_SPARK_ALL=1 TRIOKA_SPARK_KILLS=10 $(BIN)/python -m pytest -q compat-tests/spark/test_pipeline_run.py compat-tests/spark/test_pipeline_kills.py

test-exactly-once: $(STAMP) ## copies of 100,000 records in transactions, by every client that has them and MirrorMaker, with more kills (minutes)
	@TRIOKA_EXACTLY_ONCE=1 $(BIN)/python -m pytest -q compat-tests/test_exactly_once.py compat-tests/test_mirror_maker.py $(ARGS)

bench: $(STAMP) ## the whole broker beside Apache Kafka (50 minutes); ARGS=quick, or the names of other benchmarks and their flags
	@$(BIN)/python bench/run.py $(ARGS)

bench-growth: $(STAMP) ## what a request costs as connections, partitions, logs and groups grow (9 minutes); ARGS="--only trioka --rounds 1"
	@$(BIN)/python bench/growth.py $(ARGS)

bench-fairness: $(STAMP) ## what a client notices of its neighbours (6 minutes); ARGS="--only trioka --rounds 1"
	@$(BIN)/python bench/fairness.py $(ARGS)

bench-cluster: $(STAMP) ## three nodes beside three of Apache Kafka: replicated writes, kills, stops (10 minutes); ARGS="--only trioka --rounds 1"
	@$(BIN)/python bench/failover.py $(ARGS)

docs: $(STAMP) ## write the generated pages of docs/ anew
	@$(BIN)/python docs/generate.py

proto: $(STAMP) ## write gateway/v1 anew, from gateway/proto
	@$(BIN)/python gateway/proto/generate.py

check-proto: ## buf's lint of gateway/proto, and whether it breaks what was released (fetches buf from npm once)
	@gateway/proto/check.sh

lock: ## pin and hash requirements/dev.txt and pipeline/installation/java.txt anew (needs uv); ARGS=--upgrade takes newer versions
	@test -n "$(UV)" || { echo 'make lock needs uv on the PATH: it pins for every platform at once, which pip cannot.' >&2; exit 1; }
	@for name in requirements/dev pipeline/installation/java; do uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-header $(ARGS) $$name.in -o $$name.txt >/dev/null || exit 1; done

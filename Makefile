# `make` prints the targets. Every target installs what it needs first.
#
# The machine needs Python 3.11 or newer. uv is used if it is on the PATH, because it is faster; otherwise
# `python -m venv` and pip install the same pinned and hashed requirements.

.DEFAULT_GOAL := help
.PHONY: help setup run test test-unit test-fast test-package test-all check coverage sim zoo chaos compat compatibility test-groups-all test-spark-all test-exactly-once bench bench-growth bench-fairness bench-cluster docs proto check-proto release-check image-test lock
.DELETE_ON_ERROR:

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.trioka-setup
RUN_STAMP := $(VENV)/.trioka-run
WORKERS ?= 2
UV      := $(shell command -v uv 2>/dev/null)

# The tests of the packages without I/O, and every folder of tests that `make test-package` takes.
PURE_TESTS := tests/protocol tests/storage tests/cluster tests/coordinator
PACKAGES   := $(sort $(foreach file,$(wildcard tests/*/test_*.py),$(word 2,$(subst /, ,$(file)))))

# A name on the PATH may be a shim of a version manager that fails, and some distributions ship Python without venv. So
# each candidate is run, and the fastest of those that work is taken: how an interpreter was compiled matters more than
# its version. One that was compiled without a profile, as version managers do, needs a sixth more for a request and a
# quarter more for a start (docs/PERFORMANCE.md). uv needs no venv module, hence two probes.
PROBE   := import sys; assert sys.version_info >= (3, 11)$(if $(UV),,; import ensurepip, venv)
PACE    := from timeit import repeat; print(min(repeat("d[i & 7] = (i, d)", "d, i = {}, 5", number=20000, repeat=20)), sys.executable)
PYTHON  ?= $(shell for name in python3.13 python3.12 python3.11 python3; do which -a "$$name" || command -v "$$name"; done 2>/dev/null | \
               while read -r found; do "$$found" -c '$(PROBE); $(PACE)' 2>/dev/null; done | sort -n | sed -n '1s/^[^ ]* //p')

help: ## print these targets
	@echo 'make <target>, where <target> is one of:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(STAMP) ## install everything into .venv, the trioka command too
	@:

ifneq ($(UV),)
PIP_INSTALL := uv pip install --quiet --python $(BIN)/python
HAS_PIP     := :
else
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
HAS_PIP     := $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
endif

# $(1) is the file of requirements, $(2) a description of what is installed.
define install
	@$(BIN)/python -c '$(PROBE)' >/dev/null 2>&1 || $(MAKE) --no-print-directory fresh-venv
	@echo 'installing $(2)'
	@$(HAS_PIP)
	@$(PIP_INSTALL) --require-hashes -r $(1)
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@
	@echo 'ready: $(BIN)/trioka'
endef

# A stamp is older than its sources only if the requirements or the project's metadata changed, so a second
# `make setup` does nothing. `make run` needs a few packages only; after `make setup` it has them already.
SOURCES := pyproject.toml hatch_build.py protocol/_record_walk.c

$(STAMP): requirements/dev.txt $(SOURCES)
	$(call install,$<,what trioka and its tests need (1.4 GB; a few minutes))

$(RUN_STAMP): requirements/run.txt $(SOURCES)
	$(call install,$<,what a broker needs (under 100 MB))

.PHONY: fresh-venv
fresh-venv:
	@rm -rf $(VENV)
ifneq ($(UV),)
	@found="$(PYTHON)"; uv venv --quiet --python "$${found:-3.11}" $(VENV)
else
	@found="$(PYTHON)"; test -n "$$found" || { echo 'trioka needs Python 3.11 or newer with its venv module, or uv, and found neither on the PATH (Debian, Ubuntu: apt install python3-venv); another interpreter is named by `make PYTHON=/path/to/python`.' >&2; exit 1; }; \
	echo "creating $(VENV) with $$found"; "$$found" -m venv $(VENV)
endif

run: $(if $(wildcard $(STAMP)),$(STAMP),$(RUN_STAMP)) ## start trioka; installs only what a broker needs
	@$(BIN)/trioka dev

test: check ## check, then all tests and compat tests
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

check: $(STAMP) ## static checks: ruff, mypy --strict, import-linter, tidy
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy --strict
	@$(BIN)/mypy --strict tests
	@$(BIN)/mypy --strict compat-tests
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m pytest -q tests/test_tidy.py tests/style/test_documents.py

sim: $(STAMP) ## simulated worlds, SEEDS=200 of each; prints the number of violations
	@$(BIN)/python tests/simulation/simulate.py --seeds $(or $(SEEDS),200) $(ARGS)

zoo: $(STAMP) ## planted mistakes, and the first seed that finds each in the simulation (minutes)
	@$(BIN)/python tests/mutants/catalog.py $(ARGS)

chaos: $(STAMP) ## real nodes under load, killed, paused, cut off, by a seed; counts lost records (half an hour; ARGS=--planted: mistakes)
	@$(BIN)/python tests/chaos/run.py $(or $(ARGS),--kills 100 --pauses 30 --partitions 30 --stops 20 --full-disks 10 --slow-disks 10)

compat: $(STAMP) ## only the compat tests: unmodified third-party clients and files
	@$(BIN)/python -m pytest -q compat-tests $(ARGS)

compatibility: $(STAMP) ## regenerate docs/COMPATIBILITY.md from the tests of clients (minutes)
	@$(BIN)/python compat-tests/compatibility.py

test-groups-all: $(STAMP) ## every client in groups with each of its assignors, sometimes killed (minutes)
	@TRIOKA_ALL_GROUPS=1 $(BIN)/python -m pytest -q compat-tests/test_clients_groups.py

test-spark-all: $(STAMP) ## the Spark tests with the other PySparks that have a connector, and more mistakes and kills of pipelines (minutes, a gigabyte)
	@$(BIN)/python compat-tests/spark/versions.py $(ARGS)
	@TRIOKA_SPARK_ALL=1 TRIOKA_SPARK_KILLS=10 $(BIN)/python -m pytest -q compat-tests/spark/test_pipeline_run.py compat-tests/spark/test_pipeline_kills.py

test-exactly-once: $(STAMP) ## copies of 100,000 records in transactions, by every client that supports them and MirrorMaker, with more kills (minutes)
	@TRIOKA_EXACTLY_ONCE=1 $(BIN)/python -m pytest -q compat-tests/test_exactly_once.py compat-tests/test_mirror_maker.py $(ARGS)

bench: $(STAMP) ## trioka beside Apache Kafka (50 minutes); ARGS=quick, or the names of other benchmarks and their flags
	@$(BIN)/python bench/run.py $(ARGS)

bench-growth: $(STAMP) ## cost of a request by number of connections, partitions, logs and groups (9 minutes); ARGS="--only trioka --rounds 1"
	@$(BIN)/python bench/growth.py $(ARGS)

bench-fairness: $(STAMP) ## latency of a client under background load (6 minutes); ARGS="--only trioka --rounds 1"
	@$(BIN)/python bench/fairness.py $(ARGS)

bench-cluster: $(STAMP) ## three nodes beside three of Apache Kafka: replicated writes, kills, stops (10 minutes); ARGS="--only trioka --rounds 1"
	@$(BIN)/python bench/failover.py $(ARGS)

docs: $(STAMP) ## regenerate the generated pages of docs/
	@$(BIN)/python docs/generate.py

proto: $(STAMP) ## generate gateway/v1 from gateway/proto
	@$(BIN)/python packaging/generate_proto.py

check-proto: ## buf's lint of gateway/proto, and whether it breaks what was released (fetches buf from npm once)
	@gateway/proto/check.sh

release-check: $(STAMP) ## build wheel and archive, install both on each Python, check metadata, vulnerabilities (minutes, network)
	@$(BIN)/python packaging/release_check.py $(ARGS)

image-test: $(STAMP) ## build the container image and run it: one node, three nodes (minutes; root, Debian's podman and buildah)
	@$(BIN)/python packaging/image_check.py $(ARGS)

lock: ## pin and hash requirements/*.txt and pipeline/installation/java.txt again (needs uv); ARGS=--upgrade takes newer versions
	@test -n "$(UV)" || { echo 'make lock needs uv on the PATH: it pins for every platform at once, which pip cannot.' >&2; exit 1; }
	@for name in requirements/dev requirements/run requirements/image requirements/image-test requirements/release requirements/fixtures pipeline/installation/java; do uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --no-header $(ARGS) $$name.in -o $$name.txt >/dev/null || exit 1; done

# Tidegate: `make help` tells the targets. Needs Python 3.11 or newer and make; everything else is fetched.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517
READY := $(VENV)/.ready

# A Python of your choice: make setup PYTHON=/path/to/python3.12
PYTHON ?=
# A recording to replay instead of the built-in one: make demo-recorded RECORDING=DIR
RECORDING ?=
# How many processes run tests side by side, each with a Spark of its own, all with one broker: make test JOBS=4
# More than the cores of a small machine, which three processes leave idle half of the time: long tests wait for other
# processes, servers and each other's threads.
JOBS ?= 5
# How many processes run the fast tests, which never wait: make check CORES=8
CORES ?= 2
# The commit that make bench-pair compares this tree with
BASE ?=
# What a soak runs, instead of everything: make soak SUITE='tests/kill tests/replay'
SUITE ?=
# The Pythons of make soak SUITE=python and SUITE=matrix, by names or paths, as far as they are found
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
# The Spark of make test-spark: 3.5, 4.0, or 4.1, which is that of all other tests
SPARK ?= 3.5

# Vulnerabilities that are known and do not reach us, each with its reason in a comment here: --ignore-vuln ID
HARMLESS :=
AUDIT := build/audit
S3 := build/s3
READERS := build/readers
FLINK := build/flink
TOOLS := build/dist
DOCS := build/docs
PROTOS := build/protos

# By files, in their order: what a file or folder sets up is set up once.
parallel = -n $(1) --dist loadfile --no-loadscope-reorder

# Tests start hundreds of Pythons, which take what the first of them compiled.
unexport PYTHONDONTWRITEBYTECODE

# Tests that call each loop which numba compiles; what they compile is kept beside the source. Collecting all fast tests
# on the way keeps the bytecode of their modules, too, so that no process of `make check` or `make test` does it again.
LOOPS := test_columnar.py or test_columnar_encode_cells.py or test_dumped.py or test_mount_columns.py or test_matcher.py \
  or test_walk.py or (mysql and test_rows.py) or (verify and test_chunks.py)

OLD_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-replica demo-recorded test test-more test-spark check audit soak bench bench-table bench-pair dist dist-check release docs pictures python matrix bounds protos clean

help: ## Tell what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## Make .venv with the tool, Java and jars

demo: setup ## Watch SQL and online DDL of a database arrive in a lake, and be compared with it
	@$(BIN)/tidegate demo

demo-replica: setup ## The same into a database: TARGET=tidb (default), TARGET=mariadb or TARGET=mysql://...
	@$(BIN)/tidegate demo --replica '$(or $(TARGET),tidb)'

demo-recorded: setup ## Replay a recorded topic of TiCDC into a lake (RECORDING=DIR replays yours)
	@$(BIN)/tidegate demo $(if $(RECORDING),--recording '$(RECORDING)',--recorded)

test: setup $(S3)/.ready $(READERS)/.ready ## Run all tests but the long ones
	@$(BIN)/python -m tests.jvms
	@$(BIN)/python -m pytest -m 'not soak and not more' $(call parallel,$(JOBS))

test-more: setup $(S3)/.ready $(READERS)/.ready $(TOOLS)/.ready $(PROTOS)/.ready ## Run further variants of what `make test` runs once; CI does so behind it
	@$(BIN)/python -m tests.jvms
	@$(BIN)/python -m pytest -m 'more and not soak' $(call parallel,$(JOBS))

test-spark: setup $(READERS)/.ready $(if $(filter-out 4.1,$(SPARK)),$(VENV)/spark-$(SPARK)/.ready) ## Run the smallest feeds on Spark 3.5, or on another: SPARK=4.0
	@$(if $(filter-out 4.1,$(SPARK)),$(VENV)/spark-$(SPARK)/bin,$(BIN))/python -m pytest tests/spark/test_each_version.py

check: setup audit ## Lint, format, types, known vulnerabilities, fast tests: what must hold before each commit
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -m 'not slow and not soak' $(call parallel,$(CORES))

audit: $(AUDIT)/.ready ## Compare every pinned package with the vulnerabilities that PyPI knows
	@set -e; for list in requirements-*.txt; do \
	  $(AUDIT)/bin/pip-audit --disable-pip --progress-spinner off $(HARMLESS) -r "$$list"; \
	done

# Setup and fast tests by each Python, in an environment of its own
python:
	@told=''; for python in $(PYTHONS); do \
	  "$$python" -c '$(OLD_ENOUGH)' 2>/dev/null || { told="$$told$$python: not found\n"; continue; }; \
	  venv=build/matrix/$${python##*/}; \
	  if $(MAKE) --no-print-directory VENV=$$venv PYTHON=$$python setup && \
	    $$venv/bin/python -m pytest -m 'not slow and not soak' $(call parallel,$(CORES)); \
	  then told="$$told$$python: passed\n"; else told="$$told$$python: FAILED\n"; fi; \
	done; printf "$$told"; printf "$$told" | grep -q passed && ! printf "$$told" | grep -q FAILED

# The smallest feeds on each Spark by each Python
matrix:
	@told=''; for python in $(PYTHONS); do \
	  "$$python" -c '$(OLD_ENOUGH)' 2>/dev/null || { told="$$told$$python: not found\n"; continue; }; \
	  for spark in 3.5 4.0 4.1; do \
	    if $(MAKE) --no-print-directory VENV=build/matrix/$${python##*/} PYTHON=$$python SPARK=$$spark test-spark; \
	    then told="$$told$$python, Spark $$spark: passed\n"; else told="$$told$$python, Spark $$spark: FAILED\n"; fi; \
	  done; \
	done; printf "$$told"; printf "$$told" | grep -q passed && ! printf "$$told" | grep -q FAILED

# Fast tests, and the smallest feeds on each Spark, with the lowest version of each package that pyproject.toml allows
bounds: $(VENV)/bounds/.ready
	@$(VENV)/bounds/bin/python -m tidegate doctor
	@$(VENV)/bounds/bin/python -m pytest -m 'not slow and not soak' $(call parallel,$(CORES))
	@set -e; for spark in 3.5 4.0 4.1; do $(MAKE) --no-print-directory VENV=$(VENV)/bounds SPARK=$$spark test-spark; done

ifneq ($(filter python matrix bounds,$(SUITE)),)
soak: $(SUITE)
else
soak: setup $(S3)/.ready $(READERS)/.ready $(TOOLS)/.ready $(PROTOS)/.ready ## Run everything, with the full counts of fuzzing (SUITE=tests/kill: that alone; SUITE=python: fast tests by each Python; SUITE=matrix: the smallest feeds by each, on each Spark; SUITE=bounds: with the lowest packages)
	@$(BIN)/python -m tests.jvms
	@TIDEGATE_SOAK=1 $(BIN)/python -m pytest $(SUITE)
endif

bench: setup ## Measure the hot paths, beside Flink where it can be installed
	@$(MAKE) --no-print-directory $(FLINK)/.ready || echo "no Flink here: it is left out"
	@set -e; for bench in $$(grep -l '^if __name__' benchmarks/*.py | grep -vE '/(table|pair).py'); do \
	  echo "== $$bench"; $(BIN)/python "$$bench"; \
	done

bench-table: setup ## Print the table of docs/performance.md: goals and what is measured here
	@$(MAKE) --no-print-directory $(FLINK)/.ready || echo "no Flink here: it is left out" >&2
	@$(BIN)/python benchmarks/table.py

bench-pair: setup ## Compare our rates with those of another commit, in turns: make bench-pair BASE=COMMIT
	@test -n '$(BASE)' || { echo 'name the commit to compare with: make bench-pair BASE=COMMIT' >&2; exit 2; }
	@$(BIN)/python benchmarks/pair.py '$(BASE)'

dist: $(TOOLS)/.ready ## Build wheels and sdists of this commit, twice and compared, with a bill of materials, into dist
	@$(TOOLS)/bin/python ops/dist.py build

dist-check: setup $(TOOLS)/.ready ## Build them, and try each extra in an empty environment; a part of `make test-more`
	@$(BIN)/python -m pytest tests/cli/test_dist.py

release: $(TOOLS)/.ready ## Set the version and collect changelog.d into CHANGELOG.md: make release VERSION=1.2.0
	@$(TOOLS)/bin/python ops/dist.py release '$(VERSION)'

docs: $(DOCS)/.ready ## Build the site of the documentation, with its links checked, into build/site
	@$(DOCS)/bin/python ops/docs/site.py

protos: $(PROTOS)/.ready ## Generate src/tidegate/tikv/stubs from the .proto files beside them
	@$(PROTOS)/bin/python ops/protos.py

pictures: setup ## Renew the pictures of the documentation: the server's page in Chromium, the demo in tmux
	@UPDATE=1 $(BIN)/python -m pytest -q tests/server/page/test_page.py tests/server/page/test_mending.py
	@$(BIN)/python ops/pictures.py

clean: ## Remove what was made here; the per-user cache of jars stays
	rm -rf $(VENV) build dist .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(AUDIT)/.ready $(S3)/.ready $(READERS)/.ready $(FLINK)/.ready $(TOOLS)/.ready $(DOCS)/.ready $(PROTOS)/.ready: build/%/.ready: requirements-%.txt | $(READY)
	@$(BIN)/python -m venv --clear $(@D)
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r $<
	@touch $@

# A few packages in front of all that .venv has, its pip and setuptools among it: another PySpark, or the lowest versions.
$(VENV)/%/.ready: requirements-%.txt $(READY)
	@$(BIN)/python -m venv --clear --without-pip $(@D)
	@site='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(BIN)/python -c "$$site")')" >"$$($(@D)/bin/python -c "$$site")/venv.pth"
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 --require-hashes --no-deps --no-build-isolation -r $<
	@touch $@

$(READY): requirements.txt requirements-dev.txt requirements-build.txt pyproject.toml src/tidegate_upstream/pyproject.toml
	@set -e; python=''; \
	for name in $(if $(PYTHON),'$(PYTHON)',python3 python3.13 python3.12 python3.11 python); do \
	  if "$$name" -c '$(OLD_ENOUGH)' >/dev/null 2>&1; then python=$$name; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "$(if $(PYTHON),$(PYTHON) is not,found no) Python 3.11 or newer; install one, or: make setup PYTHON=/path/to/python3.12" >&2; \
	  exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python cannot make virtual environments; install its venv package (Debian, Ubuntu: apt install python3-venv), or name another Python: make setup PYTHON=..." >&2; \
	  exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV)
	@$(PIP) --require-hashes -r requirements-build.txt
	@$(PIP) --require-hashes --no-build-isolation -r requirements-dev.txt
	@$(PIP) --no-build-isolation --no-deps --editable . --editable src/tidegate_upstream
	@$(BIN)/tidegate doctor --fix
	@$(BIN)/python -m pytest -m 'not slow and not soak' -k '$(LOOPS)' >/dev/null || echo "nothing is compiled ahead"
	@touch $@

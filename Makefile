# Every target works from a fresh clone: it makes .venv first, and what Spark needs.
# `make` alone prints the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CODE   := src tests bench deploy examples native website hatch_build.py

# `make setup GROUP=core` is remembered, so later targets do not install the rest.
GROUP  ?= $(or $(shell cat $(VENV)/.group 2>/dev/null),dev)
STAMP  := $(VENV)/.installed-$(GROUP)
PIN    := requirements/$(GROUP).txt
# The sources of contrada._native: it is compiled again after a change.
NATIVE := hatch_build.py $(wildcard native/* src/contrada/matching/kernels/*.py) \
	$(wildcard src/contrada/model/algebra/plain_*.py)

# For targets that need Spark. Ends the target with one line when there is no Java.
WITH_JAVA = JAVA_HOME=$$(scripts/ensure_java.sh) && export JAVA_HOME &&
# For targets that leave out what needs Spark when there is no Java.
JAVA_IF_FOUND = if JAVA_HOME=$$(scripts/ensure_java.sh); then export JAVA_HOME; \
	else unset JAVA_HOME; echo "Without Java, what needs Spark is left out." >&2; fi;

ifeq ($(GROUP),core)
# Tests whose libraries are missing skip, and modules of Spark have no types to check.
export CONTRADA_GROUP := core
WITH_JAVA =
JAVA_IF_FOUND =
TYPED  := $(filter-out bench,$(CODE)) --ignore-missing-imports --exclude '/spark/' \
	--allow-subclassing-any --allow-untyped-decorators --no-warn-unused-ignores
else
TYPED  := $(CODE)
endif

# Each process that runs tests starts one Spark session and shares it.
PYTEST = $(BIN)/python -m pytest -n auto

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Each process that tests start would else compile the package again, and begin half as fast.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java demo test test-all test-slow spark-versions versions vectors verify exact thorough worlds patterns networks standby costly churn fuzz sanitize machines kills night night-report console-load coverage mutation hooks bench bench-compare benchmarks sync limits grammar docs console-libraries pictures wheel wheels audit check lint types imports format lock clean

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything pinned and the project; GROUP=core without Spark and browsers
	@echo "ready: $(VENV), with requirements/$(GROUP).txt"

# pip checks each hash. Modules are compiled at their first import: most never are, and a quarter of
# the space is saved.
INSTALL = python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes

# The project itself needs no download: its build tools are pinned, too.
$(STAMP): $(PIN) pyproject.toml scripts/check_python.sh $(NATIVE)
	@scripts/check_python.sh "$(PYTHON)"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/$(INSTALL) -r $(PIN)
	@scripts/ensure_compiler.sh $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --no-index -e .
	@echo $(GROUP) > $(VENV)/.group
	@touch $@

java: ## find Java >= 17, or install it when root
	@$(WITH_JAVA) echo "Java: $$JAVA_HOME"

demo: $(STAMP) ## run the main job on real data; writes out/report.html; SERVE=1 stays in the console
	@$(JAVA_IF_FOUND) $(BIN)/python -m examples.demo $(if $(SERVE),--serve)

test: check ## lint, types, import contract and the quick tests; at most 8 minutes on two cores
	@$(JAVA_IF_FOUND) $(PYTEST) -q --hypothesis-profile=quick -m "not slow and not long"

test-all: check ## the same and all slow tests, with all examples; 21 minutes on two cores
	@$(JAVA_IF_FOUND) $(PYTEST) -m "not long"

test-slow: $(STAMP) ## the slow tests alone, which `make test` leaves out; FILES="tests/…" picks
	@$(JAVA_IF_FOUND) $(PYTEST) -m "slow and not long" $(FILES)

# The oldest that is supported, and the newest of each minor version before the pinned one.
SPARKS ?= 4.0.0 4.1.4 4.2.1
spark-versions: $(STAMP) ## the Spark tests with other versions of PySpark, SPARKS="4.0.0 4.2.1"; ten minutes each
	@$(WITH_JAVA) scripts/spark_versions.sh $(BIN)/python $(SPARKS)

# Python versions that are not installed are named, and fail the target.
PYTHONS ?= 3.11 3.12 3.13 3.14
versions: ## the core's tests with the lowest and the newest dependencies, PYTHONS="3.11 3.14"; needs the network
	@scripts/dependency_versions.sh lowest-direct $(PYTHONS)
	@scripts/dependency_versions.sh highest $(PYTHONS)

verify: $(STAMP) ## the tests on the larger real data; fails where the data is absent
	@$(WITH_JAVA) CONTRADA_REQUIRE_SHARED=1 $(BIN)/python -m pytest -m shared_data

exact: $(STAMP) ## compare all decisions of the algebra with enumerated universes; some minutes
	@$(BIN)/python -m tests.model.exactness

thorough: $(STAMP) ## try 100,000 examples of each relation of the algebra; half an hour
	@$(BIN)/python -m pytest -q --hypothesis-profile=thorough -o timeout=0 \
		tests/model/test_laws.py -k "sound or matches_when"
	@$(BIN)/python -m pytest -q --hypothesis-profile=thorough -o timeout=0 \
		tests/patterns/test_pattern_matcher.py -k "is_the_definition and not long"
	@$(BIN)/python -m pytest -q --hypothesis-profile=thorough -o timeout=0 \
		tests/matching/test_index.py -k "as_every_filter_says"

worlds: $(STAMP) ## 10,000 seeded worlds, COUNT=162 of every kind of network, with faults; an hour
	@$(BIN)/contrada simulate worlds --count $(or $(COUNT),162)

patterns: $(STAMP) ## 10,000 seeded networks of patterns against one matcher; twenty minutes
	@$(BIN)/python -m tests.routing.assembly_worlds 10000

networks: $(STAMP) ## real brokers that are killed, judged as worlds are; SECONDS=600, SEEDS=n, FIRST=n
	@$(BIN)/python -m tests.net.real_worlds FIRST=$(or $(FIRST),1) SEEDS=$(or $(SEEDS),1000) \
		SECONDS=$(or $(SECONDS),600)

standby: $(STAMP) ## kill, pause and cut brokers with a standby, and their database; SECONDS=600, SEED=n
	@$(BIN)/python -m tests.net.standby_faults $(or $(SECONDS),600) $(or $(SEED),1)

costly: $(STAMP) ## search for the costliest requests, and publish honestly beside attackers; SECONDS=120 says how long
	@$(BIN)/python -m tests.net.costly $(or $(SECONDS),120)
	@$(BIN)/python -m tests.net.honest $$(( $(or $(SECONDS),120) / 24 ))

churn: $(STAMP) ## clients that come and go at two brokers for SECONDS=3600; fails where memory grows
	@$(BIN)/python -m tests.net.churn $(or $(SECONDS),3600)

fuzz: $(STAMP) ## feed brokers FRAMES=10000000 that are nearly good, in an hour; SEED=n does it again
	@$(BIN)/python -m tests.net.fuzz $(or $(FRAMES),10000000) $(SEED)

sanitize: $(STAMP) ## feed contrada._native INPUTS=10000000 with address and undefined-behaviour sanitizers; SEED=n
	@$(BIN)/python -m tests.matching.sanitizers $(or $(INPUTS),10000000) $(SEED)

machines: $(STAMP) ## 500 long runs of clients and a broker that do anything in any order
	@CONTRADA_MACHINES=500 $(BIN)/python -m pytest -q -o timeout=0 tests/net/test_machines.py

kills: $(STAMP) ## kill Spark's drivers, executors and workers under streams and runs; ten million rows; half an hour
	@$(WITH_JAVA) $(BIN)/python -m pytest -q -m long

night: $(STAMP) ## all long programs in turns for HOURS=8, of seeds SHARD=1/1; DIR=out/night; resumes
	@$(WITH_JAVA) $(BIN)/python -m tests.night --hours $(or $(HOURS),8) --shard $(or $(SHARD),1/1) \
		--folder $(or $(DIR),out/night) $(if $(JOBS),--jobs $(JOBS))

night-report: $(STAMP) ## make DIR/report.md of the results of all shards in DIR=out/night
	@$(BIN)/python -m tests.night_report $(or $(DIR),out/night)

console-load: $(STAMP) ## watch 10,000 events a second in the console for SECONDS=600; measures the page and the broker
	@$(BIN)/python -m tests.integrations.http.console_load $(or $(SECONDS),600)

coverage: $(STAMP) ## run the quick tests with coverage; writes out/coverage/index.html
	@$(BIN)/python -m pytest -q -n auto --hypothesis-profile=quick -m "not slow and not long and not spark" \
		--cov --cov-report=term --cov-report=html

mutation: $(STAMP) ## faults that tests must find: PACKAGE=all, COUNT=200, SEED=1, SHARD=1/1; writes out/mutation
	@$(BIN)/python -m tests.mutation PACKAGE=$(or $(PACKAGE),all) COUNT=$(or $(COUNT),200) \
		SEED=$(or $(SEED),1) SHARD=$(or $(SHARD),1/1)

hooks: $(STAMP) ## run ruff and mypy before each commit from now on
	$(BIN)/$(INSTALL) -r requirements/hooks.txt
	@$(BIN)/pre-commit install

bench: $(STAMP) ## measure; ONLY=name picks
	@$(JAVA_IF_FOUND) $(BIN)/python -m bench.run $(if $(ONLY),--only "$(ONLY)")

bench-compare: $(STAMP) ## compare revision OLD with NEW, or with this tree, in turns; ONLY=name picks
	@$(WITH_JAVA) $(BIN)/python -m bench.compare "$(OLD)" $(NEW) $(if $(ONLY),--only "$(ONLY)")

benchmarks: $(STAMP) ## measure, ONLY=names picks, and keep the results in docs/benchmarks.md and bench/results.jsonl
	@scripts/ensure_peers.sh
	@$(JAVA_IF_FOUND) $(BIN)/python -m bench.run --page $(if $(ONLY),--only "$(ONLY)")

sync: $(STAMP) ## make src/contrada/service/sync.py from the asynchronous interface
	@$(BIN)/python -m tests.sync_code

limits: $(STAMP) ## make docs/limits.md from the constants and their docstrings
	@$(BIN)/python -m tests.limits

grammar: $(STAMP) ## make editors/contrada.tmLanguage.json from the lexer of filters
	@$(BIN)/python -m tests.textmate_grammar

# Zensical has an environment of its own, so that it does not bind the versions of the others.
build/docs/.installed: requirements/docs.txt
	"$(PYTHON)" -m venv build/docs
	build/docs/bin/$(INSTALL) -r requirements/docs.txt
	@touch $@

docs: $(STAMP) build/docs/.installed ## build the documentation site in out/site; it works from files, with search
	@$(BIN)/python -m website.source_folder build/website
	@build/docs/bin/python -m website.railroad_pictures build/website
	@build/docs/bin/zensical build --strict
	@$(BIN)/python -m website.site_check out/site

vectors: $(STAMP) ## make tests/conformance/websocket.json, the test vectors of clients in other languages
	@$(BIN)/python -m tests.conformance_vectors

console-libraries: ## bundle the libraries of console/package.json for the console's pages; needs npm
	cd console && npm install --silent --no-audit --no-package-lock && npx esbuild libraries.js \
		--bundle --format=esm --minify --legal-comments=none \
		--outfile=../src/contrada/integrations/console/static/libraries.js

pictures: $(STAMP) ## make the pictures of the console in docs/images; needs Chromium
	@$(BIN)/python -m tests.console_pictures

wheel: $(STAMP) ## build the wheel and the sdist in dist/, and try an installation of each
	@$(BIN)/python -m tests.demo.packages

wheels: ## build the wheels of all platforms in containers by cibuildwheel, in dist/; needs docker
	@scripts/build_wheels.sh "$(PYTHON)"

audit: $(STAMP) ## known faults of what is pinned, and secrets in what is tracked; needs the network
	@scripts/audit.sh $(BIN)

check: lint types imports ## lint, types and import contract, no tests

lint: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "run: make format"; exit 1; }

types: $(STAMP)
	@$(BIN)/mypy $(TYPED)

imports: $(STAMP)
	@$(BIN)/lint-imports --no-logo

format: $(STAMP) ## format the code and repair what ruff can repair
	@$(BIN)/ruff check --quiet --fix .; $(BIN)/ruff format .

# pip-tools lives in an environment of its own, so that it does not bind what it pins.
COMPILE = CUSTOM_COMPILE_COMMAND="make lock" build/lock/bin/pip-compile --quiet \
	--generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
	--no-emit-find-links --no-emit-trusted-host

lock: ## pin requirements/*.in anew, with hashes
	@scripts/check_python.sh "$(PYTHON)"
	"$(PYTHON)" -m venv build/lock && build/lock/bin/pip install --quiet pip-tools
	$(COMPILE) --upgrade --output-file requirements/dev.txt requirements/dev.in
	$(COMPILE) --upgrade --constraint requirements/dev.txt \
		--output-file requirements/core.txt requirements/core.in
	$(COMPILE) --upgrade --constraint requirements/dev.txt \
		--output-file requirements/hooks.txt requirements/hooks.in
	$(COMPILE) --upgrade --output-file requirements/wheels.txt requirements/wheels.in
	$(COMPILE) --upgrade --output-file requirements/docs.txt requirements/docs.in

clean: ## remove what was made, also .venv
	rm -rf $(VENV) build dist out .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache spark-warehouse
	find $(wildcard $(CODE)) -name __pycache__ -type d -prune -exec rm -rf {} +

# The two commands that matter: `make demo` and `make test`. Both set up a fresh machine first.
PYTHON ?= python3
BIN := .venv/bin
SECONDS ?=
SEEDS ?= 20000
PYTEST_ARGS ?=
# Hundreds of processes load the same modules: they are to be compiled once.
unexport PYTHONDONTWRITEBYTECODE
# Tests that start Java, RabbitMQ, Spark or a browser wait for them half of their time, so three share two cores; the others
# wait more than that, so four do.
HEAVY := spark or browser or demo or java or rabbitmq

.PHONY: help setup venv demo test test-fast soak lint format bench docs lock wheel clean

help:  ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F'|' '{printf "make %-10s %s\n", $$1, $$2}'

venv:
	@$(PYTHON) scripts/bootstrap.py

setup: venv  ## Set up this machine: virtual environment, Java, connector jars, an archive of Spark's classes
	@$(BIN)/headrace setup

# The archive takes half a minute and saves some seconds of each start: who wants to see the demo need not wait for it.
demo: venv  ## Run the fraud demo and its page; SECONDS=60 stops after a minute
	@$(BIN)/headrace setup --no-fast-start
	@$(BIN)/headrace demo $(if $(SECONDS),--seconds $(SECONDS))

test: setup  ## Run all tests, those against a real Apache Kafka and RabbitMQ included
	@$(PYTHON) scripts/ensure_chromium.py
	@$(PYTHON) scripts/ensure_rabbitmq.py
	$(BIN)/pytest -n 4 -m "not ($(HEAVY))" $(PYTEST_ARGS)
	$(BIN)/pytest -n 3 --dist worksteal -m "$(HEAVY)" $(PYTEST_ARGS)

test-fast: venv  ## Run the unit tests, without those that generate hundreds of cases each: under a minute
	$(BIN)/pytest -n auto -m "not ($(HEAVY) or hypothesis)" tests/unit $(PYTEST_ARGS)

soak: venv  ## Tell many more stories of a broker in a world that breaks, and fuzz it; SEEDS=100000 tells that many
	$(BIN)/python -m headrace.testing.simulation --seeds $(SEEDS)
	$(BIN)/python -m headrace.testing.fuzz --rounds $$(($(SEEDS) / 20 + 1))

lint: venv  ## Check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv  ## Rewrite the code in house style
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup  ## Measure; each program prints the table that docs/benchmarks.md shows
	$(BIN)/python bench/broker/beside_kafka.py
	$(BIN)/python bench/broker/reads.py
	$(BIN)/python bench/broker/large_log.py
	$(BIN)/python bench/queue/beside_rabbitmq.py
	$(BIN)/python bench/events/store.py
	$(BIN)/python bench/events/projection.py
	$(BIN)/python bench/latency/first_alert.py --after 30
	$(BIN)/python bench/latency/fraud.py
	$(BIN)/python bench/streams/realtime_stateless.py
	$(BIN)/python bench/streams/exactly_once.py
	$(BIN)/python bench/streams/start_up.py
	$(BIN)/python bench/streams/replay.py
	$(BIN)/python bench/streams/keyed_state.py
	$(BIN)/python bench/streams/joins.py
	$(BIN)/python bench/streams/changelogs.py
	$(BIN)/python bench/streams/patterns.py
	$(BIN)/python bench/streams/windows.py
	$(BIN)/python bench/nexmark/throughput.py
	$(BIN)/python bench/cdc/decode.py
	$(BIN)/python bench/cdc/beside_debezium.py
	$(BIN)/python bench/stores/search.py
	$(BIN)/python bench/stores/cache.py
	$(BIN)/python bench/stores/warehouse.py

docs: venv  ## Write the reference of the commands anew, and draw the pictures of time
	$(BIN)/python scripts/command_reference.py docs/reference/cli.md
	$(BIN)/python scripts/pictures_of_time.py docs/images

lock: venv  ## Choose the newest allowed versions anew and write them to requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --all-extras --group dev \
		--python-version 3.11 --no-header --no-annotate pyproject.toml -o requirements.lock

wheel: venv  ## Build the wheel into dist/
	$(BIN)/uv build --wheel --quiet

clean:  ## Remove what was made, the virtual environment included
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Two commands: `make demo` shows the service at work, `make test` proves it. Both make .venv when it is missing.
# bash, python3 (3.11 or newer), python3-venv and make are all that must be there.

SHELL := /bin/bash
BIN := .venv/bin
CODE := sandloom api workers migrations scripts benchmarks

.PHONY: help demo test chaos lint format bench fleet lock wheel clean

help:
	@echo 'make demo         a real job in a sandbox of the embedded service'
	@echo 'make test         the suite, with private PostgreSQL, MariaDB, Redis, RabbitMQ and S3 servers'
	@echo 'make test FAST=1  what needs no server;  ARGS="-k name" goes to pytest, ARGS=--long adds what takes minutes'
	@echo 'make chaos        a fleet under load while every fault strikes;  ARGS="--seeds 20", ARGS=--mutants'
	@echo 'make lint         ruff, mypy --strict, import direction'
	@echo 'make bench        measures what a command costs;  ARGS=--full also what a worker costs'
	@echo 'make fleet        two API replicas, three workers, beat and Flower over PostgreSQL, Redis and S3'
	@echo 'make wheel        dist/sandloom-*.whl, the client for other projects'
	@echo 'make lock         pins the newest allowed dependencies again'

demo:
	@scripts/bootstrap server
	@$(BIN)/sandloom demo

test:
	@scripts/bootstrap dev
ifeq ($(FAST),)
	@scripts/bootstrap adapters
	@scripts/install-test-programs
	@$(BIN)/pytest $(ARGS)
else
	@$(BIN)/pytest -m 'not server' $(ARGS)
endif

chaos:
	@scripts/bootstrap dev
	@scripts/install-test-programs
	@$(BIN)/python -m tests.chaos $(ARGS)

lint:
	@scripts/bootstrap dev
	@status=0; \
	$(BIN)/ruff check . || status=1; \
	$(BIN)/ruff format --check . || status=1; \
	$(BIN)/mypy $(CODE) tests || status=1; \
	$(BIN)/lint-imports --no-logo || status=1; \
	exit $$status

format:
	@scripts/bootstrap dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench:
	@scripts/bootstrap dev
	@$(BIN)/python -m benchmarks $(ARGS)

fleet:
	@scripts/bootstrap dev
	@scripts/install-test-programs
	@$(BIN)/python -m scripts.fleet $(ARGS)

lock:
	@scripts/bootstrap dev
	@scripts/lock --upgrade

wheel:
	@scripts/bootstrap server
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf .venv build dist var/adapters var/fleet *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

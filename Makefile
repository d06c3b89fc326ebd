# `make run` and `make test` set themselves up: the first time needs a package index, later ones need no network.

PYTHON ?= python3
TOPOLOGY ?= topologies/word_count.py
ARGS ?=

export PYTHON
setup = sh scripts/setup.sh
python = .venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help setup run test check clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile
	@echo '  variables	PYTHON=python3.12  TOPOLOGY=path/to/file.py  INPUT=file-or-folder  ARGS="further arguments"'

setup: ## build .venv and nothing else; EXTRAS="test spark" adds extras
	@$(setup) $(EXTRAS)

run: ## run the word count, or TOPOLOGY=...; INPUT=path is the text to count
	@$(setup)
	@.venv/bin/topo run "$(TOPOLOGY)" $(if $(INPUT),-p path="$(INPUT)") $(ARGS)

test: ## run the tests; ARGS="-k acker -n 2" goes to pytest
	@$(setup) test examples
	@$(python) -m pytest $(ARGS)

check: ## lint, strict types, import directions
	@$(setup) test dev
	@$(python) -m ruff check .
	@$(python) -m mypy
	@$(python) -m pytest -q tests/structure

clean: ## remove what was built, the environment too
	rm -rf .venv .venv.* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

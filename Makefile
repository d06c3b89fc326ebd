# `make run` and `make test` set themselves up: the first time needs a package index, later ones need no network.

PYTHON ?= python3
TOPOLOGY ?= topologies/word_count.py
ARGS ?=
ENVIRONMENT ?= .venv
UNITS ?= tests/contract tests/properties tests/unit tests/user_mistakes

export PYTHON
# Every task is a process: what the first has compiled the others read.
unexport PYTHONDONTWRITEBYTECODE
setup = sh scripts/setup.sh
python = .venv/bin/python
# Spark takes a Java from PyPI where the machine has none; without any, what needs Spark says so.
java = $(python) -m topo.spark.java >/dev/null 2>&1 || $(setup) java || true

.DEFAULT_GOAL := help
.PHONY: help setup run flights test spark connectors browser kafka registry redis postgres mqtt nats rabbitmq unit check clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1	/p' Makefile
	@echo '  variables	PYTHON=python3.12  TOPOLOGY=path/to/file.py  INPUT=file-or-folder  ARGS="further arguments"'

setup: ## build .venv and nothing else; EXTRAS="test spark" adds extras
	@$(setup) $(EXTRAS)

run: ## run the word count, or TOPOLOGY=...; INPUT=path is the text to count; UI=1 serves the web page, too
	@$(setup) $(if $(UI),ui)
	@.venv/bin/topo run "$(TOPOLOGY)" $(if $(INPUT),-p path="$(INPUT)") $(if $(UI),--ui) $(ARGS)

flights: ## the example with Spark at both ends; ARGS="-p month=1" goes to topo run
	@$(setup) examples spark
	@$(java)
	@rm -rf build/flights
	@echo 'Spark reads and joins the flights of a year first: up to a minute in which nothing is emitted.'
	@.venv/bin/topo run topologies/flights_on_spark.py -p out=build/flights $(ARGS)
	@$(python) topologies/flights_on_spark.py build/flights

# The tests of a file share what they have computed, such as 500 simulated runs. Those with real processes wait for a quarter of
# their time, so they have three processes for two processors; those with servers wait for most of it, and have four.
spread = -n 2 --dist loadgroup --no-loadscope-reorder
pytest = $(python) -m pytest $(spread)

test: ## run the tests but those in Spark and with servers; ARGS="-k acker -n 0" goes to pytest
	@$(setup) test examples spark
	@$(pytest) -n 3 -m "not spark and not server and not browser" $(ARGS)

spark: ## run the tests in Spark, with a Java from PyPI where the machine has none, and on a YARN, which it installs
	@$(setup) test examples spark
	@$(java)
	@sh scripts/servers.sh hadoop || true
	@$(pytest) -m spark $(ARGS)

connectors: ## run the tests with servers, Kafka and others, which it installs; SERVERS="kafka s3" for some of them
	@sh scripts/servers.sh $(SERVERS)
	@$(pytest) -n 4 -m server $(ARGS)

browser: ## run the tests of the web page in Chromium, which it installs with apt-get where it may
	@sh scripts/servers.sh browser
	@$(python) -m pytest -m browser tests/browser $(ARGS)

kafka: ## start a Kafka broker at 127.0.0.1:9092 in the foreground; TOPICS="orders:4 totals" makes topics with partitions
	@sh scripts/servers.sh kafka
	@$(python) -m tests.servers.kafka $(TOPICS)

registry: ## start a schema registry at 127.0.0.1:8081 in the foreground
	@sh scripts/servers.sh registry
	@$(python) -m tests.servers.schema_registry

nats: ## start a NATS server with JetStream at 127.0.0.1:4222 in the foreground
	@sh scripts/servers.sh nats
	@$(python) -m tests.servers.nats

redis: ## start a Redis server at 127.0.0.1:6379 in the foreground
	@sh scripts/servers.sh redis
	@$(python) -m tests.servers.redis

postgres: ## start a PostgreSQL server as tests do, in the foreground; it prints its dsn
	@sh scripts/servers.sh postgres
	@$(python) -m tests.servers.postgres

mqtt: ## start an MQTT broker at 127.0.0.1:1883 in the foreground
	@sh scripts/servers.sh mqtt
	@$(python) -m tests.servers.mosquitto

rabbitmq: ## start a RabbitMQ broker at 127.0.0.1:5672 in the foreground
	@sh scripts/servers.sh rabbitmq
	@$(python) -m tests.servers.rabbitmq

unit: ## run UNITS, tests that start no processes; PYTHON=python3.13 ENVIRONMENT=.venv.3.13 does so with another interpreter
	@TOPO_VENV=$(ENVIRONMENT) $(setup) test
	@$(ENVIRONMENT)/bin/python -m pytest -q $(spread) -m "not integration and not server and not long" $(ARGS) $(UNITS)

check: ## lint, strict types, import directions, manifests
	@$(setup) test dev
	@$(python) -m ruff check .
	@$(python) -m mypy
	@if ! command -v node >/dev/null; then echo "topo: pyright is not run: it needs node"; \
	  else $(python) -m pyright --version >/dev/null 2>&1 || $(python) -m pip install -q -c constraints.txt 'pyright>=1.1.400,<2'; fi
	@$(python) -c 'import kubernetes_validate' 2>/dev/null || $(python) -m pip install -q -c constraints.txt 'kubernetes-validate>=1.31,<2'
	@$(python) -m pytest -q tests/structure tests/typing tests/packaging/test_deploy.py

clean: ## remove what was built, the environment too
	rm -rf .venv .venv.* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis topo/hot/compiled/*.c topo/hot/compiled/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

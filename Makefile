# Two jobs, each of which sets everything up by itself in .venv:
#   make compare   compare the agents; prints a table, writes figures and TensorBoard events
#   make test      run the tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
COMPARE_FLAGS ?=

CAPABILITY ?= default
LOWEST := build/lowest

.PHONY: compare test test-numeric test-lowest room clean

# Fewer than the preset's 1024 decisions per policy: the samplers of portfolios and mixtures are the slow ones.
PORTFOLIO := --instances 1 --n 128
MIXTURE := --instances 1 --n 256

compare: $(VENV)/.installed
	@echo "== Comparing every agent that needs no training on your side; a few minutes on two cores"
	@echo "   WirelessPower-v0: 3 networks at the default settings; Portfolio-v0: $(PORTFOLIO); mixture: $(MIXTURE)"
	$(BIN)/pdi-gym compare WirelessPower-v0 --instances 3 --workers $(WORKERS) $(COMPARE_FLAGS)
	$(BIN)/pdi-gym compare Portfolio-v0 $(PORTFOLIO) --workers $(WORKERS) $(COMPARE_FLAGS)
	$(BIN)/pdi-gym compare MixtureOfGaussians-v0 $(MIXTURE) --workers $(WORKERS) $(COMPARE_FLAGS)

test: $(VENV)/.installed-dev
	@echo "== Checking style and types"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@echo "== Running the tests"
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report=term:skip-covered

# The tests marked numeric with the vector instructions of another processor: default (none), avx2 or avx512.
test-numeric: $(VENV)/.installed-dev
	@echo "== Running the numeric tests with ATEN_CPU_CAPABILITY=$(CAPABILITY)"
	ATEN_CPU_CAPABILITY=$(CAPABILITY) $(BIN)/python -m pytest -n $(WORKERS) -m numeric

# The lowest versions that setup.cfg promises, in an environment of their own.
test-lowest:
	@echo "== Installing the lowest promised versions in $(LOWEST)"
	$(PYTHON) -m venv --clear $(LOWEST)
	$(PYTHON) tests/lowest.py > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/pip install --quiet "$$(grep '^torch==' $(LOWEST)/constraints.txt)"
	$(LOWEST)/bin/pip install --quiet -c $(LOWEST)/constraints.txt -e ".[convex,dev]"
	@echo "== Running the tests"
	$(LOWEST)/bin/python -m pytest -n $(WORKERS)

# How much room every tolerance has under each of them; half an hour.
room: $(VENV)/.installed-dev
	$(BIN)/python -m tests.room

clean:
	rm -rf $(VENV) build *.egg-info

# torch comes first and pinned: asked for by another package, pip would take a build with CUDA.
$(VENV)/.torch: constraints.txt
	@echo "== Creating $(VENV) and installing torch"
	$(PYTHON) -c 'import sys; sys.exit("pdi-gym needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)"
	@touch $@

$(VENV)/.installed: $(VENV)/.torch setup.cfg
	@echo "== Installing pdi-gym"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[convex]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "== Installing the test tools"
	$(BIN)/pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

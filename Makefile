# `make demo` and `make test` do everything on a fresh machine: Python 3.10 to 3.13 and a C++20 compiler are enough.
PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= compile,cuda,run,lsp,dev
WORKERS ?= 2

PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --no-input
# The environment is as pyproject.toml says, whatever the file's date: another content is another stamp.
STAMP := $(VENV)/.kdsl-$(shell (cat pyproject.toml; echo "$(EXTRAS)") | cksum | cut -d' ' -f1)

.PHONY: help venv demo tour test lint pytest prove-all prove-threads mutation gpu-bundles gpu-test clean

help:
	@echo "make demo      check, select, lower, run on recorded inputs, and a picture of the schedule"
	@echo "make test      ruff, import contracts, all tests that need no GPU"
	@echo "make tour      one rule from text to report, every step shown and asserted"
	@echo "make gpu-bundles  what gpu-test runs, built without a GPU (GPU_TARGETS=sm_90a)"
	@echo "make gpu-test  tests, sanitizers and times on a GPU of this machine: python3 with PyTorch is enough"
	@echo "make prove-threads  the CUDA of every rule at its default point, on every target, a fiber for each thread"
	@echo "make prove-all every form and every rule at every choose point, on every target, over finite fields"
	@echo "make mutation  mutants of everything, which stage rejects each: docs/mutation.md"
	@echo "make lint      ruff and import contracts alone"
	@echo "make clean     remove the environment and all that was built"

venv: $(STAMP)

$(STAMP): pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --editable '.[$(EXTRAS)]'
	rm -f $(VENV)/.kdsl-*
	touch $@

demo: $(STAMP)
	@$(VENV)/bin/python -m kdsl.cli.demo

tour: $(STAMP)
	@$(VENV)/bin/python -m kdsl.tour

test: lint pytest

lint: $(STAMP)
	$(VENV)/bin/ruff check kdsl tests
	$(VENV)/bin/lint-imports --no-cache

pytest: $(STAMP)
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow" tests/pure tests/compiler

# Places of each operator on each subject, 0 for all of them; judged by two processes, and not again while the log holds.
PLACES ?= 6

# Every form under every option, every rule on every target at every choose point; equal programs once.
prove-all: $(STAMP)
	$(VENV)/bin/kdsl prove stdlib/operators --every-option
	$(VENV)/bin/kdsl prove rules

prove-threads: $(STAMP)
	$(VENV)/bin/kdsl prove rules --points default --threads

mutation: $(STAMP)
	$(VENV)/bin/python -m tests.mutation run --most $(PLACES) --part 1/2 & \
	$(VENV)/bin/python -m tests.mutation run --most $(PLACES) --part 2/2 && wait
	$(VENV)/bin/python -m tests.mutation report --most $(PLACES)

# Built on a machine that needs no GPU: CUDA of every call in tests/gpu/calls.txt. Then build/gpu, kdsl, data and
# tests/gpu are all that the machine with the GPU needs, beside a Python with PyTorch, cuda-bindings, NumPy and attrs.
GPU_TARGETS ?= sm_90a
GPU_PYTHON ?= $(shell test -x $(VENV)/bin/python && echo $(VENV)/bin/python || echo python3)
# Cases timed beside flash-linear-attention, where it is installed: none, one, all.
BASELINE ?= all

gpu-bundles: $(STAMP)
	$(VENV)/bin/kdsl precompile --target $(GPU_TARGETS) --calls tests/gpu/calls.txt --output build/gpu

gpu-test:
	test -n "$$(ls -d build/gpu/*.kdsb 2>/dev/null)" || $(MAKE) gpu-bundles
	$(GPU_PYTHON) tests/gpu/run.py build/gpu --baseline $(BASELINE) $(GPU_ARGUMENTS)

clean:
	rm -rf $(VENV) build .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# Every target runs in .venv, which is made on first use (scripts/environment.sh); to use an environment of your own:
# make quick PYTHON=python3.11
SHELL := bash
ifdef PYTHON
READY := true
else
PYTHON := .venv/bin/python
READY := source scripts/environment.sh && headprune_environment dev,docs,export,fairseq,glue,test
endif
WORKERS ?= 2
TESTS = $(PYTHON) -m pytest -n $(WORKERS) $(ARGS)

.PHONY: help environment test quick check docs format pictures wheel

help:
	@echo "make check    format, lint, types, direction of imports, the manual: no test is run"
	@echo "make quick    the fast tests (under a minute on two cores)"
	@echo "make test     all tests; ARGS='-k mask' chooses some"
	@echo "make docs     the manual as a site in site/; a broken link fails"
	@echo "make pictures draw the pictures of all results again, from examples/*/results/*.json"
	@echo "make wheel    build the package, install it into a fresh environment, run the quick start from there"
	@echo "make format   format the code and mend what the linter can mend"

environment:
	@$(READY)

test: environment
	$(TESTS)

quick: environment
	$(TESTS) -q -m "not slow and not slurm and not browser"

check: environment docs
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -c "from importlinter.cli import lint_imports_command as run; run()" --no-cache --no-logo

docs: environment
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

wheel: environment
	$(PYTHON) -m pip install --quiet build twine wheel
	scripts/check_wheel.sh $(abspath $(PYTHON))

format: environment
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

pictures: environment
	$(PYTHON) scripts/draw_results.py

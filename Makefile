# Two commands do everything on a fresh machine with Python 3.11 or newer: make demo, make test.
PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test stress lint clean

demo: .venv/installed
	$(BIN)/hmrnn demo

test: .venv/installed-test lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4 --dist worksteal

# What takes minutes; results and logs go to results/stress.
stress: .venv/installed-test .venv/schemathesis/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -o python_files='stress_*.py' tests/stress

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@

# In an environment of its own, as it brings a plugin for pytest.
.venv/schemathesis/installed: .venv/installed
	$(BIN)/python -m venv .venv/schemathesis
	.venv/schemathesis/bin/python -m pip install --quiet --disable-pip-version-check "schemathesis>=4,<5"
	touch $@

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

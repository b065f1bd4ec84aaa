# Two commands do everything on a fresh machine with Python 3.11 or newer: make demo, make test.
PYTHON ?= python3
# make test TORCH=2.11.0 runs the tests with another version, in an environment of its own.
PINNED := 2.13.0
TORCH ?= $(PINNED)
VENV := .venv$(if $(filter $(PINNED),$(TORCH)),,-torch-$(TORCH))
BIN := $(VENV)/bin
# Python compiles what is imported; to compile all that is installed takes half a minute more.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c $(VENV)/constraints.txt
export OMP_WAIT_POLICY ?= PASSIVE
# Compiled files are kept, also where the environment forbids it: every process of the tests would compile them again.
export PYTHONDONTWRITEBYTECODE =

# All at once, with the extras that are named.
define install
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed 's/^torch==.*/torch==$(TORCH)/$(if $(filter $(PINNED),$(TORCH)),,; /^triton==/d)' constraints.txt > $(VENV)/constraints.txt
	$(INSTALL) "torch==$(TORCH)" -e ".[demo,$(1)]" || { $(INSTALL) "torch==$(TORCH)" -e ".[$(1)]" && \
		echo "the demo will read the Python manual, as its novel could not be installed"; }
endef

.PHONY: demo test pytest sanitize wheel docs stress fuzz lint clean

demo: $(VENV)/installed
	$(BIN)/hmrnn demo

test: $(VENV)/installed-test
	$(MAKE) --no-print-directory --jobs=2 pytest $(if $(filter $(PINNED),$(TORCH)),lint)

pytest: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4 --dist worksteal

# The native library under sanitizers, with cases that the reference agrees with.
sanitize: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python tests/native/sanitize.py

# A wheel in dist, for this machine; for another with TARGET="linux aarch64" or "darwin arm64", which takes minutes.
wheel: $(VENV)/installed-test
	$(if $(TARGET),HMRNN_TARGET="$(TARGET)") $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

# The tables of the recorded results, then the site in build/docs; nothing is fetched, and a warning is an error.
docs: $(VENV)/installed-docs
	$(BIN)/python results/table.py
	$(BIN)/python results/figures.py
	-$(BIN)/python benchmarks/walks.py --write
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --quiet --fail-on-warning -c docs -d build/doctrees . build/docs
	@echo "open build/docs/index.html"

# What takes minutes; results and logs go to build/stress. With a GPU also: the same command with -m gpu.
stress: $(VENV)/installed-test
	OMP_NUM_THREADS=1 HMRNN_FULL_GRIDS=1 $(BIN)/python -m pytest -q tests/ops tests/nn/test_cost.py
	OMP_NUM_THREADS=1 HMRNN_FULL_GRIDS=1 $(BIN)/python -m pytest -q -m "slow and not gpu" tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -o python_files='stress_*.py' tests/stress

# Damaged files, command lines and requests, for a minute; make fuzz SECONDS=3600 SEED=7 for longer, from another seed.
SECONDS := 60
SEED := 20000
fuzz: $(VENV)/installed-test
	OMP_NUM_THREADS=1 HMRNN_FUZZ_SECONDS=$(SECONDS) HMRNN_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -q \
		-o python_files='stress_fuzz.py' tests/stress

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks examples hatch_build.py
	$(BIN)/clang-format --dry-run --Werror $(wildcard src/hmrnn/ops/native/*.h src/hmrnn/ops/native/*.cpp tests/native/*.cpp)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

$(VENV)/installed: pyproject.toml hatch_build.py constraints.txt
	$(call install,page)
	touch $@

$(VENV)/installed-test: pyproject.toml hatch_build.py constraints.txt
	$(call install,test)
	touch $(VENV)/installed $@

$(VENV)/installed-docs: $(VENV)/installed
	$(INSTALL) -e ".[docs]"
	touch $@

clean:
	rm -rf src/hmrnn/ops/native/_hmrnn* .venv .venv-torch-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

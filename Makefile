# One verb per line; `make help` lists them.
PYTHON ?= python3
override PYTHON := $(PYTHON:3.%=python3.%)
VENV := .venv/bin/python
READY := .venv/.ready
DEVELOP := .venv/.develop
PROCESSES := -n 2
ALONE = $(shell grep -rl --include='*.py' mark.alone tests keepfed/tests)
NO_PYTHON := The course needs Python 3.11 or newer with venv. Install it (Debian, Ubuntu: apt install \
 python3-venv), or name another one you have: make PYTHON=python3.12 $(MAKECMDGOALS)
# else each of the many processes of the tests compiles all sources anew
unexport PYTHONDONTWRITEBYTECODE
.DELETE_ON_ERROR:
.PHONY: help lab test test-fast test-keepfed test-all test-unit test-notebooks test-browser durations lint imports data notebooks slides book bundle bench peers links publish gpu-check

help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' $(MAKEFILE_LIST) | expand -t 24

lab: $(READY) ## install what is missing, make the data, open the notebooks (CUDA=1: PyTorch with CUDA)
	@$(VENV) -m course_utils.command.cli lab

test: $(DEVELOP) ## unit tests, every notebook and a real browser
	@$(VENV) -m pytest $(PROCESSES) -m "not full and not alone"
	@$(VENV) -m pytest -m "alone and not full" $(ALONE)

test-fast: $(DEVELOP) ## the quick unit tests, on two cores
	@$(VENV) -m pytest -q $(PROCESSES) --ignore=tests/browser -m "not slow and not browser and not full"

test-all: $(DEVELOP) ## everything, under every way to start workers, every notebook in the browser too
	@COURSE_TEST_MATRIX=full $(VENV) -m pytest $(PROCESSES) -o faulthandler_timeout=1800 -m "not alone and not short"
	@COURSE_TEST_MATRIX=full $(VENV) -m pytest -m alone $(ALONE)

test-keepfed: $(DEVELOP) ## the tests of keepfed alone
	@cd keepfed && ../$(VENV) -m pytest $(PROCESSES) --dist loadfile -m "not full and not alone"
	@cd keepfed && ../$(VENV) -m pytest -m "alone and not full"

test-unit: $(DEVELOP) ## what `make test` tries without notebooks and browser
	@$(VENV) -m pytest $(PROCESSES) --ignore=tests/notebooks --ignore=tests/browser -m "not full and not alone"
	@$(VENV) -m pytest -m "alone and not full" $(ALONE)

test-notebooks: $(DEVELOP) ## every notebook, as learners have it and solved
	@$(VENV) -m pytest $(PROCESSES) tests/notebooks -m "not full and not alone"

test-browser: $(DEVELOP) ## JupyterLab, slides and book in a real browser
	@$(VENV) -m pytest $(PROCESSES) tests/browser -m "not full and not alone"

durations: $(DEVELOP) ## measure how long the tests take, which decides their order
	@$(VENV) -m pytest $(PROCESSES) -m "not full and not alone" --store-durations

lint: $(DEVELOP) ## check style, types, plain English and the number of lines
	@$(VENV) -m ruff check && $(VENV) -m ruff format --check
	@$(VENV) -m mypy
	@$(VENV) docs/plain_english.py --strict && $(VENV) docs/budget.py

imports: $(DEVELOP) ## check the imports between layers and packages
	@$(VENV) docs/import_graph.py

data: $(READY) ## make the data sets (COURSE_SIZE=S, M or L)
	@$(VENV) -m course_utils.command.cli data

notebooks: $(DEVELOP) ## build the notebooks from notebooks/source, and what they tell the instructor
	@$(VENV) -m notebooks.build
	@$(VENV) -m slides.instructor.collect

slides: $(DEVELOP) ## build the slides: one HTML file and one PDF for each deck
	@$(VENV) -m slides.build

book: $(DEVELOP) ## build the book, offline pages that need no Python to read (ONLY="02 09" runs these notebooks)
	@$(VENV) -m docs.book.build

bundle: $(DEVELOP) ## everything in build/bundle, to install offline (FOR="linux windows macos" PYTHON=3.12)
	@$(VENV) docs/bundle.py --python $(PYTHON) $(FOR)

links: $(DEVELOP) ## follow all links of README, notebooks, decks and book (needs a network)
	@$(VENV) -m docs.links

publish: $(DEVELOP) ## write ADDRESS=example.org/team/course into all texts (BOOK=URL, PUBLISHED=1; empty: remove it)
	@$(VENV) -m docs.publish "$(ADDRESS)" $(if $(BOOK),--book "$(BOOK)") $(if $(PUBLISHED),--published)

bench: $(DEVELOP) ## measure what the course claims
	@for part in tracing peers diagnose claims; do $(VENV) -m benchmarks.$$part; done

peers: $(DEVELOP) ## our loaders beside those of other libraries, as far as they are installed
	@$(VENV) -m benchmarks.peers

gpu-check: ## try notebooks, tests and checks on a GPU, with the Python at hand
	@$(PYTHON) tests/gpu/run.py

$(READY): requirements.lock pyproject.toml keepfed/pyproject.toml
	@$(PYTHON) -c "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))" 2>&- || { echo "$(NO_PYTHON)"; exit 1; }
	@$(PYTHON) -m venv .venv && $(VENV) docs/install.py requirements.lock
	@$(VENV) -m pip install --disable-pip-version-check -q --no-deps -e keepfed -e . && touch $@

$(DEVELOP): requirements-dev.lock $(READY)
	@$(VENV) docs/install.py requirements-dev.lock && touch $@

# Every target does its own set-up in this clone: a virtual environment in .venv, a release build in
# target. `make` lists them.

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements-dev.lock
DATA ?= $(DUALGAP_DATA)

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find src -name '*.rs')
PYTHON_SOURCES := pyproject.toml README.md LICENSE $(shell find python -name '*.py' -o -name '*.pyi')
DEPENDENCIES := $(VENV)/dependencies.stamp
EXTENSION := $(VENV)/extension.stamp
WHEEL := dist/wheel.stamp
STRANGER := dist/examples.stamp
EXAMPLES := README.md $(shell find docs examples -name '*.md' -o -name '*.py' -not -path 'docs/tutorials/*')

# An active conda environment would make maturin refuse to choose.
MATURIN := env -u CONDA_PREFIX PIP_QUIET=1 VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin
say = @printf '\033[1m==> %s\033[0m\n'

.PHONY: help demo test bench bench-quick docs results fmt clean venv build lint deny sanitize semver structure test-rust test-python wheel stranger lock rust
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## List the targets
	@echo "dualgap: learning with many outputs, solved to a certificate"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14 | sed 's/^/  make /'

demo: build ## Train a recommender on MovieLens 100k: metrics, recommendations, a plot (in demo/)
	$(say) "Running the demo; results go to demo/"
	$(BIN)/dualgap recommend --data 100k --compare --plot demo/curves.png \
		--save demo/model.npz --user 1 --user 42 --user 405 --top 5

test: lint test-rust wheel stranger docs test-python ## Run every check and test
	$(say) "All checks and tests passed"

bench: build ## Run the benchmarks (DATA=folder for those on real data); rows go to target/results
	$(say) "Rust benchmarks"
	cargo bench
	$(say) "Python benchmarks"
	@set -e; for script in $(filter-out benches/_% benches/compare_builds.py,$(wildcard benches/*.py)); do \
		echo "$$script"; DUALGAP_DATA="$(DATA)" DUALGAP_RESULTS=target/results $(BIN)/python "$$script"; \
	done

QUICK := target/quick
QUICKLY := DUALGAP_DATA="$(DATA)" DUALGAP_RESULTS=$(QUICK)/results $(BIN)/python
bench-quick: build ## The short benchmarks (DATA=folder for those on real data); RESULTS.md goes to target/quick
	rm -rf $(QUICK) && mkdir -p $(QUICK) && cp -r benches/results benches/RESULTS.md $(QUICK)
	$(QUICKLY) benches/solvers.py --seconds 1
	$(QUICKLY) benches/multiclass.py steps
	$(QUICKLY) benches/multiclass.py threads
	$(QUICKLY) benches/randomized_away.py
	$(QUICKLY) benches/polynomial_theory.py rate
	$(QUICKLY) benches/cross_validation.py trials --count 100
	$(QUICKLY) benches/certificates.py --minutes 0.5
	$(QUICKLY) benches/trials_concurrency.py --fits 1000
	$(QUICKLY) benches/trials_fuzz.py --seconds 5
	@test -z "$(DATA)" || { set -ex; \
		$(QUICKLY) benches/liblinear.py letter satimage dna; \
		$(QUICKLY) benches/cross_validation.py compare dna satimage --programs dualgap; \
		$(QUICKLY) benches/polynomial.py speed satimage; \
		$(QUICKLY) benches/structured.py scene; }
	$(BIN)/python scripts/results.py $(QUICK)

docs: build ## Build the site into target/docs (no network; warnings are errors)
	$(say) "Building the site: target/docs/index.html"
	$(BIN)/sphinx-build -b html -d target/doctrees --fail-on-warning --keep-going --quiet docs target/docs

results: $(DEPENDENCIES) ## Fill the tables of benches/RESULTS.md and README.md from benches/results
	$(BIN)/python scripts/results.py

fmt: build ## Format the Rust and Python code, and write the names of choices
	$(BIN)/python scripts/choices.py
	cargo fmt
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove everything that was built here
	rm -rf target $(VENV) dist demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f python/dualgap/_core*.so python/dualgap/_core*.pyd
	rm -rf docs/tutorials docs/reference/api
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv: $(DEPENDENCIES) ## Create the virtual environment with all development dependencies

build: $(EXTENSION) ## Build the extension (release) into the virtual environment

lint: build ## Check format, lints, types, stubs, structure and tables
	$(say) "cargo fmt, clippy, doc"
	cargo fmt --check
	cargo clippy --quiet --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --document-private-items
	$(say) "ruff, mypy, pyright, stubtest"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/basedpyright --warnings
	$(BIN)/python scripts/choices.py --check
	$(BIN)/python -m mypy.stubtest dualgap._core
	$(say) "Public names and docstrings; imports and sizes; licences; tables"
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python scripts/check_structure.py
	$(BIN)/python scripts/check_licences.py
	$(BIN)/python scripts/results.py --check
	@if command -v cargo-deny > /dev/null; then $(MAKE) --no-print-directory deny; fi

deny: ## Check licences, sources and, where their database can be had, advisories (needs cargo-deny)
	$(say) "cargo deny"
	@command -v cargo-deny > /dev/null || { echo "not installed: cargo install --locked cargo-deny"; exit 1; }
	cargo deny --offline check licenses bans sources
	@if cargo deny fetch db 2> /dev/null; then cargo deny --offline check advisories; \
	else echo "advisories are NOT checked: their database (github.com/RustSec/advisory-db) is out of reach"; fi

sanitize: $(DEPENDENCIES) ## Rust tests and the Python doors under AddressSanitizer, unsafe code under Miri (nightly, Linux)
	$(say) "AddressSanitizer with debug assertions, Miri"
	scripts/sanitize $(BIN)/python

# Of the last release, where there is one.
BASE ?= $(shell git describe --tags --match 'v*' --abbrev=0 2> /dev/null)
semver: ## Compare the Rust API with that of the last release, or of BASE=commit (needs cargo-semver-checks)
	@test -n "$(BASE)" || { echo "there is no release yet: name a commit, as in make semver BASE=HEAD~10"; exit 1; }
	cargo semver-checks --baseline-rev "$(BASE)" --default-features

structure: $(DEPENDENCIES) ## Check the direction of imports, circles, sizes of files and functions
	$(BIN)/python scripts/check_structure.py

test-rust: rust ## Run the Rust tests
	$(say) "Rust tests"
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED-1} cargo test --quiet

test-python: build ## Run the Python tests
	$(say) "Python tests"
	$(BIN)/python -m pytest

wheel: $(WHEEL) ## Build a wheel into dist/ and try it in an empty environment

stranger: $(STRANGER) ## Run every example of README, pages and tutorials on that wheel, as a newcomer would

lock: ## Pin the newest development dependencies in requirements-dev.lock
	$(say) "Resolving the development dependencies"
	@python=$$(scripts/toolchain python) && scripts/lock "$$python" $(LOCK)

rust:
	@scripts/toolchain rust

$(DEPENDENCIES): $(LOCK)
	$(say) "Creating $(VENV) and installing the development dependencies"
	@python=$$(scripts/toolchain python) && test -x $(BIN)/python || "$$python" -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement $(LOCK)
	@touch $@

$(EXTENSION): $(DEPENDENCIES) $(RUST_SOURCES) pyproject.toml | rust
	$(say) "Building the extension (release; the first time takes a minute or two)"
	$(MATURIN) develop --release --quiet
	@touch $@

$(WHEEL): $(EXTENSION) $(PYTHON_SOURCES) scripts/check_wheel.py scripts/smoke.py
	$(say) "Building a wheel and trying it in an empty environment"
	rm -rf dist
	$(MATURIN) build --release --quiet --compression-level 9 --out dist --interpreter $(BIN)/python
	$(BIN)/python scripts/check_wheel.py $(BIN)/python dist/*.whl $(LOCK)
	@touch $@

$(STRANGER): $(WHEEL) $(EXAMPLES) scripts/check-examples tests/python/stranger.py tests/python/snippets.py
	$(say) "Running every example on the wheel, in an empty environment"
	scripts/check-examples $(BIN)/python dist/*.whl
	@touch $@

# Every target does its own set-up in this clone: a virtual environment in .venv and a release build
# in target/. `make` lists the targets.

VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements-dev.txt
DATA ?= $(DUALGAP_DATA)

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find src -name '*.rs')
PYTHON_SOURCES := pyproject.toml README.md LICENSE licences/THIRD_PARTY.md $(shell find python -name '*.py' -o -name '*.pyi')
INSTALLER := $(VENV)/installer.stamp
RUNTIME := $(VENV)/runtime.stamp
DEPENDENCIES := $(VENV)/dependencies.stamp
COMPILED := target/compiled.stamp
EXTENSION := $(VENV)/extension.stamp
BUILT := dist/built.stamp
WHEEL := dist/wheel.stamp
STRANGER := dist/examples.stamp
EXAMPLES := README.md $(shell find docs examples -name '*.md' -o -name '*.py' -not -path 'docs/tutorials/*')

# Number of processes for the Python tests. Many tests wait for other processes, so three keep two
# cores busy. BLAS and OpenMP get one thread in each, so that the processes do not compete for cores.
JOBS ?= 3
PYTEST := env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 \
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist worksteal
# `stranger` runs the same examples and tutorials on the wheel, so `make test` does not run them twice. With
# DOCS_PLOTS=0, the site shows only the code of the tutorials.
RUN_ON_WHEEL := --deselect tests/python/test_readme.py::test_examples_of_a_page_print_the_documented_output \
	--deselect tests/python/test_examples.py::test_a_tutorial_runs_and_draws_a_picture
# Runs two targets at a time. Make 4.0 and newer prints the output of a target when it ends.
IN_PARALLEL := $(MAKE) --no-print-directory --jobs=2
CHECK_IN_PARALLEL := $(IN_PARALLEL) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
# pip does not compile modules, because most are never imported; Python compiles a module when it first imports it.
# Python must keep the compiled modules even if the environment forbids it: otherwise, each of the many processes of the
# tests would compile pandas and scikit-learn again, which takes 3 s.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip install --quiet --prefer-binary --no-compile

# maturin fails if both a conda and a virtual environment are active.
MATURIN := env -u CONDA_PREFIX PIP_QUIET=1 VIRTUAL_ENV="$(CURDIR)/$(VENV)" $(BIN)/maturin
# The interpreter whose configuration PyO3 uses.
PYO3 := PYO3_PYTHON="$(CURDIR)/$(BIN)/python"
# Rust tests that depend on the instruction set.
NUMERICAL := linalg:: solver:: dual:: penalty:: multiclass:: logistic:: structured:: sequence:: polytope:: \
	polynomial:: recommend:: frank_wolfe:: models::
say = @printf '\033[1m==> %s\033[0m\n'

.PHONY: help demo test bench bench-simd bench-quick papers docs results fmt clean venv build lint lint-rust \
	lint-python deny sanitize semver structure check-python check-rust test-rust test-python test-simd wheel stranger lock rust
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## List the targets
	@echo "dualgap: multi-class, structured and recommender models with a duality gap"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14 | sed 's/^/  make /'

demo: build ## Train a recommender on MovieLens 100k: metrics, recommendations, a plot (in demo/)
	$(say) "Running the demo; results go to demo/"
	$(BIN)/dualgap recommend --data 100k --compare --plot demo/curves.png \
		--save demo/model.npz --user 1 --user 42 --user 405 --top 5

test: rust ## Run all checks and tests, and the numerical tests under every instruction set
	@$(IN_PARALLEL) $(COMPILED) $(DEPENDENCIES)
	@DOCS_PLOTS=0 $(CHECK_IN_PARALLEL) check-rust check-python
	@$(MAKE) --no-print-directory test-simd
	$(say) "All checks and tests passed"

# The Python tests come last, because they read the documentation, to which `docs` adds tutorials.
check-python: lint-python docs stranger
	@$(MAKE) --no-print-directory test-python SELECT="$(RUN_ON_WHEEL)"

# Sequential, because both lock target/debug.
check-rust:
	@$(MAKE) --no-print-directory lint-rust
	@$(MAKE) --no-print-directory test-rust

bench: build ## Run all benchmarks (DATA=folder adds those on real data); results go to target/results
	$(say) "Rust benchmarks"
	cargo bench
	$(say) "Python benchmarks"
	@set -e; for script in $(filter-out benches/_% benches/compare_builds.py,$(wildcard benches/*.py)); do \
		echo "$$script"; DUALGAP_DATA="$(DATA)" DUALGAP_RESULTS=target/results $(BIN)/python "$$script"; \
	done

# Speed benchmarks to run under each instruction set, without slow programs from other projects.
SPEED := "liblinear.py" "block_descent.py weston-watkins letter satimage dna news20 aloi mnist" \
	"block_descent.py shark letter satimage dna" "block_descent.py frank-wolfe letter" "block_descent.py curve" \
	"block_descent.py curve random" "many_classes.py probe" "many_classes.py epochs" "many_classes.py wide" \
	"multiclass.py steps" "multiclass.py product" "multiclass.py threads" \
	"cross_validation.py compare --programs dualgap" "structured.py ocr" "structured.py scale" \
	"structured.py threads" "structured.py away" "alignment.py" "sequence.py" "taggers.py" \
	"polynomial.py speed letter satimage" "polynomial.py refits" "polynomial.py predict" \
	"recommender_speed.py fit" "recommender_speed.py grid" "recommender_speed.py growth" \
	"recommender_requests.py" "frank_wolfe_everyone.py" "solvers.py" \
	"consensus.py optimum" "consensus.py pays" "consensus.py logistic" "consensus.py solvers" \
	"polynomial.py wide" "tagger_stops.py" "tagger_memory.py" "plain_passes.py" \
	"as_they_come.py" "as_they_come.py --digits" "scales.py" "logistic.py" "hand_over.py" \
	"hand_over.py --values --limit 5" \
	"consensus.py speedup" "consensus.py accuracy" "structured.py scene" "alignment.py --links" \
	"cross_validation.py trials" "cross_validation.py bounds" "libsvm_files.py" "rust_peers.py" \
	"polynomial.py seconds" "recommender_speed.py times" "tagger_growth.py" "basis_selection.py" \
	"basis_selection.py steps" "multiclass.py paper" "recommender_others.py sparse" "recommender_bases.py" \
	"recommender_clicks.py own" "walrus_paper.py early"
# Instruction sets; by default all except "scalar". Example: make bench-simd SIMD="avx2 scalar".
SIMD ?=
bench-simd: build ## Run speed benchmarks under each instruction set (needs DATA=folder); results go to benches/results
	@test -n "$(DATA)" || { echo "DATA is not set; pass the folder of data sets: make bench-simd DATA=folder"; exit 1; }
	@set -e; for job in $(SPEED); do echo "$$job"; \
		DUALGAP_DATA="$(DATA)" $(BIN)/python scripts/each_simd.py $(if $(SIMD),--only "$(SIMD)",--vectors) \
			$(BIN)/python benches/$$job; \
	done
	@$(MAKE) --no-print-directory results

papers: build ## Run every benchmark of docs/papers.md (DATA=folder for real data), and fill in the page
	DUALGAP_DATA="$(DATA)" $(BIN)/python scripts/papers.py

QUICK := target/quick
QUICKLY := DUALGAP_DATA="$(DATA)" DUALGAP_RESULTS=$(QUICK)/benches/results $(BIN)/python
bench-quick: build ## Run short benchmarks (DATA=folder adds those on real data); pages go to target/quick/docs
	rm -rf $(QUICK) && mkdir -p $(QUICK)/benches $(QUICK)/docs
	cp -r benches/results $(QUICK)/benches && cp -r docs/benchmarks $(QUICK)/docs
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
		$(QUICKLY) benches/liblinear.py letter satimage dna --C 1 --level 1e-4; \
		$(QUICKLY) benches/cross_validation.py compare dna satimage --programs dualgap; \
		$(QUICKLY) benches/polynomial.py speed satimage; \
		$(QUICKLY) benches/structured.py scene; }
	$(BIN)/python scripts/results.py $(QUICK)

docs: $(EXTENSION) $(DEPENDENCIES) ## Build the site into target/docs (no network; warnings are errors)
	$(say) "Building the site: target/docs/index.html"
	$(BIN)/sphinx-build -b html -d target/doctrees --fail-on-warning --keep-going --quiet docs target/docs

results: $(DEPENDENCIES) ## Fill in the figures of README.md and docs from benches/results
	$(BIN)/python scripts/results.py

fmt: $(EXTENSION) $(DEPENDENCIES) ## Format the Rust and Python code; write the names of choices and docs/parameters.md
	$(BIN)/python scripts/choices.py
	$(BIN)/python scripts/parameters.py
	cargo fmt
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove all build products
	rm -rf target $(VENV) dist demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f python/dualgap/_core*.so python/dualgap/_core*.pyd
	rm -rf docs/tutorials docs/reference/api
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv: $(DEPENDENCIES) ## Create the virtual environment with all development dependencies

build: rust ## Build the extension (release) in a virtual environment with its run-time dependencies
	@$(IN_PARALLEL) $(EXTENSION)

lint: lint-rust lint-python ## Check format, lints, types, stubs, structure, words and tables

lint-rust: $(INSTALLER) | rust
	$(say) "cargo fmt, clippy, doc"
	cargo fmt --check
	$(PYO3) cargo clippy --quiet --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps
	$(BIN)/python scripts/public_api.py target/doc/dualgap
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps --document-private-items
	$(say) "cargo publish --dry-run; the published files compile"
	rm -rf target/package
	@cargo publish --quiet --dry-run --no-verify --allow-dirty 2> target/publish.log || { cat target/publish.log; \
		grep -qE 'registry|crates.io|network' target/publish.log && echo "crates.io was not reached"; }
	cargo package --quiet --offline --no-verify --allow-dirty
	tar -xzf target/package/dualgap-*.crate -C target/package
	cargo check --quiet --offline --target-dir target --manifest-path target/package/dualgap-*/Cargo.toml
	@if command -v cargo-deny > /dev/null; then $(MAKE) --no-print-directory deny; fi

lint-python: $(EXTENSION) $(DEPENDENCIES)
	$(say) "ruff, mypy, pyright, stubtest"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/basedpyright --warnings
	$(BIN)/python scripts/choices.py --check
	$(BIN)/python -m mypy.stubtest dualgap._core
	$(say) "Public names and docstrings; imports and sizes; licences; tables"
	$(BIN)/python scripts/check_docs.py
	$(BIN)/python scripts/parameters.py --check
	$(BIN)/python scripts/check_structure.py
	$(BIN)/python scripts/check_licences.py
	$(BIN)/python scripts/third_party.py --check
	$(BIN)/python scripts/check_words.py
	$(BIN)/python scripts/results.py --check

deny: ## Check licences, sources and, if the database is reachable, advisories (needs cargo-deny)
	$(say) "cargo deny"
	@command -v cargo-deny > /dev/null || { echo "not installed: cargo install --locked cargo-deny"; exit 1; }
	cargo deny --offline check licenses bans sources
	@if cargo deny fetch db 2> /dev/null; then cargo deny --offline check advisories; \
	else echo "advisories NOT checked: cannot reach the database github.com/RustSec/advisory-db"; fi

sanitize: $(DEPENDENCIES) ## Run Rust tests and the Python API under AddressSanitizer, unsafe code under Miri (nightly, Linux)
	$(say) "AddressSanitizer with debug assertions, Miri"
	scripts/sanitize $(BIN)/python

# Tag of the last release, if any.
BASE ?= $(shell git describe --tags --match 'v*' --abbrev=0 2> /dev/null)
semver: ## Compare the Rust API with the last release or with BASE=commit (needs cargo-semver-checks)
	@test -n "$(BASE)" || { echo "no release found; pass a commit: make semver BASE=HEAD~10"; exit 1; }
	cargo semver-checks --baseline-rev "$(BASE)" --default-features

structure: $(DEPENDENCIES) ## Check direction and cycles of imports, and sizes of files and functions
	$(BIN)/python scripts/check_structure.py

test-rust: rust ## Run the Rust tests
	$(say) "Rust tests"
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED-1} cargo test --quiet --lib
	cargo test --quiet --doc --profile dev

test-python: $(EXTENSION) $(DEPENDENCIES) ## Run the Python tests
	$(say) "Python tests"
	$(PYTEST) $(SELECT)

# test-python and test-rust use the widest instruction set, unless DUALGAP_SIMD selects another.
test-simd: $(EXTENSION) $(DEPENDENCIES) | rust ## Run the numerical tests under the other instruction sets of the processor
	$(say) "Numerical tests under the other instruction sets"
	$(BIN)/python scripts/each_simd.py --others $(PYTEST) -m every_simd
	PROPTEST_RNG_SEED=$${PROPTEST_RNG_SEED-1} PROPTEST_CASES=$${PROPTEST_CASES-64} \
		$(BIN)/python scripts/each_simd.py --others cargo test --quiet --lib -- $(NUMERICAL)

wheel: $(WHEEL) ## Build a wheel into dist/ and test it in an empty environment

stranger: $(STRANGER) ## Build and test a wheel, then run every example of README, docs and tutorials with it

lock: ## Pin the newest development dependencies in requirements-dev.txt
	$(say) "Resolving the development dependencies"
	@python=$$(scripts/toolchain python) && scripts/lock "$$python" $(LOCK)

rust:
	@scripts/toolchain rust

$(INSTALLER): $(LOCK) scripts/requirements.py
	$(say) "Creating $(VENV)"
	@python=$$(scripts/toolchain python) && test -x $(BIN)/python || "$$python" -m venv $(VENV)
	$(BIN)/python scripts/requirements.py build > $(VENV)/build.txt
	$(INSTALL) --constraint $(LOCK) --requirement $(VENV)/build.txt
	@touch $@

$(RUNTIME): $(INSTALLER)
	$(say) "Installing the dependencies of the package"
	$(BIN)/python scripts/requirements.py package recommend plot > $(VENV)/runtime.txt
	$(INSTALL) --constraint $(LOCK) --requirement $(VENV)/runtime.txt
	@touch $@

$(DEPENDENCIES): $(RUNTIME)
	$(say) "Installing the development dependencies"
	$(INSTALL) --requirement $(LOCK)
	@touch $@

$(COMPILED): $(INSTALLER) $(RUST_SOURCES) pyproject.toml | rust
	$(say) "Compiling the extension (release; the first time takes a minute or two)"
	$(MATURIN) develop --release --quiet --skip-install
	@touch $@

$(EXTENSION): $(COMPILED) $(RUNTIME)
	$(say) "Installing the extension into $(VENV)"
	$(MATURIN) develop --release --quiet
	@touch $@

$(BUILT): $(EXTENSION) $(PYTHON_SOURCES)
	$(say) "Building a wheel"
	rm -rf dist
	$(MATURIN) build --release --quiet --compression-level 9 --out dist --interpreter $(BIN)/python
	$(BIN)/twine check --strict dist/*.whl
	@touch $@

$(WHEEL): $(BUILT) scripts/check_wheel.py scripts/smoke.py
	$(say) "Testing the wheel in an empty environment"
	$(BIN)/python scripts/check_wheel.py $(BIN)/python dist/*.whl $(LOCK)
	@touch $@

$(STRANGER): $(BUILT) $(EXAMPLES) scripts/check_wheel.py scripts/smoke.py tests/python/stranger.py tests/python/snippets.py
	$(say) "Testing the wheel and every example in an empty environment"
	$(BIN)/python scripts/check_wheel.py $(BIN)/python dist/*.whl $(LOCK) --examples
	@touch $@

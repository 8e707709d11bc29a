# A shim over CMake and CTest, for those who type make. `make demo` and `make check` first install the Debian
# packages they need (scripts/packages.txt); everything is built in build/release.
BUILD := build/release
JOBS  := $(shell nproc 2>/dev/null || echo 2)
# One test more than there are cores, because many of them wait for a network or a clock.
TESTS := $(shell expr $(JOBS) + 1)

.PHONY: help demo check check-long cases build configure packages examples dist docs conformance clean accuracy
.PHONY: bench-train bench-allreduce bench-kernels bench-chains bench-teams bench-ops bench-xla bench-ps bench-steps \
    bench-precision

help:
	@sed -n 's/^#: //p' Makefile

#: make demo             train a CNN on Fashion-MNIST, one replica per core
demo:
	scripts/install_packages build demo
	cmake --preset release
	cmake --build $(BUILD) -j$(JOBS) --target fashion_mnist muster_command
	$(BUILD)/examples/fashion_mnist

#: make check            build with warnings as errors and run all tests
check:
	scripts/install_packages build demo check
	cmake --preset release -DMUSTER_WERROR=ON
	cmake --build $(BUILD) -j$(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure -j$(TESTS)

#: make check-long       what takes too long for .ci/run: hours; writes docs/check-long.md
check-long:
	scripts/install_packages build demo check fuzz
	scripts/check_long

#: make build            build library, command, tests, benches and examples
build:
	cmake --preset release
	cmake --build $(BUILD) -j$(JOBS)

#: make examples         build, then list the example programs
examples: build
	@find $(BUILD)/examples -maxdepth 1 -type f -perm -u+x

#: make bench-train      the CNN's training step against TensorFlow, PyTorch and JAX
bench-train:
	scripts/install_packages build demo check
	@$(MAKE) --no-print-directory build
	scripts/python_env
	python3 bench/train/run.py

#: make bench-xla        training steps, overhead and transfers on XLA devices against JAX with the same plugin
bench-xla:
	scripts/install_packages build demo check
	@$(MAKE) --no-print-directory build
	scripts/python_env
	python3 bench/xla/run.py

#: make bench-allreduce  all-reduce between threads and processes, by size, against Open MPI and gloo
bench-allreduce:
	scripts/install_packages build bench
	@$(MAKE) --no-print-directory build
	python3 bench/collectives/run.py

#: make bench-steps      training steps of dense layers, an LSTM, a GPT and a CNN, without rivals
bench-steps: build
	$(BUILD)/bench/train/bench_steps

#: make bench-chains     chains of element-wise ops against the ops one by one
bench-chains: build
	$(BUILD)/bench/chains/bench_chains

#: make bench-precision  steps under mixed_bfloat16 against float32: processor time and memory
bench-precision: build
	for model in product mlp transformer; do for policy in float32 mixed_bfloat16; do \
	    $(BUILD)/bench/precision/bench_precision $$model $$policy || exit 1; done; done

#: make bench-teams      a job's steps per second alone, and beside another job on the same cores
bench-teams: build
	python3 bench/teams/run.py

#: make accuracy         the demo's test accuracy for seeds 1, 2, 3 (SEEDS="4 5" for others)
accuracy:
	scripts/install_packages build demo
	cmake --preset release
	cmake --build $(BUILD) -j$(JOBS) --target fashion_mnist
	bench/accuracy $(BUILD)/examples/fashion_mnist $(SEEDS)

#: make bench-kernels    the hand-written kernels against the machine's limits
bench-kernels: build
	$(BUILD)/bench/kernels/bench_kernels

#: make bench-ops        every op by size against TensorFlow, PyTorch and the machine's limits
bench-ops:
	scripts/install_packages build demo check
	@$(MAKE) --no-print-directory build
	scripts/python_env
	$${MUSTER_PYTHON_ENV:-build/python}/bin/python bench/ops/run.py

#: make bench-ps         parameter servers against TensorFlow's and the machine's limits (PS_ARGUMENTS="--quick": a minute)
bench-ps:
	scripts/install_packages build demo check
	@$(MAKE) --no-print-directory build
	scripts/python_env
	python3 bench/ps/run.py $(PS_ARGUMENTS)

#: make cases            the numbered cases of TensorFlow's behaviour, one line each, then the counts
cases:
	cmake --preset release
	cmake --build $(BUILD) -j$(JOBS) --target cases_main
	$(BUILD)/tests/cases/cases
	MUSTER_TF_COMPAT=1 $(BUILD)/tests/cases/cases

#: make conformance      the same programs in TensorFlow and in Muster, compared
conformance:
	scripts/install_packages build demo check
	tests/conformance/run

#: make docs             the manual as web pages: tutorial and reference of every function
docs:
	@scripts/install_packages docs
	@mkdir -p build/manual
	@doxygen docs/manual/Doxyfile
	@echo "open $(CURDIR)/build/manual/index.html"

#: make dist             muster-VERSION.tar.gz, a source archive that builds
dist:
	@scripts/make_dist .

#: make clean            remove build/ except the Python environment
clean:
	@find build -mindepth 1 -maxdepth 1 ! -name 'python*' -exec rm -rf {} + 2>/dev/null || true

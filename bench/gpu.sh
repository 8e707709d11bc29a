#!/bin/bash
# gpu.sh [--small]: the training steps of the CNN and of GPT-2 124M (bfloat16, 8 x 1024 tokens) on one GPU, against JAX
# and against PyTorch with torch.compile: times, tokens per second, and Muster's time over the rival's. Needs a GPU with
# its plugin (`muster plugin install cuda13`) and an environment for Python with jax[cuda13] and torch, which
# MUSTER_PYTHON_ENV names. --small runs the same programs with a small GPT on XLA's CPU plugin; its times say nothing.
# Nothing else should run beside it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind=GPU figures=(cnn_step gpt2_step) more=()
if [[ ${1:-} == --small ]]; then
    kind=XLA_CPU figures=(cnn_step gpt2_small_step) more=(--quick)
    shift
fi
(($# == 0)) || { echo "usage: bench/gpu.sh [--small]" >&2; exit 2; }
cmake --preset release >/dev/null
cmake --build build/release --target bench_xla muster_command >/dev/null
build/release/src/tools/muster devices
for rival in jax torch; do
    echo "against $rival:"
    python3 bench/xla/run.py --kind "$kind" --rival "$rival" --figures "${figures[@]}" "${more[@]}"
done

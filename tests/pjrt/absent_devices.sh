#!/bin/bash
# absent_devices.sh BUILD_FOLDER tpu|cuda13: compiles the training steps of write_steps.c for TPUs (v4, v5e, v6e) with
# libtpu, or for an H200 with jax-cuda13-pjrt. Neither needs the device, only the plugin, which
# `muster plugin install tpu` or cuda13 has to have installed; exit code 77 (skipped) without.
#
# One topology at a time, each in a process of its own with limits on time and memory.
set -euo pipefail
build=$1 which=$2
here=$(cd "$(dirname "$0")" && pwd)
steps=$build/tests/pjrt
MOST_SECONDS=600 MOST_KIB=$((12 << 20))  # for each process; of memory that it writes to

plugins=${MUSTER_PJRT_PATH:-${XDG_DATA_HOME:-$HOME/.local/share}/muster/plugins}
case $which in
    tpu) plugin=$plugins/tpu/libtpu.so topologies=(v4:2x2x1 v5e:2x2 v6e:2x2) ;;
    cuda13) plugin=$plugins/xla_cuda13/xla_cuda_plugin.so topologies=("$here/h200.txtpb") ;;
    *) echo "usage: absent_devices.sh BUILD_FOLDER tpu|cuda13" >&2; exit 2 ;;
esac
for file in "$plugin" "$build/pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"; do
    if [[ ! -f $file ]]; then
        echo "SKIPPED: $file is missing (\`muster plugin install $which\`); nothing was compiled for $which" >&2
        exit 77
    fi
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ulimit -d "$MOST_KIB"
export TF_CPP_MIN_LOG_LEVEL=2
# Without the first variable libtpu asks for a cloud's metadata; without the second a lock file left by a process that
# was killed ends it.
export TPU_SKIP_MDS_QUERY=1 ALLOW_MULTIPLE_LIBTPU_LOAD=1
for replicas in 1 2; do
    MUSTER_CPU_DEVICES=$replicas MUSTER_DUMP_STABLEHLO=$work/$replicas timeout "$MOST_SECONDS" \
        "$steps/write_steps" "$replicas"
done
# A step of 2 replicas with 2 logical devices each.
MUSTER_PJRT_PATH=$work MUSTER_DUMP_STABLEHLO=$work/divided timeout "$MOST_SECONDS" "$steps/test_logical_devices" > "$work/log" 2>&1
mapfile -t divided < <(grep -l 'num_partitions = 2' "$work"/divided/train_step.*.mlir)
for topology in "${topologies[@]}"; do
    timeout "$MOST_SECONDS" "$steps/compile_for" "$plugin" "$topology" 2x2 "${divided[@]}"
    for replicas in 1 2; do
        timeout "$MOST_SECONDS" "$steps/compile_for" "$plugin" "$topology" "$replicas" "$work/$replicas"/*.mlir
    done
done

#!/bin/sh
# Unpacks the published CPU plugin into FOLDER, unless it is there. Exit code 77 (skipped) without an index.
# Usage: fetch.sh FOLDER
set -u
folder=$1
version=0.0.1
if [ -f "$folder/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so" ]; then
    exit 0
fi
mkdir -p "$folder/wheel" || exit 1
if ! python3 -m pip download --quiet --no-deps --dest "$folder/wheel" "xla-cpu-pjrt==$version"; then
    echo "SKIPPED: pip cannot fetch xla-cpu-pjrt $version; nothing of the PJRT engine was tested" >&2
    exit 77
fi
python3 -m zipfile -e "$folder"/wheel/xla_cpu_pjrt-"$version"-*.whl "$folder"

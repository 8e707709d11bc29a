#!/bin/sh
# Compares our declarations of PJRT with the header in a plugin's package: sizes, offsets, places in the table.
# Usage: check_api.sh COMPILER SOURCES HEADERS
set -u
if [ ! -f "$3/pjrt_c_api.h" ]; then
    echo "SKIPPED: no pjrt_c_api.h in $3; our declarations were not compared" >&2
    exit 77
fi
exec "$1" -std=c11 -fsyntax-only -I "$3" -I "$2/src" "$2/tests/pjrt/check_api.c"

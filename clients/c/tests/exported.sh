#!/bin/bash
# The shared library exports what chart.h declares, and nothing else. Usage: exported.sh LIBRARY HEADER
set -euo pipefail
exported=$(nm -D --defined-only "$1" | awk '$2 == "T" {sub(/@.*/, "", $3); print $3}' | sort)
declared=$(grep -oE '\bchart_[a-z_]+\(' "$2" | tr -d '(' | sort -u)
if [ "$exported" != "$declared" ]; then
    echo "libchart exports other functions than chart.h declares:" >&2
    diff <(echo "$declared") <(echo "$exported") >&2
    exit 1
fi

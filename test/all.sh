#!/usr/bin/env bash
# Runs the unit tests beside the end-to-end tests, which wait most of the time. The output
# of the unit tests is in build/unit.log, and is printed when both have ended.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build
# Tests on clusters have deadlines: they come first.
nice -n 10 make --no-print-directory test-unit >build/unit.log 2>&1 &
unit=$!
trap 'kill "$unit" 2>/dev/null || true' EXIT
code=0
make --no-print-directory test-e2e || code=$?
wait "$unit" || code=$?
trap - EXIT
echo "unit tests (build/unit.log):"
cat build/unit.log
exit "$code"

#!/usr/bin/env bash
# Runs the end-to-end tests of clusters on which a feature gate is off, each on
# a small cluster of its own, in FOLDER-<gate>. test/e2e.sh calls this at its end;
# KEEP=1 leaves the clusters up. e2e-restricted.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
base=$1

run() { # gate [gates that depend on it]
  local code=0 gates
  dir=$base-$1
  gates=$(IFS=,; echo "${*/%/=false}")
  echo "with $gates:"
  bin/cluster down --dir "$dir" >/dev/null # what an earlier run may have left
  trap 'bin/cluster down --dir "$dir" || true' EXIT
  test/up.sh "$dir" h100x8 "$gates"
  TRANCHE_E2E_RESTRICTED=$1 TRANCHE_E2E_CLUSTER=$dir \
    go test -count=1 -timeout 10m -v -run 'TestRestricted' ./test/e2e | grep -Ev '^=== |SKIP' || code=$?
  trap - EXIT
  if [ "${KEEP:-}" = 1 ]; then
    echo "The cluster stays up (KEEP=1): export KUBECONFIG=$dir/kubeconfig; to end it: bin/cluster down --dir $dir"
  else
    bin/cluster down --dir "$dir" || code=1
  fi
  return "$code"
}

trap 'exit 130' INT
trap 'exit 143' TERM
run DRAPartitionableDevices
run DRAConsumableCapacity
run DRADeviceTaints DRADeviceTaintRules

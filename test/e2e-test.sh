#!/usr/bin/env bash
# Runs one end-to-end test, for e2e.sh: e2e-test.sh FOLDER-OF-RESULTS TEST. The test runs
# on cluster E2E_SLOT, which is started if it is not up, or on a cluster of its own with
# other GPUs.
set -euo pipefail
results=$1 name=$2
log=$results/${name//\//-}.log
# What useValues (values_test.go) wants, and the driver's branch if it is not the inventory's.
common=()
[ -z "${E2E_NVIDIA_DRIVER:-}" ] || common+=(--set "simulate.nvidiaDriver=$E2E_NVIDIA_DRIVER")
for file in demo/values.yaml demo/*/settings/values.yaml test/e2e/values.yaml; do common+=(--values "$file"); done

run() ( # DIRECTORY
  cd test/e2e
  TRANCHE_E2E_CLUSTER=$1 ../../build/e2e.test -test.v -test.timeout 60m -test.run "^${name//\//\$/^}\$"
)

alone() { # INVENTORIES [helm arguments]
  dir=$E2E_CLUSTER_DIR-${E2E_SLOT}00
  trap '[ "${KEEP:-}" = 1 ] || bin/cluster down --dir "$dir"' EXIT
  bin/cluster down --dir "$dir" >/dev/null
  test/up.sh "$dir" "$1" "${GATES:-}" "${@:2}" || return 1
  TRANCHE_E2E_ALONE=$name run "$dir"
}

everything() {
  local dir=$E2E_CLUSTER_DIR-$E2E_SLOT
  if [ ! -e "$results/up-$E2E_SLOT" ]; then
    bin/cluster down --dir "$dir" >/dev/null
    test/up.sh "$dir" h100x8,l4x4,mi300x8 "" "${common[@]}" || return 1
    touch "$results/up-$E2E_SLOT"
  fi
  run "$dir"
}

code=0
(
  case $name in
    TestSharesLimitedByTheKernel) alone h100x8,l4x4,mi300x8 --set simulate.nvidiaDriver=615 ;;
    TestPodGroups)
      export GATES=GenericWorkload=true,DRAWorkloadResourceClaims=true RUNTIME_CONFIG=scheduling.k8s.io/v1beta1=true
      alone h100x8,l4x4,mi300x8 --set simulate.nvidiaDriver=615 ;;
    TestMigrations) alone a100-40x8-mig-off,a100-80x8-mig-off,mi300x8 ;;
    *) everything ;;
  esac
) >"$log" 2>&1 || code=$?
# A test that is skipped has shown nothing.
if [ "$code" = 0 ] && grep -qE '^ *--- SKIP' "$log"; then code=1; fi
exec 9>"$results/lock"
flock 9
if [ "$code" != 0 ]; then
  echo "$name" >>"$results/failed"
  cat "$log"
else
  grep -E '^ *--- ' "$log" || true
fi
exit "$code"

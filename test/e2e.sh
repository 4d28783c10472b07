#!/usr/bin/env bash
# Runs the end-to-end tests on a cluster of their own (in E2E_CLUSTER_DIR), which
# is taken down at the end. KEEP=1 leaves it up; arguments go to `go test`
# (-run Demo). Without any, the tests of restricted clusters come last
# (e2e-restricted.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
  echo "LEFT OUT: the end-to-end tests (test/e2e). They start a Kubernetes cluster on this machine, which needs root."
  exit 0
fi

dir=${E2E_CLUSTER_DIR:-$PWD/.cluster-e2e}
results=$(mktemp)
finish() {
  code=$?
  trap - EXIT INT TERM
  rm -f "$results"
  if [ "$code" != 0 ] && [ -d "$dir" ]; then
    echo
    echo "The end-to-end tests failed. The end of the plugin's log on each node:"
    "$dir/bin/kubectl" --kubeconfig "$dir/kubeconfig" -n tranche-system logs \
      -l app.kubernetes.io/component=kubelet-plugin --prefix --tail=40 || true
  fi
  if [ "${KEEP:-}" = 1 ]; then
    echo "The cluster stays up (KEEP=1): export KUBECONFIG=$dir/kubeconfig; its logs are in $dir/logs."
    echo "To end it: bin/cluster down --dir $dir"
  elif [ "$code" != 0 ]; then
    bin/cluster down --dir "$dir" --keep-logs || true
    echo "The logs of the cluster are in $dir/logs."
  else
    bin/cluster down --dir "$dir" || code=1
  fi
  exit "$code"
}

make --no-print-directory cluster-tool
bin/cluster down --dir "$dir" >/dev/null # what an earlier run may have left
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
make --no-print-directory cluster-up CLUSTER_DIR="$dir" SIMULATE=h100x8,l4x4,mi300x8 GATES=

echo "running the end-to-end tests …"
code=0
skip="^TestRestricted"
[ -n "${TRANCHE_SOAK:-}" ] || skip="$skip|^TestSoak$" # make soak
TRANCHE_E2E_CLUSTER=$dir go test -count=1 -timeout 75m -v -skip "$skip" "$@" ./test/e2e/... 2>&1 |
  tee "$results" | grep --line-buffered -Ev '^=== (RUN|PAUSE|CONT|NAME)' || code=$?
count() { grep -cE "^ *--- $1:" "$results" || true; }
echo "end-to-end tests: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped"
if [ "$code" = 0 ] && [ $# = 0 ]; then
  test/e2e-restricted.sh "$dir" || code=$?
fi
exit "$code"

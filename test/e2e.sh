#!/usr/bin/env bash
# Runs the end-to-end tests on several clusters at a time: each takes the next test that
# none has taken. They are E2E_CLUSTER_DIR-0, -1 and so on (E2E_CLUSTERS, 2), and are taken
# down at the end; KEEP=1 leaves them up. e2e.sh [PATTERN] runs the tests whose names match
# an extended regular expression ('^TestDemos/mig'); without one, those that are not for the
# night, or with E2E_NIGHT=1 those that are. E2E_RECORD=FILE notes there what passed with this Kubernetes.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(id -u)" != 0 ]; then
  echo "LEFT OUT: the end-to-end tests (test/e2e). They start Kubernetes clusters on this machine, which needs root."
  exit 0
fi

export E2E_CLUSTER_DIR=${E2E_CLUSTER_DIR:-$PWD/.cluster-e2e}
results=$E2E_CLUSTER_DIR-results
# Debian's limit of 128 is not enough for a dozen kubelets and containerds.
inotify=/proc/sys/fs/inotify/max_user_instances
instances=$(cat $inotify)
finish() {
  code=$?
  trap - EXIT INT TERM
  [ "$code" = 0 ] || code=1
  echo "$instances" >$inotify
  for dir in "$E2E_CLUSTER_DIR"-[0-9]*; do
    [ -d "$dir" ] || continue
    if [ "${KEEP:-}" = 1 ]; then
      echo "The cluster stays up (KEEP=1): export KUBECONFIG=$dir/kubeconfig; to end it: bin/cluster down --dir $dir"
    elif [ "$code" != 0 ]; then
      bin/cluster down --dir "$dir" --keep-logs || true
      echo "The logs of the cluster are in $dir/logs."
    else
      bin/cluster down --dir "$dir" || code=1
    fi
  done
  exit "$code"
}

# tests PATTERN lists the tests that need a real cluster; with E2E_ALL=1 also those that otherwise run
# in one process (go test ./test/e2e). Each demo is one, and the soak runs only when it is asked for.
# Those with a cluster of their own (startAlone) come first, while no other cluster idles beside it. The
# demos come last: they are short.
tests() {
  local all each where=('on clusters')
  all=$(cd test/e2e && TRANCHE_E2E_LIST=1 ../../build/e2e.test -test.v)
  if [ -n "${E2E_NIGHT:-}" ]; then where=(alone 'at night'); elif [ -n "$1" ]; then where=(alone 'at night' 'on clusters'); fi
  [ -z "${E2E_ALL:-}" ] || where+=(anywhere)
  for each in "${where[@]}"; do sed -n "s/^runs $each: //p" <<<"$all" | sort -u | awk '/^TestDemos/ {demos = demos $0 "\n"; next} {print} END {printf "%s", demos}'; done |
    if [ -n "${TRANCHE_SOAK:-}" ]; then cat; else grep -v '^TestSoak$'; fi | grep -E -- "${1:-.}"
}

# record writes a line to E2E_RECORD in place of an older one of this Kubernetes: version, date, how many tests
# ran, and those that failed.
record() {
  local version failed=
  version=$("$(bin/cluster path)/kubectl" version --client | awk '/^Client Version/ {print $3}')
  [ ! -e "$results/failed" ] || failed=$(sed 's/^/ /' "$results/failed" | tr -d '\n')
  { grep -v "^$version " "$E2E_RECORD" || true; echo "$version $(date -u +%F) $(wc -l <<<"$wanted")$failed"; } | sort -V >"$results/record"
  cp "$results/record" "$E2E_RECORD"
  echo "$E2E_RECORD has what ran on $version: make generate writes it to the documentation"
}

# The web page is opened in a browser where there is one.
command -v chromium >/dev/null || apt-get install -y --no-install-recommends chromium >/dev/null 2>&1 ||
  echo "LEFT OUT: the web page in a browser. chromium could not be installed."
make --no-print-directory cluster-parts image
go test -c -vet=off -ldflags=-s -o build/e2e.test ./test/e2e
(cd test/browser && go test -c -vet=off -ldflags=-s -o ../../build/browser.test .)
for dir in "$E2E_CLUSTER_DIR"-[0-9]*; do # what an earlier run may have left
  [ ! -d "$dir" ] || bin/cluster down --dir "$dir" >/dev/null
done
rm -rf "$results"
mkdir -p "$results"
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
[ "$instances" -ge 1024 ] || echo 1024 >$inotify

wanted=$(tests "${1:-}") || { echo "no end-to-end test matches $1" >&2; exit 1; }
for project in kueue jobset; do
  if grep -qi "$project" <<<"$wanted"; then bin/cluster install "$project"; fi
done
echo "running $(wc -l <<<"$wanted") end-to-end tests on ${E2E_CLUSTERS:-2} clusters …"
code=0
# The slots are numbered from 0; each has its own cluster.
xargs -P "${E2E_CLUSTERS:-2}" -n 1 --process-slot-var=E2E_SLOT test/e2e-test.sh "$results" <<<"$wanted" || true
flakes=()
if [ -e "$results/failed" ]; then
  # What two clusters on a small machine starve of time passes when it runs alone.
  mv "$results/failed" "$results/again"
  echo "running those that failed again, one at a time, each on a new cluster …"
  for dir in "$E2E_CLUSTER_DIR"-[0-9]*; do
    [ ! -d "$dir" ] || bin/cluster down --dir "$dir" >/dev/null
  done
  while read -r again; do
    rm -f "$results"/up-*
    if E2E_SLOT=0 test/e2e-test.sh "$results" "$again" </dev/null; then flakes+=("$again"); else code=1; fi
  done <"$results/again"
fi
[ "$code" = 0 ] || sed 's/^/failed twice: /' "$results/failed"
# Each needs a cause: see its log above.
for flake in "${flakes[@]}"; do echo "flake, failed at first and passed again: $flake"; done
[ -z "${E2E_RECORD:-}" ] || record
echo "end-to-end tests: $(wc -l <<<"$wanted"), flakes: ${#flakes[@]}"
exit "$code"

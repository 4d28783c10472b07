#!/usr/bin/env bash
# Installs the previous release (release/previous), lets pods hold every kind of device, upgrades to this
# commit, lets another pod hold one, and downgrades again: pods, claims, partitions and records stay as they
# were. Then all of it can be released. On a new cluster of simulated machines, which do not change with the
# release. Needs root, and the history: upgrade.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-$PWD/.cluster-upgrade} previous=$(cat release/previous) old=$PWD/build/previous
work=$(mktemp -d)
finish() {
  rm -rf "$work"
  bin/cluster down --dir "$dir"
}
step() { echo "== $*"; }

step "build $previous and this commit"
if [ "$(git -C "$old" rev-parse HEAD 2>/dev/null)" != "$(git rev-parse "$previous^{commit}")" ]; then
  rm -rf "$old"
  git clone --quiet --shared --no-checkout . "$old"
  git -C "$old" checkout --quiet --detach "$previous"
fi
make --no-print-directory -C "$old" image
make --no-print-directory cluster-parts image kubectl-tranche

nodes=(node-a node-b node-c node-d)
trap finish EXIT
bin/cluster up --dir "$dir" --nodes "$(IFS=,; echo "${nodes[*]}")"
export KUBECONFIG=$dir/kubeconfig PATH=$PWD/bin:$(bin/cluster path):$PATH
bin/cluster load --dir "$dir" --tar build/simulated-driver.tar
driver=$(cat build/simulated-driver.image)
# deploy SOURCES, with the settings of their demos: the names of a chart's values can change.
deploy() {
  local file values=(--set simulate.nodes.node-a=h100x8,simulate.nodes.node-b=h100x8,simulate.nodes.node-c=h100x8,simulate.nodes.node-d=mi300x8)
  for file in "$1"/demo/values.yaml "$1"/demo/{sharing-mig,sharing-mps}/settings/values.yaml; do values+=(--values "$file"); done
  SOURCES=$1 test/deploy.sh "$dir" "${values[@]}" --set simulate.image.tag="${driver##*:}"
}

# hold SOURCES DEMO...: creates the pods of demos, and waits until they run.
hold() {
  local sources=$1 demo
  shift
  for demo; do kubectl apply -f "$sources/demo/$demo/$demo.yaml" >/dev/null; done
  for demo; do kubectl wait pod --all -n "demo-$demo" --for=condition=Ready --timeout=4m >/dev/null; done
}

# state is what must not change: pods and what they see, allocations, partitions, records on the nodes.
state() {
  local namespace pod node
  kubectl get pods -A -o jsonpath='{range .items[*]}{.metadata.namespace}{" "}{.metadata.name}{" "}{.metadata.uid}{" "}{.status.phase}{" "}{.status.containerStatuses[*].containerID}{" "}{.status.containerStatuses[*].ready}{"\n"}{end}' | grep '^demo-' >"$work/pods"
  cat "$work/pods"
  while read -r namespace pod _; do
    kubectl -n "$namespace" exec "$pod" -- sh -c 'env | grep -E "^(TRANCHE|NVIDIA|CUDA|GPU)_" | sort; find /dev -name "nvidia*" -o -name "renderD*" -o -name kfd | sort' </dev/null
  done <"$work/pods"
  kubectl get resourceclaims -A -o jsonpath='{range .items[*]}{.metadata.uid}{" "}{.status.allocation.devices.results}{" "}{.status.reservedFor}{"\n"}{end}'
  for node in "${nodes[@]}"; do
    kubectl get gpunode "$node" -o jsonpath='{.metadata.name}{" "}{.status.applied.profileName}{" "}{.status.node.gpus[*].partitions}{"\n"}'
    bin/cluster exec --dir "$dir" --node "$node" -- find /var/lib/kubelet/plugins/gpu.tranche.dev/claims -name '*.json' | sort
  done
}

# reported waits until each GPUNode counts the claims that its node has records of.
reported() {
  local node count
  for node in "${nodes[@]}"; do
    count=$(bin/cluster exec --dir "$dir" --node "$node" -- find /var/lib/kubelet/plugins/gpu.tranche.dev/claims -name '*.json' | wc -l)
    kubectl wait gpunode "$node" --for=jsonpath='{.status.node.claimCount}'="$count" --timeout=2m >/dev/null
  done
}

# unchanged BEFORE: the plugins may need a moment to report.
unchanged() {
  for _ in $(seq 30); do
    state >"$work/now" 2>"$work/errors" || true
    if cmp -s "$1" "$work/now"; then return; fi
    sleep 2
  done
  diff "$1" "$work/now" || true
  cat "$work/errors" >&2
  echo "pods, claims, partitions or records are not what they were" >&2
  exit 1
}

step "install $previous"
deploy "$old"
kubectl label node node-a tranche.dev/profile=shared-partitions >/dev/null
kubectl label node node-b tranche.dev/profile=side-by-side >/dev/null
kubectl label node node-c tranche.dev/profile=all-balanced >/dev/null
for pair in node-a=shared-partitions node-b=side-by-side node-c=all-balanced; do
  kubectl wait gpunode "${pair%=*}" --for=jsonpath='{.status.applied.profileName}'="${pair#*=}" --timeout=4m >/dev/null
done

step "hold every kind of device"
# Partitions made on demand and static ones, several of one GPU, whole GPUs, shares by memory and fraction, in
# turns and side by side, of partitions, and AMD's partitions.
hold "$old" mig two-partitions one-gpu profile-all-balanced extended-gpu sharing-memory sharing-half-gpu sharing-mps sharing-mig amd-partition amd-one-gpu
reported
state >"$work/before"
wc -l <"$work/pods" | xargs echo "pods that hold devices:"

step "upgrade to this commit"
deploy .
unchanged "$work/before"
hold . first-available
reported
state >"$work/upgraded"

step "downgrade to $previous"
deploy "$old"
unchanged "$work/upgraded"

step "upgrade again, and release everything"
deploy .
unchanged "$work/upgraded"
kubectl delete namespace --timeout=4m $(cut -d' ' -f1 "$work/pods" | sort -u) >/dev/null
kubectl label nodes --all tranche.dev/profile- >/dev/null
for node in "${nodes[@]}"; do
  for state in '{.status.node.claimCount}=0' '{.status.applied.source}=None' '{.status.state}=Idle'; do
    kubectl wait gpunode "$node" --for=jsonpath="$state" --timeout=4m >/dev/null
  done
done
helm -n tranche-system uninstall tranche >/dev/null # fails while anybody holds a GPU
echo "$previous, upgraded, downgraded and upgraded again, lost nothing"

#!/usr/bin/env bash
# Does what a new user does with a release, on a new cluster of one node with simulated
# GPUs: pushes dist/ (make release) to a registry on that node, installs the chart from
# there, makes a first claim, and removes everything. Needs root: release.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
dir=${1:-$PWD/.cluster-release}
make --no-print-directory cluster-parts release-tool
version=$(make --silent release-version)
work=$(mktemp -d)
finish() {
  kill "${registry:-}" 2>/dev/null || true
  rm -rf "$work"
  bin/cluster down --dir "$dir"
}
trap finish EXIT
step() { echo "== $*"; }
onNode() { bin/cluster exec --dir "$dir" --node node-a -- "$@"; }

step "checksums"
(cd dist && sha256sum --check --quiet SHA256SUMS)

bin/cluster up --dir "$dir" --nodes node-a
export KUBECONFIG=$dir/kubeconfig PATH=$work:$(bin/cluster path):$PATH

step "push to a registry at the node's loopback, from where containerd pulls without TLS"
address=127.0.0.1:5000
onNode "$PWD/bin/release" registry --listen $address 2>"$work/registry.log" &
registry=$!
until grep -q "registry at" "$work/registry.log"; do kill -0 $registry && sleep 0.1; done
onNode "$PWD/bin/release" push --dist "$PWD/dist" --chart "$PWD/deployments/helm/tranche" --registry $address/team
onNode "$(command -v helm)" pull oci://$address/team/charts/tranche --version "$version" --plain-http --destination "$work"
cmp "$work/tranche-$version.tgz" "dist/tranche-$version.tgz"

step "install"
tar -C "$work" -xzf "dist/kubectl-tranche-$version-linux-$(go env GOARCH).tar.gz" kubectl-tranche
kubectl tranche version | grep -F " $version "
helm install tranche "$work/tranche-$version.tgz" --namespace tranche-system --create-namespace --wait --timeout 8m \
  --set image.repository=$address/team/tranche --set simulate.inventory=h100x8
kubectl -n tranche-system get pods -o jsonpath='{range .items[*]}{.metadata.name}{"\t"}{.status.containerStatuses[0].imageID}{"\n"}{end}'

step "first claim"
kubectl apply -f demo/mig/mig.yaml
kubectl -n demo-mig wait --for=condition=Ready pod/first --timeout=2m
kubectl -n demo-mig logs first
kubectl tranche | grep -F "demo-mig/first"

step "remove"
kubectl delete --timeout=5m -f demo/mig/mig.yaml
helm -n tranche-system uninstall tranche
kubectl delete --timeout=5m namespace tranche-system
kubectl delete --timeout=5m customresourcedefinition gpunodes.tranche.dev gpuresourcemaps.tranche.dev partitionplans.tranche.dev partitionprofiles.tranche.dev

step "nothing is left"
kinds=$(kubectl api-resources --verbs=list --output=name | paste -sd,)
left=$(kubectl get "$kinds" --all-namespaces --ignore-not-found --output=name 2>/dev/null | grep -i tranche || true)
left+=$(kubectl get nodes -o yaml | grep -F tranche.dev || true)
# The kubelet has made /run/tranche, which stays empty until the next reboot.
left+=$(onNode find /run/tranche -mindepth 1 || true)
left+=$(onNode find /var/lib/kubelet/plugins /var/lib/kubelet/plugins_registry /var/run/cdi /etc/cdi -name '*tranche*' 2>/dev/null || true)
if [ -n "$left" ]; then
  echo "left behind: $left" >&2
  exit 1
fi
echo "the release $version installs, works and leaves nothing"

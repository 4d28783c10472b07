#!/usr/bin/env bash
# Installs Kueue with the settings of demo/kueue in the cluster of up.sh: kueue.sh FOLDER
# The first time, it builds Kueue (minutes). kueue.sh FOLDER uninstall removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
export KUBECONFIG=$dir/kubeconfig
PATH=$(bin/cluster path):$PATH
if [ "${2:-}" = uninstall ]; then
  helm uninstall kueue --namespace kueue-system --ignore-not-found --wait --timeout 2m
  kubectl delete namespace kueue-system --ignore-not-found
  exit
fi
bin/cluster install kueue
kueue=$(bin/cluster path kueue)
bin/cluster load --dir "$dir" --tar "$kueue/image.tar"
helm upgrade --install kueue "$kueue/chart.tgz" --namespace kueue-system --create-namespace \
  --values demo/kueue/install/values.yaml --values "$kueue/values.yaml" >/dev/null
# Kueue writes its certificate into a Secret. A new pod has it at once, the first one
# waits minutes until the kubelet updates its volume.
kubectl -n kueue-system wait secret kueue-webhook-server-cert --for='jsonpath={.data.tls\.crt}' --timeout=2m >/dev/null
kubectl -n kueue-system delete pod --all --wait=false >/dev/null
kubectl -n kueue-system rollout status deployment kueue-controller-manager --timeout=3m

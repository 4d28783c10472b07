#!/usr/bin/env bash
# Installs Kueue with the settings of demo/kueue in the cluster of up.sh: kueue.sh FOLDER
# The first time, it builds Kueue (minutes). kueue.sh FOLDER uninstall removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1
export KUBECONFIG=$dir/kubeconfig
PATH=$(bin/cluster path):$PATH
if [ "${2:-}" = uninstall ]; then
  # Nothing else removes Kueue's finalizers.
  kubectl wait workloads --all --all-namespaces --for=delete --timeout=6m
  helm uninstall kueue --namespace kueue-system --ignore-not-found --wait --timeout 6m
  kubectl delete namespace kueue-system --ignore-not-found
  exit
fi
bin/cluster install kueue
kueue=$(bin/cluster path kueue)
bin/cluster load --dir "$dir" --tar "$kueue/image.tar" --node node-a
helm upgrade --install kueue "$kueue/chart.tgz" --namespace kueue-system --create-namespace \
  --values demo/kueue/install/values.yaml --values "$kueue/values.yaml" \
  --set 'controllerManager.nodeSelector.kubernetes\.io/hostname=node-a' \
  --set controllerManager.readinessProbe.initialDelaySeconds=1 \
  --set controllerManager.readinessProbe.periodSeconds=1 >/dev/null
# Kueue writes its certificate into a Secret. A new pod has it at once, the first one
# waits minutes until the kubelet updates its volume.
kubectl -n kueue-system wait secret kueue-webhook-server-cert --for='jsonpath={.data.tls\.crt}' --timeout=6m >/dev/null
kubectl -n kueue-system delete pod --all --wait=false >/dev/null
kubectl -n kueue-system rollout status deployment kueue-controller-manager --timeout=6m
# The pod is ready a moment before the API server knows its address.
probe='{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "probe"}}'
for _ in {1..60}; do
  if said=$(kubectl create --dry-run=server -f - <<<"$probe" 2>&1); then exit; fi
  sleep 1
done
echo "the webhook of Kueue does not answer: $said" >&2
exit 1

#!/usr/bin/env bash
# Installs Kueue or JobSet in the cluster of up.sh, Kueue with the settings of demo/kueue:
# project.sh kueue|jobset FOLDER [uninstall]
# The first time, it builds the project (minutes).
set -euo pipefail
cd "$(dirname "$0")/.."
project=$1 dir=$2
export KUBECONFIG=$dir/kubeconfig
PATH=$(bin/cluster path):$PATH
case $project in
  kueue)
    kind=workloads.kueue.x-k8s.io manager=controllerManager deployment=kueue-controller-manager secret=kueue-webhook-server-cert
    settings=(--values demo/kueue/install/values.yaml
      --set controllerManager.readinessProbe.initialDelaySeconds=1 --set controllerManager.readinessProbe.periodSeconds=1)
    probe='{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "probe"}}' ;;
  jobset)
    kind=jobsets.jobset.x-k8s.io manager=controller deployment=jobset-controller secret=jobset-webhook-server-cert
    settings=(--set controller.resources.requests.cpu=100m)
    probe='{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "probe"}, "spec": {}}' ;;
  *) echo "$project: name kueue or jobset" >&2; exit 1 ;;
esac
namespace=$project-system
if [ "${3:-}" = uninstall ]; then
  # Nothing else removes Kueue's finalizers.
  if kubectl get crd "$kind" >/dev/null 2>&1; then kubectl wait "$kind" --all --all-namespaces --for=delete --timeout=6m; fi
  helm uninstall "$project" --namespace "$namespace" --ignore-not-found --wait --timeout 6m
  kubectl delete crd "$kind" --ignore-not-found --timeout=6m # JobSet's chart leaves it
  kubectl delete namespace "$namespace" --ignore-not-found --timeout=6m
  exit
fi
bin/cluster install "$project"
part=$(bin/cluster path "$project")
bin/cluster load --dir "$dir" --tar "$part/image.tar" --node node-a
helm upgrade --install "$project" "$part/chart.tgz" --namespace "$namespace" --create-namespace \
  "${settings[@]}" --values "$part/values.yaml" --set "$manager.nodeSelector.kubernetes\.io/hostname=node-a" >/dev/null
# The manager writes its certificate into a Secret. A new pod has it at once, the first one
# waits minutes until the kubelet updates its volume.
timeout 360 bash -c "until [ -n \"\$(kubectl -n $namespace get secret $secret -o 'jsonpath={.data.tls\.crt}')\" ]; do sleep 1; done"
kubectl -n "$namespace" delete pod --all --wait=false >/dev/null
kubectl -n "$namespace" rollout status deployment "$deployment" --timeout=6m
# The pod is ready a moment before the API server knows its address.
for _ in {1..60}; do
  if said=$(kubectl create --dry-run=server -f - <<<"$probe" 2>&1); then exit; fi
  sleep 1
done
echo "the webhook of $project does not answer: $said" >&2
exit 1

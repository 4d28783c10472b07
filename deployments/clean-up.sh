#!/usr/bin/env bash
# Deletes what an installation of Tranche left in the cluster, all its profiles and plans
# included, when neither Helm's hook nor `kubectl tranche uninstall` can. Delete pods that hold
# GPUs first, and clean the nodes afterwards: docs/admin/upgrade-and-uninstall.md.
#   deployments/clean-up.sh [NAMESPACE [RELEASE]]
set -euo pipefail
namespace=${1:-tranche-system}
release=${2:-tranche}
kubectl delete -A -l app.kubernetes.io/part-of=tranche daemonsets,deployments,jobs,configmaps,services,serviceaccounts,resourcequotas,poddisruptionbudgets,networkpolicies,roles,rolebindings,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings,deviceclasses
kubectl delete -A -l tranche.dev/created-from=Amount resourceclaimtemplates
kubectl get resourceslices -o name --field-selector spec.driver=gpu.tranche.dev | xargs -r kubectl delete
kubectl -n "$namespace" delete lease/"$release"-controller lease/"$release"-scheduler --ignore-not-found
kubectl -n "$namespace" delete secret -l owner=helm,name="$release"
kubectl taint nodes --all tranche.dev/switching- || true # where there is none, kubectl fails
kubectl get nodes -o name | xargs -I{} kubectl patch {} --subresource=status --type=merge -p '{"status":{"capacity":{"tranche.dev/gpu-memory":null,"tranche.dev/gpu-compute":null},"allocatable":{"tranche.dev/gpu-memory":null,"tranche.dev/gpu-compute":null}}}'
kubectl get nodes -o json | jq -r '.items[].metadata | .name as $n | .labels | to_entries[] | select(.value == "paused-for-tranche") | "\($n) \(.key)=true"' | while read -r node label; do kubectl label --overwrite node "$node" "$label"; done
kubectl delete crd --ignore-not-found gpunodes.tranche.dev gpuresourcemaps.tranche.dev partitionplans.tranche.dev partitionprofiles.tranche.dev

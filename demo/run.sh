#!/usr/bin/env bash
# Applies the demos to the cluster of `make cluster-up` and shows what happened.
set -euo pipefail
cd "$(dirname "$0")/.."
cluster=${CLUSTER_DIR:-$PWD/.cluster}
export KUBECONFIG=$cluster/kubeconfig
bins=$(bin/cluster path)
PATH=$PWD/bin:$bins:$PATH

demos=(whole-gpu mig device-plugin-pod two-partitions sharing-half-gpu sharing-memory amd-partition)

echo
echo "Applying the demos …"
for demo in "${demos[@]}" either-vendor; do
  kubectl apply -f "demo/$demo" >/dev/null
done
for demo in "${demos[@]}"; do
  kubectl -n "demo-$demo" wait pod --all --for=condition=Ready --timeout=120s >/dev/null
done
kubectl -n demo-sharing-half-gpu-other wait pod --all --for=condition=Ready --timeout=120s >/dev/null
kubectl -n demo-either-vendor rollout status deployment either --timeout=120s >/dev/null

show() { # namespace pod container
  echo
  echo "── $1: what container $3 of pod $2 sees"
  kubectl -n "$1" logs "$2" -c "$3" | sed 's/^/   /'
}
show demo-whole-gpu whole-gpu main
show demo-mig first main
show demo-mig second main
show demo-device-plugin-pod unchanged main
show demo-two-partitions pair large
show demo-two-partitions pair small
show demo-two-partitions pair sidecar
show demo-sharing-half-gpu mine main
show demo-sharing-half-gpu-other theirs main
show demo-sharing-memory small main
show demo-amd-partition partition main
for pod in $(kubectl -n demo-either-vendor get pods -l app=either -o jsonpath='{.items[*].metadata.name}'); do
  show demo-either-vendor "$pod" main
done

echo
echo "── kubectl tranche"
kubectl tranche

cat <<TEXT

The cluster is up. To look around:

  export KUBECONFIG=$KUBECONFIG PATH=$PWD/bin:$bins:\$PATH
  kubectl tranche                                  # GPUs, partitions, holders
  kubectl get pods -A -o wide
  kubectl get resourceclaims -A
  kubectl -n tranche-system logs ds/tranche-kubelet-plugin
  kubectl delete namespace demo-mig                # its partitions are destroyed
  kubectl tranche why -n NAMESPACE POD             # why a pod waits

The other demos, each with a README (demo/NAME/README.md):

  kubectl apply -f demo/all-gpus                   # all GPUs of a node that nobody uses
  kubectl apply -f demo/linked-gpus                # two GPUs with a direct link
  kubectl apply -f demo/one-gpu                    # four partitions that fill one GPU
  kubectl apply -f demo/amd-one-gpu                # eight partitions of one AMD GPU
  kubectl apply -f demo/amd-switch                 # an AMD GPU changes its mode
  kubectl apply -f demo/extended-gpu                 # nvidia.com/gpu: 1, unchanged
  kubectl apply -f demo/extended-amd                 # amd.com/gpu: 1, unchanged
  kubectl apply -f demo/first-available            # a whole GPU, else half of one
  kubectl apply -f demo/quota                      # three partitions for a namespace
  kubectl apply -f demo/sharing-replicas           # ten pods that fill one GPU
  kubectl apply -f demo/sharing-container          # one container of two has half a GPU
  kubectl apply -f demo/sharing-init-container     # an init container has half a GPU
  kubectl apply -f demo/sharing-two-gpus           # half of each of two GPUs
  kubectl apply -f demo/sharing-mig                # two pods on one MIG partition
  kubectl apply -f demo/sharing-mps                # two pods side by side, by MPS
  kubectl apply -f demo/sharing-burst              # a memory limit above the request
  kubectl apply -f demo/sharing-nvidia-gpu         # nvidia.com/gpu: 1 is a replica
  kubectl apply -f demo/sharing-nvidia-gpu-shared  # nvidia.com/gpu.shared: 1
  kubectl apply -f demo/sharing-quota              # three shares for a namespace
  kubectl apply -f demo/translate-hami             # HAMi's limits, unchanged
  kubectl apply -f demo/translate-nos              # a memory slice of nos, unchanged
  kubectl apply -f demo/admin-access               # a monitor that takes nothing
  kubectl apply -f demo/vectoradd                  # CUDA, for real GPUs
  kubectl apply -f demo/notebook                   # Jupyter on a partition, for real GPUs
  kubectl apply -f demo/job                        # a Job with PyTorch, for real GPUs
  kubectl apply -f demo/vllm                       # a model served by vLLM, for real GPUs

What administrators do, step by step (demo/NAME/README.md):

  demo/profile-all-balanced                        # GPUs cut in advance, by a label
  demo/profile-cpx-nps4                            # an AMD node changes its memory mode
  demo/profile-time-sliced                         # GPUs shared by ten, by a label
  demo/profile-extended-single                       # nvidia.com/gpu: 1 is a partition
  demo/profile-rollback                            # a switch that fails
  demo/profile-budget                              # a budget that holds a switch
  demo/plan                                        # a profile for many nodes, step by step
  demo/translate-kai                               # KAI's manifests, unchanged
  demo/kueue                                       # a queue with quota for GPU memory

To stop it: make demo-down
TEXT

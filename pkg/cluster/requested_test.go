package cluster_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// gpuAmounts are GPU memory and compute; an empty amount is left out.
func gpuAmounts(memory, compute string) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}
	for name, amount := range map[corev1.ResourceName]string{names.ResourceGPUMemory: memory, names.ResourceGPUCompute: compute} {
		if amount != "" {
			out[name] = resource.MustParse(amount)
		}
	}
	return out
}

func requesting(node string, phase corev1.PodPhase, memory, compute string) corev1.Pod {
	return corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: gpuAmounts(memory, compute)}}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

func TestRequestedOn(t *testing.T) {
	const run = corev1.PodRunning
	for name, test := range map[string]struct {
		has  corev1.ResourceList
		pods []corev1.Pod
		want string
		// room: there is room for a tenth of a GPU with 10 GiB.
		room bool
	}{
		"the node has neither": {has: gpuAmounts("", ""), pods: []corev1.Pod{requesting("node-a", run, "1Gi", "1")}},
		"nobody":               {has: gpuAmounts("640Gi", "8k"), room: true},
		"some": {has: gpuAmounts("640Gi", "8k"), pods: []corev1.Pod{requesting("node-a", run, "240Gi", "2"), requesting("node-a", corev1.PodPending, "240Gi", "5998")},
			want: "480 of 640 GiB of GPU memory and 6 of 8 GPUs", room: true},
		"compute is full": {has: gpuAmounts("80Gi", "1000"), pods: []corev1.Pod{requesting("node-a", run, "9728Mi", "901")},
			want: "9.5 of 80 GiB of GPU memory and 0.901 of 1 GPU"},
		"memory is full": {has: gpuAmounts("1Ti", "8k"), pods: []corev1.Pod{requesting("node-a", run, "1020Gi", "")},
			want: "1020 GiB of 1 TiB of GPU memory"},
		"of others, and ended": {has: gpuAmounts("80Gi", "1000"), room: true, pods: []corev1.Pod{
			requesting("node-b", run, "80Gi", "1000"), requesting("node-a", corev1.PodSucceeded, "80Gi", "1000"), requesting("node-a", corev1.PodFailed, "80Gi", "1000"),
		}},
		"a kubelet has set it to zero": {has: gpuAmounts("0", "0"), pods: []corev1.Pod{requesting("node-a", run, "", "142")}, want: "0.142 of 0 GPUs"},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: test.has}}
			node.Name = "node-a"
			r := cluster.RequestedOn(node, test.pods)
			assert.Equal(t, test.want, r.String())
			pod := requesting("", "", "10Gi", "100")
			assert.Equal(t, test.room, r.Room(cluster.RequestsOf(&pod)))
		})
	}
	assert.Equal(t, "9.5 GiB of GPU memory and 1 GPU", cluster.AmountsText(gpuAmounts("9728Mi", "1000")))
	assert.Nil(t, cluster.RequestsOf(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: gpuAmounts("", "0")}}}}}))
}

package inventory_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
	"github.com/tranche-dev/tranche/test/kubefake"
)

func TestWriteResources(t *testing.T) {
	of := func(memory, compute string) corev1.ResourceList {
		return corev1.ResourceList{
			"nvidia.com/other": resource.MustParse("3"), corev1.ResourceCPU: resource.MustParse("8"),
			names.ResourceGPUMemory: resource.MustParse(memory), names.ResourceGPUCompute: resource.MustParse(compute),
		}
	}
	bare := of("0", "0")
	delete(bare, names.ResourceGPUMemory)
	delete(bare, names.ResourceGPUCompute)
	wanted := corev1.ResourceList{names.ResourceGPUMemory: resource.MustParse("640Gi"), names.ResourceGPUCompute: resource.MustParse("8000")}
	for _, tt := range []struct {
		name                  string
		capacity, allocatable corev1.ResourceList
		wanted                corev1.ResourceList
		patch                 string
	}{
		{"a new node", bare, bare, wanted, `{"status":{"allocatable":{"tranche.dev/gpu-compute":"8k","tranche.dev/gpu-memory":"640Gi"},"capacity":{"tranche.dev/gpu-compute":"8k","tranche.dev/gpu-memory":"640Gi"}}}`},
		{"written", of("640Gi", "8k"), of("687194767360", "8000"), wanted, ""},
		{"a kubelet that started", of("0", "0"), of("0", "0"), wanted, `{"status":{"allocatable":{"tranche.dev/gpu-compute":"8k","tranche.dev/gpu-memory":"640Gi"},"capacity":{"tranche.dev/gpu-compute":"8k","tranche.dev/gpu-memory":"640Gi"}}}`},
		{"only one differs", of("640Gi", "8k"), of("640Gi", "7k"), wanted, `{"status":{"allocatable":{"tranche.dev/gpu-compute":"8k"},"capacity":{}}}`},
		{"removed", of("640Gi", "8k"), of("640Gi", "8k"), nil, `{"status":{"allocatable":{"tranche.dev/gpu-compute":null,"tranche.dev/gpu-memory":null},"capacity":{"tranche.dev/gpu-compute":null,"tranche.dev/gpu-memory":null}}}`},
		{"nothing to remove", bare, bare, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Capacity: tt.capacity, Allocatable: tt.allocatable}}
			client := kubefake.New(node)
			require.NoError(t, inventory.NewNode(client, node, nil, nil).WriteResources(t.Context(), client, tt.wanted))
			var patches []string
			for _, a := range client.Actions() {
				if p, ok := a.(clienttesting.PatchAction); ok {
					assert.Equal(t, "status", p.GetSubresource())
					patches = append(patches, string(p.GetPatch()))
				}
			}
			if tt.patch == "" {
				assert.Empty(t, patches)
			} else {
				require.Len(t, patches, 1)
				assert.JSONEq(t, tt.patch, patches[0])
			}
		})
	}
}

// A kubelet that starts ends pods that request more than their node has.
func TestResourcesDoNotBecomeLess(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Capacity: corev1.ResourceList{
		names.ResourceGPUMemory: resource.MustParse("640Gi"), names.ResourceGPUCompute: resource.MustParse("7k"),
	}}}
	n := inventory.NewNode(kubefake.New(), node, nil, nil)
	got := n.NotLess(corev1.ResourceList{names.ResourceGPUMemory: resource.MustParse("560Gi"), names.ResourceGPUCompute: resource.MustParse("8k")})
	memory, compute := got[names.ResourceGPUMemory], got[names.ResourceGPUCompute]
	assert.Equal(t, "640Gi", memory.String())
	assert.Equal(t, "8k", compute.String())
}

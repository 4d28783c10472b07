package controller

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/controller/state"
)

// decoded is an object as it comes from the API server: nothing of it is shared with
// another.
func decoded[T any](t testing.TB, o *T) *T {
	encode, decode := json.Marshal, json.Unmarshal
	// What has protocol buffers comes as such.
	if p, ok := any(o).(interface{ Marshal() ([]byte, error) }); ok {
		encode = func(any) ([]byte, error) { return p.Marshal() }
		decode = func(data []byte, out any) error { return out.(interface{ Unmarshal([]byte) error }).Unmarshal(data) }
	}
	data, err := encode(o)
	require.NoError(t, err)
	var out T
	require.NoError(t, decode(data, &out))
	return &out
}

// fullGPUNode is a GPUNode of eight GPUs cut in seven, each of them held, with a long
// history.
func fullGPUNode(name string) *v1alpha1.GPUNode {
	wish := v1alpha1.ProfileSnapshot{Profile: "new", Source: v1alpha1.FromLabel, Hash: "hash-new"}
	n := &v1alpha1.GPUNode{Status: v1alpha1.GPUNodeStatus{Node: &v1alpha1.NodeReport{Count: 8, BootID: "boot-1"}}}
	machine := &state.Machine{Deadlines: state.DefaultDeadlines()}
	n.Status = machine.Next(n, &state.Facts{Now: noon, Choice: state.Choice{Desired: &wish}}).Status
	n.Name = name
	n.Status.Node.GPUs = nil
	for i := range 8 {
		c := v1alpha1.GPUReport{Name: fmt.Sprintf("gpu-0000-%02x-00-0", i), Vendor: "nvidia", Product: "NVIDIA H100 80GB HBM3", Mode: "MIG on", Slice: "0123456789abcdef"}
		for j := range 7 {
			c.Partitions = append(c.Partitions, fmt.Sprintf("%s-mig-1g-10gb-%d", c.Name, j))
		}
		c.Held = c.Partitions
		n.Status.Node.GPUs = append(n.Status.Node.GPUs, c)
	}
	for range 10 {
		n.Status.History = append(n.Status.History, v1alpha1.SwitchRecord{From: "old", To: "new", Result: v1alpha1.ResultFailed, Message: "a message of some length, as people like to read them"})
	}
	n.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:node":{"f:gpus":{}}}}`)}}
	return n
}

func fullClaim(i int) *resourceapi.ResourceClaim {
	name := fmt.Sprintf("claim-%d", i)
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: name, UID: types.UID("0123-" + name), Labels: map[string]string{"app": "training"},
		Annotations:     map[string]string{"resource.kubernetes.io/pod-claim-name": "gpu"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: name}},
	}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "gpu", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu-mig.tranche.dev"}}}
	node := fmt.Sprintf("node-%04d", i/56)
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: []resourceapi.DeviceRequestAllocationResult{{
		Request: "gpu", Driver: names.DriverName, Pool: names.PoolName(node), Device: gpuA + "-mig-1g-10gb-0",
	}}}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: "uid"}}
	return c
}

// What the caches hold of a cluster with a thousand nodes whose every partition is in
// use: the controller has at most 300 MB for it and everything else.
func TestTheMemoryOfAThousandNodes(t *testing.T) {
	const nodes, claims = 1000, 56_000
	options := (&Options{PauseLabels: DefaultPauseLabels}).CacheOptions()
	var kept []any
	add := func(transform func(any) (any, error), o any) {
		o, err := transform(o)
		require.NoError(t, err)
		kept = append(kept, o)
	}
	before := heap()
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		add(cache.TransformStripManagedFields(), decoded(t, fullGPUNode(name)))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{names.LabelProfile: "cpx"}}}
		node.Status.Images = make([]corev1.ContainerImage, 50)
		add(trimNode, decoded(t, node))
	}
	for i := range claims {
		add(drain.TrimClaim, decoded(t, fullClaim(i)))
	}
	used := heap() - before
	t.Logf("%d nodes and %d claims: %d MB", nodes, claims, used>>20)
	assert.Less(t, used>>20, uint64(150))
	assert.NotEmpty(t, options.ByObject)
	runtime.KeepAlive(kept)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

package helm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// aSlice is a ResourceSlice as a plugin publishes it, with changes.
func aSlice(driver, node, pool string, changes ...func(*resourceapi.ResourceSlice)) *resourceapi.ResourceSlice {
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:            node + "-gpu.tranche.dev-x7k2p",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: "1", Controller: ptr.To(true)}},
		},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: ptr.To(node),
			Pool:    resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0000-c1-00-0"}},
		},
	}
	for _, change := range changes {
		change(slice)
	}
	return slice
}

func nowhere(s *resourceapi.ResourceSlice)    { s.Spec.NodeName, s.OwnerReferences = nil, nil }
func everywhere(s *resourceapi.ResourceSlice) { nowhere(s); s.Spec.AllNodes = ptr.To(true) }
func perDevice(s *resourceapi.ResourceSlice) {
	nowhere(s)
	s.Spec.PerDeviceNodeSelection = ptr.To(true)
	s.Spec.Devices[0].NodeName = ptr.To("node-b")
}
func bySelector(s *resourceapi.ResourceSlice) {
	nowhere(s)
	s.Spec.NodeSelector = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"node-b"}}},
	}}}
}

func generation(g int64) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) { s.Spec.Pool.Generation = g }
}

func noExecute(s *resourceapi.ResourceSlice) {
	s.Spec.Devices[0].Taints = []resourceapi.DeviceTaint{{Key: "x", Effect: resourceapi.DeviceTaintEffectNoExecute}}
}

func finalizer(s *resourceapi.ResourceSlice) { s.Finalizers = []string{"example.com/stay"} }

func ownedBy(kind, name string) func(*resourceapi.ResourceSlice) {
	return func(s *resourceapi.ResourceSlice) {
		s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: kind, Name: name, UID: "2", BlockOwnerDeletion: ptr.To(true)})
	}
}

// sliceWrite is a write of a slice with a token that names a node.
func sliceWrite(operation, from string, before, after *resourceapi.ResourceSlice) write {
	return write{operation: operation, from: from, before: before, after: after}
}

func TestSlicePolicy(t *testing.T) {
	objects := decode(t, render(t, chart))
	policy := policyNamed(t, objects, "-resourceslices")
	require.Equal(t, admissionregistrationv1.Fail, *policy.spec.FailurePolicy)
	require.Equal(t, []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
		policy.spec.MatchConstraints.ResourceRules[0].Operations)
	requireBound(t, objects)
	require.True(t, policy.appliesTo("system:serviceaccount:tranche-system:tranche-kubelet-plugin"))
	require.False(t, policy.appliesTo("system:serviceaccount:elsewhere:tranche-kubelet-plugin"))
	require.False(t, policy.appliesTo("system:node:node-a"))

	const (
		noNode  = "the token names no node: tranche-kubelet-plugin may write ResourceSlices only from its pods, with the token that the kubelet mounts there"
		another = "tranche-kubelet-plugin on node 'node-a' may write only ResourceSlices of that node, and this one is of "
		pool    = "tranche-kubelet-plugin on node 'node-a' may write only the pool of that node, and this ResourceSlice is of pool '"
		meta    = "tranche-kubelet-plugin may give ResourceSlices no finalizer, and no owner but its own node"
	)
	always, written := []string{"CREATE", "UPDATE", "DELETE"}, []string{"CREATE", "UPDATE"}
	for name, test := range map[string]struct {
		operations []string
		tokenNode  string
		slice      *resourceapi.ResourceSlice
		want       string
	}{
		"own pool":               {always, "node-a", aSlice(driver, "node-a", "node-a"), ""},
		"own pool of a GPU":      {written, "node-a", aSlice(driver, "node-a", "node-a/gpu-0000-c1-00-0"), pool + "node-a/gpu-0000-c1-00-0'"},
		"removes that of a GPU":  {[]string{"DELETE"}, "node-a", aSlice(driver, "node-a", "node-a/gpu-0000-c1-00-0"), ""},
		"own devices tainted":    {always, "node-a", aSlice(driver, "node-a", "node-a", noExecute, generation(7)), ""},
		"another node's":         {always, "node-a", aSlice(driver, "node-b", "node-b"), another + "node 'node-b'"},
		"another node, own pool": {always, "node-a", aSlice(driver, "node-b", "node-a"), another + "node 'node-b'"},
		"no node's":              {always, "node-a", aSlice(driver, "node-a", "node-a", nowhere), another + "no single node"},
		"all nodes'":             {always, "node-a", aSlice(driver, "node-a", "node-a", everywhere), another + "no single node"},
		"selected nodes'":        {always, "node-a", aSlice(driver, "node-a", "node-a", bySelector), another + "no single node"},
		"nodes of its devices":   {always, "node-a", aSlice(driver, "node-a", "node-a", perDevice), another + "no single node"},
		"another driver's": {always, "node-a", aSlice("gpu.nvidia.com", "node-a", "node-a"),
			"tranche-kubelet-plugin may write only ResourceSlices of driver gpu.tranche.dev, and this one is of 'gpu.nvidia.com'"},
		"token without a node":       {always, "", aSlice(driver, "node-a", "node-a"), noNode},
		"token and slice without":    {always, "", aSlice(driver, "", "", nowhere), noNode},
		"token with other claims":    {always, otherClaims, aSlice(driver, "node-a", "node-a"), noNode},
		"another node's pool":        {written, "node-a", aSlice(driver, "node-a", "node-b", generation(1<<60), noExecute), pool + "node-b'"},
		"pool of another's GPU":      {written, "node-a", aSlice(driver, "node-a", "node-b/gpu-0000-c1-00-0", generation(1<<60), noExecute), pool + "node-b/gpu-0000-c1-00-0'"},
		"pool with the same start":   {written, "node-a", aSlice(driver, "node-a", "node-ab"), pool + "node-ab'"},
		"pool with a longer start":   {written, "node-a", aSlice(driver, "node-a", "node-a.example.com/gpu"), pool + "node-a.example.com/gpu'"},
		"pool around its own":        {written, "node-a", aSlice(driver, "node-a", "node-b/node-a"), pool + "node-b/node-a'"},
		"removes what was elsewhere": {[]string{"DELETE"}, "node-a", aSlice(driver, "node-a", "node-b/gpu-0000-c1-00-0"), ""},
		"finalizer":                  {written, "node-a", aSlice(driver, "node-a", "node-a", finalizer), meta},
		"another node as owner":      {written, "node-a", aSlice(driver, "node-a", "node-a", ownedBy("Node", "node-b")), meta},
		"another kind as owner":      {written, "node-a", aSlice(driver, "node-a", "node-a", ownedBy("PersistentVolume", "node-a")), meta},
	} {
		for _, operation := range test.operations {
			t.Run(operation+" "+name, func(t *testing.T) {
				before := test.slice.DeepCopy()
				before.Finalizers, before.OwnerReferences = nil, nil
				require.Equal(t, test.want, policy.refusal(sliceWrite(operation, test.tokenNode, before, test.slice)))
			})
		}
	}

	// What others gave a slice stays when the plugin updates it.
	kept := aSlice(driver, "node-a", "node-a", finalizer, ownedBy("Namespace", "x"))
	require.Empty(t, policy.refusal(sliceWrite("UPDATE", "node-a", kept, kept)))
}

// TestPoolsPolicy: a kubelet's certificate does not let one into the pools of other nodes.
func TestPoolsPolicy(t *testing.T) {
	policy := policyNamed(t, decode(t, render(t, chart)), "tranche-pools")
	require.Equal(t, admissionregistrationv1.Fail, *policy.spec.FailurePolicy)
	require.Equal(t, []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"}, policy.spec.MatchConstraints.ResourceRules[0].Operations)

	const refused = "ResourceSlices of driver gpu.tranche.dev must be in the pool of their node, and this one is of "
	for name, test := range map[string]struct {
		slice *resourceapi.ResourceSlice
		want  string
	}{
		"own pool":            {aSlice(driver, "node-a", "node-a"), ""},
		"own pool of a GPU":   {aSlice(driver, "node-a", "node-a/gpu-0000-c1-00-0"), refused + "node 'node-a' and of pool 'node-a/gpu-0000-c1-00-0'"},
		"another node's pool": {aSlice(driver, "node-a", "node-b/gpu-0000-c1-00-0"), refused + "node 'node-a' and of pool 'node-b/gpu-0000-c1-00-0'"},
		"same start":          {aSlice(driver, "node-a", "node-ab"), refused + "node 'node-a' and of pool 'node-ab'"},
		"no node":             {aSlice(driver, "node-a", "node-a", nowhere), refused + "no single node and of pool 'node-a'"},
		"all nodes":           {aSlice(driver, "node-a", "node-a", everywhere), refused + "no single node and of pool 'node-a'"},
		"no node, no pool":    {aSlice(driver, "", "/gpu", everywhere), refused + "no single node and of pool '/gpu'"},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, policy.concerns(sliceWrite("CREATE", "", nil, test.slice)))
			require.Equal(t, test.want, policy.refusal(sliceWrite("CREATE", "", nil, test.slice)))
			before := aSlice(driver, "node-a", test.slice.Spec.Pool.Name, generation(99))
			require.True(t, policy.concerns(sliceWrite("UPDATE", "", before, test.slice)))
			require.Equal(t, test.want, policy.refusal(sliceWrite("UPDATE", "", before, test.slice)))
		})
	}

	// The plugin of another driver, on a node that somebody has taken over.
	own, before := aSlice(driver, "node-a", "node-a"), aSlice(driver, "node-a", "node-a", generation(99))
	for _, operation := range []string{"CREATE", "UPDATE", "DELETE"} {
		require.True(t, policy.concerns(sliceWrite(operation, "", before, own)), operation)
		require.Contains(t, policy.refusal(sliceWrite(operation, "node-b", before, own)), "only ResourceSlices of driver gpu.tranche.dev that belong to the pod's node", operation)
		for _, from := range []string{"", otherClaims, "node-a"} {
			require.Empty(t, policy.refusal(sliceWrite(operation, from, before, own)), "%s from %q", operation, from)
		}
	}

	other := aSlice("gpu.nvidia.com", "node-a", "rack-7")
	require.False(t, policy.concerns(sliceWrite("CREATE", "", nil, other)), "other drivers name their pools as they like")
	stray := aSlice(driver, "node-a", "node-b")
	require.False(t, policy.concerns(sliceWrite("UPDATE", "", aSlice(driver, "node-a", "node-b", finalizer), stray)), "garbage collection may finish")
}

// TestUninstallSlicesPolicy: the job of helm uninstall deletes slices of ours, if it may delete
// any at all.
func TestUninstallSlicesPolicy(t *testing.T) {
	objects := decode(t, render(t, chart, "--set", "uninstall.force=true"))
	requireBound(t, objects)
	policy := policyNamed(t, objects, "-uninstall-slices")
	require.True(t, policy.appliesTo("system:serviceaccount:tranche-system:tranche-uninstall"))
	require.False(t, policy.appliesTo("system:serviceaccount:tranche-system:tranche-kubelet-plugin"))
	const refused = "tranche-uninstall may only delete ResourceSlices, and only those of driver gpu.tranche.dev"
	ours, theirs := aSlice(driver, "node-a", "node-a"), aSlice("gpu.nvidia.com", "node-a", "node-a")
	require.Empty(t, policy.refusal(sliceWrite("DELETE", "node-b", ours, nil)))
	require.Equal(t, refused, policy.refusal(sliceWrite("DELETE", "node-b", theirs, nil)))
	require.Equal(t, refused, policy.refusal(sliceWrite("CREATE", "node-b", nil, ours)))
	require.Equal(t, refused, policy.refusal(sliceWrite("UPDATE", "node-b", ours, ours)))
}

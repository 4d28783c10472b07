package live

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/page/invent"
	"github.com/tranche-dev/tranche/test/scenes"
)

func TestPackedSlicesAreWhatTheyWere(t *testing.T) {
	for _, s := range scenes.H100("node-a", 0) {
		o, err := pack(&s)
		require.NoError(t, err)
		p := o.(*packed)
		assert.Equal(t, "node-a", p.node)
		back, err := p.unpack()
		require.NoError(t, err)
		raw, err := s.Marshal()
		require.NoError(t, err)
		if len(raw) > 1000 {
			assert.Less(t, len(p.data), len(raw)/3)
		}
		assert.True(t, equality.Semantic.DeepEqual(s.Spec.Devices, back.Spec.Devices))
		assert.Equal(t, s.Spec.Pool, back.Spec.Pool)
	}
}

// isEmpty reports whether a value of JSON says nothing.
func isEmpty(v any) bool {
	fields, ok := v.(map[string]any)
	for _, inner := range fields {
		ok = ok && (isEmpty(inner) || inner == "" || inner == 0.0)
	}
	return ok || v == nil
}

// fieldsOf names the fields that are left of an object.
func fieldsOf(t *testing.T, o any) string {
	data, err := json.Marshal(o)
	require.NoError(t, err)
	var parts map[string]map[string]any
	require.NoError(t, json.Unmarshal(data, &parts))
	var out []string
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		maps.DeleteFunc(parts[part], func(_ string, v any) bool { return isEmpty(v) })
		if fields := slices.Sorted(maps.Keys(parts[part])); len(fields) > 0 {
			out = append(out, part+": "+strings.Join(fields, " "))
		}
	}
	return strings.Join(out, "; ")
}

// A claim that holds nothing of ours is not kept, nor what a pod is beside its requests.
func TestTrimmed(t *testing.T) {
	c := scenes.Claim("a", "p", "node-a", 0, "x")
	c.Status.Allocation.Devices.Results[0].Driver = "other.example"
	assert.Nil(t, trimClaim(&c))
	p := trimPod(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "SECRET", Value: "x"}}}}}})
	assert.Equal(t, []corev1.Container{{Name: "c"}}, p.Spec.Containers)

	var pod corev1.Pod
	var node corev1.Node
	var claim resourceapi.ResourceClaim
	filled.Value(&pod)
	filled.Value(&node)
	filled.Value(&claim)
	claim.Status.Allocation.Devices.Results[0].Driver = names.DriverName
	waiting := claim.DeepCopy()
	waiting.Status.Allocation = nil
	for want, o := range map[string]any{
		"metadata: creationTimestamp deletionTimestamp labels name namespace ownerReferences uid" +
			"; spec: affinity containers initContainers nodeName nodeSelector resourceClaims schedulerName schedulingGates tolerations topologySpreadConstraints" +
			"; status: conditions extendedResourceClaimStatus nominatedNodeName phase resourceClaimStatuses": trimPod(&pod),
		"metadata: labels name; spec: taints unschedulable; status: allocatable":                                           trimNode(&node),
		"metadata: creationTimestamp deletionTimestamp name namespace ownerReferences uid; status: allocation reservedFor": trimClaim(&claim),
		"metadata: creationTimestamp deletionTimestamp name namespace ownerReferences uid; spec: devices":                  trimClaim(waiting),
	} {
		assert.Equal(t, want, fieldsOf(t, o))
	}
	n := trimNode(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "m"}, {Type: corev1.NodeDiskPressure}}}})
	assert.Equal(t, []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}, n.Status.Conditions)
}

// What a list has no more is gone, and so is what was deleted while nobody watched.
func TestListsReplaceWhatWasKnown(t *testing.T) {
	o := invent.Cluster(1, now)
	s := loaded(t, o)
	require.NoError(t, s.plans.Replace([]any{&o.Plans[1]}, ""))
	require.True(t, s.Step(t.Context()))
	require.Len(t, s.Snapshot().Rollouts, 1)
	assert.Equal(t, o.Plans[1].Name, s.Snapshot().Rollouts[0].Plan)
	require.NoError(t, s.plans.Delete(cache.DeletedFinalStateUnknown{Key: o.Plans[1].Name}))
	require.True(t, s.Step(t.Context()))
	assert.Empty(t, s.Snapshot().Rollouts)
	require.Error(t, s.plans.Replace([]any{1}, ""))
	require.Error(t, s.plans.Add(1))
}

package defrag_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/defrag"
)

// allocatedBytes is what a plan allocates.
func (f *fleet) allocatedBytes(waiting string) uint64 {
	f.t.Helper()
	p := f.planner(defrag.Options{Timeout: time.Minute})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := p.Plan(f.t.Context(), f.pods[waiting])
	require.NoError(f.t, err)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The work for a node does not grow with what has nothing to do with it.
func TestWorkIsBounded(t *testing.T) {
	for name, add := range map[string]func(f *fleet){
		"claims of other drivers": func(f *fleet) {
			for i := range 5000 {
				claim := &resourceapi.ResourceClaim{}
				claim.Namespace, claim.Name = "other", fmt.Sprint(i)
				claim.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
					Results: []resourceapi.DeviceRequestAllocationResult{{Driver: "nic.example.com", Pool: fmt.Sprint("node-", i), Device: "nic"}},
				}}
				pod := &corev1.Pod{}
				pod.Namespace, pod.Name = claim.Namespace, claim.Name
				f.claims[claim.Name], f.pods[claim.Name] = claim, pod
			}
		},
		"budgets of other namespaces": func(f *fleet) {
			for i := range 5000 {
				b := budget(1, 1)
				b.Namespace, b.Spec.Selector = "other", &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}
				f.in.Budgets = append(f.in.Budgets, b)
			}
		},
		"pods with anti-affinity": func(f *fleet) {
			for i := range 5000 {
				pod := &corev1.Pod{}
				pod.Namespace, pod.Name, pod.Spec.NodeName = "other", fmt.Sprint(i), "node-9"
				pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
					{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}, Namespaces: []string{team}},
				}}}
				f.pods[pod.Name], f.claims[pod.Name] = pod, &resourceapi.ResourceClaim{}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, waiting := scattered(t)
			few := f.allocatedBytes(waiting)
			add(f)
			assert.Less(t, f.allocatedBytes(waiting), 2*few)
		})
	}
}

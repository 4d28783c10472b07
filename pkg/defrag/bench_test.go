package defrag_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/defrag"
)

// BenchmarkPlan looks for plans in fleets of nodes with eight H100 each, of which every GPU has some small
// pods: one that is found, and one that would move too many pods.
func BenchmarkPlan(b *testing.B) {
	for _, nodes := range []int{10, 100, 256} {
		r := rand.New(rand.NewPCG(1, 19))
		f := newFleet(b, repeat(8, nodes)...)
		for _, s := range f.slices {
			for _, d := range s.Spec.Devices {
				// Two of its placements on each GPU, sometimes three.
				if end := d.Name[len(d.Name)-2:]; strings.Contains(d.Name, "-1g-10gb-") && !strings.Contains(d.Name, "me") &&
					(end == "-0" || end == "-4" || end == "-5" && r.IntN(3) == 0) {
					f.hold(*s.Spec.NodeName, s.Spec.Pool.Name, d.Name)
				}
			}
		}
		one, two := f.add(seven, 1, priority(5)), f.add(seven, 2, priority(5))
		for name, test := range map[string]struct {
			pod  string
			most int
			want defrag.Reason
		}{"found": {one, 4, ""}, "two": {two, 4, ""}, "none": {one, 1, defrag.TooMany}} {
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
				for b.Loop() {
					_, refusal := f.plan(test.pod, defrag.Options{MaxPods: test.most, Timeout: time.Minute})
					if test.want == "" {
						require.Nil(b, refusal)
					} else {
						require.Equal(b, test.want, refusal.Reason, refusal)
					}
				}
			})
		}
	}
}

// hold makes a pod that has a device, without asking the allocator.
func (f *fleet) hold(node, pool, device string) {
	name := f.add(one, 1)
	f.pods[name].Spec.NodeName, f.pods[name].Status.Phase = node, corev1.PodRunning
	f.claims[name].Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: f.pods[name].UID}}
	f.claims[name].Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "gpu", Driver: names.DriverName, Pool: pool, Device: device}},
	}}
}

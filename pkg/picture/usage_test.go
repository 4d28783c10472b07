package picture

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/usage"
)

func used(used, total, compute, engine, power float64) usage.Values {
	return usage.Values{MemoryUsed: ptr.To(used * (1 << 30)), MemoryTotal: ptr.To(total * (1 << 30)), Compute: &compute, Engine: &engine, Power: &power}
}

func usages() []usage.Node {
	part := used(7.5, 9.8, 0.93, 1, 0)
	part.Power = nil
	share := usage.Values{MemoryUsed: ptr.To(512.0 * (1 << 20))}
	return []usage.Node{
		{Name: "gpu-00", Values: used(101, 160, 0.4, 0.5, 710), GPUs: []usage.GPU{
			{Name: "gpu-0000-0f-00-0", Values: used(21, 80, 0.3, 0.5, 310), Partitions: []usage.Partition{
				{UUID: "MIG-1", Instance: "9", Profile: "1g.10gb", Values: part, Users: []usage.User{{Namespace: "team-a", Pod: "notebook", Values: part}}},
				{UUID: "MIG-2", Instance: "11", Profile: "3g.40gb"},
			}},
			{Name: "gpu-0000-1f-00-0", Values: used(80, 80, 0.5, 0.5, 400), Users: []usage.User{
				{Namespace: "team-b", Pod: "infer-1", Values: share}, {Namespace: "team-b", Pod: "infer-0", Values: share}, {Namespace: "team-b", Pod: "infer-0", Values: share}, {Namespace: "team-c", Claim: "workers"},
			}},
		}},
		usage.Unanswered("gpu-01", "tranche-system", errors.New("you are not allowed to get pods/proxy in the namespace tranche-system")),
		{Name: "gpu-02", Values: usage.Values{MemoryTotal: ptr.To(24.0 * (1 << 30)), Power: ptr.To(12345.6)}, GPUs: []usage.GPU{{Name: "gpu-0000-0f-00-0"}}},
	}
}

func TestPicturesOfUsage(t *testing.T) {
	nodes := usages()
	checkDrawn(t, "top-nodes", func(p *Page) { DrawNodeUsage(p, nodes) })
	checkDrawn(t, "top-gpus", func(p *Page) { DrawGPUUsage(p, nodes) })
	checkDrawn(t, "top-pods", func(p *Page) { DrawPodUsage(p, usage.Pods(nodes)) })
	for _, draw := range []func(*Page){
		func(p *Page) { DrawNodeUsage(p, nil) },
		func(p *Page) { DrawGPUUsage(p, nil) },
		func(p *Page) { DrawPodUsage(p, usage.PodList{}) },
	} {
		assert.Equal(t, "The plugins of Tranche report no usage.\n", drawn(t, Screen{Width: 80}, draw))
	}
}

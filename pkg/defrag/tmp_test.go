package defrag_test

import (
	"fmt"
	"testing"

	"github.com/tranche-dev/tranche/pkg/defrag"
)

func TestTmpOverlap(t *testing.T) {
	f := newFleet(t, 1, 1)
	f.run("node-0", one)
	w := f.add(three, 1)
	p := f.planner(defrag.Options{})
	_ = w
	for _, s := range f.slices {
		if *s.Spec.NodeName != "node-0" {
			continue
		}
		for _, d := range s.Spec.Devices {
			fmt.Println(d.Name, d.ConsumesCounters)
		}
	}
	fmt.Println(p.Overlapping(&defrag.Plan{Node: "node-0", Devices: []defrag.Device{{Pool: "node-0", Device: "gpu-0000-0f-00-0-mig-3g-40gb-0"}}}))
}

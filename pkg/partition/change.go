package partition

import (
	"fmt"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
)

// changesOf returns the changes as the controller reads them.
func changesOf(all profile.Changes) []v1beta1.GPUChange {
	changes := make([]v1beta1.GPUChange, len(all.GPUs))
	for i, c := range all.GPUs {
		changes[i] = v1beta1.GPUChange{GPU: c.Name(), Description: whatChanges(c.Steps), KeptDevices: c.Keeps}
	}
	return changes
}

// whatChanges describes steps: "removal of 3g.40gb x 2, partitions 1g.10gb x 7".
func whatChanges(steps []profile.Step) string {
	var texts []string
	var made, removed []gpu.Placement
	for _, s := range steps {
		switch s.Op {
		case profile.OpMemory:
			texts = append(texts, "memory mode "+s.Mode)
		case profile.OpCompute:
			texts = append(texts, "compute mode "+s.Mode)
		case profile.OpMIG:
			texts = append(texts, "MIG mode "+s.Mode)
		case profile.OpDestroy:
			removed = append(removed, s.Placement)
		case profile.OpCreate:
			made = append(made, s.Placement)
		}
	}
	if len(removed) > 0 {
		texts = append([]string{"removal of " + count(removed)}, texts...)
	}
	if len(made) > 0 {
		texts = append(texts, "partitions "+count(made))
	}
	if len(texts) == 0 {
		return "devices that the profile does not have are given back"
	}
	return strings.Join(texts, ", ")
}

func count(placements []gpu.Placement) string {
	var order []string
	n := map[string]int{}
	for _, p := range placements {
		if n[p.Profile]++; n[p.Profile] == 1 {
			order = append(order, p.Profile)
		}
	}
	texts := make([]string, len(order))
	for i, name := range order {
		texts[i] = fmt.Sprintf("%s x %d", name, n[name])
	}
	return strings.Join(texts, ", ")
}

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/models"
)

// FitProfiles finds the nodes whose GPUs can have each profile. It returns the models of GPUs that are not in the
// tables: which profiles fit them is not known.
func (c *Cluster) FitProfiles(profiles []Profile) (unknown []string, err error) {
	known, err := models.OneOfEach()
	if err != nil {
		return nil, err
	}
	byNode := map[string][]gpu.GPU{}
	for _, p := range c.Pools {
		if p.GPU == "" || p.Node == "" {
			continue
		}
		g, model := p.hardware(known)
		if g == nil {
			if !slices.Contains(unknown, model) {
				unknown = append(unknown, model)
			}
			continue
		}
		byNode[p.Node] = append(byNode[p.Node], *g)
	}
	for _, gpus := range byNode {
		gpu.SortGPUs(gpus)
		next := map[gpu.Vendor]int{}
		for i := range gpus {
			gpus[i].Index = next[gpus[i].Vendor]
			next[gpus[i].Vendor]++
		}
	}
	slices.Sort(unknown)
	for i := range profiles {
		p := &profiles[i]
		parsed, err := profile.FromRules(p.Name, p.Rules)
		if err != nil || p.Missing {
			continue
		}
		fits := map[string]bool{} // by the GPUs of a node: most nodes are alike
		for _, node := range slices.Sorted(maps.Keys(byNode)) {
			var alike strings.Builder
			for _, g := range byNode[node] {
				fmt.Fprintln(&alike, g.PCIAddress, g.Index, g.ProductName)
			}
			fit, decided := fits[alike.String()]
			if !decided {
				fit = parsed.Fits(byNode[node])
				fits[alike.String()] = fit
			}
			if fit {
				p.Fitting = append(p.Fitting, node)
			}
		}
	}
	return unknown, nil
}

// hardware returns the GPU as its model is, whatever it publishes now, or nil and the name of a model that is not
// known. Nothing has to be known of a model that cannot be partitioned.
func (p *Pool) hardware(known []gpu.GPU) (found *gpu.GPU, model string) {
	var plain gpu.GPU
	partitionable := false
	for _, d := range p.Devices {
		plain = gpu.GPU{Vendor: d.Vendor(), ProductName: d.text("productName"), PCIAddress: d.text(string(deviceattribute.StandardDeviceAttributePCIBusID))}
		partitionable = partitionable || d.Profile != "" || ptr.Deref(d.attribute(names.AttributePartitionable).BoolValue, false)
	}
	if !partitionable {
		return &plain, plain.ProductName
	}
	for i := range known {
		// Models of one name differ by what they offer.
		if sameModel(known[i].ProductName, plain.ProductName) && (found == nil || p.offered(&known[i]) && !p.offered(found)) {
			found = &known[i]
		}
	}
	if found == nil {
		return nil, plain.ProductName
	}
	g := *found
	g.PCIAddress = plain.PCIAddress
	return &g, plain.ProductName
}

// sameModel reports whether names are of one model. AMD's can have a form factor more: "AMD Instinct MI300X OAM".
func sameModel(a, b string) bool {
	return a == b || strings.HasPrefix(a, b+" ") || strings.HasPrefix(b, a+" ")
}

// offered reports whether a model has all profiles that the GPU publishes.
func (p *Pool) offered(g *gpu.GPU) bool {
	return !slices.ContainsFunc(p.Devices, func(d *Device) bool {
		return d.Type != gpu.TypeGPU && d.Profile != "" && !slices.ContainsFunc(g.Placements, func(q gpu.Placement) bool { return q.Profile == d.Profile }) &&
			(g.OtherMIG == nil || !slices.ContainsFunc(g.OtherMIG.Placements, func(q gpu.Placement) bool { return q.Profile == d.Profile }))
	})
}

package nvidia

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
)

const (
	labelPrefix = "nvidia.com/"
	// resourceGPU is the extended resource of the labels nvidia.com/gpu.*.
	resourceGPU = labelPrefix + "gpu"
	// labelStrategy says whether nvidia.com/gpu is a partition (single), or partitions have
	// resources of their own (mixed).
	labelStrategy = labelPrefix + "mig.strategy"
)

// featureLabels are the labels of NVIDIA's GPU feature discovery that Tranche writes: those of
// nvidia.com/gpu and nvidia.com/mig-<profile>, and the MIG strategy. nvidia.com/mig.capable is
// not among them, because the GPU operator starts mig-manager on such nodes.
var featureLabels = regexp.MustCompile(`^nvidia\.com/(mig\.strategy|(gpu|mig-[1-9][0-9]*g\.[1-9][0-9]*gb([.-][a-z.]+)?)\.(product|count|replicas|memory|sharing-strategy))$`)

// IsNodeLabel implements hardware.Vendor.
func (v Vendor) IsNodeLabel(key string) bool { return featureLabels.MatchString(key) }

// NodeLabels implements hardware.Vendor, with the values of GPU feature discovery
// (NVIDIA/k8s-device-plugin, internal/lm/resource.go and mig-strategy.go). Differences: if the
// products differ there is no product label, because selectors would choose wrong GPUs, and the
// memory is the smallest one, which every pod gets at least. Partitions that are created on
// demand have no labels, because they come and go.
func (v Vendor) NodeLabels(gpus []hardware.OfferedGPU) map[string]string {
	labels := map[string]string{}
	if len(gpus) == 0 {
		return labels
	}
	resources := map[string]*described{resourceGPU: {}}
	whole := described{} // the GPUs, for nodes that serve no nvidia.com/gpu
	strategy := ""
	for i := range gpus {
		g := &gpus[i]
		whole.add(productOf(g), g.Memory)
		for _, p := range g.Placements {
			base := p.Base()
			if base.Type == gpu.TypeMIG && strategy == "" {
				strategy = "mixed"
			}
			name := g.Resource(p)
			if name == "" || base.Type == gpu.TypeMIG && !g.Static {
				continue
			}
			if resources[name] == nil {
				resources[name] = &described{}
			}
			memory := g.Memory
			if base.Type == gpu.TypeMIG {
				memory = p.Memory
				if name == resourceGPU {
					strategy = "single"
				}
			}
			resources[name].add(productOf(g, p), memory)
			resources[name].share(p.Share)
		}
	}
	if r := resources[resourceGPU]; r.count == 0 {
		resources[resourceGPU] = &whole
	} else if strategy != "single" {
		// Also GPUs that are partitioned count.
		r.count = len(gpus)
	}
	for name, r := range resources {
		r.write(labels, name)
	}
	if strategy != "" {
		labels[labelStrategy] = strategy
	}
	return labels
}

// productOf is the product label of a GPU, or of one of its devices.
func productOf(g *hardware.OfferedGPU, device ...gpu.Placement) string {
	parts := strings.Fields(g.ProductName)
	for _, p := range device {
		if base := p.Base(); base.Type == gpu.TypeMIG {
			parts = append(parts, "MIG", strings.ReplaceAll(base.Profile, "+", "."))
		}
		if p.Share != nil && p.Share.Replicas > 1 {
			parts = append(parts, "SHARED")
		}
	}
	return strings.Join(parts, "-")
}

// described is what the labels of a resource say.
type described struct {
	products []string
	count    int
	memory   int64
	// replicas is zero if the resource is not served.
	replicas int
	sharing  string
}

func (d *described) add(product string, memory int64) {
	if !slices.Contains(d.products, product) {
		d.products = append(d.products, product)
	}
	d.count++
	if d.memory == 0 || memory < d.memory {
		d.memory = memory
	}
}

func (d *described) share(s *gpu.Share) {
	d.replicas, d.sharing = 1, "none"
	if s == nil || s.Replicas <= 1 {
		return
	}
	d.replicas, d.sharing = s.Replicas, "time-slicing"
	if s.Strategy == gpu.MPS {
		d.sharing = "mps"
	}
}

func (d *described) write(labels map[string]string, resource string) {
	labels[resource+".count"] = strconv.Itoa(d.count)
	labels[resource+".replicas"] = strconv.Itoa(d.replicas)
	if d.sharing != "" {
		labels[resource+".sharing-strategy"] = d.sharing
	}
	if d.memory >= gpu.MiB {
		labels[resource+".memory"] = strconv.FormatInt(d.memory/gpu.MiB, 10)
	}
	if len(d.products) == 1 && d.products[0] != "" {
		labels[resource+".product"] = d.products[0]
	}
}

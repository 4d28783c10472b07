package amd

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/pkg/hardware"
)

const labelPrefix = "amd.com/gpu."

var (
	// nodeLabels are the labels of AMD's node labeller that Tranche writes.
	nodeLabels = regexp.MustCompile(`^amd\.com/gpu\.((product-name|device-id|vram|cu-count)(\.[A-Za-z0-9_.-]+)?|compute-memory-partition)$`)
	// notInLabels are the characters that the value of a label cannot have.
	notInLabels = regexp.MustCompile(`[^A-Za-z0-9_.-]`)
)

// IsNodeLabel implements hardware.Vendor.
func (v Vendor) IsNodeLabel(key string) bool { return nodeLabels.MatchString(key) }

// NodeLabels implements hardware.Vendor, with the values of AMD's node labeller
// (ROCm/k8s-device-plugin, cmd/k8s-node-labeller). Differences: amounts are those of GPUs, not of
// partitions, and GPUs that change their compute mode on demand have no label for it.
func (v Vendor) NodeLabels(gpus []hardware.OfferedGPU) map[string]string {
	counts := map[string]map[string]int{}
	count := func(kind, value string) {
		if counts[kind] == nil {
			counts[kind] = map[string]int{}
		}
		counts[kind][value]++
	}
	for i := range gpus {
		g := &gpus[i]
		count("product-name", labelValue(g.ProductName))
		if len(g.PCIID) == len("0x74a11002") {
			count("device-id", strings.ToLower(g.PCIID[2:6]))
		}
		const gib = 1 << 30
		count("vram", fmt.Sprintf("%dG", (g.Memory+gib/2)/gib))
		count("cu-count", strconv.FormatInt(g.ComputeUnits, 10))
		mode := ""
		if g.Static && g.MemoryMode != "" && len(g.Placements) > 0 {
			mode = g.Placements[0].Profile + "_" + strings.ToLower(g.MemoryMode)
		}
		count("compute-memory-partition", mode)
	}
	labels := map[string]string{}
	for kind, values := range counts {
		for value, n := range values {
			switch {
			case value == "" || value == "0" || value == "0G": // not known
			case len(values) == 1:
				labels[labelPrefix+kind] = value
			case kind != "compute-memory-partition":
				labels[labelPrefix+kind+"."+value] = strconv.Itoa(n)
			}
		}
	}
	return labels
}

// labelValue returns a product's name as the labeller writes it.
func labelValue(product string) string {
	value := notInLabels.ReplaceAllString(strings.NewReplacer("(", "", ")", "").Replace(product), "_")
	return strings.Trim(value[:min(len(value), 46)], "_.-")
}

package profile

import (
	"regexp"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/strict"
)

type selector struct {
	vendor    gpu.Vendor
	mig       v1beta1.MIGSupport
	products  []*regexp.Regexp
	addresses []string
	ids       []string
	indexes   []int
	// count is how many of the matching GPUs are selected, zero: all.
	count int
}

// maxSelected is how many entries a list of a selector can have.
const maxSelected = 16

func (s *selector) everything() bool {
	return s.vendor == "" && s.mig == "" && len(s.products)+len(s.addresses)+len(s.ids)+len(s.indexes)+s.count == 0
}

func (s *selector) selects(g *gpu.GPU) bool {
	return (s.vendor == "" || s.vendor == g.Vendor) &&
		(s.mig == "" || s.mig == migSupport(g)) &&
		(len(s.products) == 0 || slices.ContainsFunc(s.products, func(p *regexp.Regexp) bool { return p.MatchString(g.ProductName) })) &&
		(len(s.addresses) == 0 || slices.Contains(s.addresses, g.PCIAddress)) &&
		(len(s.ids) == 0 || slices.ContainsFunc(s.ids, func(id string) bool { return hasID(g, id) })) &&
		(len(s.indexes) == 0 || slices.Contains(s.indexes, g.Index))
}

// Selects reports whether a rule selects one of the GPUs.
func (s *Profile) Selects(gpus []gpu.GPU) bool {
	return slices.ContainsFunc(s.rules, func(r rule) bool {
		return slices.ContainsFunc(gpus, func(g gpu.GPU) bool { return r.gpus.selects(&g) })
	})
}

// migSupport reports whether a GPU supports MIG; empty for GPUs that are not NVIDIA's.
func migSupport(g *gpu.GPU) v1beta1.MIGSupport {
	switch {
	case g.Vendor != gpu.NVIDIA:
		return ""
	case len(MIGProfiles(g)) > 0:
		return v1beta1.MIGCapable
	}
	return v1beta1.MIGIncapable
}

// hasID reports whether a GPU has a PCI ID: that of the device, and after a colon that of the
// subsystem, if it is given.
func hasID(g *gpu.GPU, id string) bool {
	device, subsystem, named := strings.Cut(id, ":")
	return device == g.PCIID && (!named || subsystem == g.PCISubsystemID)
}

// pciIDs matches PCI IDs as mig-parted writes them.
var pciIDs = regexp.MustCompile(`^0x[0-9A-Fa-f]{8}(:0x[0-9A-Fa-f]{8})?$`)

func normalizeID(id string) string {
	return strings.ReplaceAll(strings.ToUpper(id), "0X", "0x")
}

// selector also sets the vendor of the rule.
func (c *compiler) selector(path string, in *v1beta1.GPUSelector) (s selector) {
	if in == nil {
		return s
	}
	s.vendor = gpu.Vendor(in.Vendor)
	switch s.vendor {
	case gpu.NVIDIA, gpu.AMD, "":
		c.vendor = s.vendor
	default:
		c.Add(strict.Key(path, "vendor"), "is %q, it can be %s or %s", in.Vendor, gpu.NVIDIA, gpu.AMD)
	}
	switch s.mig = in.MIGSupport; s.mig {
	case "":
	case v1beta1.MIGCapable, v1beta1.MIGIncapable:
		if c.vendor == gpu.AMD {
			c.Add(strict.Key(path, "migSupport"), "selects NVIDIA's GPUs, and vendor those of AMD")
		}
		c.vendor = gpu.NVIDIA
	default:
		c.Add(strict.Key(path, "migSupport"), "is %q, it can be %s or %s", s.mig, v1beta1.MIGCapable, v1beta1.MIGIncapable)
	}
	for key, n := range map[string]int{"productNames": len(in.ProductNames), "pciBusIDs": len(in.PCIBusIDs), "pciIDs": len(in.PCIIDs), "indexes": len(in.Indexes)} {
		if n > maxSelected {
			c.Add(strict.Key(path, key), "has %d entries, it can have %d", n, maxSelected)
		}
	}
	list(c, strict.Key(path, "productNames"), in.ProductNames, func(path, product string) {
		if product == "" {
			c.Add(path, "is empty")
			return
		}
		s.products = append(s.products, glob(product))
	})
	list(c, strict.Key(path, "pciBusIDs"), in.PCIBusIDs, func(path, address string) {
		normal, err := gpu.NormalizePCIAddress(address)
		if err != nil {
			c.Add(path, "%v", err)
			return
		}
		s.addresses = append(s.addresses, normal)
	})
	list(c, strict.Key(path, "pciIDs"), in.PCIIDs, func(path, id string) {
		if !pciIDs.MatchString(id) {
			c.Add(path, "is %q, it must be device and vendor like 0x233010DE, or with the subsystem's like 0x233010DE:0x16C110DE", id)
		}
		s.ids = append(s.ids, normalizeID(id))
	})
	if n := in.Count; n != nil {
		s.count = int(*n)
		if *n < 1 {
			c.Add(strict.Key(path, "count"), "is %d, it must be at least 1", *n)
		}
	}
	list(c, strict.Key(path, "indexes"), in.Indexes, func(path string, index int32) {
		if index < 0 {
			c.Add(path, "is %d, the first GPU is 0", index)
		}
		s.indexes = append(s.indexes, int(index))
	})
	return s
}

// list checks each entry of a list. An empty list and duplicates are errors.
func list[T comparable](c *compiler, path string, in []T, each func(path string, entry T)) {
	if in != nil && len(in) == 0 {
		c.Add(path, "names nothing; leave it out")
	}
	for i, entry := range in {
		path := strict.Index(path, i)
		if slices.Contains(in[:i], entry) {
			c.Add(path, "is there twice")
			continue
		}
		each(path, entry)
	}
}

// glob compiles a shell pattern that matches whole names, case-insensitively.
func glob(pattern string) *regexp.Regexp {
	expression := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return regexp.MustCompile(`(?is)^` + expression + `$`)
}

package formats

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/strict"
)

type selected struct {
	// all: every GPU, those without MIG are skipped. Otherwise indexes are those of the GPUs.
	all     bool
	indexes []int32
	// filters are PCI IDs as in PartitionProfiles, none: GPUs of every ID.
	filters []string
}

func (s *selected) none() bool { return !s.all && len(s.indexes) == 0 }

func (s *selected) selector() *v1beta1.GPUSelector {
	in := &v1beta1.GPUSelector{Vendor: nvidia, PCIIDs: s.filters, Indexes: s.indexes}
	if s.all {
		in.MIGSupport = v1beta1.MIGCapable
	}
	return in
}

// overlaps reports whether two entries select the same GPU.
type overlaps int

const (
	never overlaps = iota
	// sometimes: some nodes have such a GPU.
	sometimes
	// always: each GPU of one of the entries with a common index or ID.
	always
)

func (s *selected) overlap(o *selected) overlaps {
	common := s.all && !o.none() || o.all && !s.none() || slices.ContainsFunc(s.indexes, func(i int32) bool { return slices.Contains(o.indexes, i) })
	ids := s.narrower(o) || o.narrower(s) || slices.ContainsFunc(s.filters, func(id string) bool {
		return slices.ContainsFunc(o.filters, func(other string) bool { return within(id, other) || within(other, id) })
	})
	switch {
	case !common || !ids:
		return never
	case s.all && o.all, !s.all && s.narrower(o), !o.all && o.narrower(s):
		return always
	}
	return sometimes
}

func (s *selected) narrower(o *selected) bool {
	return len(o.filters) == 0 || len(s.filters) > 0 && !slices.ContainsFunc(s.filters, func(id string) bool {
		return !slices.ContainsFunc(o.filters, func(other string) bool { return within(id, other) })
	})
}

// within reports whether each GPU with one ID has the other.
func within(id, other string) bool {
	device, _, _ := strings.Cut(id, ":")
	return id == other || device == other
}

func selectionOf(problems *strict.Problems, path string, e *migEntry) (s selected) {
	s.filters = pciFilters(problems, strict.Key(path, "device-filter"), e.DeviceFilter)
	path = strict.Key(path, "devices")
	switch devices := e.Devices.(type) {
	case nil:
		problems.Add(path, "is missing; write all, or a list of indexes like [0, 1]")
	case string:
		s.all = devices == "all"
		if !s.all {
			problems.Add(path, "is %q; write all, or a list of indexes like [0, 1]", devices)
		}
	case []any:
		for i, entry := range devices {
			index, ok := entry.(int64)
			if !ok || index != int64(int32(index)) || index < 0 {
				problems.Add(strict.Index(path, i), "is %v, it must be the index of a GPU; the first is 0", entry)
				continue
			}
			s.indexes = append(s.indexes, int32(index))
		}
		slices.Sort(s.indexes)
		s.indexes = slices.Compact(s.indexes)
	case int64:
		problems.Add(path, "is %d, it must be a list: write [%d]", devices, devices)
	default:
		problems.Add(path, "is %v; write all, or a list of indexes like [0, 1]", devices)
	}
	return s
}

// pciFilters reads device-filter: a text or a list of them.
func pciFilters(problems *strict.Problems, path string, value any) (ids []string) {
	switch value := value.(type) {
	case nil:
	case string:
		if value != "" {
			ids = append(ids, pciFilter(problems, path, value))
		}
	case []any:
		for i, entry := range value {
			path := strict.Index(path, i)
			if text, ok := entry.(string); ok {
				ids = append(ids, pciFilter(problems, path, text))
			} else {
				problems.Add(path, "must be a string like \"0x233010DE\", not %v: put it in quotes", entry)
			}
		}
	default:
		problems.Add(path, "must be a string like \"0x233010DE\" or a list of them, not %v: put it in quotes", value)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// nvidiaID is the PCI number of NVIDIA.
const nvidiaID = 0x10DE

// pciFilter is a filter as PartitionProfiles spell it. The numbers of mig-parted are those of Go, with
// or without 0x.
func pciFilter(problems *strict.Problems, path, text string) string {
	var ids []string
	for i, part := range strings.Split(text, ":") {
		n, err := strconv.ParseUint(part, 0, 32)
		switch {
		case err != nil || i > 1:
			problems.Add(path, "is %q, which is not a filter, and mig-parted would select no GPU: write device and vendor like 0x233010DE, or with the subsystem like 0x233010DE:0x16C110DE", text)
			return ""
		case i == 0 && n&0xFFFF != nvidiaID:
			problems.Add(path, "is %q, and the last four digits are not 10DE, the number of NVIDIA: no GPU has that; write device and vendor like 0x233010DE", text)
			return ""
		}
		ids = append(ids, fmt.Sprintf("0x%08X", n))
	}
	return strings.Join(ids, ":")
}

package hash

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The types whose JSON is hashed in version 1. Keys, their order and the defaults below never change. A
// later field has omitempty, and is empty for its default.
type (
	profileV1 struct {
		Profile string   `json:"profile"`
		Rules   []ruleV1 `json:"rules"`
	}
	ruleV1 struct {
		GPUs             gpusV1     `json:"gpus"`
		Unchanged        bool       `json:"unchanged"`
		MIG              *migV1     `json:"mig"`
		XCP              xcpV1      `json:"xcp"`
		Sharing          sharingV1  `json:"sharing"`
		ExtendedResource resourceV1 `json:"extendedResource"`
	}
	gpusV1 struct {
		Vendor       string   `json:"vendor"`
		MIGSupport   string   `json:"migSupport"`
		ProductNames []string `json:"productNames"`
		PCIBusIDs    []string `json:"pciBusIDs"`
		PCIIDs       []string `json:"pciIDs"`
		Indexes      []int32  `json:"indexes"`
		Count        int32    `json:"count"` // 0: all
	}
	migV1 struct {
		Mode       string    `json:"mode"`
		Profiles   []string  `json:"profiles"`
		WholeGPUs  bool      `json:"wholeGPUs"`
		Partitions []countV1 `json:"partitions"`
	}
	countV1 struct {
		Profile string `json:"profile"`
		Count   int32  `json:"count"` // 0: as many as fit
	}
	xcpV1 struct {
		ComputePartition string `json:"computePartition"`
		MemoryPartition  string `json:"memoryPartition"`
	}
	sharingV1 struct {
		WholeGPUs                  bool      `json:"wholeGPUs"`
		Strategy                   string    `json:"strategy"`
		Replicas                   int32     `json:"replicas"`
		TimeSlice                  string    `json:"timeSlice"`
		MaxClients                 int32     `json:"maxClients"`
		FailRequestsGreaterThanOne bool      `json:"failRequestsGreaterThanOne"`
		ExclusiveProcess           bool      `json:"exclusiveProcess"`
		Partitions                 *sharedV1 `json:"partitions"`
		MaxMemoryLimitPercent      int32     `json:"maxMemoryLimitPercent,omitempty"` // 0: 100
	}
	sharedV1 struct {
		Profiles         []string   `json:"profiles"`
		Units            []string   `json:"units"`
		Replicas         []countV1  `json:"replicas"`
		ExtendedResource resourceV1 `json:"extendedResource"`
	}
	resourceV1 struct {
		Device  string `json:"device"`
		Profile string `json:"profile"`
	}
)

func v1(profile string, rules []v1beta1.Rule) string {
	hashed := profileV1{Profile: profile, Rules: make([]ruleV1, len(rules))}
	for i := range rules {
		r := &rules[i]
		hashed.Rules[i] = ruleV1{
			GPUs: gpusIn(r.GPUs), Unchanged: r.Unchanged, MIG: migIn(r.MIG), Sharing: sharingIn(r.Sharing),
			ExtendedResource: resourceV1{Device: "GPU"},
		}
		if x := r.XCP; x != nil {
			hashed.Rules[i].XCP = xcpV1{ComputePartition: x.ComputePartition, MemoryPartition: x.MemoryPartition}
		}
		if e := r.ExtendedResource; e != nil {
			hashed.Rules[i].ExtendedResource = resourceV1{Device: string(e.Device), Profile: e.Profile}
		}
	}
	data, err := json.Marshal(hashed)
	if err != nil {
		panic("hash: encode rules: " + err.Error()) // cannot happen: all types can be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

func gpusIn(g *v1beta1.GPUSelector) gpusV1 {
	if g == nil {
		g = &v1beta1.GPUSelector{}
	}
	return gpusV1{
		Vendor: g.Vendor, MIGSupport: string(g.MIGSupport), Count: value(g.Count, 0),
		ProductNames: sorted(g.ProductNames, strings.ToLower),
		PCIBusIDs: sorted(g.PCIBusIDs, func(address string) string {
			normal, err := gpu.NormalizePCIAddress(address)
			if err != nil {
				return address
			}
			return normal
		}),
		PCIIDs:  sorted(g.PCIIDs, strings.ToLower),
		Indexes: sorted(g.Indexes, func(index int32) int32 { return index }),
	}
}

func migIn(m *v1beta1.MIG) *migV1 {
	if m == nil {
		return nil
	}
	out := &migV1{
		Mode: cmp.Or(string(m.Mode), "Dynamic"), Profiles: sorted(m.Profiles, asIs), WholeGPUs: value(m.WholeGPUs, true),
		Partitions: make([]countV1, len(m.Partitions)),
	}
	for i, p := range m.Partitions {
		out.Partitions[i] = countV1{Profile: p.Profile, Count: value(p.Count, 0)}
	}
	slices.SortFunc(out.Partitions, compareCounts)
	return out
}

func sharingIn(s *v1beta1.Sharing) sharingV1 {
	if s == nil {
		s = &v1beta1.Sharing{}
	}
	replicas := value(s.Replicas, 10)
	out := sharingV1{
		WholeGPUs: value(s.WholeGPUs, true), Strategy: cmp.Or(string(s.Strategy), "TimeSlicing"), Replicas: replicas,
		TimeSlice: string(s.TimeSlice), MaxClients: value(s.MaxClients, max(48, replicas)),
		FailRequestsGreaterThanOne: s.FailRequestsGreaterThanOne, ExclusiveProcess: s.ExclusiveProcess,
	}
	if most := value(s.MaxMemoryLimitPercent, 100); most != 100 {
		out.MaxMemoryLimitPercent = most
	}
	if p := s.Partitions; p != nil {
		out.Partitions = &sharedV1{
			Profiles: sorted(p.Profiles, asIs), Units: []string{"Memory"}, Replicas: make([]countV1, len(p.Replicas)),
			ExtendedResource: resourceV1{Device: "Partition"},
		}
		if len(p.Units) > 0 {
			out.Partitions.Units = sorted(p.Units, func(u v1beta1.ShareUnit) string { return string(u) })
		}
		for i, r := range p.Replicas {
			out.Partitions.Replicas[i] = countV1{Profile: r.Profile, Count: r.Count}
		}
		slices.SortFunc(out.Partitions.Replicas, compareCounts)
		if e := p.ExtendedResource; e != nil {
			out.Partitions.ExtendedResource.Device = string(e.Device)
		}
	}
	return out
}

func value[T any](given *T, otherwise T) T {
	if given == nil {
		return otherwise
	}
	return *given
}

func asIs(s string) string { return s }

// sorted returns normal values in order. It never returns nil.
func sorted[T any, N cmp.Ordered](in []T, normal func(T) N) []N {
	out := make([]N, len(in))
	for i, v := range in {
		out[i] = normal(v)
	}
	slices.Sort(out)
	return out
}

func compareCounts(a, b countV1) int {
	return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Count, b.Count))
}

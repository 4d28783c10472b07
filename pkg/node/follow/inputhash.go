package follow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// gpuBasis is what a plan depends on of one GPU, claims apart.
type gpuInput struct {
	Name, Product, Driver, Load string
	Modes                       gpu.Modes
	// Foreign are the names of partitions that Tranche did not make.
	Foreign []string
}

// lastingModes are the modes of a GPU that claims do not change. Claims change the MIG
// mode of a GPU that does so without a reset, and AMD's compute mode.
func lastingModes(m gpu.Modes) gpu.Modes {
	if !m.MIGNeedsReset && !m.MIGFixed {
		m.MIG, m.PendingMIG = "", ""
	}
	m.Compute = ""
	return m
}

// basis is a digest of what plans depend on beside claims: when it changes, a profile
// that was refused may fit. modes are those of the GPUs that have just answered, by name.
// A GPU that does not answer counts as it was.
func (f *Follower) inputHash(modes map[string]gpu.Modes) string {
	gpus := f.Roster.All()
	now := make(map[string]gpuInput, len(gpus))
	all := struct {
		GPUs        []gpuInput
		MemoryModes bool
	}{MemoryModes: f.MemoryModes}
	for i := range gpus {
		c := &gpus[i]
		b, known := f.gpuBases[c.Name()]
		if m, answers := modes[c.Name()]; answers || !known {
			b = gpuInput{
				Name: c.Name(), Product: c.ProductName, Driver: c.DriverVersion, Load: f.Hardware.LoadID(c.PCIAddress),
				Modes: lastingModes(m),
			}
		}
		b.Foreign = nil
		for _, p := range f.Publisher.ForeignOn(c.PCIAddress) {
			b.Foreign = append(b.Foreign, p.Name())
		}
		slices.Sort(b.Foreign)
		now[c.Name()] = b
		all.GPUs = append(all.GPUs, b)
	}
	f.gpuBases = now
	data, err := json.Marshal(all)
	if err != nil {
		return "" // types that JSON cannot express, which there are none of
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

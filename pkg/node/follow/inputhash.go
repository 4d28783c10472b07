package follow

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// gpuInput has the properties of a GPU that a plan depends on, except claims.
type gpuInput struct {
	Name, Product, Driver, Load string
	Modes                       gpu.Modes
	// Foreign are the names of partitions that Tranche did not create.
	Foreign []string
}

// lastingModes returns the modes that claims do not change. Claims change AMD's compute mode,
// and the MIG mode of a GPU that needs no reset for it.
func lastingModes(m gpu.Modes) gpu.Modes {
	if !m.MIGNeedsReset && !m.MIGFixed {
		m.MIG, m.PendingMIG = "", ""
	}
	m.Compute = ""
	return m
}

// inputHash is a hash of everything that plans depend on, except claims. When it changes, a
// profile that was refused may fit. modes has the modes of the GPUs that answered, by name.
// A GPU that does not answer counts as before.
func (f *Follower) inputHash(modes map[string]gpu.Modes) string {
	gpus := f.Roster.All()
	now := make(map[string]gpuInput, len(gpus))
	all := struct {
		GPUs        []gpuInput
		MemoryModes bool
	}{MemoryModes: f.MemoryModes}
	for i := range gpus {
		g := &gpus[i]
		b, known := f.gpuInputs[g.Name()]
		if m, answers := modes[g.Name()]; answers || !known {
			b = gpuInput{
				Name: g.Name(), Product: g.ProductName, Driver: g.DriverVersion, Load: f.Drivers.LoadID(g.PCIAddress),
				Modes: lastingModes(m),
			}
		}
		b.Foreign = nil
		for _, p := range f.Publisher.ForeignOn(g.PCIAddress) {
			b.Foreign = append(b.Foreign, p.Name())
		}
		slices.Sort(b.Foreign)
		now[g.Name()] = b
		all.GPUs = append(all.GPUs, b)
	}
	f.gpuInputs = now
	data, err := json.Marshal(all)
	if err != nil {
		return "" // cannot happen: JSON can express all of these types
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

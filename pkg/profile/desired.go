package profile

import (
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Sources are all that determine the desired state of the GPUs of a node.
type Sources struct {
	// Applied is the applied profile, without a name if none is applied. Layouts are the
	// layouts of the GPUs, by PCI address.
	Applied v1beta1.ProfileSnapshot
	Layouts map[string]Layout
	// Undecided is set while no profile is applied and the controller has yet to look at the
	// node. GPUs then stay as they are: Current is the state of a GPU that is in force.
	Undecided bool
	Current   func(pciAddress string) (state Desired, known bool)
}

// Desired returns the desired state of GPUs, by PCI address. GPUs that do not answer
// should be among them as they were last known, because rules count GPUs.
//
// An error says what does not fit the GPUs. Those then stay as they are.
func (s *Sources) Desired(gpus []gpu.GPU) (map[string]Desired, error) {
	switch {
	case s.Applied.ProfileName != "":
		return s.byProfile(gpus)
	case s.Undecided:
		return s.current(gpus, Default()), nil
	}
	return Unset().Resolve(gpus, nil)
}

// byProfile is the desired state by the applied profile. Partitions have been placed when
// it was applied, so they are not placed again.
func (s *Sources) byProfile(gpus []gpu.GPU) (map[string]Desired, error) {
	desired, err := Resolve(s.Applied, gpus, func(pciAddress string) Existing {
		layout := s.Layouts[pciAddress]
		return Existing{Partitions: asPartitions(layout.Static), Layout: layout}
	})
	if err != nil {
		missing := Default()
		missing.Profile = s.Applied.ProfileName
		desired = s.current(gpus, missing)
	}
	for address, state := range desired {
		state.Layout = s.Layouts[address]
		desired[address] = state
	}
	return desired, err
}

// current is the state of GPUs that is in force; those of which none is known get another.
func (s *Sources) current(gpus []gpu.GPU, unknown Desired) map[string]Desired {
	states := make(map[string]Desired, len(gpus))
	for i := range gpus {
		address := gpus[i].PCIAddress
		state, known := s.Current(address)
		if !known {
			state = unknown
		}
		states[address] = state
	}
	return states
}

// Resolve returns the desired state of GPUs by the rules of a profile, by PCI address; see
// Profile.Resolve.
func Resolve(w v1beta1.ProfileSnapshot, gpus []gpu.GPU, there func(pciAddress string) Existing) (map[string]Desired, error) {
	rules, err := StoredRules(&w)
	if err != nil {
		return nil, err
	}
	p, err := FromRules(w.ProfileName, rules)
	if err != nil {
		return nil, err
	}
	return p.Resolve(gpus, there)
}

// asPartitions are partitions as they would be at placements.
func asPartitions(placements []gpu.Placement) []gpu.Partition {
	parts := make([]gpu.Partition, len(placements))
	for i, p := range placements {
		parts[i] = gpu.Partition{GPU: p.GPU, Type: p.Type, Profile: p.Profile, Start: p.Start, Size: p.Size, Complete: true}
	}
	return parts
}

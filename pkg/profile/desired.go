package profile

import (
	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Sources are all that determine the desired state of the GPUs of a node.
type Sources struct {
	// Applied is the applied profile, without a name if none is applied. Layouts are the
	// layouts of the GPUs, by PCI address.
	Applied v1alpha1.ProfileSnapshot
	Layouts map[string]Layout
	// Config is the configuration of NVIDIA's device plugin for the node, nil if there is
	// none. A profile that a person chose for the node has precedence. If another project's
	// label chose it, that is about partitions alone, and the configuration about the rest.
	Config *Profile
	// Undecided is set while none of them is known for certain: the configuration could
	// not be read, or the controller has yet to look at the node. GPUs then stay as they
	// are: Current is the state of a GPU that is in force.
	Undecided bool
	Current   func(pciAddress string) (state Desired, known bool)
}

// Desired returns the desired state of GPUs, by PCI address. GPUs that do not answer
// should be among them as they were last known, because rules count GPUs.
//
// An error says what does not fit the GPUs. Those then stay as they are.
func (s *Sources) Desired(gpus []gpu.GPU) (map[string]Desired, error) {
	switch {
	case s.partitionsOnly():
		return s.byBoth(gpus)
	case s.usesProfile():
		return s.byProfile(gpus)
	case s.Config != nil:
		resolved, err := s.Config.Resolve(gpus, nil)
		if err != nil {
			return s.current(gpus, Default()), err
		}
		// The file says nothing about partitions, and what nvidia.com/gpu means depends on them.
		for address, state := range resolved {
			state.Layout = s.Layouts[address]
			resolved[address] = state
		}
		return resolved, nil
	case s.Undecided:
		return s.current(gpus, Default()), nil
	}
	return Unset().Resolve(gpus, nil)
}

// usesProfile tells whether the applied profile counts. The one named default yields to
// a configuration of the device plugin, also to one that cannot be read yet.
func (s *Sources) usesProfile() bool {
	return s.Applied.Profile != "" && (s.Applied.Source != v1alpha1.FromDefault || s.Config == nil && !s.Undecided)
}

// partitionsOnly tells whether the applied profile says how GPUs are partitioned, and the
// device plugin's configuration, which may not be known yet, how they are shared.
func (s *Sources) partitionsOnly() bool {
	switch s.Applied.Source {
	case v1alpha1.FromMIGParted, v1alpha1.FromDeviceConfigManager, v1alpha1.FromNos:
		return s.Applied.Profile != "" && (s.Config != nil || s.Undecided)
	}
	return false
}

// byBoth is the desired state by profile and configuration.
func (s *Sources) byBoth(gpus []gpu.GPU) (map[string]Desired, error) {
	desired, err := s.byProfile(gpus)
	if err != nil {
		return desired, err
	}
	shared := s.current(gpus, Default())
	if s.Config != nil {
		if shared, err = s.Config.Resolve(gpus, nil); err != nil {
			return s.current(gpus, Default()), err
		}
	}
	for i := range gpus {
		address := gpus[i].PCIAddress
		if s.Config != nil && gpus[i].Vendor != gpu.NVIDIA {
			continue // The device plugin's file says nothing of them.
		}
		state := shared[address]
		state.Layout = desired[address].Layout
		desired[address] = state
	}
	return desired, nil
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
		missing.Profile = s.Applied.Profile
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
func Resolve(w v1alpha1.ProfileSnapshot, gpus []gpu.GPU, there func(pciAddress string) Existing) (map[string]Desired, error) {
	p, err := FromRules(w.Profile, w.Rules)
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

package v1beta1

// DefaultReplicas is the default of sharing.replicas.
const DefaultReplicas = 10

// Default fills in the fields of which the CRD has defaults, as the API server does when it stores the
// object. Whoever compares a spec with that of a stored object calls it first. SwitchPolicy has no
// such fields: the API server would fill them in in the copies in status, too.
func (s *PartitionProfileSpec) Default() {
	for i := range s.Rules {
		s.Rules[i].Default()
	}
}

// Default fills in the fields of which the CRD has defaults.
func (r *Rule) Default() {
	if r.MIG != nil && r.MIG.Mode == "" {
		r.MIG.Mode = MIGDynamic
	}
	s := r.Sharing
	if s == nil {
		return
	}
	if s.WholeGPUs == nil {
		yes := true
		s.WholeGPUs = &yes
	}
	if s.Strategy == "" {
		s.Strategy = TimeSlicing
	}
	if s.Replicas == nil {
		n := int32(DefaultReplicas)
		s.Replicas = &n
	}
	if s.Partitions != nil && s.Partitions.Units == nil {
		s.Partitions.Units = []ShareUnit{ByMemory}
	}
}

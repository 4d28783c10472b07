package v1alpha1

// Asks tells whether a switch waits for an answer of the node's plugin, whose last one is
// given; nil: it has given none.
func (s *GPUNodeStatus) Asks(last *Task) bool {
	if s.Switch == nil {
		return false
	}
	switch s.State {
	case Planning, Applying, Rebooting, RollingBack:
		return last == nil || last.Switch != s.Switch.ID || last.State != s.State
	}
	return false
}

// Target is what the node follows once it has done what it is asked for.
func (s *Switch) Target(state State) *Wish {
	if state == RollingBack {
		return &s.From
	}
	return &s.To
}

package v1alpha1

// AwaitsPlugin tells whether a switch waits for an answer of the node's plugin. last is
// the plugin's last answer, nil if there is none.
func (s *GPUNodeStatus) AwaitsPlugin(last *Task) bool {
	if s.Switch == nil {
		return false
	}
	switch s.State {
	case Planning, Applying, Rebooting, RollingBack:
		return last == nil || last.Switch != s.Switch.ID || last.State != s.State
	case Tainted:
		// The first order is 1. A controller of version 0.1 orders nothing and awaits nothing.
		return s.Switch.Order > 0 &&
			(last == nil || last.Switch != s.Switch.ID || last.State != s.State || last.Order != s.Switch.Order)
	}
	return false
}

// OrdersTaints tells whether the node's plugin must taint devices for the switch: all
// devices of Switch.GPUs, and of Switch.Shrinking those that Switch.To does not offer.
// A switch that replaces another one in the middle of a drain orders the taints of the
// old one until its own plan is known.
func (s *GPUNodeStatus) OrdersTaints() bool {
	if s.Switch == nil || len(s.Switch.GPUs)+len(s.Switch.Shrinking) == 0 {
		return false
	}
	switch s.State {
	case Planning, Waiting, Tainted, Draining, Applying, Rebooting, Verifying, RollingBack:
		return true
	}
	return false
}

// Target is the profile that the node has after the plugin has completed a state.
func (s *Switch) Target(state State) *ProfileSnapshot {
	if state == RollingBack {
		return &s.From
	}
	return &s.To
}

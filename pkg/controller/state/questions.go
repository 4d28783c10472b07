package state

import "github.com/tranche-dev/tranche/api/v1beta1"

// Enforced reports whether a state needs the taint or labels on the Node. A switch does not until
// the plugin has reported its changes.
func Enforced(s *v1beta1.GPUNodeStatus) bool {
	if !s.RequestsTaints() {
		return false
	}
	return s.State != v1beta1.Tainted || s.Switch.NodeTaintRequired || reportOf(s.Switch, s.Node) != nil
}

// Answered reports whether the plugin reports that it is done.
func Answered(s *v1beta1.GPUNodeStatus) bool {
	return s.Switch != nil && s.Node.Task != nil && s.Node.Task.SwitchID == s.Switch.ID && s.Node.Task.Phase == v1beta1.TaskDone
}

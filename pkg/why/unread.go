package why

import (
	"slices"

	"github.com/tranche-dev/tranche/pkg/why/unread"
)

// unread tells whether a resource could not be read.
func (in *Input) unread(r unread.Resource) bool {
	return slices.ContainsFunc(in.Unread, func(u unread.Kind) bool { return u.Resource == r })
}

// tellUnread says what the answer lacks. What would not change it is not said.
func (e *Explanation) tellUnread(in *Input) {
	for _, u := range in.Unread {
		if slices.Contains(e.matters(), u.Resource) {
			e.Unread = append(e.Unread, u)
			e.Notes = append(e.Notes, u.Note())
		}
	}
}

// matters are the resources that the answer depends on.
func (e *Explanation) matters() []unread.Resource {
	devices := []unread.Resource{unread.Slices, unread.Classes, unread.OwnClaims, unread.Claims, unread.Rules, unread.Nodes, unread.GPUNodes, unread.Events, unread.VolumeClaims, unread.Volumes, unread.StorageClasses}
	switch e.State {
	case ClaimMissing:
		return []unread.Resource{unread.Templates, unread.OwnClaims, unread.Namespaces, unread.Policies, unread.Quotas, unread.Events}
	case OtherDriver:
		return []unread.Resource{unread.Events}
	case Invalid:
		return []unread.Resource{unread.Nodes, unread.Events}
	case NoDevices:
		return []unread.Resource{unread.Classes, unread.Nodes, unread.Events, unread.VolumeClaims, unread.StorageClasses}
	case NoRoom:
		// What cannot be read could only take more away, except where devices lack.
		of := []unread.Resource{unread.Claims, unread.Events, unread.VolumeClaims, unread.StorageClasses}
		if len(e.Nodes) == 0 || e.has(Lacking, Unusable, Tainted) {
			of = append(of, unread.GPUNodes, unread.NodeEvents)
		}
		return append(of, unread.Nodes)
	case RoomNow, Unknown, VolumeNotReady, SchedulerSilent, Preempting:
		return devices
	case Gated:
		return []unread.Resource{unread.Workloads, unread.Events}
	case Starting:
		return []unread.Resource{unread.OwnClaims, unread.Events}
	case Terminating:
		return []unread.Resource{unread.OwnClaims, unread.Events, unread.NodeEvents}
	case Running, Finished, Absent:
	}
	return nil
}

func (e *Explanation) has(verdicts ...Verdict) bool {
	return slices.ContainsFunc(e.Nodes, func(n Node) bool { return slices.Contains(verdicts, n.Verdict) })
}

// doubts say why devices that look free may not be.
func (in *Input) doubts() []string {
	var out []string
	for _, d := range []struct {
		resource unread.Resource
		text     string
	}{
		{unread.Claims, "claims of other namespaces may hold the devices"},
		{unread.Rules, "DeviceTaintRules may taint them"},
		{unread.Nodes, "labels, taints or resources of the nodes may keep the pod away"},
		{unread.VolumeClaims, "its volumes may not be ready"},
		{unread.Volumes, "its volumes may be bound to other nodes"},
	} {
		if in.unread(d.resource) || d.resource == unread.Claims && in.Partial {
			out = append(out, d.text)
		}
	}
	return out
}

package profile

import "github.com/tranche-dev/tranche/pkg/gpu"

// Means tells whether a placement is one of the devices that the vendor's old
// resource stands for.
func (l Legacy) Means(p gpu.Placement) bool {
	switch l.Kind {
	case LegacyReplica:
		return p.Share != nil && p.Share.Of == gpu.TypeGPU && p.Share.By == gpu.ByFraction
	case LegacyPartition:
		return p.Share == nil && p.Type != gpu.TypeGPU && p.Profile == l.Profile
	}
	return p.Type == gpu.TypeGPU
}

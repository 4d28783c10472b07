package profile

import "github.com/tranche-dev/tranche/pkg/gpu"

// Means tells whether the vendor's extended resource stands for a placement.
func (l Legacy) Means(p gpu.Placement) bool {
	switch l.Kind {
	case LegacyReplica:
		return p.Share != nil && p.Share.Of == gpu.TypeGPU && p.Share.By == gpu.ByFraction
	case LegacyPartition:
		return p.Share == nil && p.Type != gpu.TypeGPU && p.Profile == l.Profile
	}
	return p.Type == gpu.TypeGPU
}

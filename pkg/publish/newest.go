package publish

import (
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/names"
)

// PoolID identifies a resource pool.
type PoolID struct{ Driver, Name string }

// Newest returns the slices of the newest generation of each pool, ordered by name.
// Like the scheduler, it ignores older generations.
func Newest(all []resourceapi.ResourceSlice) map[PoolID][]*resourceapi.ResourceSlice {
	pools := map[PoolID][]*resourceapi.ResourceSlice{}
	for i := range all {
		s := &all[i]
		id := PoolID{s.Spec.Driver, s.Spec.Pool.Name}
		switch known := pools[id]; {
		case len(known) == 0 || s.Spec.Pool.Generation > known[0].Spec.Pool.Generation:
			pools[id] = []*resourceapi.ResourceSlice{s}
		case s.Spec.Pool.Generation == known[0].Spec.Pool.Generation:
			pools[id] = append(known, s)
		}
	}
	for _, pool := range pools {
		slices.SortFunc(pool, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	}
	return pools
}

// newest returns the slices of a node's pool in its newest generation.
func newest(node string, all []resourceapi.ResourceSlice) []*resourceapi.ResourceSlice {
	return Newest(all)[PoolID{names.DriverName, names.PoolName(node)}]
}

package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Digest tells two lists of devices apart. It is the same for devices as they were
// sent to the API server and as they are read back: the server notes in each taint
// when it was added, which does not count.
func Digest(devices []resourceapi.Device) string {
	sum := sha256.New()
	// Only values of types that JSON cannot express could fail here.
	enc := json.NewEncoder(sum)
	for _, d := range devices {
		d.Taints = slices.Clone(d.Taints)
		for i := range d.Taints {
			d.Taints[i].TimeAdded = nil
		}
		if err := enc.Encode(&d); err != nil {
			return "no digest: " + err.Error()
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Digests are those of the devices of each pool, of its newest generation if that is
// complete. It is pure.
func Digests(all []resourceapi.ResourceSlice) map[string]string {
	newest := map[string][]*resourceapi.ResourceSlice{}
	for i := range all {
		s := &all[i]
		if s.Spec.Driver != gpu.DriverName {
			continue
		}
		name := s.Spec.Pool.Name
		have := newest[name]
		switch {
		case len(have) == 0 || s.Spec.Pool.Generation > have[0].Spec.Pool.Generation:
			newest[name] = []*resourceapi.ResourceSlice{s}
		case s.Spec.Pool.Generation == have[0].Spec.Pool.Generation:
			newest[name] = append(have, s)
		}
	}
	out := map[string]string{}
	for name, pool := range newest {
		if int64(len(pool)) != pool[0].Spec.Pool.ResourceSliceCount {
			continue
		}
		slices.SortFunc(pool, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
		var devices []resourceapi.Device
		for _, s := range pool {
			devices = append(devices, s.Spec.Devices...)
		}
		out[name] = Digest(devices)
	}
	return out
}

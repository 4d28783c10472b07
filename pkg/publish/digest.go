package publish

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Digest returns a hash of devices. It is the same for devices that were sent to the API server
// and that are read back: it ignores the time that the server adds to each taint.
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

// Digests has the digest of each GPU's devices, by the name of the GPU. Nil: the node's pool does
// not exist, or its newest generation is incomplete.
type Digests map[string]string

// Of returns the digest of a GPU's devices, empty if the pool is incomplete.
func (d Digests) Of(gpuID string) string {
	if d == nil {
		return ""
	}
	return cmp.Or(d[gpuID], Digest(nil))
}

// DigestsOf returns the digests of a node's pool, which it finds among ResourceSlices.
func DigestsOf(node string, all []resourceapi.ResourceSlice) Digests {
	pool := newest(node, all)
	if len(pool) == 0 || int64(len(pool)) != pool[0].Spec.Pool.ResourceSliceCount {
		return nil
	}
	published := make([]Slice, len(pool))
	for i, s := range pool {
		published[i].Devices = s.Spec.Devices
	}
	return DigestsOfSlices(published)
}

// DigestsOfSlices returns the digests of slices that are about to be published.
func DigestsOfSlices(published []Slice) Digests {
	devices := map[string][]resourceapi.Device{}
	for _, slice := range published {
		for _, d := range slice.Devices {
			gpuID := gpu.OfDevice(d.Name)
			devices[gpuID] = append(devices[gpuID], d)
		}
	}
	out := Digests{}
	for gpuID, of := range devices {
		out[gpuID] = Digest(of)
	}
	return out
}

// GPUs returns the names of the GPUs in a node's published pool, in the order of their slices. A
// GPU without counters and devices is missing.
func GPUs(node string, all []resourceapi.ResourceSlice) []string {
	var names []string
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, s := range newest(node, all) {
		for _, set := range s.Spec.SharedCounters {
			add(set.Name)
		}
		for _, d := range s.Spec.Devices {
			add(gpu.OfDevice(d.Name))
		}
	}
	return names
}

package publish

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

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

// Digests are those of the devices of each GPU of a node, by the name of the GPU, as the
// API server has them. Nil: the node's pool is not there, or its newest generation is
// incomplete.
type Digests map[string]string

// Of is the digest of the devices of a GPU, empty if the pool is not complete.
func (d Digests) Of(gpuID string) string {
	if d == nil {
		return ""
	}
	return cmp.Or(d[gpuID], Digest(nil))
}

// DigestsOf finds the digests of a node's pool among ResourceSlices. It is pure.
func DigestsOf(node string, all []resourceapi.ResourceSlice) Digests {
	pool := newest(node, all)
	if len(pool) == 0 || int64(len(pool)) != pool[0].Spec.Pool.ResourceSliceCount {
		return nil
	}
	published := make([][]resourceapi.Device, len(pool))
	for i, s := range pool {
		published[i] = s.Spec.Devices
	}
	return digests(published)
}

// DigestsOfResources are the digests of what is about to be published.
func DigestsOfResources(node string, resources resourceslice.DriverResources) Digests {
	var published [][]resourceapi.Device
	for _, s := range resources.Pools[gpu.PoolName(node)].Slices {
		published = append(published, s.Devices)
	}
	return digests(published)
}

func digests(published [][]resourceapi.Device) Digests {
	devices := map[string][]resourceapi.Device{}
	for _, slice := range published {
		for _, d := range slice {
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

// GPUs are the names of the GPUs in a node's published pool, in the order of their
// slices. A GPU that has neither counters nor devices there is missing.
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

package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
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

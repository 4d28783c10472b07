package ledger

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Version is the version of the records that this code writes, and the highest
// minReader that it can use.
const Version = 1

// State tells how far the preparation of a claim got.
type State string

// The states of a record.
const (
	// Preparing is written before the hardware is touched: what is found at
	// the placements of the record may be ours, whole or half made.
	Preparing State = "Preparing"
	// Prepared is written when everything that the claim's containers need is
	// in place.
	Prepared State = "Prepared"
)

// Record is what the driver knows about one claim.
type Record struct {
	Version int `json:"version"`
	// MinReader is the oldest version that can use the record; zero: Version.
	MinReader int      `json:"minReader,omitempty"`
	Claim     ClaimRef `json:"claim"`
	State     State    `json:"state"`
	Devices   []Device `json:"devices"`
	// Released says that the kubelet has released the claim while its GPUs could not be
	// reached: their driver could not be used, or a GPU was lost. What the record names
	// must still be removed from the hardware before anybody else gets it, and no
	// container uses it. The state is Preparing. If a GPU was lost, the claim's UID in
	// such a record is a LeftoverUID, so that the claim can be prepared elsewhere.
	Released bool `json:"released,omitempty"`
	// Pods are the claim's users at the time of Prepare, for people who read
	// metrics, messages and events, and to find their containers. They are in the
	// claim's namespace.
	Pods []Pod `json:"pods,omitempty"`

	// unknown are the fields of a newer version.
	unknown fields
}

// Pod is a user of a claim.
type Pod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// LeftoverUID is the key of what is left of a claim on one GPU, named by
// gpu.NameOf.
func LeftoverUID(claim types.UID, gpuID string) types.UID {
	return claim + "-left-on-" + types.UID(gpuID)
}

// PodNames are the names of the pods.
func (r Record) PodNames() []string {
	names := make([]string, len(r.Pods))
	for i, pod := range r.Pods {
		names[i] = pod.Name
	}
	return names
}

// ClaimRef identifies a ResourceClaim.
type ClaimRef struct {
	UID       types.UID `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
}

// String names the claim for messages.
func (c ClaimRef) String() string { return c.Namespace + "/" + c.Name }

// Device is one allocated device of a claim.
type Device struct {
	// Request is the request (or request/subrequest) that it satisfies.
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Name    string `json:"name"`
	// Admin marks a device that was allocated with admin access: it is seen,
	// never taken, switched or destroyed.
	Admin     bool          `json:"admin,omitempty"`
	Placement gpu.Placement `json:"placement"`
	// UUID is the hardware's name of what was handed out, empty until it is
	// there.
	UUID string `json:"uuid,omitempty"`
	// Made says that this claim's Prepare makes the partition, so that its
	// Unprepare must destroy it.
	Made bool `json:"made,omitempty"`
	// HandedOut says that a Prepare of the claim has succeeded with this device, so
	// containers may use it. A later Prepare that fails does not take it back.
	HandedOut bool `json:"handedOut,omitempty"`
	// LoadID identifies the boot and the load of the GPU's driver under which the
	// device was handed out. Partitions do not outlive either, so what is found at
	// the placement under another one is not ours.
	LoadID string `json:"loadID,omitempty"`
	// ShareID tells the shares of one device apart, empty for what is no share.
	ShareID types.UID `json:"shareID,omitempty"`
	// Amount is what the claim has of the share.
	Amount *gpu.Amount `json:"amount,omitempty"`
	// Before is how the GPU was set before its first share, which the release of
	// the last one brings back. All holders of shares of a GPU have the same.
	Before *gpu.Settings `json:"before,omitempty"`

	// unknown are the fields of a newer version.
	unknown fields
}

// IsShare tells whether the device was handed out as a share. One that an admin
// only looks at is not.
func (d Device) IsShare() bool { return !d.Admin && d.Placement.Share != nil }

// Key tells the devices of a claim apart: two of its shares can be of one
// device.
func (d Device) Key() string {
	if d.ShareID == "" {
		return d.Name
	}
	return d.Name + "-" + string(d.ShareID[:min(8, len(d.ShareID))])
}

// WasHandedOut tells whether containers may use a device of the record.
func (r Record) WasHandedOut(d Device) bool {
	// Records of version 0.1 have no HandedOut.
	return !r.Released && (r.State == Prepared || d.HandedOut)
}

// HandedOut tells whether containers may use any device of the record.
func (r Record) HandedOut() bool {
	return slices.ContainsFunc(r.Devices, r.WasHandedOut)
}

// KeepUnknown takes over what a newer version has written into the claim's record
// before: fields of the record, and of those devices that are the same.
func (r *Record) KeepUnknown(before Record) {
	r.unknown = before.unknown
	for i := range r.Devices {
		d := &r.Devices[i]
		if j := slices.IndexFunc(before.Devices, func(e Device) bool { return e.Request == d.Request && e.Key() == d.Key() }); j >= 0 {
			d.unknown = before.Devices[j].unknown
		}
	}
}

// Clone returns a copy that shares nothing that a caller could change.
func (r Record) Clone() Record {
	r.Devices = append([]Device(nil), r.Devices...)
	for i := range r.Devices {
		d := &r.Devices[i]
		d.Amount, d.Before = clone(d.Amount), clone(d.Before)
	}
	r.Pods = append([]Pod(nil), r.Pods...)
	return r
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	q := *p
	return &q
}

// Encode turns a record into bytes.
func Encode(r Record) ([]byte, error) {
	r.Version, r.MinReader = Version, 0
	data, err := json.Marshal(r)
	if err == nil {
		data, err = r.writeUnknown(data)
	}
	if err != nil {
		return nil, fmt.Errorf("encode the record of claim %s: %w", r.Claim, err)
	}
	return data, nil
}

// Decode reads a record and checks that it can be used. One that needs a newer
// reader fails with a *NewerError.
func Decode(data []byte) (Record, error) {
	var version struct {
		Version   int `json:"version"`
		MinReader int `json:"minReader"`
	}
	if err := json.Unmarshal(data, &version); err != nil {
		return Record{}, fmt.Errorf("no valid JSON: %w", err)
	}
	minReader := cmp.Or(version.MinReader, version.Version)
	switch {
	case version.Version < 1 || minReader < 1:
		return Record{}, fmt.Errorf("version is %d, minReader %d: neither can be less than 1", version.Version, version.MinReader)
	case minReader > Version:
		return Record{}, newerError(data, version.Version, minReader)
	}
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("no valid record: %w", err)
	}
	if err := r.readUnknown(data); err != nil {
		return Record{}, fmt.Errorf("no valid record: %w", err)
	}
	switch {
	case r.Claim.UID == "":
		return Record{}, errors.New("claim.uid is missing")
	case r.State != Preparing && r.State != Prepared:
		return Record{}, fmt.Errorf("state is %q, not %s or %s", r.State, Preparing, Prepared)
	}
	for i, d := range r.Devices {
		if d.Name == "" || d.Placement.GPU == "" {
			return Record{}, fmt.Errorf("devices[%d] has no name or no GPU", i)
		}
	}
	return r, nil
}

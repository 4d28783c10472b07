package ledger

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// Version is the version of the records that this code writes. A reader ignores
// fields that it does not know, so new fields do not need a new version; a
// version that is higher than the reader's is refused.
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
	Version int      `json:"version"`
	Claim   ClaimRef `json:"claim"`
	State   State    `json:"state"`
	Devices []Device `json:"devices"`
	// Released says that the kubelet has released the claim while its GPUs could not be
	// reached: their driver could not be used, or a GPU was lost. What the record names
	// must still be removed from the hardware before anybody else gets it, and no
	// container uses it. The state is Preparing. If a GPU was lost, the claim's UID in
	// such a record is a LeftoverUID, so that the claim can be prepared elsewhere.
	Released bool `json:"released,omitempty"`
	// Pods are the claim's users at the time of Prepare, for people who read
	// metrics, messages and events. They are in the claim's namespace.
	Pods []Pod `json:"pods,omitempty"`
}

// Pod is a user of a claim.
type Pod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// LeftoverUID is the key of what is left of a claim on one GPU, named by
// gpu.CardName.
func LeftoverUID(claim types.UID, card string) types.UID {
	return claim + "-left-on-" + types.UID(card)
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
	// LoadID identifies the boot and the load of the card's driver under which the
	// device was handed out. Partitions do not outlive either, so what is found at
	// the placement under another one is not ours.
	LoadID string `json:"loadID,omitempty"`
	// ShareID tells the shares of one device apart, empty for what is no share.
	ShareID types.UID `json:"shareID,omitempty"`
	// Amount is what the claim has of the share.
	Amount *gpu.Amount `json:"amount,omitempty"`
	// Before is how the card was set before its first share, which the release of
	// the last one brings back. All holders of shares of a card have the same.
	Before *gpu.CardSettings `json:"before,omitempty"`
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
	r.Version = Version
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the record of claim %s: %w", r.Claim, err)
	}
	return data, nil
}

// Decode reads a record and checks that it can be used.
func Decode(data []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, fmt.Errorf("no valid JSON: %w", err)
	}
	switch {
	case r.Version < 1 || r.Version > Version:
		return Record{}, fmt.Errorf("version is %d, this driver knows 1 to %d", r.Version, Version)
	case r.Claim.UID == "":
		return Record{}, errors.New("claim.uid is missing")
	case r.State != Preparing && r.State != Prepared:
		return Record{}, fmt.Errorf("state is %q, not %s or %s", r.State, Preparing, Prepared)
	}
	for i, d := range r.Devices {
		if d.Name == "" || d.Placement.GPU == "" {
			return Record{}, fmt.Errorf("devices[%d] has no name or no card", i)
		}
	}
	return r, nil
}

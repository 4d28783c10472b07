package ledger

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/durable"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// Format is the format of records.
var Format = durable.Format{Version: 1, MinReader: 1}

// State is the progress of preparing a claim.
type State string

// The states of a record.
const (
	// Preparing is written before the hardware is changed. Partitions at the placements of
	// the record may belong to the claim, complete or not.
	Preparing State = "Preparing"
	// Prepared is written when the claim's containers can start.
	Prepared State = "Prepared"
)

// Record describes one claim and its devices.
type Record struct {
	Claim   ClaimRef `json:"claim"`
	State   State    `json:"state"`
	Devices []Device `json:"devices"`
	// Released: the claim was released, but its devices on one GPU could not be removed from
	// the hardware. No container uses them; they must be removed before another claim gets
	// them. The state is Preparing. The claim's UID in the record is a LeftoverUID, so that
	// the claim can be prepared elsewhere.
	Released bool `json:"released,omitempty"`
	// Cause is why the devices of a released claim could not be removed, for messages.
	Cause string `json:"cause,omitempty"`
	// Pods are the pods that use the claim, in its namespace. Messages and metrics name
	// them.
	Pods []Pod `json:"pods,omitempty"`
	// Group: the claim is reserved for a PodGroup, or something else that is no pod. Then Pods has only
	// those of its pods that have told by themselves, without their names.
	Group bool `json:"group,omitempty"`

	// unknown are keys of a newer version.
	unknown durable.Unknown
}

// Pod is a pod that uses a claim.
type Pod struct {
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
}

// LeftoverUID is the UID in the record of a claim's leftovers on one GPU. gpuID is a result of
// gpu.NameOf.
func LeftoverUID(claim types.UID, gpuID string) types.UID {
	return claim + leftoverMark + types.UID(gpuID)
}

// leftoverMark is between the claim's UID and the GPU in a LeftoverUID.
const leftoverMark = "-left-on-"

// ClaimOf returns the UID of the claim that a LeftoverUID is of. Every other UID is that of a claim.
func ClaimOf(uid types.UID) types.UID {
	claim, _, _ := strings.Cut(string(uid), leftoverMark)
	return types.UID(claim)
}

// PodNames returns the names of the pods, of those that are known.
func (r Record) PodNames() []string {
	names := lists.Map(r.Pods, func(pod Pod) string { return pod.Name })
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
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
	// Request is the request (or request/subrequest) that the device satisfies.
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Name    string `json:"name"`
	// Admin: the device is a monitor, allocated with admin access. Nothing is created, changed or
	// destroyed for it.
	Admin     bool          `json:"admin,omitempty"`
	Placement gpu.Placement `json:"placement"`
	// UUID is the hardware's ID of the device, empty until the device exists.
	UUID string `json:"uuid,omitempty"`
	// Made: Prepare creates the partition for this claim, so Unprepare destroys it.
	Made bool `json:"made,omitempty"`
	// HandedOut: a Prepare of the claim has succeeded with this device, so containers may
	// use it. If a later Prepare fails, the device is kept.
	HandedOut bool `json:"handedOut,omitempty"`
	// LoadID identifies the boot and the load of the GPU's driver under which the device
	// was prepared. Partitions survive neither a reboot nor a reload, so a partition found
	// at the placement later belongs to somebody else.
	LoadID string `json:"loadID,omitempty"`
	// ShareID identifies a share of a device; empty if the device is not a share.
	ShareID types.UID `json:"shareID,omitempty"`
	// Amount is the claim's part of the share; nil if the device is not a share.
	Amount *gpu.Amount `json:"amount,omitempty"`
	// MemoryLimit is the most memory that the claim can have of the share, in bytes; zero: its amount.
	MemoryLimit int64 `json:"memoryLimitBytes,omitempty"`
	// Before has the settings of the GPU before its first share, which the release of the
	// last one restores. It is the same for all shares of a GPU.
	Before *gpu.Settings `json:"before,omitempty"`

	// unknown are keys of a newer version.
	unknown durable.Unknown
}

// IsShare reports whether the claim holds a share of the device.
func (d Device) IsShare() bool { return d.Placement.Share != nil }

// MemoryMost returns the most memory that the claim can have of a share, in bytes; zero: unknown.
func (d Device) MemoryMost() int64 {
	return max(d.MemoryLimit, d.Amount.Memory)
}

// Key is unique among the devices of a claim, which can have two shares of one device.
func (d Device) Key() string {
	if d.ShareID == "" {
		return d.Name
	}
	return d.Name + "-" + string(d.ShareID[:min(8, len(d.ShareID))])
}

// WasHandedOut reports whether containers may use a device of the record.
func (r Record) WasHandedOut(d Device) bool {
	// A record that was rebuilt from its CDI file says it by its state alone.
	return !r.Released && (r.State == Prepared || d.HandedOut)
}

// HandedOut reports whether containers may use any device of the record.
func (r Record) HandedOut() bool {
	return slices.ContainsFunc(r.Devices, r.WasHandedOut)
}

// KeepUnknown copies the keys of a newer version from the claim's previous record, including
// those of devices that are in both.
func (r *Record) KeepUnknown(before Record) {
	r.unknown = before.unknown
	for i := range r.Devices {
		d := &r.Devices[i]
		if j := slices.IndexFunc(before.Devices, func(e Device) bool { return e.Request == d.Request && e.Key() == d.Key() }); j >= 0 {
			d.unknown = before.Devices[j].unknown
		}
	}
}

// Clone returns a deep copy.
func (r Record) Clone() Record {
	r.Devices = append([]Device(nil), r.Devices...)
	for i := range r.Devices {
		d := &r.Devices[i]
		if d.Amount != nil {
			d.Amount = ptr.To(*d.Amount)
		}
		if d.Before != nil {
			d.Before = ptr.To(*d.Before)
		}
	}
	r.Pods = append([]Pod(nil), r.Pods...)
	return r
}

// UnmarshalJSON keeps the keys of a newer version.
func (d *Device) UnmarshalJSON(data []byte) (err error) {
	type plain Device
	d.unknown, err = durable.Unmarshal(data, (*plain)(d))
	return err
}

// MarshalJSON adds the keys of a newer version.
func (d Device) MarshalJSON() ([]byte, error) {
	type plain Device
	return durable.Marshal(plain(d), d.unknown)
}

// Encode returns a record as JSON.
func Encode(r Record) ([]byte, error) {
	data, err := Format.Encode(r, r.unknown)
	if err != nil {
		return nil, fmt.Errorf("encode the record of claim %s: %w", r.Claim, err)
	}
	return data, nil
}

// Decode reads and validates a record. It fails with an *UnusableError if the record needs a newer
// version.
func Decode(data []byte) (Record, error) {
	var r Record
	var err error
	r.unknown, err = Format.Decode(data, &r)
	newer := (*durable.NewerError)(nil)
	switch {
	case errors.As(err, &newer):
		return Record{}, newerError(data, newer)
	case err != nil:
		return Record{}, fmt.Errorf("no valid record: %w", err)
	case r.Claim.UID == "":
		return Record{}, errors.New("claim.uid is missing")
	case r.State != Preparing && r.State != Prepared:
		return Record{}, fmt.Errorf("state is %q, not %s or %s", r.State, Preparing, Prepared)
	}
	for i, d := range r.Devices {
		if d.Name == "" || d.Placement.GPU == "" {
			return Record{}, fmt.Errorf("devices[%d] has no name or no GPU", i)
		}
		if d.IsShare() && d.Amount == nil {
			return Record{}, fmt.Errorf("devices[%d] is a share without an amount", i)
		}
	}
	return r, nil
}

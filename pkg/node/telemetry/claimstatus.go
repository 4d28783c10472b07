package telemetry

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaapply "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// statusTimeout is how long the status of a claim may take to be written.
const statusTimeout = 10 * time.Second

// ClaimStatus writes the state of prepared devices to the status of claims, for people. The
// statuses of one claim are written one after the other, so that a slow write cannot replace
// a newer status.
type ClaimStatus struct {
	client kubernetes.Interface

	// mu protects next.
	mu sync.Mutex
	// next has an entry for each claim whose status is being written: the status to write
	// afterwards, or nil.
	next map[types.UID]*resourceapply.ResourceClaimApplyConfiguration
}

// NewClaimStatus returns a ClaimStatus for an API server.
func NewClaimStatus(client kubernetes.Interface) *ClaimStatus { return &ClaimStatus{client: client} }

// DeviceFacts describes a device in a claim's status. The keys are the names of the attributes. The
// claim's part of a share is in the allocation (consumedCapacity).
type DeviceFacts struct {
	Profile string `json:"profile,omitempty"`
	UUID    string `json:"uuid,omitempty"`
	// ShareUnit, SharingStrategy and Isolation describe a share.
	ShareUnit       gpu.Basis     `json:"shareUnit,omitempty"`
	SharingStrategy gpu.Strategy  `json:"sharingStrategy,omitempty"`
	Isolation       gpu.Isolation `json:"isolation,omitempty"`
	// MemoryLimit is the most memory that the claim can have of a share, if that is more than its part.
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
}

func factsOf(d *ledger.Device) DeviceFacts {
	f := DeviceFacts{Profile: d.Placement.Profile, UUID: d.UUID}
	if s := d.Placement.Share; s != nil {
		f.ShareUnit, f.SharingStrategy, f.Isolation = s.By, s.Strategy, d.Placement.Isolation
		if d.MemoryLimit > 0 {
			f.MemoryLimit = resource.NewQuantity(d.MemoryLimit, resource.BinarySI)
		}
	}
	return f
}

// Prepared writes that the claim's devices are ready, and describes them.
func (s *ClaimStatus) Prepared(ctx context.Context, c *resourceapi.ResourceClaim, record ledger.Record) {
	facts := map[string]DeviceFacts{}
	for _, d := range record.Devices {
		facts[d.Key()] = factsOf(&d)
	}
	s.write(ctx, c, metav1.ConditionTrue, names.ClaimReasonPrepared, "", facts)
}

// Failed writes why the claim's devices are not ready.
func (s *ClaimStatus) Failed(ctx context.Context, c *resourceapi.ResourceClaim, err error) {
	s.write(ctx, c, metav1.ConditionFalse, names.ClaimReasonPrepareFailed, truncate(err.Error()), nil)
}

func (s *ClaimStatus) write(ctx context.Context, c *resourceapi.ResourceClaim, ready metav1.ConditionStatus, reason, message string, facts map[string]DeviceFacts) {
	devices := deviceStatuses(c, ready, reason, message, facts)
	if len(devices) == 0 {
		return
	}
	status := resourceapply.ResourceClaim(c.Name, c.Namespace).WithUID(c.UID).
		WithStatus(resourceapply.ResourceClaimStatus().WithDevices(devices...))
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.next[c.UID]; busy {
		s.next[c.UID] = status
		return
	}
	if s.next == nil {
		s.next = map[types.UID]*resourceapply.ResourceClaimApplyConfiguration{}
	}
	s.next[c.UID] = nil
	go s.writeAll(context.WithoutCancel(ctx), c.UID, status)
}

// writeAll writes a claim's status, and then the newest one that was requested meanwhile,
// until there is none.
func (s *ClaimStatus) writeAll(ctx context.Context, claim types.UID, status *resourceapply.ResourceClaimApplyConfiguration) {
	for status != nil {
		s.apply(ctx, status)
		status = s.takeNext(claim)
	}
}

// takeNext returns the status to write next; nil: none.
func (s *ClaimStatus) takeNext(claim types.UID) *resourceapply.ResourceClaimApplyConfiguration {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.next[claim]
	if next == nil {
		delete(s.next, claim)
		return nil
	}
	s.next[claim] = nil
	return next
}

func (s *ClaimStatus) apply(ctx context.Context, status *resourceapply.ResourceClaimApplyConfiguration) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	_, err := s.client.ResourceV1().ResourceClaims(*status.Namespace).ApplyStatus(ctx, status, metav1.ApplyOptions{FieldManager: names.DriverName, Force: true})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Cannot write the status of the claim", "err", err)
	}
}

// transition returns when the condition of a device got its status: the time in the claim if it has
// that status already, otherwise now.
func transition(c *resourceapi.ResourceClaim, of *resourceapi.DeviceRequestAllocationResult, ready metav1.ConditionStatus) metav1.Time {
	for i := range c.Status.Devices {
		d := &c.Status.Devices[i]
		if d.Driver != of.Driver || d.Pool != of.Pool || d.Device != of.Device || ptr.Deref(d.ShareID, "") != string(ptr.Deref(of.ShareID, "")) {
			continue
		}
		if known := meta.FindStatusCondition(d.Conditions, names.ClaimConditionReady); known != nil && known.Status == ready {
			return known.LastTransitionTime
		}
	}
	return metav1.Now()
}

// deviceStatuses describes each device and each share of this driver in the allocation once.
// Server-side apply keeps the entries of other drivers.
func deviceStatuses(c *resourceapi.ResourceClaim, ready metav1.ConditionStatus, reason, message string, facts map[string]DeviceFacts) []*resourceapply.AllocatedDeviceStatusApplyConfiguration {
	if c.Status.Allocation == nil {
		return nil
	}
	var devices []*resourceapply.AllocatedDeviceStatusApplyConfiguration
	seen := map[string]bool{}
	for _, result := range c.Status.Allocation.Devices.Results {
		key := ledger.Device{Name: result.Device, ShareID: ptr.Deref(result.ShareID, "")}.Key()
		if result.Driver != names.DriverName || seen[key] {
			continue
		}
		seen[key] = true
		device := resourceapply.AllocatedDeviceStatus().
			WithDriver(result.Driver).WithPool(result.Pool).WithDevice(result.Device).
			WithConditions(metaapply.Condition().
				WithType(names.ClaimConditionReady).WithStatus(ready).WithReason(reason).WithMessage(message).
				WithObservedGeneration(c.Generation).WithLastTransitionTime(transition(c, &result, ready)))
		if result.ShareID != nil {
			device.WithShareID(string(*result.ShareID))
		}
		if f, ok := facts[key]; ok {
			if data, err := json.Marshal(f); err == nil {
				device.WithData(runtime.RawExtension{Raw: data})
			}
		}
		devices = append(devices, device)
	}
	return devices
}

package usage

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// tenure is that one claim, for certain pods, holds a device alone. Two equal tenures are one
// without a break, because neither a claim's nor a pod's UID comes back.
type tenure struct {
	claim types.UID
	// pods are their UIDs.
	pods string
}

// tenancy is that a pod holds a share of a device for a claim.
type tenancy struct {
	device     string
	claim, pod types.UID
}

// holding is who holds the devices of the node.
type holding struct {
	// alone has the holder of each device that one claim holds alone, by the device's name.
	alone map[string]holder
	// shared are the holders of shares.
	shared map[tenancy]shareHolder
}

// holder is a claim that holds a device alone.
type holder struct {
	tenure
	record *ledger.Record
	// uuid is the hardware's ID of the device, as the claim got it.
	uuid string
}

// shareHolder is a pod that holds a share.
type shareHolder struct {
	namespace, pod, claim string
	// name is that of the share device, memory what the claim has of it.
	name   string
	memory int64
	// together: other pods use the claim, too.
	together bool
}

// whoHolds reads the ledger. Only devices that containers may use count.
func whoHolds(records []ledger.Record) holding {
	h := holding{alone: map[string]holder{}, shared: map[tenancy]shareHolder{}}
	for i := range records {
		r := &records[i]
		for _, d := range r.Devices {
			switch {
			case d.Admin || !r.WasHandedOut(d):
			case d.IsShare():
				h.share(r, d)
			default:
				h.alone[d.Placement.Name()] = holder{tenure: tenureOf(r), record: r, uuid: d.UUID}
			}
		}
	}
	return h
}

func tenureOf(r *ledger.Record) tenure {
	uids := make([]string, len(r.Pods))
	for i, p := range r.Pods {
		uids[i] = string(p.UID)
	}
	slices.Sort(uids)
	return tenure{claim: r.Claim.UID, pods: strings.Join(slices.Compact(uids), " ")}
}

// share adds a share, for each pod of its claim.
func (h *holding) share(r *ledger.Record, d ledger.Device) {
	together := slices.ContainsFunc(r.Pods, func(p ledger.Pod) bool { return p.Name != r.Pods[0].Name })
	for _, p := range r.Pods {
		key := tenancy{device: d.Placement.Base().Name(), claim: r.Claim.UID, pod: p.UID}
		s := h.shared[key] // a claim can have several shares of a device
		s.namespace, s.pod, s.claim = r.Claim.Namespace, p.Name, r.Claim.Name
		s.name, s.together = d.Placement.Name(), together
		if d.Amount != nil {
			s.memory += d.Amount.Memory
		}
		h.shared[key] = s
	}
}

// sample is what was measured of a GPU, with who held what all the while.
type sample struct {
	gpu.Usage
	// alone are the tenures of the devices that had the same holder before and after the
	// measurement; the zero tenure: nobody.
	alone map[string]tenure
	// shared are the shares that were held before and after it.
	shared map[tenancy]bool
	// pods are the pods of the processes, as far as they are known.
	pods map[int]types.UID
}

// isUsedBesides tells whether a process of another pod uses a device.
func (s *sample) isUsedBesides(pod types.UID, device string) bool {
	return slices.ContainsFunc(s.Processes, func(p gpu.ProcessUsage) bool {
		return p.Device == device && s.pods[p.PID] != "" && s.pods[p.PID] != pod
	})
}

// stamp notes who held what during a measurement, and removes averages that go back to a time
// when somebody else held the device. last is the sample before; nil: there is none.
func (s *sample) stamp(before, after holding, name string, last *sample) {
	s.alone, s.shared = map[string]tenure{}, map[tenancy]bool{}
	note := func(device string, measured gpu.Measured) {
		now := before.alone[device].tenure
		if now != after.alone[device].tenure {
			return
		}
		s.alone[device] = now
		if last == nil {
			return
		}
		if then, known := last.alone[device]; !known || then != now {
			for measure := range measured {
				if measure.IsAverage() {
					delete(measured, measure)
				}
			}
		}
	}
	note(name, s.Measured)
	for _, p := range s.Partitions {
		note(p.Name(), p.Measured)
	}
	for key := range before.shared {
		if _, still := after.shared[key]; still {
			s.shared[key] = true
		}
	}
}

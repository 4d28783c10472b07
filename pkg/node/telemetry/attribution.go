package telemetry

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/lists"
)

// tenure is that one claim, for certain pods, holds a device alone; the zero tenure: nobody does. Two
// equal tenures are one without a break, because neither a claim's nor a pod's UID comes back.
type tenure struct {
	claim types.UID
	// pods are their UIDs, uuid is the hardware's ID of the device, as the claim got it.
	pods, uuid string
}

// user is that a pod uses a claim.
type user struct{ claim, pod types.UID }

// tenancy is that a pod holds a share of a device for a claim.
type tenancy struct {
	device string
	user
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
		pods := lists.Map(r.Pods, func(p ledger.Pod) string { return string(p.UID) })
		slices.Sort(pods)
		of := tenure{claim: r.Claim.UID, pods: strings.Join(slices.Compact(pods), " ")}
		for _, d := range r.Devices {
			switch {
			case d.Admin || !r.WasHandedOut(d):
			case d.IsShare():
				h.share(r, d)
			default:
				of.uuid = d.UUID
				h.alone[d.Placement.Name()] = holder{tenure: of, record: r}
			}
		}
	}
	return h
}

// share adds a share, for each pod of its claim.
func (h *holding) share(r *ledger.Record, d ledger.Device) {
	together := slices.ContainsFunc(r.Pods, func(p ledger.Pod) bool { return p.Name != r.Pods[0].Name })
	for _, p := range r.Pods {
		key := tenancy{d.Placement.Base().Name(), user{r.Claim.UID, p.UID}}
		s := h.shared[key] // a claim can have several shares of a device
		s.namespace, s.pod, s.claim = r.Claim.Namespace, p.Name, r.Claim.Name
		s.name, s.together = d.Placement.Name(), together
		s.memory += d.Amount.Memory
		h.shared[key] = s
	}
}

// row is what was measured of a device, or of what a pod used of it.
type row struct {
	gpu, device, deviceType, profile, uuid, parentUUID, instance string
	namespace, pod, claim                                        string
	measured                                                     gpu.Measured
	// users are whose container is named.
	users []user
	// tenure is who held a device alone all the while, nil if that changed; shares are of a row
	// of shares.
	tenure *tenure
	shares []tenancy
}

// isHeldAsThen reports whether a device or share has the holder that it had when it was measured.
func (r *row) isHeldAsThen(now holding) bool {
	if r.shares == nil {
		return r.tenure != nil && now.alone[r.device].tenure == *r.tenure
	}
	return !slices.ContainsFunc(r.shares, func(t tenancy) bool { _, held := now.shared[t]; return !held })
}

// ofAnyone is what is true of a GPU whoever holds it.
func (r row) ofAnyone() row {
	r.namespace, r.pod, r.claim, r.users = "", "", "", nil
	r.measured = r.measured.Only(gpu.MemoryTotal, gpu.Power)
	return r
}

// attribute makes the rows of a GPU, its partitions and its shares. Only who held them before and
// after the measurement counts. Averages that go back to a time when somebody else held the device
// are left out. last is the sample before; nil: there is none.
func (s *sample) attribute(g *gpu.GPU, before, after holding, last *sample) {
	s.alone = map[string]tenure{}
	bases := []row{{gpu: g.Name(), device: g.Name(), deviceType: string(gpu.TypeGPU), uuid: g.UUID, measured: s.Measured}}
	for _, p := range s.Partitions {
		bases = append(bases, row{
			gpu: g.Name(), device: p.Name(), deviceType: string(p.Type), profile: p.Profile,
			uuid: p.UUID, parentUUID: g.UUID, instance: p.Instance, measured: p.Measured,
		})
	}
	for _, base := range bases {
		alone := base
		if now := after.alone[base.device]; now.tenure == before.alone[base.device].tenure {
			s.alone[base.device] = now.tenure
			if last != nil {
				if then, known := last.alone[base.device]; !known || then != now.tenure {
					maps.DeleteFunc(base.measured, func(m gpu.Measure, _ float64) bool { return m.IsAverage() })
				}
			}
			s.hold(&alone, now)
		}
		if alone.tenure != nil || base.deviceType == string(gpu.TypeGPU) {
			s.rows = append(s.rows, alone)
		}
		s.rows = append(s.rows, s.ofShares(base, before, after)...)
	}
}

// hold names the claim that holds a device alone, if it is the device that the claim got.
func (s *sample) hold(r *row, h holder) {
	if h.uuid != "" && r.uuid != "" && h.uuid != r.uuid {
		return
	}
	r.tenure = &h.tenure
	if h.record == nil {
		return
	}
	r.namespace, r.claim = h.record.Claim.Namespace, h.record.Claim.Name
	// What several pods use together belongs to none of them. A pod that joins them has processes
	// before the ledger names it.
	if pods := h.record.Pods; len(pods) == 1 && !slices.ContainsFunc(s.Processes, func(p gpu.ProcessUsage) bool {
		return p.Device == r.device && s.pods[p.PID] != "" && s.pods[p.PID] != pods[0].UID
	}) {
		r.pod, r.users = pods[0].Name, []user{{h.record.Claim.UID, pods[0].UID}}
	}
}

// ofShares are the pods that hold shares of a device, by namespace and name: a pod may be replaced
// by one of the same name while its share is still held. A pod with shares for several claims has
// one row without claim, because its processes do not tell them apart. A claim of several pods has a
// row without pod, with the memory that it was allocated.
func (s *sample) ofShares(base row, before, after holding) (all []row) {
	device := base.device
	if base.parentUUID == "" {
		base.parentUUID = base.uuid
	}
	base.deviceType = string(gpu.TypeShare)
	pods, claims := map[[2]string]*row{}, map[[2]string]*row{}
	allocated := map[*row]int64{}
	for key, h := range after.shared {
		if _, held := before.shared[key]; !held || key.device != device {
			continue
		}
		pod, claim := [2]string{h.namespace, h.pod}, [2]string{h.namespace, h.claim}
		r := pods[pod]
		if r == nil {
			of := base
			of.namespace, of.pod, of.claim, of.device = h.namespace, h.pod, h.claim, h.name
			r, pods[pod] = &of, &of
		}
		if r.claim != h.claim {
			r.claim, r.device = "", device
		}
		counted := slices.ContainsFunc(r.shares, func(t tenancy) bool { return t.claim == key.claim })
		r.shares = append(r.shares, key)
		switch {
		case counted || h.memory <= 0:
		case h.together:
			of := base
			of.namespace, of.claim, of.device, of.shares = h.namespace, h.claim, h.name, []tenancy{key}
			of.measured = gpu.Measured{gpu.MemoryTotal: float64(h.memory)}
			claims[claim] = &of
		default:
			allocated[r] += h.memory
		}
	}
	for _, r := range pods {
		r.measured = s.ofPod(r.shares, &base, device)
		pod := r.shares[0].pod
		others := slices.ContainsFunc(r.shares, func(t tenancy) bool { return t.pod != pod }) // of the same name
		if bytes, limited := s.counted[pod]; limited && device == r.gpu && !others {
			r.measured[gpu.MemoryUsed] = float64(bytes) // also what the driver does not name a process for
		}
		if allocated[r] > 0 {
			r.measured[gpu.MemoryTotal] = float64(allocated[r])
		}
		if r.claim != "" {
			for _, t := range r.shares {
				r.users = append(r.users, t.user)
			}
		}
		all = append(all, *r)
	}
	for _, r := range claims {
		all = append(all, *r)
	}
	return all
}

// ofPod sums up what the processes of a pod use of a device. A value is known if it is known of
// each process, and none is if the processes or their pods are not known.
func (s *sample) ofPod(shares []tenancy, base *row, device string) gpu.Measured {
	if _, known := base.measured[gpu.ProcessCount]; !known {
		return gpu.Measured{}
	}
	sum := gpu.Measured{gpu.ProcessCount: 0, gpu.MemoryUsed: 0}
	unknown := map[gpu.Measure]bool{}
	for _, p := range s.Processes {
		if p.Device != device {
			continue
		}
		uid, known := s.pods[p.PID]
		if !known {
			return gpu.Measured{}
		}
		if !slices.ContainsFunc(shares, func(t tenancy) bool { return t.pod == uid }) {
			continue
		}
		sum[gpu.ProcessCount]++
		for _, measure := range []gpu.Measure{gpu.MemoryUsed, gpu.Utilization, gpu.MemoryUtilization, gpu.Occupied} {
			v, known := p.Measured[measure]
			sum[measure] += v
			unknown[measure] = unknown[measure] || !known
		}
	}
	for _, ratio := range []gpu.Measure{gpu.Utilization, gpu.MemoryUtilization, gpu.Occupied} {
		if v, known := sum[ratio]; known {
			sum[ratio] = min(1, v)
		}
	}
	maps.DeleteFunc(sum, func(m gpu.Measure, _ float64) bool { return unknown[m] })
	return sum
}

package usage

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

var _ prometheus.Collector = (*Sampler)(nil)

// Describe implements prometheus.Collector.
func (s *Sampler) Describe(ch chan<- *prometheus.Desc) {
	ch <- infoDesc
	for _, d := range Definitions() {
		ch <- d.desc
	}
}

// row is something that was measured, with its labels.
type row struct {
	gpu, device, deviceType, profile, uuid, parentUUID, instance string
	namespace, pod, container, claim                             string
	measured                                                     gpu.Measured
}

// labels are in the order of usageLabels.
func (r *row) labels() []string {
	return []string{r.gpu, r.device, r.deviceType, r.profile, r.uuid, r.parentUUID, r.instance, r.namespace, r.pod, r.container, r.claim}
}

// metric makes a metric. Prometheus refuses all metrics if a label is not UTF-8, and names of
// drivers may not be.
func metric(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) prometheus.Metric {
	for i, label := range labels {
		labels[i] = strings.ToValidUTF8(label, "")
	}
	return prometheus.MustNewConstMetric(d, kind, value, labels...)
}

// Collect implements prometheus.Collector. What a claim had when it was measured is reported only
// while the claim still holds it.
func (s *Sampler) Collect(ch chan<- prometheus.Metric) {
	gpus := s.GPUs()
	now := whoHolds(s.Records())
	for i := range gpus {
		g := &gpus[i]
		ch <- metric(infoDesc, prometheus.GaugeValue, 1, g.Name(), g.UUID, g.ProductName, string(g.Vendor), g.Architecture, g.DriverVersion)
		last := s.fresh(g.PCIAddress)
		if last == nil {
			continue
		}
		collectHardware(ch, g, last)
		for _, r := range s.rows(g, last, now) {
			for _, d := range definitions {
				if value, known := d.value(r.measured); known && !d.OfGPU {
					ch <- metric(d.desc, d.kind(), value, r.labels()...)
				}
			}
		}
	}
}

// collectHardware reports what is about the GPU as hardware.
func collectHardware(ch chan<- prometheus.Metric, g *gpu.GPU, last *sample) {
	for _, d := range definitions {
		if value, known := d.value(last.Measured); known && d.OfGPU {
			ch <- metric(d.desc, d.kind(), value, g.Name(), g.UUID)
		}
	}
	for reason, applies := range last.Throttled {
		value := 0.
		if applies {
			value = 1
		}
		ch <- metric(throttled.desc, prometheus.GaugeValue, value, g.Name(), g.UUID, reason)
	}
}

// rows are the GPU, its partitions and its shares, as far as they have the holder that they had
// when they were measured.
func (s *Sampler) rows(g *gpu.GPU, last *sample, now holding) []row {
	s.mu.Lock()
	defer s.mu.Unlock()
	whole := row{gpu: g.Name(), device: g.Name(), deviceType: string(gpu.TypeGPU), uuid: g.UUID, measured: last.Measured}
	bases := []row{whole}
	for _, p := range last.Partitions {
		bases = append(bases, row{
			gpu: g.Name(), device: p.Name(), deviceType: string(p.Type), profile: p.Profile,
			uuid: p.UUID, parentUUID: g.UUID, instance: p.Instance, measured: p.Measured,
		})
	}
	var all []row
	for _, base := range bases {
		r := base
		switch {
		case s.hold(&r, last, now):
			all = append(all, r)
		case r.deviceType == string(gpu.TypeGPU):
			// Whoever holds it.
			r.measured = r.measured.Only(gpu.MemoryTotal, gpu.Power)
			all = append(all, r)
		}
		all = append(all, s.shares(base, last, now)...)
	}
	return all
}

// hold adds the claim that holds a device alone. It is false if the holder, or the device, is not
// the one that was measured.
func (s *Sampler) hold(r *row, last *sample, now holding) bool {
	h, held := now.alone[r.device]
	then, known := last.alone[r.device]
	if !known || then != h.tenure || held && h.uuid != "" && r.uuid != "" && h.uuid != r.uuid {
		return false
	}
	if !held {
		return true
	}
	r.namespace, r.claim = h.record.Claim.Namespace, h.record.Claim.Name
	// What several pods use together belongs to none of them. A pod that joins them has processes
	// before the ledger names it.
	if pods := h.record.Pods; len(pods) == 1 && !last.isUsedBesides(pods[0].UID, r.device) {
		r.pod, r.container = pods[0].Name, s.containerOf(user{h.record.Claim.UID, pods[0].UID})
	}
	return true
}

// sharer is a pod, and what it holds of a device.
type sharer struct {
	users []user
	held  []shareHolder
}

// sharersOf lists the pods that hold shares of a device, by namespace and name: a pod may be
// replaced by one of the same name while its share is still held.
func sharersOf(device string, last *sample, now holding) map[[2]string]*sharer {
	found := map[[2]string]*sharer{}
	for key, h := range now.shared {
		if key.device != device || !last.shared[key] {
			continue
		}
		pod := [2]string{h.namespace, h.pod}
		if found[pod] == nil {
			found[pod] = &sharer{}
		}
		found[pod].users = append(found[pod].users, user{key.claim, key.pod})
		found[pod].held = append(found[pod].held, h)
	}
	return found
}

// shares are the pods that hold shares of a device, with what their processes use. A pod with
// shares for several claims has one row without claim, because its processes do not tell them
// apart. A claim of several pods has a row without pod, with the memory that it was allocated.
func (s *Sampler) shares(base row, last *sample, now holding) []row {
	if base.parentUUID == "" {
		base.parentUUID = base.uuid
	}
	device := base.device
	base.deviceType = string(gpu.TypeShare)
	var all []row
	together := map[[2]string]row{}
	for pod, sharer := range sharersOf(device, last, now) {
		r := base
		r.measured = last.ofPod(sharer.users, base)
		r.namespace, r.pod = pod[0], pod[1]
		r.claim, r.device = sharer.held[0].claim, sharer.held[0].name
		counted := map[string]bool{} // a pod may replace one of its name
		for _, h := range sharer.held {
			switch {
			case h.memory <= 0 || counted[h.claim]:
			case h.together:
				of := base
				of.namespace, of.claim, of.device = h.namespace, h.claim, h.name
				of.measured = gpu.Measured{gpu.MemoryTotal: float64(h.memory)}
				together[[2]string{h.namespace, h.claim}] = of
			default:
				r.measured[gpu.MemoryTotal] += float64(h.memory)
			}
			counted[h.claim] = true
			if h.claim != sharer.held[0].claim {
				r.claim, r.device = "", device
			}
		}
		if r.claim != "" {
			r.container = s.containerOf(sharer.users...)
		}
		all = append(all, r)
	}
	return slices.AppendSeq(all, maps.Values(together))
}

// ofPod sums up what the processes of a pod use of a device. A value is known if it is known of
// each process, and none is if the processes or their pods are not known.
func (s *sample) ofPod(users []user, device row) gpu.Measured {
	if _, known := device.measured[gpu.ProcessCount]; !known {
		return gpu.Measured{}
	}
	sum := gpu.Measured{gpu.ProcessCount: 0, gpu.MemoryUsed: 0}
	unknown := map[gpu.Measure]bool{}
	for _, p := range s.Processes {
		if p.Device != device.device {
			continue
		}
		uid, known := s.pods[p.PID]
		if !known {
			return gpu.Measured{}
		}
		if !slices.ContainsFunc(users, func(u user) bool { return u.pod == uid }) {
			continue
		}
		sum[gpu.ProcessCount]++
		for _, measure := range []gpu.Measure{gpu.MemoryUsed, gpu.Utilization, gpu.MemoryUtilization, gpu.Occupied} {
			if v, known := p.Measured[measure]; known {
				sum[measure] += v
			} else {
				unknown[measure] = true
			}
		}
	}
	for measure := range unknown {
		delete(sum, measure)
	}
	for _, ratio := range []gpu.Measure{gpu.Utilization, gpu.MemoryUtilization, gpu.Occupied} {
		if v, known := sum[ratio]; known {
			sum[ratio] = min(1, v)
		}
	}
	return sum
}

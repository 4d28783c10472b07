package replay

import (
	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

const (
	// Hour is an hour in seconds, the unit of times here.
	Hour = 3600.0
	// warmUp is the part of the claims that arrive before anything is measured.
	warmUp = 0.25
	// samples is the number of samples of a series.
	samples = 200
)

// Demand is GPU memory by kind, in GPUs.
type Demand [len(workload.Kinds)]float64

// Sum is that of all kinds.
func (d Demand) Sum() (sum float64) {
	for _, gpus := range d {
		sum += gpus
	}
	return sum
}

// Sample is the state of a fleet, in GPUs. What a policy does not have is 0.
type Sample struct {
	// Time is in seconds since the start of the replay.
	Time float64
	// Used are the GPUs on which something is held, UsedNodes the nodes, Held the memory that is
	// held, Fragmented what is free and of no use.
	Used, UsedNodes, Held, Fragmented float64
	// Waiting is the demand that waits.
	Waiting Demand
}

// Result is what a replay found.
type Result struct {
	// Average is the average over time.
	Average Sample
	// Series are samples at equal distances.
	Series []Sample
	// Arrived is how many claims arrived while it was measured, Delayed how many of them did not
	// start at once.
	Arrived, Delayed int
	// Early arrived at least an hour before the end, Late of them waited longer than an hour.
	Early, Late int
	// Large are the claims for 3g.40gb and more among those that arrived, Accepted those that
	// started before the end, Prompt those that started at once.
	Large, Accepted, Prompt int
	// Moved is how many pods moved, as a share of the claims that arrived in the whole replay.
	Moved float64
	// Changes is how often a GPU became used or unused while it was measured.
	Changes int
	// Scheduler is what the real scheduler did while it was measured.
	Scheduler Scheduler
}

// Scheduler is what a real scheduler did per claim that arrived.
type Scheduler struct {
	// CPU is its CPU time in seconds.
	CPU float64
	// Writes are the requests that the API server got to write anything, SliceWrites those to
	// write ResourceSlices.
	Writes, SliceWrites float64
}

// Recorder measures a replay.
type Recorder struct {
	// Result has what was measured so far.
	Result Result
	// from is when measuring begins, to when it ends, now until when was measured.
	from, to, now float64
}

// Begin is the first claim whose arrival is measured.
func Begin(claims []*fleet.Claim) int {
	first := 0
	for first < len(claims) && claims[first].Arrival < 0 {
		first++
	}
	return first + int(warmUp*float64(len(claims)-first))
}

// NewRecorder makes a recorder for claims that are sorted by their arrival.
func NewRecorder(claims []*fleet.Claim) *Recorder {
	return &Recorder{from: claims[Begin(claims)].Arrival, to: claims[len(claims)-1].Arrival}
}

// Until adds the time since the last call, in which nothing has changed. fragmented is asked for
// the fragmentation, if it is needed.
func (r *Recorder) Until(until float64, s Sample, fragmented func() float64) {
	begin, end := max(r.now, r.from), min(until, r.to)
	if end > begin {
		weight := (end - begin) / (r.to - r.from)
		a := &r.Result.Average
		a.Used += weight * s.Used
		a.UsedNodes += weight * s.UsedNodes
		a.Held += weight * s.Held
		for k := range s.Waiting {
			a.Waiting[k] += weight * s.Waiting[k]
		}
	}
	for step := r.to / samples; len(r.Result.Series) < samples && float64(len(r.Result.Series))*step <= until; {
		s.Time, s.Fragmented = float64(len(r.Result.Series))*step, fragmented()
		r.Result.Series = append(r.Result.Series, s)
	}
	r.now = until
}

// Finish counts what became of the claims.
func (r *Recorder) Finish(claims []*fleet.Claim) {
	measured := 0
	for _, s := range r.Result.Series {
		if s.Time >= r.from {
			r.Result.Average.Fragmented += s.Fragmented
			measured++
		}
	}
	r.Result.Average.Fragmented /= float64(max(measured, 1))
	for _, c := range claims {
		if c.Arrival >= r.from {
			r.Result.count(c, r.to)
		}
	}
}

func (r *Result) count(c *fleet.Claim, to float64) {
	r.Arrived++
	if c.Started != c.Arrival {
		r.Delayed++
	}
	if c.Kind >= workload.FirstLarge {
		r.Large++
		if c.Started >= 0 {
			r.Accepted++
		}
		if c.Started == c.Arrival {
			r.Prompt++
		}
	}
	if c.Arrival <= to-Hour {
		r.Early++
		if c.Started < 0 || c.Started-c.Arrival > Hour {
			r.Late++
		}
	}
}

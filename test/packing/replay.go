package main

import (
	"container/heap"
)

// replayed is what claims are placed on: a fleet with a policy, or the bound.
type replayed interface {
	// place gives a claim its devices if it can.
	place(c *claim) bool
	release(c *claim)
	// fits has a bit for each kind that may fit after a claim was released.
	fits(released *claim) uint
	// sample is what is held now. all asks for fragments, too.
	sample(all bool) sample
}

// sample is the state of a fleet, in GPUs. What a policy does not have is 0.
type sample struct {
	// time is in seconds since the start of the replay.
	time                                    float64
	used, usedNodes, held, waiting, pinched float64
	// changes is how often a GPU became used or unused until then.
	changes int
}

// result is what a replay found. Averages are over time, in GPUs.
type result struct {
	average sample
	// series are samples at equal distances.
	series []sample
	// arrived is how many claims arrived while it was measured, delayed how many of them did not
	// start at once.
	arrived, delayed int
	// early arrived at least an hour before the end, late of them waited longer than an hour.
	early, late int
	// large are the claims for 3g partitions and more, GPUs included, among those that arrived,
	// accepted those that started before the end, prompt those that started at once.
	large, accepted, prompt int
	// waiting is the average demand that waits, by kind, in GPUs.
	waiting [mostKinds]float64
	// moved is how many pods moved, as a share of the claims that arrived in the whole replay.
	moved float64
	// changes is how often a GPU became used or unused while it was measured.
	changes int
}

const (
	hour = 3600.0
	// warmUp is the part of the claims that arrive before anything is measured.
	warmUp = 0.25
	// samples is the number of samples of a series.
	samples = 200
)

// ends are the claims that hold devices, by their ends.
type ends []*claim

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].end() < e[j].end() }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(c any)        { *e = append(*e, c.(*claim)) } //nolint:forcetypeassert // heap.Push only gets claims
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func (c *claim) end() float64 { return c.started + c.life }

// replay plays the arrivals and the ends of claims.
type replay struct {
	on   replayed
	ends ends
	// moves is nil if no pods move.
	moves   *moves
	waiting queue
	now     float64
	result  result
	// from is when measuring begins, to when it ends.
	from, to float64
}

// run plays claims that are sorted by their arrival.
func (r *replay) run(claims []*claim) result {
	first := 0
	for first < len(claims) && claims[first].arrival < 0 {
		first++
	}
	arriving := len(claims) - first
	begin := first + int(warmUp*float64(arriving))
	r.from, r.to = claims[begin].arrival, claims[len(claims)-1].arrival
	for i, c := range claims {
		r.advance(max(0, c.arrival))
		if i == begin {
			r.result.changes = -r.on.sample(false).changes
		}
		r.arrive(c)
	}
	r.result.changes += r.on.sample(false).changes
	r.finish(claims)
	if r.moves != nil {
		r.result.moved = float64(r.moves.moved) / float64(arriving)
	}
	return r.result
}

func (r *replay) arrive(c *claim) {
	if r.moves != nil && c.arrival >= 0 {
		r.moves.arrived++
	}
	switch {
	case r.on.place(c):
		r.start(c)
	case r.moves != nil && r.moves.place(c, 0, len(r.moves.on.nodes)):
		r.start(c)
		r.serve(c)
	default:
		r.waiting.add(c)
	}
}

func (r *replay) start(c *claim) {
	c.started = r.now
	heap.Push(&r.ends, c)
}

// advance ends claims until a time, and starts those that waited for them, the oldest first.
func (r *replay) advance(until float64) {
	for len(r.ends) > 0 && r.ends[0].end() <= until {
		c := heap.Pop(&r.ends).(*claim) //nolint:forcetypeassert // there is nothing else
		r.measure(c.end())
		r.on.release(c)
		r.serve(c)
	}
	r.measure(until)
}

// serve starts claims that waited for what a claim released or left where it was, the oldest first.
func (r *replay) serve(c *claim) {
	for fit := r.on.fits(c) & r.waiting.kinds(); fit != 0; fit = fit & r.on.fits(c) & r.waiting.kinds() {
		next := r.waiting.oldest(fit)
		if !r.on.place(next) {
			// The GPUs have room, the CPUs have not.
			fit &^= 1 << next.kind
			continue
		}
		r.waiting.remove(next)
		r.start(next)
	}
	if r.moves == nil {
		return
	}
	for large := r.waiting.kinds() &^ (1<<firstLarge - 1); large != 0; large &= r.waiting.kinds() {
		next := r.waiting.oldest(large)
		if !r.moves.place(next, c.at.node, c.at.node+1) {
			large &^= 1 << next.kind
			continue
		}
		r.waiting.remove(next)
		r.start(next)
		r.serve(next)
	}
}

// measure adds what was held since the last call.
func (r *replay) measure(until float64) {
	begin, end := max(r.now, r.from), min(until, r.to)
	if end > begin {
		s := r.on.sample(false)
		weight := (end - begin) / (r.to - r.from)
		a := &r.result.average
		a.used += weight * s.used
		a.usedNodes += weight * s.usedNodes
		a.held += weight * s.held
		a.waiting += weight * r.waiting.gpus
		for k := range kinds {
			r.result.waiting[k] += weight * float64(len(r.waiting.of[k])) * kinds[k].gpus()
		}
	}
	for step := r.to / samples; len(r.result.series) < samples && float64(len(r.result.series))*step <= until; {
		s := r.on.sample(true)
		s.time, s.waiting = float64(len(r.result.series))*step, r.waiting.gpus
		r.result.series = append(r.result.series, s)
	}
	r.now = until
}

func (r *replay) finish(claims []*claim) {
	measured := 0
	for _, s := range r.result.series {
		if s.time >= r.from {
			r.result.average.pinched += s.pinched
			measured++
		}
	}
	r.result.average.pinched /= float64(max(measured, 1))
	for _, c := range claims {
		if c.arrival < r.from {
			continue
		}
		r.result.arrived++
		if c.started != c.arrival {
			r.result.delayed++
		}
		if c.kind >= firstLarge {
			r.result.large++
			if c.started >= 0 {
				r.result.accepted++
			}
			if c.started == c.arrival {
				r.result.prompt++
			}
		}
		if c.arrival <= r.to-hour {
			r.result.early++
			if c.started < 0 || c.started-c.arrival > hour {
				r.result.late++
			}
		}
	}
}

// queue are the claims that wait, by kind in order of their arrival.
type queue struct {
	of [mostKinds][]*claim
	// gpus is the memory that they demand, in GPUs.
	gpus float64
}

func (q *queue) add(c *claim) {
	q.of[c.kind] = append(q.of[c.kind], c)
	q.gpus += kinds[c.kind].gpus()
}

func (q *queue) kinds() (waiting uint) {
	for k := range q.of {
		if len(q.of[k]) > 0 {
			waiting |= 1 << k
		}
	}
	return waiting
}

// oldest is the first claim that arrived of these kinds.
func (q *queue) oldest(of uint) (c *claim) {
	for k := range q.of {
		if of&(1<<k) != 0 && (c == nil || q.of[k][0].arrival < c.arrival) {
			c = q.of[k][0]
		}
	}
	return c
}

// remove takes out the oldest claim of a kind.
func (q *queue) remove(c *claim) {
	q.of[c.kind] = q.of[c.kind][1:]
	q.gpus -= kinds[c.kind].gpus()
}

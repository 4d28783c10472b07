package replay

import (
	"container/heap"

	"github.com/tranche-dev/tranche/test/packing/fleet"
	"github.com/tranche-dev/tranche/test/packing/policy"
	"github.com/tranche-dev/tranche/test/packing/workload"
)

// replayed is what claims are placed on: a fleet with a policy, or the bound.
type replayed interface {
	// place gives a claim its devices if it can.
	place(c *fleet.Claim) bool
	release(c *fleet.Claim)
	// fits has a bit for each kind that may fit after a claim was released.
	fits(released *fleet.Claim) uint
	// sample is what is held now.
	sample() Sample
	// fragmented is what is free and of no use, in GPUs.
	fragmented() float64
	// changes is how often a GPU became used or unused until now.
	changes() int
}

// Settings say what is replayed.
type Settings struct {
	Workload workload.Workload
	Policy   policy.Policy
	Layout   *fleet.Layout
	Nodes    int
	// Load is the demand as a share of the fleet, Claims how many claims arrive.
	Load   float64
	Claims int
	Seed   uint64
}

// Run replays claims.
func Run(s Settings) Result {
	r := replay{on: newBound(s.Nodes)}
	if s.Policy.New != nil {
		on := &placed{Fleet: fleet.New(s.Layout, s.Nodes), placer: s.Policy.New(s.Workload, s.Seed), popularity: s.Workload.Popularity()}
		r.on = on
		if s.Policy.Moves {
			r.moves = &moves{on: on}
		}
	}
	return r.run(fleet.Claims(s.Workload.Arrivals(float64(s.Nodes*workload.GPUsPerNode), s.Load, s.Claims, s.Seed)))
}

// Ends are the claims that hold devices, by their ends.
type Ends []*fleet.Claim

// Start adds a claim that has started.
func (e *Ends) Start(c *fleet.Claim, now float64) {
	c.Started = now
	heap.Push((*endHeap)(e), c)
}

// Next removes the claim that ends first, if it ends until a time. It returns nil if none does.
func (e *Ends) Next(until float64) *fleet.Claim {
	if len(*e) == 0 || (*e)[0].End() > until {
		return nil
	}
	return heap.Pop((*endHeap)(e)).(*fleet.Claim) //nolint:forcetypeassert // there is nothing else
}

type endHeap []*fleet.Claim

func (e endHeap) Len() int           { return len(e) }
func (e endHeap) Less(i, j int) bool { return e[i].End() < e[j].End() }
func (e endHeap) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *endHeap) Push(c any)        { *e = append(*e, c.(*fleet.Claim)) } //nolint:forcetypeassert // heap.Push only gets claims
func (e *endHeap) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// replay plays the arrivals and the ends of claims.
type replay struct {
	on   replayed
	ends Ends
	// moves is nil if no pods move.
	moves    *moves
	waiting  queue
	now      float64
	recorder *Recorder
}

// run plays claims that are sorted by their arrival.
func (r *replay) run(claims []*fleet.Claim) Result {
	r.recorder = NewRecorder(claims)
	begin, arriving, changes := Begin(claims), 0, 0
	for i, c := range claims {
		r.advance(max(0, c.Arrival))
		if i == begin {
			changes = r.on.changes()
		}
		if c.Arrival >= 0 {
			arriving++
		}
		r.arrive(c)
	}
	r.recorder.Finish(claims)
	result := &r.recorder.Result
	result.Changes = r.on.changes() - changes
	if r.moves != nil {
		result.Moved = float64(r.moves.moved) / float64(arriving)
	}
	return *result
}

func (r *replay) arrive(c *fleet.Claim) {
	if r.moves != nil && c.Arrival >= 0 {
		r.moves.arrived++
	}
	switch {
	case r.on.place(c):
		r.ends.Start(c, r.now)
	case r.moves != nil && r.moves.place(c, 0, len(r.moves.on.Nodes)):
		r.ends.Start(c, r.now)
		r.serve(c)
	default:
		r.waiting.add(c)
	}
}

// advance ends claims until a time, and starts those that waited for them, the oldest first.
func (r *replay) advance(until float64) {
	for c := r.ends.Next(until); c != nil; c = r.ends.Next(until) {
		r.measure(c.End())
		r.on.release(c)
		r.serve(c)
	}
	r.measure(until)
}

// serve starts claims that waited for what a claim released or left where it was, the oldest first.
func (r *replay) serve(c *fleet.Claim) {
	for fit := r.on.fits(c) & r.waiting.kinds(); fit != 0; fit = fit & r.on.fits(c) & r.waiting.kinds() {
		next := r.waiting.oldest(fit)
		if !r.on.place(next) {
			// The GPUs have room, the CPUs have not.
			fit &^= 1 << next.Kind
			continue
		}
		r.waiting.remove(next)
		r.ends.Start(next, r.now)
	}
	if r.moves == nil {
		return
	}
	for large := r.waiting.kinds() &^ (1<<workload.FirstLarge - 1); large != 0; large &= r.waiting.kinds() {
		next := r.waiting.oldest(large)
		if !r.moves.place(next, c.Place.Node, c.Place.Node+1) {
			large &^= 1 << next.Kind
			continue
		}
		r.waiting.remove(next)
		r.ends.Start(next, r.now)
		r.serve(next)
	}
}

// measure adds what was held since the last call.
func (r *replay) measure(until float64) {
	s := r.on.sample()
	s.Waiting = r.waiting.demand()
	r.recorder.Until(until, s, r.on.fragmented)
	r.now = until
}

package steps

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// situationOf is a claim that wants some placements on an idle GPU 0.
func situationOf(placements ...gpu.Placement) Situation {
	return Situation{
		Wanted: claims.Record("a", ledger.Preparing, placements...),
		GPUs:   map[string]*gpu.GPU{claims.Address(0): new(claims.GPU(0)), claims.Address(1): new(claims.GPU(1))},
		Live:   map[string][]gpu.Partition{},
	}
}

func (s Situation) with(change func(*Situation)) Situation {
	change(&s)
	return s
}

func hold(state ledger.State, uuid string) func(*Situation) {
	return func(s *Situation) {
		held := s.Wanted.Clone()
		held.State = state
		for i := range held.Devices {
			held.Devices[i].UUID = uuid
		}
		s.Held = &held
	}
}

func TestPlanPrepare(t *testing.T) {
	one, three := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	live := func(parts ...gpu.Partition) map[string][]gpu.Partition {
		return map[string][]gpu.Partition{claims.Address(0): parts}
	}
	all := []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpWriteCDI}, {Op: OpDone}}
	again := all[1:]
	prepared := situationOf(one).with(hold(ledger.Prepared, "MIG-1"))
	prepared.CDI, prepared.Live = true, live(claims.PartitionAt(one, "MIG-1"))

	for name, tt := range map[string]struct {
		s    Situation
		want []Step
	}{
		"new claim":   {situationOf(one), all},
		"two devices": {situationOf(one, three), []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpCreate, Device: 1}, {Op: OpWriteCDI}, {Op: OpDone}}},
		"whole GPU":   {situationOf(claims.Whole(0)), all},
		"the profile keeps it": {situationOf(one).with(func(s *Situation) {
			s.Static, s.Live = func(gpu.Placement) bool { return true }, live(claims.PartitionAt(one, "MIG-x"))
		}), all},
		"nothing left to do":    {prepared, nil},
		"its CDI file is gone":  {prepared.with(func(s *Situation) { s.CDI = false }), again},
		"its partition is gone": {prepared.with(func(s *Situation) { s.Live = nil }), all},
		"its partition is half": {prepared.with(func(s *Situation) { s.Live = live(claims.PartitionAt(one, "")) }), all},
		"crashed before done":   {situationOf(one).with(hold(ledger.Preparing, "")), again},
		"crashed, half made":    {situationOf(one).with(hold(ledger.Preparing, "")).with(func(s *Situation) { s.Live = live(claims.PartitionAt(one, "")) }), again},
		"others beside it":      {situationOf(one).with(func(s *Situation) { s.Others = []ledger.Record{claims.Record("b", ledger.Prepared, three)} }), all},
		"same place, other GPU": {situationOf(one).with(func(s *Situation) {
			s.Others = []ledger.Record{claims.Record("b", ledger.Prepared, claims.MIG(1, "1g.10gb", 5, 1))}
		}), all},
		"foreign, elsewhere": {situationOf(one).with(func(s *Situation) { s.Live = live(claims.PartitionAt(three, "MIG-x")) }), all},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := Prepare(tt.s)
			require.NoError(t, err)
			assert.Equal(t, tt.want, steps)
		})
	}
}

func TestPlanPrepareAdminTakesNothing(t *testing.T) {
	one := claims.MIG(0, "1g.10gb", 5, 1)
	for _, device := range []gpu.Placement{gpu.Monitor(claims.Address(0)), claims.Whole(0), claims.MIG(0, "3g.40gb", 4, 4)} {
		admin := claims.Record("b", ledger.Prepared, device)
		admin.Devices[0].Admin, admin.Devices[0].Made = true, false
		s := situationOf()
		s.Wanted.Devices = admin.Devices
		s.Others = []ledger.Record{claims.Record("b", ledger.Prepared, one)}
		s.Live = map[string][]gpu.Partition{claims.Address(0): {claims.PartitionAt(one, "MIG-x")}}
		steps, err := Prepare(s)
		require.NoError(t, err)
		assert.Equal(t, []Step{{Op: OpIntent}, {Op: OpWriteCDI}, {Op: OpDone}}, steps)

		// And an admin's device is in nobody's way, neither of another claim nor of its own.
		s = situationOf(one)
		s.Others = []ledger.Record{admin}
		s.Wanted.Devices = append(s.Wanted.Devices, admin.Devices...)
		_, err = Prepare(s)
		require.NoError(t, err)
	}
}

// A claim that was allocated anew is prepared anew, whatever differs.
func TestPlanPrepareAnew(t *testing.T) {
	for name, change := range map[string]func(*ledger.Device){
		"request": func(d *ledger.Device) { d.Request = "x" },
		"pool":    func(d *ledger.Device) { d.Pool = "x" },
		"device":  func(d *ledger.Device) { d.Name = "x" },
		"admin":   func(d *ledger.Device) { d.Admin = true },
		"share":   func(d *ledger.Device) { d.ShareID = "x" },
	} {
		s := wantsShare(claims.MemoryShare(0), claims.Memory(1)).with(hold(ledger.Prepared, "GPU"))
		s.CDI = true
		change(&s.Held.Devices[0])
		steps, err := Prepare(s)
		require.NoError(t, err)
		assert.Contains(t, steps, Step{Op: OpIntent}, name)
	}
}

// Of what was handed out before, that stays which still exists; a share stays as it was set up.
func TestContinue(t *testing.T) {
	one, three := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	live := map[string][]gpu.Partition{claims.Address(0): {claims.PartitionAt(one, "MIG-a")}}
	monitor := claims.Record("a", ledger.Prepared, gpu.Monitor(claims.Address(0)))
	monitor.Devices[0].Admin = true
	other := claims.Record("a", ledger.Preparing, one)
	other.Devices[0].Request = "x"
	for name, tt := range map[string]struct {
		held, wanted ledger.Record
		want         []bool
	}{
		"one of two exists":   {claims.Record("a", ledger.Prepared, one, three), claims.Record("a", ledger.Preparing, one, three), []bool{true, false}},
		"never handed out":    {claims.Record("a", ledger.Preparing, one), claims.Record("a", ledger.Preparing, one), []bool{false}},
		"one of two is new":   {claims.Record("a", ledger.Prepared, one), claims.Record("a", ledger.Preparing, three, one), []bool{false, true}},
		"for another request": {claims.Record("a", ledger.Prepared, one), other, []bool{false}},
		"monitors always are": {monitor, monitor.Clone(), []bool{true}},
	} {
		Continue(&tt.held, tt.wanted, live)
		for i, d := range tt.wanted.Devices {
			assert.Equal(t, tt.want[i], d.HandedOut, "%s: %s", name, d.Name)
		}
	}
	again := claims.Record("a", ledger.Preparing, one)
	Continue(nil, again, live)
	assert.Equal(t, claims.Record("a", ledger.Preparing, one), again)

	share := claims.MemoryShare(0)
	held, wanted := claims.Holding("a", ledger.Prepared, share, claims.Memory(10)), claims.Holding("a", ledger.Preparing, share, claims.Memory(20))
	held.Devices[0].MemoryLimit, held.Devices[0].Before = 30*claims.GiB, &gpu.Settings{}
	held.Devices[0].Placement.Share = new(*share.Share)
	held.Devices[0].Placement.Share.MaxClients = 7
	Continue(&held, wanted, nil)
	held.Devices[0].HandedOut = true
	assert.Equal(t, held.Devices, wanted.Devices)
}

func TestPlanPrepareRefuses(t *testing.T) {
	one, three := claims.MIG(0, "1g.10gb", 2, 1), claims.MIG(0, "3g.40gb", 0, 4)
	holder := func(p gpu.Placement, pods ...string) []ledger.Record {
		r := claims.Record("b", ledger.Prepared, p)
		for _, pod := range pods {
			r.Pods = append(r.Pods, ledger.Pod{Name: pod})
		}
		return []ledger.Record{r}
	}
	live := func(p gpu.Placement, uuid string) map[string][]gpu.Partition {
		return map[string][]gpu.Partition{claims.Address(0): {claims.PartitionAt(p, uuid)}}
	}
	testRefusals(t, map[string]refusal{
		"held by another claim": {
			situationOf(one).with(func(s *Situation) { s.Others = holder(three, "p1", "p2") }),
			"gpu-0000-01-00-0-mig-1g-10gb-2 cannot be prepared: claim team/claim-b (pod p1, p2) still holds gpu-0000-01-00-0-mig-3g-40gb-0 on the same GPU and its release is not finished; this is retried", true,
		},
		"held, no pod known": {
			situationOf(one).with(func(s *Situation) { s.Others = holder(one) }), "claim team/claim-b still holds", true,
		},
		"whole GPU is cut by a claim": {
			situationOf(claims.Whole(0)).with(func(s *Situation) { s.Others = holder(one) }), "claim team/claim-b still holds", true,
		},
		"partition of a whole GPU that is held": {
			situationOf(one).with(func(s *Situation) { s.Others = holder(claims.Whole(0)) }), "still holds gpu-0000-01-00-0 on", true,
		},
		"foreign partition over it": {
			situationOf(one).with(func(s *Situation) { s.Live = live(three, "MIG-x") }),
			"GPU gpu-0000-01-00-0 holds partition gpu-0000-01-00-0-mig-3g-40gb-0 (GI 1) that Tranche did not make; whoever made it must remove it", false,
		},
		"foreign partition on a whole GPU": {
			situationOf(claims.Whole(0)).with(func(s *Situation) { s.Live = live(three, "MIG-x") }), "did not make", false,
		},
		"foreign partition exactly there": {
			situationOf(one).with(func(s *Situation) { s.Live = live(one, "MIG-x") }), "did not make", false,
		},
		"somebody else's in place of ours": {
			situationOf(one).with(hold(ledger.Prepared, "MIG-1")).with(func(s *Situation) { s.Live = live(one, "MIG-x") }), "did not make", false,
		},
		// The other claim's admin record does not count as a holder, its
		// partition does.
		"a partition of another claim's record": {
			situationOf(one).with(func(s *Situation) {
				s.Others = holder(three)
				s.Others[0].Devices[0].Placement.Consumes = nil
				s.Live = live(three, "MIG-b")
			}),
			"partition gpu-0000-01-00-0-mig-3g-40gb-0 of claim team/claim-b is still there; this is retried", true,
		},
		"left behind by a released claim": {
			situationOf(one).with(func(s *Situation) {
				s.Others = holder(three)
				s.Others[0].Released, s.Others[0].Cause = true, "the GPU is lost"
			}),
			"gpu-0000-01-00-0-mig-3g-40gb-0 of claim team/claim-b, which was released, could not be removed from the GPU: the GPU is lost; this is retried", true,
		},
		"the profile keeps a partition over it": {
			situationOf(one).with(func(s *Situation) {
				s.Static, s.Live = func(gpu.Placement) bool { return true }, live(three, "MIG-x")
			}),
			"the profile of the node keeps partition gpu-0000-01-00-0-mig-3g-40gb-0 on GPU gpu-0000-01-00-0 in its place", false,
		},
		"devices of the claim that exclude each other": {
			situationOf(one, three), "the claim was allocated gpu-0000-01-00-0-mig-1g-10gb-2 and gpu-0000-01-00-0-mig-3g-40gb-0, which cannot exist at the same time", false,
		},
		"whole GPU and a piece of it in one claim": {
			situationOf(claims.Whole(0), one), "cannot exist at the same time", false,
		},
	})
}

// refusal is a situation in which nothing can be prepared.
type refusal struct {
	s        Situation
	message  string
	conflict bool
}

func testRefusals(t *testing.T, refusals map[string]refusal) {
	t.Helper()
	for name, tt := range refusals {
		t.Run(name, func(t *testing.T) {
			steps, err := Prepare(tt.s)
			require.ErrorContains(t, err, tt.message)
			assert.Empty(t, steps)
			var conflict *ConflictError
			assert.Equal(t, tt.conflict, errors.As(err, &conflict), "conflict, which may end by itself")
		})
	}
}

func TestPlanRelease(t *testing.T) {
	one, three := claims.MIG(0, "1g.10gb", 5, 1), claims.MIG(0, "3g.40gb", 0, 4)
	live := func(parts ...gpu.Partition) map[string][]gpu.Partition {
		return map[string][]gpu.Partition{claims.Address(0): parts}
	}
	ends := []Step{{Op: OpRemoveCDI}, {Op: OpForget}}
	destroyOne := []Step{{Op: OpRemoveCDI}, {Op: OpDestroy}, {Op: OpForget}}
	prepared := claims.Record("a", ledger.Prepared, one)
	admin := claims.Record("a", ledger.Prepared, gpu.Monitor(claims.Address(0)))
	admin.Devices[0].Admin, admin.Devices[0].Made = true, false

	for name, tt := range map[string]struct {
		record ledger.Record
		live   map[string][]gpu.Partition
		want   []Step
	}{
		"a partition":           {record: prepared, live: live(claims.PartitionAt(one, "MIG-a")), want: destroyOne},
		"half made by a crash":  {record: claims.Record("a", ledger.Preparing, one), live: live(claims.PartitionAt(one, "")), want: destroyOne},
		"half destroyed":        {record: prepared, live: live(claims.PartitionAt(one, "")), want: destroyOne},
		"gone already":          {record: prepared, want: ends},
		"somebody else's there": {record: prepared, live: live(claims.PartitionAt(one, "MIG-x")), want: ends},
		"admin access":          {record: admin, live: live(claims.PartitionAt(one, "MIG-a")), want: ends},
		"whole GPU":             {record: claims.Record("a", ledger.Prepared, claims.Whole(0)), live: live(claims.PartitionAt(one, "MIG-x")), want: ends},
		"neighbours stay":       {record: prepared, live: live(claims.PartitionAt(three, "MIG-b")), want: ends},
		"two, the last one first": {
			record: claims.Record("a", ledger.Prepared, one, three),
			live:   live(claims.PartitionAt(one, "MIG-a"), claims.PartitionAt(three, "MIG-a")),
			want:   []Step{{Op: OpRemoveCDI}, {Op: OpDestroy, Device: 1}, {Op: OpDestroy}, {Op: OpForget}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, Release(tt.record, tt.live, nil, nil))
		})
	}
}

package claim

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// situationOf is a claim that wants some placements on an idle GPU 0.
func situationOf(placements ...gpu.Placement) situation {
	return situation{
		wanted: recordOfClaim("a", ledger.Preparing, placements...),
		gpus:   map[string]*gpu.GPU{address(0): new(testGPU(0)), address(1): new(testGPU(1))},
		live:   map[string][]gpu.Partition{},
	}
}

func (s situation) with(change func(*situation)) situation {
	change(&s)
	return s
}

func hold(state ledger.State, uuid string) func(*situation) {
	return func(s *situation) {
		held := s.wanted.Clone()
		held.State = state
		for i := range held.Devices {
			held.Devices[i].UUID = uuid
		}
		s.held = &held
	}
}

func TestPlanPrepare(t *testing.T) {
	one, three := mig(0, "1g.10gb", 5, 1), mig(0, "3g.40gb", 0, 4)
	live := func(parts ...gpu.Partition) map[string][]gpu.Partition {
		return map[string][]gpu.Partition{address(0): parts}
	}
	all := []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpWriteCDI}, {Op: OpDone}}
	again := all[1:]
	prepared := situationOf(one).with(hold(ledger.Prepared, "MIG-1"))
	prepared.cdi, prepared.live = true, live(partitionAt(one, "MIG-1"))

	for name, tt := range map[string]struct {
		s    situation
		want []Step
	}{
		"new claim":             {situationOf(one), all},
		"two devices":           {situationOf(one, three), []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpCreate, Device: 1}, {Op: OpWriteCDI}, {Op: OpDone}}},
		"whole GPU":             {situationOf(whole(0)), all},
		"nothing left to do":    {prepared, nil},
		"its CDI file is gone":  {prepared.with(func(s *situation) { s.cdi = false }), again},
		"its partition is gone": {prepared.with(func(s *situation) { s.live = nil }), all},
		"its partition is half": {prepared.with(func(s *situation) { s.live = live(partitionAt(one, "")) }), all},
		"other request name": {prepared.with(func(s *situation) {
			s.wanted.Devices = []ledger.Device{{Request: "x", Name: one.Name(), Placement: one}}
		}), append([]Step{{Op: OpIntent}}, again...)},
		"crashed before done": {situationOf(one).with(hold(ledger.Preparing, "")), again},
		"crashed, half made":  {situationOf(one).with(hold(ledger.Preparing, "")).with(func(s *situation) { s.live = live(partitionAt(one, "")) }), again},
		"others beside it":    {situationOf(one).with(func(s *situation) { s.others = []ledger.Record{recordOfClaim("b", ledger.Prepared, three)} }), all},
		"same place, other GPU": {situationOf(one).with(func(s *situation) {
			s.others = []ledger.Record{recordOfClaim("b", ledger.Prepared, mig(1, "1g.10gb", 5, 1))}
		}), all},
		"foreign, elsewhere": {situationOf(one).with(func(s *situation) { s.live = live(partitionAt(three, "MIG-x")) }), all},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := planPrepare(tt.s)
			require.NoError(t, err)
			assert.Equal(t, tt.want, steps)
		})
	}
}

func TestPlanPrepareAdminTakesNothing(t *testing.T) {
	one := mig(0, "1g.10gb", 5, 1)
	s := situationOf(one)
	s.wanted.Devices[0].Admin, s.wanted.Devices[0].Made = true, false
	s.others = []ledger.Record{recordOfClaim("b", ledger.Prepared, one)}
	s.live = map[string][]gpu.Partition{address(0): {partitionAt(one, "MIG-b")}}
	steps, err := planPrepare(s)
	require.NoError(t, err)
	assert.Equal(t, []Step{{Op: OpIntent}, {Op: OpWriteCDI}, {Op: OpDone}}, steps)

	// And an admin's claim is in nobody's way.
	s = situationOf(one)
	theirs := recordOfClaim("b", ledger.Prepared, one)
	theirs.Devices[0].Admin, theirs.Devices[0].Made = true, false
	s.others = []ledger.Record{theirs}
	_, err = planPrepare(s)
	require.NoError(t, err)
}

func TestPlanPrepareRefuses(t *testing.T) {
	one, three := mig(0, "1g.10gb", 2, 1), mig(0, "3g.40gb", 0, 4)
	holder := func(p gpu.Placement, pods ...string) []ledger.Record {
		r := recordOfClaim("b", ledger.Prepared, p)
		for _, pod := range pods {
			r.Pods = append(r.Pods, ledger.Pod{Name: pod})
		}
		return []ledger.Record{r}
	}
	live := func(p gpu.Placement, uuid string) map[string][]gpu.Partition {
		return map[string][]gpu.Partition{address(0): {partitionAt(p, uuid)}}
	}
	for name, tt := range map[string]struct {
		s        situation
		message  string
		conflict bool
	}{
		"held by another claim": {
			situationOf(one).with(func(s *situation) { s.others = holder(three, "p1", "p2") }),
			"gpu-0000-01-00-0-mig-1g-10gb-2 cannot be given out: claim team/claim-b (pod p1, p2) still holds gpu-0000-01-00-0-mig-3g-40gb-0 on the same GPU and its release is not finished; this is tried again", true,
		},
		"held, no pod known": {
			situationOf(one).with(func(s *situation) { s.others = holder(one) }), "claim team/claim-b still holds", true,
		},
		"whole GPU is cut by a claim": {
			situationOf(whole(0)).with(func(s *situation) { s.others = holder(one) }), "claim team/claim-b still holds", true,
		},
		"partition of a whole GPU that is held": {
			situationOf(one).with(func(s *situation) { s.others = holder(whole(0)) }), "still holds gpu-0000-01-00-0 on", true,
		},
		"foreign partition over it": {
			situationOf(one).with(func(s *situation) { s.live = live(three, "MIG-x") }),
			"GPU gpu-0000-01-00-0 holds partition gpu-0000-01-00-0-mig-3g-40gb-0 (GI 1) that Tranche did not make; whoever made it must remove it", false,
		},
		"foreign partition on a whole GPU": {
			situationOf(whole(0)).with(func(s *situation) { s.live = live(three, "MIG-x") }), "did not make", false,
		},
		"foreign partition exactly there": {
			situationOf(one).with(func(s *situation) { s.live = live(one, "MIG-x") }), "did not make", false,
		},
		"somebody else's in place of ours": {
			situationOf(one).with(hold(ledger.Prepared, "MIG-1")).with(func(s *situation) { s.live = live(one, "MIG-x") }), "did not make", false,
		},
		// The other claim's admin record does not count as a holder, its
		// partition does.
		"a partition of another claim's record": {
			situationOf(one).with(func(s *situation) {
				s.others = holder(three)
				s.others[0].Devices[0].Placement.Consumes = nil
				s.live = live(three, "MIG-b")
			}),
			"partition gpu-0000-01-00-0-mig-3g-40gb-0 of claim team/claim-b is still there; this is tried again", true,
		},
		"devices of the claim that exclude each other": {
			situationOf(one, three), "the claim was given gpu-0000-01-00-0-mig-1g-10gb-2 and gpu-0000-01-00-0-mig-3g-40gb-0, which cannot exist at the same time", false,
		},
		"whole GPU and a piece of it in one claim": {
			situationOf(whole(0), one), "cannot exist at the same time", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := planPrepare(tt.s)
			require.ErrorContains(t, err, tt.message)
			assert.Empty(t, steps)
			var conflict *ConflictError
			assert.Equal(t, tt.conflict, errors.As(err, &conflict), "is waited for")
		})
	}
}

func TestPlanRelease(t *testing.T) {
	one, three := mig(0, "1g.10gb", 5, 1), mig(0, "3g.40gb", 0, 4)
	live := func(parts ...gpu.Partition) map[string][]gpu.Partition {
		return map[string][]gpu.Partition{address(0): parts}
	}
	ends := []Step{{Op: OpRemoveCDI}, {Op: OpForget}}
	destroyOne := []Step{{Op: OpRemoveCDI}, {Op: OpDestroy}, {Op: OpForget}}
	prepared := recordOfClaim("a", ledger.Prepared, one)
	admin := prepared.Clone()
	admin.Devices[0].Admin, admin.Devices[0].Made = true, false

	for name, tt := range map[string]struct {
		record ledger.Record
		live   map[string][]gpu.Partition
		want   []Step
	}{
		"a partition":           {record: prepared, live: live(partitionAt(one, "MIG-a")), want: destroyOne},
		"half made by a crash":  {record: recordOfClaim("a", ledger.Preparing, one), live: live(partitionAt(one, "")), want: destroyOne},
		"half destroyed":        {record: prepared, live: live(partitionAt(one, "")), want: destroyOne},
		"gone already":          {record: prepared, want: ends},
		"somebody else's there": {record: prepared, live: live(partitionAt(one, "MIG-x")), want: ends},
		"admin access":          {record: admin, live: live(partitionAt(one, "MIG-a")), want: ends},
		"whole GPU":             {record: recordOfClaim("a", ledger.Prepared, whole(0)), live: live(partitionAt(one, "MIG-x")), want: ends},
		"neighbours stay":       {record: prepared, live: live(partitionAt(three, "MIG-b")), want: ends},
		"two, the last one first": {
			record: recordOfClaim("a", ledger.Prepared, one, three),
			live:   live(partitionAt(one, "MIG-a"), partitionAt(three, "MIG-a")),
			want:   []Step{{Op: OpRemoveCDI}, {Op: OpDestroy, Device: 1}, {Op: OpDestroy}, {Op: OpForget}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, planRelease(tt.record, tt.live, nil, nil))
		})
	}
}

package claim

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
)

// holding is a claim's record of one share.
func holding(uid string, state ledger.State, p gpu.Placement, amount gpu.Amount) ledger.Record {
	r := recordOfClaim(uid, state, p)
	d := &r.Devices[0]
	d.ShareID, d.Amount, d.Made = "share-"+r.Claim.UID, &amount, p.Base().Type == gpu.TypeMIG
	if state == ledger.Prepared {
		d.UUID = "MIG-1"
	}
	return r
}

func memory(gibs int64) gpu.Amount { return gpu.Amount{Memory: gibs * gib, Clients: 1} }

// wantsShare is a claim that wants a share, beside others that are all still true.
func wantsShare(p gpu.Placement, amount gpu.Amount, others ...ledger.Record) situation {
	s := situationOf(p)
	s.wanted = holding("a", ledger.Preparing, p, amount)
	s.others, s.sharers, s.canShare = others, others, true
	return s
}

func TestPlanPrepareShare(t *testing.T) {
	all := []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpJoin}, {Op: OpWriteCDI}, {Op: OpDone}}
	part := mig(0, "3g.40gb", 0, 4)
	live := func(uuid string) func(*situation) {
		return func(s *situation) { s.live[address(0)] = []gpu.Partition{partitionAt(part, uuid)} }
	}
	two := wantsShare(migShare(0), memory(10))
	two.wanted.Devices = append(two.wanted.Devices, holding("a", ledger.Preparing, memoryShare(1), memory(1)).Devices...)
	for name, tt := range map[string]struct {
		s    situation
		want []Step
	}{
		"first holder":       {wantsShare(memoryShare(0), memory(80)), all},
		"second holder":      {wantsShare(memoryShare(0), memory(40), holding("b", ledger.Prepared, memoryShare(0), memory(40))), all},
		"second of a piece":  {wantsShare(migShare(0), memory(40), holding("b", ledger.Prepared, migShare(0), memory(40))).with(live("MIG-1")), all},
		"beside a half made": {wantsShare(migShare(0), memory(40), holding("b", ledger.Preparing, migShare(0), memory(40))).with(live("")), all},
		"piece of its own":   {wantsShare(migShare(0), memory(40), holding("b", ledger.Prepared, mig(0, "1g.10gb", 5, 1), gpu.Amount{})), all},
		"all join at last":   {two, []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpCreate, Device: 1}, {Op: OpJoin}, {Op: OpJoin, Device: 1}, {Op: OpWriteCDI}, {Op: OpDone}}},
		"started, not ready": {wantsShare(memoryShare(0), memory(1)).with(hold(ledger.Preparing, "")), all[1:]},
		"prepared":           {wantsShare(memoryShare(0), memory(1)).with(hold(ledger.Prepared, "GPU")).with(func(s *situation) { s.cdi = true }), nil},
		"its piece is gone":  {wantsShare(migShare(0), memory(1)).with(hold(ledger.Prepared, "MIG-1")).with(func(s *situation) { s.cdi = true }), all},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := planPrepare(tt.s)
			require.NoError(t, err)
			assert.Equal(t, tt.want, steps)
		})
	}
}

func TestPlanPrepareShareRefuses(t *testing.T) {
	part := mig(0, "3g.40gb", 0, 4)
	fraction := func(n int64) gpu.Amount { return gpu.Amount{Fraction: n, Memory: n * 80 << 20, Clients: 1} }
	clients := func(n int64) gpu.Amount { return gpu.Amount{Memory: gib, Clients: n} }
	compute := func(n int64) gpu.Amount { return gpu.Amount{Memory: gib, Compute: n, Clients: 1} }
	prepared := func(uid string, p gpu.Placement, amount gpu.Amount) ledger.Record {
		return holding(uid, ledger.Prepared, p, amount)
	}
	for name, tt := range map[string]struct {
		s        situation
		message  string
		conflict bool
	}{
		"too much memory": {
			wantsShare(memoryShare(0), memory(41), prepared("b", memoryShare(0), memory(20)), holding("c", ledger.Preparing, memoryShare(0), memory(20))),
			"gpu-0000-01-00-0-memory-share cannot be given out: not enough of its memory is left beside what is held by claims team/claim-b, team/claim-c, and a release is not finished; this is tried again", true,
		},
		"too much of a fraction": {wantsShare(fractionShare(0), fraction(501), prepared("b", fractionShare(0), fraction(500))), "not enough of its fraction", true},
		"too many clients":       {wantsShare(memoryShare(0), clients(2), prepared("b", memoryShare(0), clients(47))), "not enough of its clients", true},
		"too much compute":       {wantsShare(memoryShare(0), compute(51), prepared("b", memoryShare(0), compute(50))), "not enough of its compute", true},
		"many holders": {
			wantsShare(memoryShare(0), memory(77), prepared("b", memoryShare(0), memory(1)), prepared("c", memoryShare(0), memory(1)),
				prepared("d", memoryShare(0), memory(1)), prepared("e", memoryShare(0), memory(1))),
			"claims team/claim-b, team/claim-c, team/claim-d and 1 more, and a release", true,
		},
		"the other share of it":  {wantsShare(fractionShare(0), fraction(1), prepared("b", memoryShare(0), memory(1))), "claim team/claim-b still holds gpu-0000-01-00-0-memory-share on the same GPU", true},
		"the whole of it":        {wantsShare(memoryShare(0), memory(1), prepared("b", whole(0), gpu.Amount{})), "still holds gpu-0000-01-00-0 on", true},
		"a piece of it":          {wantsShare(memoryShare(0), memory(1), prepared("b", migShare(0), memory(1))), "still holds " + migShare(0).Name(), true},
		"the same piece, alone":  {wantsShare(migShare(0), memory(1), prepared("b", part, gpu.Amount{})), "still holds " + part.Name(), true},
		"nobody to set it up":    {wantsShare(memoryShare(0), memory(1)).with(func(s *situation) { s.canShare = false }), "was started without what sets shares up", false},
		"more than there is":     {wantsShare(memoryShare(0), memory(81)), "the claim was given more of gpu-0000-01-00-0-memory-share than all of its memory", false},
		"somebody else's piece":  {wantsShare(migShare(0), memory(1)).with(func(s *situation) { s.live[address(0)] = []gpu.Partition{partitionAt(part, "MIG-x")} }), "that Tranche did not make", false},
		"somebody else's by now": {wantsShare(migShare(0), memory(1), prepared("b", migShare(0), memory(1))).with(func(s *situation) { s.live[address(0)] = []gpu.Partition{partitionAt(part, "MIG-x")} }), "that Tranche did not make", false},
		"of before a new load": {wantsShare(migShare(0), memory(1), prepared("b", migShare(0), memory(1))).with(func(s *situation) {
			s.sharers = nil
			s.live[address(0)] = []gpu.Partition{partitionAt(part, "MIG-1")}
		}), "partition " + part.Name() + " of claim team/claim-b is still there", true},
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

// Two shares of one claim are counted together, too.
func TestPlanPrepareTwoShares(t *testing.T) {
	s := wantsShare(memoryShare(0), memory(40))
	s.wanted.Devices = append(s.wanted.Devices, holding("a", ledger.Preparing, memoryShare(0), memory(41)).Devices...)
	_, err := planPrepare(s)
	require.ErrorContains(t, err, "the claim was given more of gpu-0000-01-00-0-memory-share than all of its memory")
	s.wanted.Devices[1].Amount.Memory = 30 * gib
	_, err = planPrepare(s)
	require.NoError(t, err)
	s.others = []ledger.Record{holding("b", ledger.Prepared, memoryShare(0), memory(11))}
	_, err = planPrepare(s)
	require.ErrorContains(t, err, "not enough of its memory is left beside what is held by claim team/claim-b")
}

func TestPlanReleaseShare(t *testing.T) {
	part := mig(0, "3g.40gb", 0, 4)
	live := map[string][]gpu.Partition{address(0): {partitionAt(part, "MIG-1")}}
	mine := holding("a", ledger.Prepared, migShare(0), memory(1))
	twice := mine.Clone()
	twice.Devices = append(twice.Devices, mine.Devices...)
	twice.Devices[1].ShareID = "other"
	leave := []Step{{Op: OpRemoveCDI}, {Op: OpLeave}, {Op: OpForget}}
	last := []Step{{Op: OpRemoveCDI}, {Op: OpLeave}, {Op: OpDestroy}, {Op: OpForget}}
	for name, tt := range map[string]struct {
		record ledger.Record
		others []ledger.Record
		live   map[string][]gpu.Partition
		want   []Step
	}{
		"last holder":        {mine, nil, live, last},
		"others prepared":    {mine, []ledger.Record{holding("b", ledger.Prepared, migShare(0), memory(1))}, live, leave},
		"others under way":   {mine, []ledger.Record{holding("b", ledger.Preparing, migShare(0), memory(1))}, live, leave},
		"others elsewhere":   {mine, []ledger.Record{holding("b", ledger.Prepared, migShare(1), memory(1))}, live, last},
		"piece is gone":      {mine, nil, nil, leave},
		"whole GPU":          {holding("a", ledger.Prepared, memoryShare(0), memory(1)), nil, nil, leave},
		"crashed on the way": {holding("a", ledger.Preparing, migShare(0), memory(1)), nil, live, last},
		"two of one piece":   {twice, nil, live, []Step{{Op: OpRemoveCDI}, {Op: OpLeave, Device: 1}, {Op: OpLeave}, {Op: OpDestroy}, {Op: OpForget}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, planRelease(tt.record, tt.live, tt.others, nil))
		})
	}
}

// Who joins second has the first beside it; who leaves first has none but those
// that leave after it.
func TestHolderOthers(t *testing.T) {
	r := holding("a", ledger.Preparing, memoryShare(0), memory(1))
	r.Devices = append(r.Devices, r.Devices[0], holding("a", ledger.Preparing, memoryShare(1), memory(1)).Devices[0])
	r.Devices[1].ShareID = "second"
	other := holding("b", ledger.Preparing, memoryShare(0), memory(2))
	look := other.Clone()
	look.Devices[0].Admin = true
	for device, want := range [][]ledger.Device{other.Devices, {other.Devices[0], r.Devices[0]}, nil} {
		h := holder(r, device, []ledger.Record{other, look})
		assert.Equal(t, want, h.Others, device)
		assert.Equal(t, r.Devices[device], h.Device)
		assert.Len(t, h.Devices, 3)
	}
}

// Where the settings say so, a request has one share, whichever GPUs it is of.
// Several requests have several.
func TestOneShareForEachRequest(t *testing.T) {
	s := wantsShare(memoryShare(0), memory(1))
	s.wanted.Devices = append(s.wanted.Devices, holding("b", ledger.Preparing, memoryShare(1), memory(1)).Devices...)
	s.wanted.Devices[1].Request = s.wanted.Devices[0].Request
	_, err := planPrepare(s)
	require.NoError(t, err)

	for i := range s.wanted.Devices {
		share := *s.wanted.Devices[i].Placement.Share
		share.OneClient = true
		s.wanted.Devices[i].Placement.Share = &share
	}
	_, err = planPrepare(s)
	require.EqualError(t, err, "request "+s.wanted.Devices[0].Request+" asks for 2 shares, and the settings of GPU gpu-0000-01-00-0 (oneClient) allow one: ask for one, with the amount that is needed")
	s.wanted.Devices[1].Request = "another"
	_, err = planPrepare(s)
	require.NoError(t, err)
}

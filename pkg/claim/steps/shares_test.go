package steps

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tranche-dev/tranche/pkg/claim/ledger"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/test/claims"
)

// wantsShare is a claim that wants a share, beside others that are all still true.
func wantsShare(p gpu.Placement, amount gpu.Amount, others ...ledger.Record) Situation {
	s := situationOf(p)
	s.Wanted = claims.Holding("a", ledger.Preparing, p, amount)
	s.Others, s.Sharers, s.CanShare = others, others, true
	return s
}

func TestPlanPrepareShare(t *testing.T) {
	all := []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpJoin}, {Op: OpWriteCDI}, {Op: OpDone}}
	part := claims.MIG(0, "3g.40gb", 0, 4)
	live := func(uuid string) func(*Situation) {
		return func(s *Situation) { s.Live[claims.Address(0)] = []gpu.Partition{claims.PartitionAt(part, uuid)} }
	}
	two := wantsShare(claims.MIGShare(0), claims.Memory(10))
	two.Wanted.Devices = append(two.Wanted.Devices, claims.Holding("a", ledger.Preparing, claims.MemoryShare(1), claims.Memory(1)).Devices...)
	for name, tt := range map[string]struct {
		s    Situation
		want []Step
	}{
		"first holder":       {wantsShare(claims.MemoryShare(0), claims.Memory(80)), all},
		"second holder":      {wantsShare(claims.MemoryShare(0), claims.Memory(40), claims.Holding("b", ledger.Prepared, claims.MemoryShare(0), claims.Memory(40))), all},
		"beside another GPU": {wantsShare(claims.MemoryShare(0), claims.Memory(80), claims.Holding("b", ledger.Prepared, claims.MemoryShare(1), claims.Memory(80))), all},
		"second of a piece":  {wantsShare(claims.MIGShare(0), claims.Memory(40), claims.Holding("b", ledger.Prepared, claims.MIGShare(0), claims.Memory(40))).with(live("MIG-1")), all},
		"beside a half made": {wantsShare(claims.MIGShare(0), claims.Memory(40), claims.Holding("b", ledger.Preparing, claims.MIGShare(0), claims.Memory(40))).with(live("")), all},
		"piece of its own":   {wantsShare(claims.MIGShare(0), claims.Memory(40), claims.Holding("b", ledger.Prepared, claims.MIG(0, "1g.10gb", 5, 1), gpu.Amount{})), all},
		"all join at last":   {two, []Step{{Op: OpIntent}, {Op: OpCreate}, {Op: OpCreate, Device: 1}, {Op: OpJoin}, {Op: OpJoin, Device: 1}, {Op: OpWriteCDI}, {Op: OpDone}}},
		"started, not ready": {wantsShare(claims.MemoryShare(0), claims.Memory(1)).with(hold(ledger.Preparing, "")), all[1:]},
		"prepared":           {wantsShare(claims.MemoryShare(0), claims.Memory(1)).with(hold(ledger.Prepared, "GPU")).with(func(s *Situation) { s.CDI = true }), nil},
		"its piece is gone":  {wantsShare(claims.MIGShare(0), claims.Memory(1)).with(hold(ledger.Prepared, "MIG-1")).with(func(s *Situation) { s.CDI = true }), all},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := Prepare(tt.s)
			require.NoError(t, err)
			assert.Equal(t, tt.want, steps)
		})
	}
}

func TestPlanPrepareShareRefuses(t *testing.T) {
	part := claims.MIG(0, "3g.40gb", 0, 4)
	fraction := func(n int64) gpu.Amount { return gpu.Amount{Fraction: n, Memory: n * 80 << 20, Clients: 1} }
	clients := func(n int64) gpu.Amount { return gpu.Amount{Memory: claims.GiB, Clients: n} }
	compute := func(n int64) gpu.Amount { return gpu.Amount{Memory: claims.GiB, Compute: n, Clients: 1} }
	prepared := func(uid string, p gpu.Placement, amount gpu.Amount) ledger.Record {
		return claims.Holding(uid, ledger.Prepared, p, amount)
	}
	testRefusals(t, map[string]refusal{
		"too much memory": {
			wantsShare(claims.MemoryShare(0), claims.Memory(41), prepared("b", claims.MemoryShare(0), claims.Memory(20)), claims.Holding("c", ledger.Preparing, claims.MemoryShare(0), claims.Memory(20)),
				prepared("d", claims.MemoryShare(1), claims.Memory(20))),
			"gpu-0000-01-00-0-memory-share cannot be prepared: not enough of its memory is left, because of claims team/claim-b, team/claim-c, whose release is not finished; this is retried", true,
		},
		"too much of a fraction": {wantsShare(claims.FractionShare(0), fraction(501), prepared("b", claims.FractionShare(0), fraction(500))), "not enough of its fraction", true},
		"too many clients":       {wantsShare(claims.MemoryShare(0), clients(2), prepared("b", claims.MemoryShare(0), clients(47))), "not enough of its clients", true},
		"too much compute":       {wantsShare(claims.MemoryShare(0), compute(51), prepared("b", claims.MemoryShare(0), compute(50))), "not enough of its computePercent", true},
		"many holders": {
			wantsShare(claims.MemoryShare(0), claims.Memory(77), prepared("b", claims.MemoryShare(0), claims.Memory(1)), prepared("c", claims.MemoryShare(0), claims.Memory(1)),
				prepared("d", claims.MemoryShare(0), claims.Memory(1)), prepared("e", claims.MemoryShare(0), claims.Memory(1))),
			"claims team/claim-b, team/claim-c, team/claim-d and 1 more, whose release", true,
		},
		"the other share of it":  {wantsShare(claims.FractionShare(0), fraction(1), prepared("b", claims.MemoryShare(0), claims.Memory(1))), "claim team/claim-b still holds gpu-0000-01-00-0-memory-share on the same GPU", true},
		"the whole of it":        {wantsShare(claims.MemoryShare(0), claims.Memory(1), prepared("b", claims.Whole(0), gpu.Amount{})), "still holds gpu-0000-01-00-0 on", true},
		"a piece of it":          {wantsShare(claims.MemoryShare(0), claims.Memory(1), prepared("b", claims.MIGShare(0), claims.Memory(1))), "still holds " + claims.MIGShare(0).Name(), true},
		"the same piece, alone":  {wantsShare(claims.MIGShare(0), claims.Memory(1), prepared("b", part, gpu.Amount{})), "still holds " + part.Name(), true},
		"nobody to set it up":    {wantsShare(claims.MemoryShare(0), claims.Memory(1)).with(func(s *Situation) { s.CanShare = false }), "was started without sharing", false},
		"more than there is":     {wantsShare(claims.MemoryShare(0), claims.Memory(81)), "the claim was allocated more of gpu-0000-01-00-0-memory-share than all of its memory", false},
		"somebody else's piece":  {wantsShare(claims.MIGShare(0), claims.Memory(1)).with(func(s *Situation) { s.Live[claims.Address(0)] = []gpu.Partition{claims.PartitionAt(part, "MIG-x")} }), "that Tranche did not make", false},
		"somebody else's by now": {wantsShare(claims.MIGShare(0), claims.Memory(1), prepared("b", claims.MIGShare(0), claims.Memory(1))).with(func(s *Situation) { s.Live[claims.Address(0)] = []gpu.Partition{claims.PartitionAt(part, "MIG-x")} }), "that Tranche did not make", false},
		"of before a new load": {wantsShare(claims.MIGShare(0), claims.Memory(1), prepared("b", claims.MIGShare(0), claims.Memory(1))).with(func(s *Situation) {
			s.Sharers = nil
			s.Live[claims.Address(0)] = []gpu.Partition{claims.PartitionAt(part, "MIG-1")}
		}), "partition " + part.Name() + " of claim team/claim-b is still there", true},
	})
}

// Two shares of one claim are counted together, too.
func TestPlanPrepareTwoShares(t *testing.T) {
	s := wantsShare(claims.MemoryShare(0), claims.Memory(40))
	s.Wanted.Devices = append(s.Wanted.Devices, claims.Holding("a", ledger.Preparing, claims.MemoryShare(0), claims.Memory(41)).Devices...)
	_, err := Prepare(s)
	require.ErrorContains(t, err, "the claim was allocated more of gpu-0000-01-00-0-memory-share than all of its memory")
	s.Wanted.Devices[1].Amount.Memory = 30 * claims.GiB
	_, err = Prepare(s)
	require.NoError(t, err)
	s.Others = []ledger.Record{claims.Holding("b", ledger.Prepared, claims.MemoryShare(0), claims.Memory(11))}
	_, err = Prepare(s)
	require.ErrorContains(t, err, "not enough of its memory is left, because of claim team/claim-b")
}

func TestPlanReleaseShare(t *testing.T) {
	part := claims.MIG(0, "3g.40gb", 0, 4)
	live := map[string][]gpu.Partition{claims.Address(0): {claims.PartitionAt(part, "MIG-1")}}
	mine := claims.Holding("a", ledger.Prepared, claims.MIGShare(0), claims.Memory(1))
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
		"others prepared":    {mine, []ledger.Record{claims.Holding("b", ledger.Prepared, claims.MIGShare(0), claims.Memory(1))}, live, leave},
		"others under way":   {mine, []ledger.Record{claims.Holding("b", ledger.Preparing, claims.MIGShare(0), claims.Memory(1))}, live, leave},
		"others elsewhere":   {mine, []ledger.Record{claims.Holding("b", ledger.Prepared, claims.MIGShare(1), claims.Memory(1))}, live, last},
		"piece is gone":      {mine, nil, nil, leave},
		"whole GPU":          {claims.Holding("a", ledger.Prepared, claims.MemoryShare(0), claims.Memory(1)), nil, nil, leave},
		"crashed on the way": {claims.Holding("a", ledger.Preparing, claims.MIGShare(0), claims.Memory(1)), nil, live, last},
		"two of one piece":   {twice, nil, live, []Step{{Op: OpRemoveCDI}, {Op: OpLeave, Device: 1}, {Op: OpLeave}, {Op: OpDestroy}, {Op: OpForget}}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tt.want, Release(tt.record, tt.live, tt.others, nil))
		})
	}
}

// Where the settings say so, a request has one share, whichever GPUs it is of.
// Several requests have several.
func TestOneShareForEachRequest(t *testing.T) {
	s := wantsShare(claims.MemoryShare(0), claims.Memory(1))
	s.Wanted.Devices = append(s.Wanted.Devices, claims.Holding("b", ledger.Preparing, claims.MemoryShare(1), claims.Memory(1)).Devices...)
	s.Wanted.Devices[1].Request = s.Wanted.Devices[0].Request
	_, err := Prepare(s)
	require.NoError(t, err)

	for i := range s.Wanted.Devices {
		share := *s.Wanted.Devices[i].Placement.Share
		share.FailRequestsGreaterThanOne = true
		s.Wanted.Devices[i].Placement.Share = &share
	}
	_, err = Prepare(s)
	require.EqualError(t, err, "request "+s.Wanted.Devices[0].Request+" asks for 2 shares, and the settings of GPU gpu-0000-01-00-0 (failRequestsGreaterThanOne) allow one: ask for one, with the amount that is needed")
	s.Wanted.Devices[1].Request = "another"
	_, err = Prepare(s)
	require.NoError(t, err)
}

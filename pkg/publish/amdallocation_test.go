package publish_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/test/allocator"
)

// ofMode are the devices of one mode of all cards, in order.
func ofMode(cards []publish.Card, mode string, n int) []string {
	var all []string
	for _, card := range cards {
		for i := range n {
			all = append(all, amdPiece{card.Name(), mode, i}.device())
		}
	}
	return all
}

// TestPackingOfAMDCards is the day of a node with 8 × MI300X: every fill is
// exact.
func TestPackingOfAMDCards(t *testing.T) {
	cards := cardsOf(t, builtIn(t, "mi300x8"))
	c := clusterOf(t, cards)
	assert.Equal(t, ofMode(cards, "cpx", 8), c.fill(classOfMode("cpx")), "64, card after card, and a 65th waits")
	assert.Nil(t, c.one(wholeCard))
	assert.Nil(t, c.one(anyPartition))

	c.scheduler.ReleaseAll()
	small := c.one(classOfMode("cpx"))
	require.NotNil(t, small)
	assert.Equal(t, ofMode(cards[1:], "dpx", 2), c.fill(classOfMode("dpx")), "14 on the seven other cards, and a 15th waits")
	c.scheduler.Release(small)
	assert.Equal(t, ofMode(cards[:1], "dpx", 2), c.fill(classOfMode("dpx")), "the card is free for another mode")

	for class, want := range map[string][]string{
		classOfMode("qpx"):    ofMode(cards, "qpx", 4),
		classOfMode("spx"):    ofMode(cards, "spx", 1),
		"gpu-amd.tranche.dev": ofMode(cards, "spx", 1),
		wholeCard:             ofMode(cards, "spx", 1),
		classOfMode("tpx"):    nil,
		anyMIG:                nil,
	} {
		c.scheduler.ReleaseAll()
		assert.Equal(t, want, c.fill(class), class)
	}
}

// TestAnyPartitionOfAMDCards: who asks for no mode gets the smallest partition of
// the first card that has room, and never a whole card.
func TestAnyPartitionOfAMDCards(t *testing.T) {
	for _, m := range amdMachines {
		finest, n := "", 0
		for mode, count := range m.modes {
			if count > n {
				finest, n = mode, count
			}
		}
		cards := m.cards(t, 2)
		for _, class := range []string{anyPartition, "gpu-xcp.tranche.dev"} {
			assert.Equal(t, ofMode(cards, finest, n), clusterOf(t, cards).fill(class), "%s on %s", class, m.name())
		}
		assert.Len(t, clusterOf(t, cards).fill(wholeCard), 2*m.modes["spx"], m.name())
	}
}

// TestAllOfOneCard is the pod with eight containers: all partitions of a card in
// one claim, which is served as long as any card has all of them.
func TestAllOfOneCard(t *testing.T) {
	for _, attribute := range ofOneCard {
		cards := cardsOf(t, builtIn(t, "mi300x8"))
		c := clusterOf(t, cards)
		eight := func() *allocator.Grant {
			claim := allocator.Together(allocator.Claim("claim", allocator.Request("device", classOfMode("cpx"), 8)), attribute)
			grant, err := c.scheduler.Allocate(t.Context(), node, claim)
			require.NoError(t, err)
			return grant
		}
		require.NotNil(t, c.one(classOfMode("cpx")))
		for i := range cards[1:] {
			grant := eight()
			require.NotNil(t, grant)
			assert.ElementsMatch(t, ofMode(cards[i+1:i+2], "cpx", 8), grant.Devices())
		}
		assert.Nil(t, eight(), "seven are left on the first card")
		assert.Len(t, c.fill(anyPartition), 7)
	}
}

// TestBothVendors: on a machine with cards of both, each class finds its own, and
// who asks for memory alone gets the smallest partition of either that has it.
func TestBothVendors(t *testing.T) {
	cards := cardsOf(t, builtIn(t, "h100x2-mi300x2"))
	h100, mi300x := []publish.Card{cards[0], cards[2]}, []publish.Card{cards[1], cards[3]}
	c := clusterOf(t, cards)
	assert.Equal(t, ofMode(cards, "spx", 1), c.fill(wholeCard))
	c.scheduler.ReleaseAll()
	assert.Equal(t, ofMode(mi300x, "spx", 1), c.fill("gpu-amd.tranche.dev"))
	assert.Equal(t, ofMode(h100, "spx", 1), c.fill("gpu-nvidia.tranche.dev"))

	c.scheduler.ReleaseAll()
	got := c.fill(anyPartition)
	assert.Len(t, got, 2*7+2*8, "partitions only, no whole card")
	for i, card := range h100 {
		assert.Equal(t, fmt.Sprintf("%s-mig-1g-10gb-6", card.Name()), got[15*i])
		assert.Equal(t, ofMode(mi300x[i:i+1], "cpx", 8), got[15*i+7:15*i+15])
	}

	c.scheduler.ReleaseAll()
	ask := func() *allocator.Grant {
		request := allocator.Request("device", anyPartition, 1)
		request.Exactly.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{
			Expression: `device.capacity["gpu.tranche.dev"].memory.compareTo(quantity("16Gi")) >= 0`,
		}}}
		return c.ask(request)
	}
	var large []string
	for grant := ask(); grant != nil; grant = ask() {
		large = append(large, grant.Devices()...)
	}
	assert.Len(t, large, 2*4+2*8)
	assert.Equal(t, h100[0].Name()+"-mig-1g-20gb-6", large[0])
	assert.Equal(t, ofMode(mi300x[:1], "cpx", 8), large[4:12])
}

// TestTaintedMode: while something keeps a card from switching, the devices that
// need the switch are tainted, and claims go to the live mode or to other cards.
func TestTaintedMode(t *testing.T) {
	cards := cardsOf(t, builtIn(t, "mi300x8"))[:2]
	busy := []resourceapi.DeviceTaint{{Key: "gpu.tranche.dev/busy", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	cards[0].DeviceTaints = map[string][]resourceapi.DeviceTaint{}
	for _, p := range cards[0].Placements {
		if p.Profile != "qpx" {
			cards[0].DeviceTaints[p.Name()] = busy
		}
	}
	c := clusterOf(t, cards)
	assert.Equal(t, ofMode(cards[1:], "cpx", 8), c.fill(classOfMode("cpx")))
	assert.Equal(t, ofMode(cards[:1], "qpx", 4), c.fill(anyPartition))
	c.scheduler.ReleaseAll()
	assert.Equal(t, ofMode(cards[1:], "spx", 1), c.fill(wholeCard))

	cards[0].DeviceTaints = nil
	c.scheduler.Publish(slicesOf(t, cards))
	assert.Equal(t, ofMode(cards[:1], "cpx", 8), c.fill(classOfMode("cpx")))
}

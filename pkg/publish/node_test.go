package publish_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/models"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/share"
	"github.com/tranche-dev/tranche/test/allocator"
	"github.com/tranche-dev/tranche/test/nodes"
)

const node = "node-a"

// builtIn loads one of the inventories that come with the simulator.
func builtIn(t *testing.T, name string) *models.Inventory {
	t.Helper()
	inv, err := models.LoadInventory(name)
	require.NoError(t, err)
	return inv
}

// nvidiaMachines are the built-in inventories that have cards of NVIDIA's only.
func nvidiaMachines(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(models.InventoryNames(), func(name string) bool { return len(builtIn(t, name).AMD) > 0 })
}

// machineOf is an inventory of so many cards of one model, cut-ready.
func machineOf(t *testing.T, model string, count int) *models.Inventory {
	t.Helper()
	m, ok := models.NVIDIAModelByKey(model)
	require.True(t, ok, model)
	mode := "disabled"
	if m.HasMIG() {
		mode = "enabled"
	}
	inv, err := models.ParseInventory(fmt.Appendf(nil, "gpus: [{model: %s, count: %d, migMode: %s}]", model, count, mode))
	require.NoError(t, err)
	return inv
}

// cardsOf are the cards of a machine, of both vendors.
func cardsOf(t *testing.T, inv *models.Inventory) []publish.Card {
	t.Helper()
	var cards []publish.Card
	if len(inv.GPUs) > 0 {
		cards = append(cards, nvidiaCardsOf(t, inv)...)
	}
	if len(inv.AMD) > 0 {
		cards = append(cards, amdCards(t, amdDriver(t, inv))...)
	}
	slices.SortFunc(cards, func(a, b publish.Card) int { return cmp.Compare(a.Name(), b.Name()) })
	return cards
}

// withShares adds the share devices to cards, as the settings want them and on a
// node where MPS works, and says what the vendor's old resource means.
func withShares(t *testing.T, cards []publish.Card, c profile.Desired) []publish.Card {
	t.Helper()
	for i := range cards {
		devices, err := share.Devices(&cards[i].GPU, c, true)
		require.NoError(t, err)
		cards[i].Placements = append(slices.Clone(cards[i].Placements), devices...)
		cards[i].Legacy = c.Legacy.Means
	}
	return cards
}

// nvidiaCardsOf reads a simulated machine the way the node's plugin does:
// through NVML. It needs no privileges.
func nvidiaCardsOf(t *testing.T, inv *models.Inventory) []publish.Card {
	t.Helper()
	found, err := nodes.NVIDIACards(t.Context(), inv, node, t.TempDir())
	require.NoError(t, err)
	require.Len(t, found, len(inv.GPUs))
	cards := make([]publish.Card, len(found))
	for i := range found {
		cards[i].GPU = found[i]
	}
	return cards
}

// slicesOf are the API objects of a node with these cards.
func slicesOf(t *testing.T, cards []publish.Card) []*resourceapi.ResourceSlice {
	t.Helper()
	resources, errs := publish.Resources(node, cards)
	require.Empty(t, errs)
	return allocator.Slices(gpu.DriverName, node, resources)
}

// devicesOf are the devices of a card, in order, which are all in one slice.
func devicesOf(t *testing.T, slices []*resourceapi.ResourceSlice, card string) []resourceapi.Device {
	t.Helper()
	var devices []resourceapi.Device
	found := false
	for _, slice := range slices {
		if len(slice.Spec.Devices) > 0 && gpu.CardOfDevice(slice.Spec.Devices[0].Name) == card {
			require.False(t, found, "two slices of card %s", card)
			found = true
			devices = append(devices, slice.Spec.Devices...)
		}
	}
	require.True(t, found, "no slice of card %s", card)
	return devices
}

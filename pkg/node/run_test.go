package node

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRunPreparesAndReleases(t *testing.T) {
	m := newMachine(t, newAPI())
	k, stop := m.start()
	assert.Contains(t, k.services, "v1.DRAPlugin")
	c := allocate(t, m.api, "a", card0+"-mig-1g-10gb-4", card1)
	assert.Equal(t, []string{
		"gpu.tranche.dev/claim=" + card0 + "-mig-1g-10gb-4_a",
		"gpu.tranche.dev/claim=" + card1 + "_a",
	}, k.mustPrepare(c))
	assert.Equal(t, []string{card0 + "-mig-1g-10gb-4"}, m.partitions())
	require.Empty(t, k.unprepare(c))
	m.nothingHeld()
	stop()
}

package why_test

import (
	"testing"

	"github.com/tranche-dev/tranche/test/pending"
)

// TestDrawnShares: the whole answer, for people.
func TestDrawnShares(t *testing.T) {
	w := newWorld(t).Node("node-a", "H100-80GB", 1, pending.Sharing(true)).Node("node-b", "MI300X", 1, pending.Sharing(false))
	w.HoldShare("node-a", "serve", pending.Amounting(pending.MemoryShare, "memory", "70Gi")).Hold("node-b", "team-c", "all", "gpu-amd.tranche.dev", 1)
	w.Pod(pending.Amounting(pending.MemoryShare, "memory", "20Gi"))
	requireText(t, "share-no-room", w.Explain())
}

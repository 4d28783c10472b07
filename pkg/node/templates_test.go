package node

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish/models"
	"github.com/tranche-dev/tranche/pkg/publish/preview"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// A template is, byte for byte, what the plugin publishes on such a machine. Only what the
// API server adds, and the owner, are not in it.
func TestTemplatesAreWhatThePluginPublishes(t *testing.T) {
	resources := map[gpu.Vendor]string{gpu.NVIDIA: "nvidia.com/gpu", gpu.AMD: "amd.com/gpu"}
	inventories := models.InventoryNames()
	if testing.Short() {
		inventories = []string{"h100x2-mi300x2", "mixed"}
	}
	for _, name := range inventories {
		t.Run(name, func(t *testing.T) {
			inventory, err := models.LoadInventory(name)
			require.NoError(t, err)
			machine := newMPSMachine
			if os.Geteuid() != 0 { // whose MPS daemons could mount nothing
				machine, inventory.NoMPS = newMachine, true
			}
			m := machine(t, nodetest.NewAPI())
			m.simulated.Inventory, m.config.ExtendedResources = name, resources
			_, _ = m.start()
			want, err := preview.Slices(preview.Node{Name: nodetest.NodeName, Inventory: inventory, ExtendedResources: resources})
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(nodetest.SlicesOf(t, m.api, names.DriverName)) == len(want) },
				nodetest.Patience, nodetest.Tick, "not published")
			var published []resourceapi.ResourceSlice
			require.Eventually(t, func() bool {
				published = nodetest.SlicesOf(t, m.api, names.DriverName)
				return !slices.ContainsFunc(published, func(s resourceapi.ResourceSlice) bool {
					return slices.ContainsFunc(s.Spec.Devices, func(d resourceapi.Device) bool { return !untainted(d) && !gpu.IsMonitor(d.Name) })
				})
			}, nodetest.Patience, nodetest.Tick, "tainted")
			assert.Equal(t, specsOf(t, want), specsOf(t, published))
		})
	}
}

// specsOf writes slices in the order of their names, which is that of the pool.
func specsOf(t *testing.T, published []resourceapi.ResourceSlice) string {
	t.Helper()
	published = slices.Clone(published)
	slices.SortFunc(published, func(a, b resourceapi.ResourceSlice) int { return strings.Compare(a.GenerateName, b.GenerateName) })
	var all strings.Builder
	for _, s := range published {
		text, err := yaml.Marshal(s.Spec)
		require.NoError(t, err)
		all.WriteString(s.GenerateName + "\n" + string(text))
	}
	return all.String()
}

package switchover

import (
	"cmp"
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// differs compares what the API server has of a node's cards with what its plugin says
// that it publishes, and says what is not the same.
func (r *Reconciler) differs(ctx context.Context, node string, report *v1alpha1.NodeReport) (string, error) {
	var found resourceapi.ResourceSliceList
	// The API server can select slices by these two.
	err := r.Reader.List(ctx, &found, client.MatchingFields{
		resourceapi.ResourceSliceSelectorNodeName: node,
		resourceapi.ResourceSliceSelectorDriver:   gpu.DriverName,
	})
	if err != nil {
		return "", fmt.Errorf("list the ResourceSlices of node %s: %w", node, err)
	}
	digests := publish.Digests(found.Items)
	var texts []string
	for i := range report.Cards {
		card := &report.Cards[i]
		if card.Slice == "" {
			continue
		}
		if got := digests[gpu.PoolName(node, card.Name)]; got != card.Slice {
			texts = append(texts, fmt.Sprintf("the devices of %s in the API server are not those that the plugin publishes (digest %s, not %s)",
				card.Name, cmp.Or(got, "none"), card.Slice))
		}
	}
	return list(texts), nil
}

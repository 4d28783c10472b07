package switchover

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

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
	digests := digests(found.Items)
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

// digests are those of the devices of each pool, of its newest generation if that is
// complete. It is pure.
func digests(all []resourceapi.ResourceSlice) map[string]string {
	newest := map[string][]*resourceapi.ResourceSlice{}
	for i := range all {
		s := &all[i]
		if s.Spec.Driver != gpu.DriverName {
			continue
		}
		name := s.Spec.Pool.Name
		have := newest[name]
		switch {
		case len(have) == 0 || s.Spec.Pool.Generation > have[0].Spec.Pool.Generation:
			newest[name] = []*resourceapi.ResourceSlice{s}
		case s.Spec.Pool.Generation == have[0].Spec.Pool.Generation:
			newest[name] = append(have, s)
		}
	}
	out := map[string]string{}
	for name, pool := range newest {
		if int64(len(pool)) != pool[0].Spec.Pool.ResourceSliceCount {
			continue
		}
		slices.SortFunc(pool, func(a, b *resourceapi.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
		var devices []resourceapi.Device
		for _, s := range pool {
			devices = append(devices, s.Spec.Devices...)
		}
		out[name] = publish.Digest(devices)
	}
	return out
}

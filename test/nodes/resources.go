package nodes

import (
	"context"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
)

// Least returns what pods take at least of a node for a claim, with device classes as the chart's.
func Least(classes []*resourceapi.DeviceClass) func(context.Context, *resourceapi.ResourceClaim) noderesources.Amount {
	catalog := noderesources.NewCatalog()
	return func(ctx context.Context, claim *resourceapi.ResourceClaim) noderesources.Amount {
		return catalog.Least(ctx, &claim.Spec, func(name string) *resourceapi.DeviceClass {
			at := slices.IndexFunc(classes, func(class *resourceapi.DeviceClass) bool { return class.Name == name })
			if at < 0 {
				return nil
			}
			return classes[at]
		})
	}
}

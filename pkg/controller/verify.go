package controller

import (
	"cmp"
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/controller/drain"
	"github.com/tranche-dev/tranche/pkg/controller/state"
	"github.com/tranche-dev/tranche/pkg/publish"
	"github.com/tranche-dev/tranche/pkg/text"
)

// verify compares the ResourceSlices with the node's report after a change, and finds holders
// of devices that no longer exist.
func (r *Reconciler) verify(ctx context.Context, gpuNode *v1beta1.GPUNode, f *state.Facts) error {
	slices, err := r.slicesOf(ctx, gpuNode.Name)
	if err == nil {
		f.Differs = differs(gpuNode.Name, gpuNode.Status.Node, slices)
	}
	if sw, taints := gpuNode.Status.Switch, gpuNode.Status.Node.PublishedTaints; f.Differs == "" && gpuNode.Status.State == v1beta1.Verifying &&
		taints != nil && taints.SwitchID == sw.ID && taints.TaintGeneration < sw.TaintGeneration {
		f.Differs = "the plugin has not published the free devices again yet"
	}
	if err == nil && f.Differs == "" && gpuNode.Status.State != v1beta1.RollingBack {
		f.Holders, err = r.strays(ctx, gpuNode, slices)
	}
	if err != nil {
		f.Differs = err.Error()
	}
	return err
}

// strays returns holders of devices of changed GPUs that are no longer published: claims that were
// allocated at the last moment, or whose pod returned in spite of the taints. They cannot
// work.
func (r *Reconciler) strays(ctx context.Context, gpuNode *v1beta1.GPUNode, slices []resourceapi.ResourceSlice) ([]drain.Holder, error) {
	sw, report := gpuNode.Status.Switch, gpuNode.Status.Node
	if len(sw.GPUs) == 0 || sw.Withhold || report.PublishedTaints != nil && report.PublishedTaints.Withheld {
		// Devices of claims that are not prepared yet can be withheld: until the change is done
		// or, where the API server drops device taints, to the end of the switch.
		return nil, nil
	}
	there := map[string]bool{}
	for i := range slices {
		for j := range slices[i].Spec.Devices {
			there[slices[i].Spec.Devices[j].Name] = true
		}
	}
	return r.drainer.On(gpuNode.Name).Holders(ctx, sw.GPUs, there)
}

// slicesOf lists the ResourceSlices that our driver publishes for a node.
func (r *Reconciler) slicesOf(ctx context.Context, node string) ([]resourceapi.ResourceSlice, error) {
	var found resourceapi.ResourceSliceList
	err := r.Reader.List(ctx, &found, client.MatchingFields{
		resourceapi.ResourceSliceSelectorNodeName: node,
		resourceapi.ResourceSliceSelectorDriver:   names.DriverName,
	})
	if err != nil {
		return nil, fmt.Errorf("list the ResourceSlices of node %s: %w", node, err)
	}
	return found.Items, nil
}

// differs compares the ResourceSlices of a node with the digests that its plugin reports, and
// says what differs.
func differs(node string, report *v1beta1.NodeReport, slices []resourceapi.ResourceSlice) string {
	digests := publish.DigestsOf(node, slices)
	var texts []string
	for i := range report.GPUs {
		g := &report.GPUs[i]
		if g.SliceHash == "" {
			continue
		}
		if got := digests.Of(g.Name); got != g.SliceHash {
			texts = append(texts, fmt.Sprintf("the devices of %s in the API server are not those that the plugin publishes (digest %s, not %s)",
				g.Name, cmp.Or(got, "none"), g.SliceHash))
		}
	}
	return text.List(texts, mostNamed)
}

package gpurequests

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/allocation"
	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
)

// vendorOf has the chart's classes for nvidia.com/gpu and amd.com/gpu.
var vendorOf = map[string]gpu.Vendor{
	"gpu-extended-nvidia.tranche.dev": gpu.NVIDIA, "gpu-extended-amd.tranche.dev": gpu.AMD,
}

// ofExtendedResources returns the amounts for extended resources: the least of all classes with the
// same resource. One that a device plugin serves on any node has none: its pods can run there, where
// no node has GPU memory and compute. Nor has one of which profiles decide what it is, unless those of
// all nodes say that it is a whole GPU.
func (r *Reconciler) ofExtendedResources(ctx context.Context, classes []resourceapi.DeviceClass) (map[string]v1beta1.GPUResources, error) {
	var nodes corev1.NodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	served := map[corev1.ResourceName]bool{}
	for i := range nodes.Items {
		for _, name := range servedResources(&nodes.Items[i]) {
			served[name] = true
		}
	}
	var followed v1beta1.GPUNodeList
	if err := r.Client.List(ctx, &followed, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the GPUNodes: %w", err)
	}
	rules, known := rulesOf(followed.Items)
	least := map[string]noderesources.Amount{}
	var inOrder []string
	classes = slices.SortedFunc(slices.Values(classes), func(a, b resourceapi.DeviceClass) int { return strings.Compare(a.Name, b.Name) })
	for i := range classes {
		amount := r.Catalog.LeastOfClass(ctx, &classes[i])
		if vendor, ok := vendorOf[classes[i].Name]; ok && known && !slices.ContainsFunc(rules, givesPartOf(vendor)) {
			amount = noderesources.WholeGPU
		}
		for _, name := range allocation.ExtendedResources(&classes[i]) {
			other, ok := least[name]
			if !ok {
				inOrder, other = append(inOrder, name), amount
			}
			least[name] = amount.Least(other)
		}
	}
	out := map[string]v1beta1.GPUResources{}
	for _, name := range inOrder {
		if !served[corev1.ResourceName(name)] && len(out) < v1beta1.MaxMappedResources {
			put(out, name, least[name])
		}
	}
	return out, ctx.Err()
}

// rulesOf returns the rules that nodes have applied or are about to. They are not known if a node has
// some of another version.
func rulesOf(nodes []v1beta1.GPUNode) (all []v1beta1.Rule, known bool) {
	type stored struct{ version, hash string }
	seen := map[stored]bool{}
	for i := range nodes {
		for _, s := range []*v1beta1.ProfileSnapshot{nodes[i].Status.Applied, nodes[i].Status.Desired} {
			if s == nil || seen[stored{s.RulesVersion, s.Hash}] {
				continue
			}
			seen[stored{s.RulesVersion, s.Hash}] = true
			rules, err := profile.StoredRules(s)
			if err != nil {
				return nil, false
			}
			all = append(all, rules...)
		}
	}
	return all, true
}

// givesPartOf returns whether the vendor's extended resource may be less than a GPU by a rule.
func givesPartOf(vendor gpu.Vendor) func(v1beta1.Rule) bool {
	return func(rule v1beta1.Rule) bool {
		return rule.ExtendedResource != nil && rule.ExtendedResource.Device != v1beta1.DeviceGPU &&
			(rule.GPUs == nil || rule.GPUs.Vendor == "" || rule.GPUs.Vendor == string(vendor))
	}
}

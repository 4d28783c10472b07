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
	"github.com/tranche-dev/tranche/pkg/profile"
	"github.com/tranche-dev/tranche/pkg/publish/noderesources"
)

// vendorClasses are the chart's classes for nvidia.com/gpu and amd.com/gpu.
var vendorClasses = []string{"gpu-extended-nvidia.tranche.dev", "gpu-extended-amd.tranche.dev"}

// ofExtendedResources returns the amounts for extended resources. A resource that a device plugin
// serves on any node has none: its pods can run there, where no node has GPU memory and compute. Nor
// has one of which profiles decide what it is, unless all say that it is a whole GPU.
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
	whole, err := r.onlyWholeGPUs(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]v1beta1.GPUResources{}
	inOrder := slices.SortedFunc(slices.Values(classes), func(a, b resourceapi.DeviceClass) int { return strings.Compare(a.Name, b.Name) })
	for i := range inOrder {
		amount := r.Catalog.LeastOfClass(ctx, &inOrder[i])
		if whole && slices.Contains(vendorClasses, inOrder[i].Name) {
			amount = noderesources.WholeGPU
		}
		for _, name := range resourcesOf(&inOrder[i]) {
			if !served[corev1.ResourceName(name)] && len(out) < v1beta1.MaxMappedResources {
				put(out, name, amount)
			}
		}
	}
	return out, ctx.Err()
}

// resourcesOf returns the extended resources that devices of a class serve.
func resourcesOf(class *resourceapi.DeviceClass) []string {
	all := []string{resourceapi.ResourceDeviceClassPrefix + class.Name}
	if name := class.Spec.ExtendedResourceName; name != nil {
		all = append(all, *name)
	}
	return all
}

// onlyWholeGPUs reports whether nvidia.com/gpu and amd.com/gpu are whole GPUs by all profiles, and by
// what nodes have applied, which can be an earlier version of a profile.
func (r *Reconciler) onlyWholeGPUs(ctx context.Context) (bool, error) {
	var profiles v1beta1.PartitionProfileList
	if err := r.Client.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the PartitionProfiles: %w", err)
	}
	for i := range profiles.Items {
		if slices.ContainsFunc(profiles.Items[i].Spec.Rules, givesPartOfGPU) {
			return false, nil
		}
	}
	var nodes v1beta1.GPUNodeList
	if err := r.Client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list the GPUNodes: %w", err)
	}
	seen := map[string]bool{}
	for i := range nodes.Items {
		applied := nodes.Items[i].Status.Applied
		if applied == nil || seen[applied.Hash] {
			continue
		}
		seen[applied.Hash] = true
		rules, err := profile.StoredRules(applied)
		if err != nil || slices.ContainsFunc(rules, givesPartOfGPU) {
			return false, nil //nolint:nilerr // rules of another version can mean anything
		}
	}
	return true, nil
}

// givesPartOfGPU reports whether a vendor's extended resource may be less than a GPU by a rule.
func givesPartOfGPU(rule v1beta1.Rule) bool {
	return rule.ExtendedResource != nil && rule.ExtendedResource.Device != v1beta1.DeviceGPU
}

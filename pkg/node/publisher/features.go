package publisher

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/node/inventory"
)

// features says which fields the cluster's API server keeps. A server silently drops fields
// whose feature gate is off, and partitions without counters would be allocated twice.
type features struct {
	// partitionable: it keeps counters (DRAPartitionableDevices).
	partitionable bool
	// consumable: it keeps devices that several claims can hold (DRAConsumableCapacity).
	consumable bool
	// taints: it keeps device taints (DRADeviceTaints).
	taints bool
}

// DetectFeatures finds out which fields the API server keeps. Devices that need the others
// are not published from then on.
func (p *Publisher) DetectFeatures(ctx context.Context) error {
	kept, err := keptFeatures(ctx, p.Client, p.Node)
	if err != nil {
		return err
	}
	if !kept.partitionable {
		p.restrict(ctx)
	}
	if !kept.consumable {
		p.restrictShares(ctx)
	}
	if !kept.taints {
		p.restrictTaints(ctx)
	}
	return nil
}

// keptFeatures asks the API server with dry runs, before anything is published. Otherwise
// partitions without counters could be allocated for a moment, or a share as a whole GPU.
func keptFeatures(ctx context.Context, client kubernetes.Interface, node string) (features, error) {
	ctx, cancel := context.WithTimeout(ctx, inventory.SyncTimeout)
	defer cancel()
	counters, err := dryRun(ctx, client, node, resourceapi.ResourceSliceSpec{SharedCounters: []resourceapi.CounterSet{{
		Name:     "probe",
		Counters: map[string]resourceapi.Counter{"probe": {Value: resource.MustParse("1")}},
	}}})
	if err != nil {
		return features{}, err
	}
	devices, err := dryRun(ctx, client, node, resourceapi.ResourceSliceSpec{Devices: []resourceapi.Device{{
		Name:                     "probe",
		AllowMultipleAllocations: ptr.To(true),
		Capacity:                 map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{"probe": {Value: resource.MustParse("1")}},
		Taints:                   []resourceapi.DeviceTaint{{Key: names.TaintSwitching, Effect: resourceapi.DeviceTaintEffectNoSchedule}},
	}}})
	if err != nil {
		return features{}, err
	}
	return features{
		partitionable: len(counters.SharedCounters) == 1,
		consumable:    len(devices.Devices) == 1 && ptr.Deref(devices.Devices[0].AllowMultipleAllocations, false),
		taints:        len(devices.Devices) == 1 && len(devices.Devices[0].Taints) == 1,
	}, nil
}

// dryRun returns the fields of a slice that the API server would keep.
func dryRun(ctx context.Context, client kubernetes.Interface, node string, spec resourceapi.ResourceSliceSpec) (resourceapi.ResourceSliceSpec, error) {
	spec.Driver, spec.NodeName = names.DriverName, ptr.To(node)
	spec.Pool = resourceapi.ResourcePool{Name: names.PoolName(node), ResourceSliceCount: 1}
	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: names.DriverName + "-probe-"}, Spec: spec}
	kept, err := client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return resourceapi.ResourceSliceSpec{}, fmt.Errorf("ask the API server, with a dry run, which fields of a ResourceSlice it keeps: %w", err)
	}
	return kept.Spec, nil
}

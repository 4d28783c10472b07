package node

import (
	"context"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// features is what the cluster's API server keeps of what we publish. A server
// drops fields whose feature gate is off without a word, and partitions whose
// counters were dropped would be given out twice.
type features struct {
	// partitionable is true when counters are kept (DRAPartitionableDevices).
	partitionable bool
}

// detectFeatures asks the API server with a dry run, before anything is
// published: there must be no moment at which partitions without counters can
// be allocated.
func detectFeatures(ctx context.Context, client kubernetes.Interface, node string) (features, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	probe := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: gpu.DriverName + "-probe-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver:   gpu.DriverName,
			NodeName: ptr.To(node),
			Pool:     resourceapi.ResourcePool{Name: gpu.PoolName(node, "probe"), ResourceSliceCount: 1},
			SharedCounters: []resourceapi.CounterSet{{
				Name:     "probe",
				Counters: map[string]resourceapi.Counter{"probe": {Value: resource.MustParse("1")}},
			}},
		},
	}
	kept, err := client.ResourceV1().ResourceSlices().Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return features{}, fmt.Errorf("ask the API server, with a dry run, which fields of a ResourceSlice it keeps: %w", err)
	}
	return features{partitionable: len(kept.Spec.SharedCounters) == 1}, nil
}

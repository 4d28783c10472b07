package live

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tranche-dev/tranche/api/v1alpha1"
	"github.com/tranche-dev/tranche/pkg/cluster"
)

// Put adds or replaces an object, as if it had been read.
func (s *Store) Put(o any) error {
	switch o := o.(type) {
	case *resourceapi.ResourceSlice:
		return s.slices.Update(o)
	case *resourceapi.ResourceClaim:
		return s.claims.Update(o)
	case *resourceapi.DeviceClass:
		return s.classes.Update(o)
	case *resourceapi.DeviceTaintRule:
		return s.rules.Update(o)
	case *corev1.Node:
		return s.nodes.Update(o)
	case *v1alpha1.GPUNode:
		return s.gpuNodes.Update(o)
	case *v1alpha1.PartitionPlan:
		return s.plans.Update(o)
	case *corev1.Pod:
		return s.pods.Update(o)
	}
	return fmt.Errorf("the page shows no %T", o)
}

// Load puts all objects.
func (s *Store) Load(o cluster.Objects, plans ...v1alpha1.PartitionPlan) error {
	return errors.Join(putAll(s, o.Slices), putAll(s, o.Claims), putAll(s, o.Classes), putAll(s, o.Rules),
		putAll(s, o.Nodes), putAll(s, o.GPUNodes), putAll(s, o.PendingPods), putAll(s, plans))
}

func putAll[T any](s *Store, all []T) error {
	for i := range all {
		if err := s.Put(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

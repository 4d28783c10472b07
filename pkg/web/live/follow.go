package live

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
)

// followed is a kind and where its objects are kept.
type followed struct {
	read.Kind
	store cache.ReflectorStore
}

func (s *Store) kinds() []followed {
	return []followed{
		{read.Slices, s.slices}, {read.Claims, s.claims}, {read.Pods, s.pods}, {read.Classes, s.classes},
		{read.Rules, s.rules}, {read.Nodes, s.nodes}, {read.GPUNodes, s.gpuNodes}, {read.Plans, s.plans},
	}
}

// Follow keeps the store up to date until ctx ends. The namespace, if any, is read of kinds that may
// not be read in all.
func (s *Store) Follow(ctx context.Context, from read.Source, namespace string) {
	s.mu.Lock()
	for _, k := range s.kinds() {
		s.expected[k.Resource] = true
	}
	s.mu.Unlock()
	var running sync.WaitGroup
	for _, k := range s.kinds() {
		running.Go(func() { read.Follow(ctx, from, k.Kind, namespace, k.store, s.note) })
	}
	running.Go(func() { s.Run(ctx) })
	running.Wait()
}

// Put adds or replaces an object, as if it had been read.
func (s *Store) Put(o runtime.Object) error {
	all := s.kinds()
	i := slices.IndexFunc(all, func(k followed) bool { return reflect.TypeOf(k.Example) == reflect.TypeOf(o) })
	if i < 0 {
		return fmt.Errorf("the page shows no %T", o)
	}
	return all[i].store.Update(o)
}

// Load puts all objects.
func (s *Store) Load(o cluster.Objects, plans ...v1beta1.PartitionPlan) error {
	return errors.Join(putAll(s, o.Slices), putAll(s, o.Claims), putAll(s, o.Classes), putAll(s, o.Rules),
		putAll(s, o.Nodes), putAll(s, o.GPUNodes), putAll(s, o.PendingPods), putAll(s, plans))
}

func putAll[T any, P interface {
	*T
	runtime.Object
}](s *Store, all []T) error {
	for i := range all {
		if err := s.Put(P(&all[i])); err != nil {
			return err
		}
	}
	return nil
}

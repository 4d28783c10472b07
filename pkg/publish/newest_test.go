package publish

import (
	"testing"

	"github.com/stretchr/testify/assert"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of a pool, the newest generation counts, in whatever order its slices are listed.
func TestNewest(t *testing.T) {
	slice := func(name, driver, pool string, generation int64) resourceapi.ResourceSlice {
		return resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, Pool: resourceapi.ResourcePool{Name: pool, Generation: generation},
		}}
	}
	names := map[PoolID][]string{}
	for id, all := range Newest([]resourceapi.ResourceSlice{
		slice("older", "a", "p", 1), slice("y", "a", "p", 2), slice("x", "a", "p", 2), slice("outdated", "a", "p", 1),
		slice("z", "b", "p", 1), slice("only", "a", "q", 7),
	}) {
		for _, s := range all {
			names[id] = append(names[id], s.Name)
		}
	}
	assert.Equal(t, map[PoolID][]string{{"a", "p"}: {"x", "y"}, {"b", "p"}: {"z"}, {"a", "q"}: {"only"}}, names)
	assert.Empty(t, Newest(nil))
}

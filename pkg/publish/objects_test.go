package publish_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/pkg/publish"
)

// TestObjects: they are what the controller that every DRA plugin publishes
// with writes, but for what only the API server knows.
func TestObjects(t *testing.T) {
	gpus := gpusOf(t, builtIn(t, "mixed"))
	resources, errs := publish.Resources(node, gpus)
	require.Empty(t, errs)
	objects := publish.Objects(names.DriverName, node, resources)

	server := newAPIServer()
	server.run(t, gpus, int64(len(objects)))
	list, err := server.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	type key struct{ pool, prefix string }
	stored := map[key]string{}
	for _, slice := range list.Items {
		require.Len(t, slice.OwnerReferences, 1)
		slice.OwnerReferences[0].UID = ""
		stored[key{slice.Spec.Pool.Name, slice.GenerateName}] = asJSON(t, slice.OwnerReferences, slice.Spec)
	}
	ours, names := map[key]string{}, map[string]bool{}
	for _, slice := range objects {
		assert.Contains(t, slice.Name, slice.GenerateName)
		assert.False(t, names[slice.Name], "two slices named %s", slice.Name)
		names[slice.Name] = true
		assert.Equal(t, metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"}, slice.TypeMeta)
		ours[key{slice.Spec.Pool.Name, slice.GenerateName}] = asJSON(t, slice.OwnerReferences, slice.Spec)
	}
	assert.Len(t, ours, len(objects))
	assert.Equal(t, stored, ours)
}

// asJSON is what counts: quantities remember how they were made.
func asJSON(t *testing.T, parts ...any) string {
	t.Helper()
	data, err := json.Marshal(parts)
	require.NoError(t, err)
	return string(data)
}

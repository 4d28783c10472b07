package v1beta1_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/test/filled"
	"github.com/tranche-dev/tranche/test/golden"
)

// What etcd has of each kind: every field, as it is stored now. The programs read it, and the definition
// drops none of it. A golden file that loses a key, or changes a type, breaks objects of users: see
// api/deprecation.md.
func TestStoredObjects(t *testing.T) {
	for plural, object := range map[string]runtime.Object{
		"gpunodes":          &v1beta1.GPUNode{},
		"gpuresourcemaps":   &v1beta1.GPUResourceMap{},
		"partitionplans":    &v1beta1.PartitionPlan{},
		"partitionprofiles": &v1beta1.PartitionProfile{},
	} {
		t.Run(plural, func(t *testing.T) {
			crd := readCRD(t, plural)
			storage := 0
			for _, version := range crd.Spec.Versions {
				if version.Storage {
					storage++
					assert.Equal(t, v1beta1.GroupVersion.Version, version.Name, "who stores another version serves it one minor version earlier, and converts what is stored")
				}
				assert.True(t, version.Served, version.Name)
				assert.False(t, version.Deprecated, version.Name)
			}
			assert.Equal(t, 1, storage, "stored versions")

			filled.Value(object)
			object.GetObjectKind().SetGroupVersionKind(v1beta1.GroupVersion.WithKind(crd.Spec.Names.Kind))
			meta, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
			require.NoError(t, err)
			meta["metadata"] = map[string]any{"name": "name"}
			data, err := json.Marshal(meta)
			require.NoError(t, err)
			golden.JSON(t, "testdata/"+strings.ToLower(crd.Spec.Names.Kind)+".json", data)

			assert.Empty(t, pruning.PruneWithOptions(meta, load(t, plural).structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}))
			again := object.DeepCopyObject()
			require.NoError(t, json.Unmarshal(data, again))
			read, err := runtime.DefaultUnstructuredConverter.ToUnstructured(again)
			require.NoError(t, err)
			read["metadata"] = meta["metadata"]
			assert.Equal(t, meta, read)
		})
	}
}

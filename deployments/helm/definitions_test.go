package helm_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/api/v1beta1"
)

const keep = "helm.sh/resource-policy"

// The definitions of the chart are those that were generated, with the chart's
// labels, and stay when the release goes.
func TestDefinitions(t *testing.T) {
	found := all[*apiextensionsv1.CustomResourceDefinition](decode(t, render(t, chart)))
	files, err := filepath.Glob(chart + "/files/crds/*.yaml")
	require.NoError(t, err)
	require.Len(t, found, len(files))
	require.Len(t, found, 4)
	for i, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var generated apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.UnmarshalStrict(content, &generated))
		assert.Equal(t, generated.Spec, found[i].Spec)
		assert.Equal(t, generated.Name, found[i].Name)
		assert.Equal(t, "Helm", found[i].Labels["app.kubernetes.io/managed-by"])
		assert.Equal(t, "keep", found[i].Annotations[keep])
		assert.NotEmpty(t, found[i].Annotations["controller-gen.kubebuilder.io/version"])
		assert.Equal(t, v1beta1.GroupVersion.Group, found[i].Spec.Group)
	}
}

func TestDefinitionsOnRequest(t *testing.T) {
	for _, crd := range all[*apiextensionsv1.CustomResourceDefinition](decode(t, render(t, chart, "--set", "crds.keep=false"))) {
		assert.NotContains(t, crd.Annotations, keep)
	}
	assert.Empty(t, all[*apiextensionsv1.CustomResourceDefinition](decode(t, render(t, chart, "--set", "crds.enabled=false"))))
}

package gitops

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	helmv2 "github.com/fluxcd/helm-controller/api/v2"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"
)

// argoCD is the version whose definitions count.
const argoCD = "github.com/argoproj/argo-cd/v3@v3.5.7"

// documents are the objects of a manifest, as JSON by kind.
func documents(t *testing.T, file string) map[string][]byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("../../deployments/gitops", file))
	require.NoError(t, err)
	found := map[string][]byte{}
	for _, document := range strings.Split(string(content), "\n---\n") {
		data, err := yaml.YAMLToJSONStrict([]byte(document))
		require.NoError(t, err)
		var kind struct{ Kind string }
		require.NoError(t, json.Unmarshal(data, &kind))
		found[kind.Kind] = data
	}
	return found
}

func TestFlux(t *testing.T) {
	in := documents(t, "flux.yaml")
	require.Len(t, in, 3)
	var release helmv2.HelmRelease
	require.NoError(t, yaml.UnmarshalStrict(in["HelmRelease"], &release))
	require.Equal(t, helmv2.GroupVersion.String(), release.APIVersion)
	require.Equal(t, "tranche", release.GetReleaseName())
	require.Equal(t, "tranche-system", release.GetReleaseNamespace())
	require.False(t, release.GetUninstall().DisableHooks)

	var source sourcev1.OCIRepository
	require.NoError(t, yaml.UnmarshalStrict(in["OCIRepository"], &source))
	require.Equal(t, sourcev1.GroupVersion.String(), source.APIVersion)
	require.Equal(t, source.Name, release.Spec.ChartRef.Name)
	require.Equal(t, sourcev1.OCIRepositoryKind, release.Spec.ChartRef.Kind)
	require.Equal(t, source.Namespace, release.Namespace)
	require.Equal(t, sourcev1.OCILayerCopy, source.GetLayerOperation())

	var namespace corev1.Namespace
	require.NoError(t, yaml.UnmarshalStrict(in["Namespace"], &namespace))
	require.Equal(t, release.Namespace, namespace.Name)
}

func TestArgoCD(t *testing.T) {
	document := documents(t, "argocd.yaml")["Application"]
	schema := schemaOf(t, filepath.Join(moduleDir(t, argoCD), "manifests/crds/application-crd.yaml"), "v1alpha1")
	var object map[string]any
	require.NoError(t, json.Unmarshal(document, &object))
	validator, _, err := validation.NewSchemaValidator(schema)
	require.NoError(t, err)
	require.Empty(t, validation.ValidateCustomResource(nil, object, validator))
	structural, err := structuralschema.NewStructural(schema)
	require.NoError(t, err)
	unknown := pruning.PruneWithOptions(object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	require.Empty(t, unknown, "fields that Argo CD does not know")
}

// moduleDir is where the Go command keeps a module.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	require.NoError(t, err, "%s", out)
	var info struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &info))
	return info.Dir
}

// schemaOf is the schema of a version of a CustomResourceDefinition.
func schemaOf(t *testing.T, file, version string) *apiextensions.JSONSchemaProps {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var definition apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict(content, &definition))
	for _, v := range definition.Spec.Versions {
		if v.Name == version {
			var schema apiextensions.JSONSchemaProps
			require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, &schema, nil))
			return &schema
		}
	}
	t.Fatalf("%s has no version %s", file, version)
	return nil
}

package karpenter

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"testing"

	awsapis "github.com/aws/karpenter-provider-aws/pkg/apis"
	"github.com/awslabs/operatorpkg/object"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/karpenter/pkg/apis"
	karpenter "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/apis/v1alpha1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/nodeclaim/lifecycle"
	static "sigs.k8s.io/karpenter/pkg/controllers/static/provisioning"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	"sigs.k8s.io/yaml"
)

// eks has what a user of EKS has: NodePools and a Deployment that requests nvidia.com/gpu.
const eks = "../../../demo/migrate/eks"

func manifest(t *testing.T, file string, into any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(eks, file))
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(data, into), file)
}

// The definitions of Karpenter and of its provider for AWS accept the manifests.
func TestManifestsOfEKS(t *testing.T) {
	for file, crd := range map[string][]byte{
		"nodeclass.yaml": awsapis.EC2NodeClassCRD, "nodepool.yaml": apis.NodePoolCRD, "static.yaml": apis.NodePoolCRD, "nodeoverlay.yaml": apis.NodeOverlayCRD,
	} {
		data, err := os.ReadFile(filepath.Join(eks, "karpenter", file))
		require.NoError(t, err)
		data, err = yaml.YAMLToJSONStrict(data)
		require.NoError(t, err)
		var document map[string]any
		require.NoError(t, json.Unmarshal(data, &document), "with whole numbers")
		definition := object.Unmarshal[apiextensionsv1.CustomResourceDefinition](crd)
		require.Equal(t, definition.Spec.Group+"/"+definition.Spec.Versions[0].Name, document["apiVersion"], file)
		require.Equal(t, definition.Spec.Names.Kind, document["kind"], file)
		schema := &apiextensions.JSONSchemaProps{}
		require.NoError(t, apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, schema, nil))
		structural, err := structuralschema.NewStructural(schema)
		require.NoError(t, err)
		unknown := pruning.PruneWithOptions(document, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
		require.Empty(t, unknown, "%s: unknown fields", file)
		defaulting.Default(document, structural)
		validator, _, err := validation.NewSchemaValidator(schema)
		require.NoError(t, err)
		require.Empty(t, validation.ValidateCustomResource(nil, document, validator), file)
		broken, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).Validate(t.Context(), nil, structural, document, nil, celconfig.RuntimeCELCostBudget)
		require.Empty(t, broken, file)
	}
	for _, file := range []string{"nodepool.yaml", "static.yaml"} {
		assert.NoError(t, pool(t, file).RuntimeValidate(t.Context()), file)
	}
	assert.NoError(t, nodeOverlay(t).RuntimeValidate(t.Context()))
}

func pool(t *testing.T, file string) *karpenter.NodePool {
	t.Helper()
	p := &karpenter.NodePool{}
	manifest(t, filepath.Join("karpenter", file), p)
	assert.Equal(t, karpenter.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "demo-gpu"}, *p.Spec.Template.Spec.NodeClassRef)
	return p
}

func nodeOverlay(t *testing.T) *v1alpha1.NodeOverlay {
	t.Helper()
	o := &v1alpha1.NodeOverlay{}
	manifest(t, "karpenter/nodeoverlay.yaml", o)
	return o
}

// ec2 has instance types as AWS's provider returns them: GPUs are nvidia.com/gpu, and of our
// devices it knows nothing.
func ec2(t *testing.T) (all []*cloudprovider.InstanceType) {
	t.Helper()
	for i, it := range []struct {
		name string
		gpus int64
	}{{"m7i.48xlarge", 0}, {"g5.48xlarge", 8}, {"p4d.24xlarge", 8}} {
		offered := machine(it.name, float64(i+1))
		if it.gpus > 0 {
			offered.Capacity["nvidia.com/gpu"] = *resource.NewQuantity(it.gpus, resource.DecimalSI)
		}
		all = append(all, offered)
	}
	return all
}

// deployment makes waiting pods of the user's Deployment, which requests seven nvidia.com/gpu.
func (c *cluster) deployment(replicas int) {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(eks, "eks.yaml"))
	require.NoError(c.t, err)
	d := &appsv1.Deployment{}
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		require.NoError(c.t, yaml.Unmarshal(document, d))
	}
	gpus := d.Spec.Template.Spec.Containers[0].Resources.Limits["nvidia.com/gpu"]
	require.EqualValues(c.t, 7, gpus.Value())
	// The API server copies limits to requests.
	d.Spec.Template.Spec.Containers[0].Resources.Requests = d.Spec.Template.Spec.Containers[0].Resources.Limits
	for range replicas {
		c.waits(*d.Spec.Template.Spec.DeepCopy())
	}
}

// Pods with nvidia.com/gpu get nodes from a NodePool: for each eight GPUs, or as many partitions
// as a NodeOverlay says.
func TestNodePoolOfEKS(t *testing.T) {
	for _, test := range []struct {
		name           string
		overlay        bool
		replicas, want int
	}{
		{"a pod", false, 1, 1},
		{"EC2 says eight, so a node has room for one pod", false, 3, 3},
		{"a node has room for eight pods", true, 8, 1},
		{"one pod more", true, 9, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := start(t, ec2(t), []*karpenter.NodePool{pool(t, "nodepool.yaml")}, "--feature-gates=NodeOverlay=true")
			if test.overlay {
				c.overlay(nodeOverlay(t))
			}
			c.deployment(test.replicas)
			results := c.schedule()
			require.Empty(t, results.PodErrors)
			require.Len(t, results.NewNodeClaims, test.want)
			for _, n := range results.NewNodeClaims {
				claim := n.ToNodeClaim()
				assert.Equal(t, []string{"p4d.24xlarge"}, modelsOf(results)[:1])
				assert.Equal(t, "all-1g.5gb", claim.Labels["nvidia.com/mig.config"])
				// No driver of DRA puts nvidia.com/gpu into the status of a node. So the node is never
				// initialized, and removed by nobody but who deletes it or by expireAfter.
				missing, ok := lifecycle.RequestedResourcesRegistered(ready(), claim)
				assert.False(t, ok)
				assert.EqualValues(t, "nvidia.com/gpu", missing)
			}
		})
	}
}

// ready is a node after Tranche has published its devices, without startup taint.
func ready() *corev1.Node {
	allocatable := capacity()
	maps.Copy(allocatable, corev1.ResourceList{"tranche.dev/gpu-compute": resource.MustParse("8k"), "tranche.dev/gpu-memory": resource.MustParse("320Gi")})
	return &corev1.Node{Status: corev1.NodeStatus{Allocatable: allocatable}}
}

// A node that is not initialized stays, also without pods.
func TestUninitializedNodesStay(t *testing.T) {
	c := newCluster(t, []string{"cpu"})
	c.node("cpu", "node-a")
	require.NoError(t, c.state.DeepCopyNodes()[0].ValidateNodeDisruptable(clock.RealClock{}))
	node := &corev1.Node{}
	require.NoError(t, c.api.Get(c.ctx, client.ObjectKey{Name: "node-a"}, node))
	delete(node.Labels, karpenter.NodeInitializedLabelKey)
	require.NoError(t, c.state.UpdateNode(c.ctx, node))
	assert.ErrorContains(t, c.state.DeepCopyNodes()[0].ValidateNodeDisruptable(clock.RealClock{}), "node isn't initialized")
}

// A static NodePool has its nodes without any pod, they are initialized, and pods add none.
func TestStaticNodePoolOfEKS(t *testing.T) {
	p := pool(t, "static.yaml")
	c := start(t, ec2(t), []*karpenter.NodePool{p}, "--feature-gates=StaticCapacity=true")
	controller := static.NewController(c.api, c.state, silent{}, c.provider, c.prov, clock.RealClock{}, c.devices, virtualpods.NewVirtualPodCache(c.api))
	_, err := controller.Reconcile(c.ctx, p)
	require.NoError(t, err)
	claims := &karpenter.NodeClaimList{}
	require.NoError(t, c.api.List(c.ctx, claims))
	require.Len(t, claims.Items, 1)
	claim := &claims.Items[0]
	assert.Equal(t, "all-1g.5gb", claim.Labels["nvidia.com/mig.config"])
	assert.Equal(t, p.Name, claim.Labels[karpenter.NodePoolLabelKey])
	assert.Contains(t, claim.Spec.Requirements, p.Spec.Template.Spec.Requirements[2])

	node := ready()
	_, ok := lifecycle.RequestedResourcesRegistered(node, claim)
	assert.True(t, ok)
	_, ok = lifecycle.StartupTaintsRemoved(node, claim)
	assert.True(t, ok)
	node.Spec.Taints = p.Spec.Template.Spec.StartupTaints
	_, ok = lifecycle.StartupTaintsRemoved(node, claim)
	assert.False(t, ok, "its devices are not published yet")

	c.deployment(2)
	assert.Empty(t, c.schedule().NewNodeClaims)
}

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/pkg/gpu"
)

// The plugin of one node may write the slices of that node and of our driver,
// and nothing else. What is allowed is only tried, because the plugin at work
// would undo it.
func TestAdmissionPolicyKeepsAPluginToItsNode(t *testing.T) {
	s := start(t)
	pod := s.plugin(nodeA)
	slices := s.slicesAs(&authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID})

	const refused = "tranche-kubelet-plugin on node 'node-a' may write only ResourceSlices of that node, and this one is of node 'node-b'"
	s.requireWrites(slices, nodeB, func(err error) {
		require.Error(t, err)
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.ErrorContains(t, err, refused)
	})
	s.requireWrites(slices, nodeA, func(err error) { require.NoError(t, err) })

	_, err := slices.Create(s.ctx, newSlice(nodeA, "other.example.com"), dryCreate)
	require.ErrorContains(t, err, "may write only ResourceSlices of driver gpu.tranche.dev")
}

// A token that names no node, which anybody has who may ask for tokens of the
// ServiceAccount, is good for nothing.
func TestAdmissionPolicyRefusesATokenWithoutANode(t *testing.T) {
	s := start(t)
	slices := s.slicesAs(nil)
	s.requireWrites(slices, nodeA, func(err error) {
		require.Error(t, err)
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.ErrorContains(t, err, "the token names no node")
	})
}

var dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// requireWrites tries to create, update and delete a slice of a node.
func (s *suite) requireWrites(slices resourceclient.ResourceSliceInterface, node string, check func(error)) {
	s.t.Helper()
	_, err := slices.Create(s.ctx, newSlice(node, gpu.DriverName), dryCreate)
	check(err)
	existing := s.slices(node)[0]
	existing.Labels = map[string]string{"example.com/touched": "yes"}
	_, err = slices.Update(s.ctx, &existing, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	check(err)
	check(slices.Delete(s.ctx, existing.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
}

// slicesAs is the API of slices for who holds a token of the plugin's
// ServiceAccount that is bound to an object.
func (s *suite) slicesAs(bound *authenticationv1.BoundObjectReference) resourceclient.ResourceSliceInterface {
	s.t.Helper()
	account := s.plugin(nodeA).Spec.ServiceAccountName
	token, err := s.client.CoreV1().ServiceAccounts(pluginNamespace).CreateToken(s.ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound, ExpirationSeconds: ptr.To[int64](600)},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	require.NoError(s.t, err)
	return client.ResourceV1().ResourceSlices()
}

// newSlice is a slice with one device of a driver.
func newSlice(node, driver string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node,
			Pool:    resourceapi.ResourcePool{Name: node + "/e2e", ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0"}},
		},
	}
}

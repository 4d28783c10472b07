package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/client"
)

// The plugin of one node may write the slices of that node and of our driver,
// and nothing else. What is allowed is only tried, because the plugin at work
// would undo it.
func TestAdmissionPolicyKeepsAPluginToItsNode(t *testing.T) {
	s := start(t)
	slices := s.slicesAs(s.podOfPlugin())

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
	_, err := slices.Create(s.ctx, newSlice(node, names.DriverName), dryCreate)
	check(err)
	existing := s.slices(node)[0]
	existing.Labels = map[string]string{"example.com/touched": "yes"}
	_, err = slices.Update(s.ctx, &existing, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	check(err)
	check(slices.Delete(s.ctx, existing.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}))
}

// podOfPlugin is the pod of node-a's plugin. In the lab, where the plugin runs in this process, it is
// one with the same account.
func (s *suite) podOfPlugin() *authenticationv1.BoundObjectReference {
	s.t.Helper()
	if s.lab != nil {
		pod := newPod(pluginName)
		pod.Spec.ServiceAccountName, pod.Spec.NodeName = pluginName, nodeA
		pod, err := s.client.CoreV1().Pods(pluginNamespace).Create(s.ctx, pod, metav1.CreateOptions{})
		require.NoError(s.t, err)
		s.t.Cleanup(func() { assert.NoError(s.t, s.client.CoreV1().Pods(pluginNamespace).Delete(s.ctx, pod.Name, now())) })
		return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	pod := s.plugin(nodeA)
	require.Equal(s.t, pluginName, pod.Spec.ServiceAccountName)
	return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
}

// slicesAs is the API of slices for who holds a token of the plugin's
// ServiceAccount that is bound to an object.
func (s *suite) slicesAs(bound *authenticationv1.BoundObjectReference) resourceclient.ResourceSliceInterface {
	s.t.Helper()
	client, err := kubernetes.NewForConfig(s.configAs(pluginName, bound))
	require.NoError(s.t, err)
	return client.ResourceV1().ResourceSlices()
}

// configAs reaches the API server with a token of a ServiceAccount that is bound to an
// object.
func (s *suite) configAs(account string, bound *authenticationv1.BoundObjectReference) *rest.Config {
	s.t.Helper()
	token, err := s.client.CoreV1().ServiceAccounts(pluginNamespace).CreateToken(s.ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound, ExpirationSeconds: ptr.To[int64](600)},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = token.Status.Token
	return config
}

// The plugin of one node reports in that node's GPUNode, in its part of the status, and
// writes nothing else of any.
func TestAdmissionPolicyKeepsAPluginToItsGPUNode(t *testing.T) {
	s := start(t)
	ours, err := client.New(s.configAs(pluginName, s.podOfPlugin()))
	require.NoError(t, err)
	report := func(node, status string) error {
		_, err := ours.GPUNodes().Patch(s.ctx, node, types.MergePatchType, []byte(`{"status":`+status+`}`), metav1.PatchOptions{DryRun: dryCreate.DryRun}, "status")
		return err
	}
	s.eventually("the plugin has made its GPUNode", func() (bool, string) {
		err := report(nodeA, `{"node":{"gpuCount":0}}`)
		return err == nil, fmt.Sprint(err)
	})
	for want, err := range map[string]error{
		"may report in status.node of a GPUNode only": report(nodeA, `{"state":"Idle","history":[{"result":"Succeeded","startTime":"2026-01-01T00:00:00.000000Z","duration":"1s"}]}`),
		"tranche-kubelet-plugin on node 'node-a' may create and report on the GPUNode of that node only, and this is UPDATE of GPUNode 'node-b'": report(nodeB, `{"node":{"gpuCount":0}}`),
	} {
		require.Error(t, err)
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.ErrorContains(t, err, want)
	}
	_, err = ours.GPUNodes().Create(s.ctx, &v1beta1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "node-z"}}, dryCreate)
	require.ErrorContains(t, err, "this is CREATE of GPUNode 'node-z'")
}

// Of nodes, the controller changes what is its own.
func TestAdmissionPolicyKeepsTheControllerToItsTaint(t *testing.T) {
	s := start(t)
	api, err := kubernetes.NewForConfig(s.configAs("tranche-controller", nil))
	require.NoError(t, err)
	patch := func(data string) error {
		_, err := api.CoreV1().Nodes().Patch(s.ctx, nodeA, types.MergePatchType, []byte(data), metav1.PatchOptions{DryRun: dryCreate.DryRun})
		return err
	}
	taint := func(taint corev1.Taint) error {
		node, err := s.client.CoreV1().Nodes().Get(s.ctx, nodeA, metav1.GetOptions{})
		require.NoError(t, err)
		taints, err := json.Marshal(append(node.Spec.Taints, taint))
		require.NoError(t, err)
		return patch(`{"spec":{"taints":` + string(taints) + `}}`)
	}
	require.NoError(t, taint(corev1.Taint{Key: names.TaintNodeSwitching, Value: "x", Effect: corev1.TaintEffectNoSchedule}))
	for want, err := range map[string]error{
		"may change only the taint tranche.dev/switching:NoSchedule": taint(corev1.Taint{Key: names.TaintNodeSwitching, Effect: corev1.TaintEffectNoExecute}),
		"may change labels of a node only from true to":              patch(`{"metadata":{"labels":{"example.com/x":"y"}}}`),
		"may change only its taints and some labels":                 patch(`{"spec":{"unschedulable":true}}`),
	} {
		require.Error(t, err, want)
		assert.True(t, apierrors.IsForbidden(err), err)
		assert.ErrorContains(t, err, want)
	}
}

// newSlice is a slice with one device of a driver.
func newSlice(node, driver string) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &node,
			Pool:    resourceapi.ResourcePool{Name: node, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0"}},
		},
	}
}

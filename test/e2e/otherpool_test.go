package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/tranche-dev/tranche/api/names"
)

// Whoever has taken over node A cannot reach node B's pods through the slices: neither with
// the plugin's token nor with the kubelet's identity. None of the writes is a dry run: if one
// were accepted, the pod on node B would be deleted.
func TestANodeDoesNotReachThePoolsOfAnother(t *testing.T) {
	s := startOnCluster(t)
	s.gpuPodAt(nodeB, "victim", classWhole, "")
	victim := s.waitRunning("victim")
	held := s.allocated(victim, "")
	s.eventually("the claim's status says what it is", func() (bool, string) {
		devices := s.claims(victim)[0].Status.Devices
		return len(devices) == 1, fmt.Sprint(devices)
	})
	plugin := s.plugin(nodeA)
	kubelet := rest.CopyConfig(s.config)
	kubelet.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + nodeA, Groups: []string{"system:nodes", "system:authenticated"}}
	for who, config := range map[string]*rest.Config{
		"plugin":  s.configAs(plugin.Spec.ServiceAccountName, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: plugin.Name, UID: plugin.UID}),
		"kubelet": kubelet,
	} {
		t.Run(who, func(t *testing.T) {
			api, err := kubernetes.NewForConfig(config)
			require.NoError(t, err)
			s.refusedInPool(t, api.ResourceV1().ResourceSlices(), held)
			s.refusedOnSlices(t, api.ResourceV1().ResourceSlices())
			claim := s.claims(victim)[0]
			for _, status := range []string{`{"allocation":null}`, `{"reservedFor":null}`, `{"devices":[]}`} {
				_, err := api.ResourceV1().ResourceClaims(claim.Namespace).Patch(s.ctx, claim.Name, types.MergePatchType,
					[]byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
				// What the API server authorizes by the object's content, it calls invalid.
				require.True(t, apierrors.IsForbidden(err) || apierrors.IsInvalid(err), "%s: %v", status, err)
			}
		})
	}

	// kube-controller-manager deletes pods of tainted devices within moments.
	assert.Never(t, func() bool {
		now := s.pod("victim")
		return now.UID != victim.UID || now.DeletionTimestamp != nil
	}, 5*time.Second, glance, "the pod on %s is deleted", nodeB)
}

// refusedInPool publishes devices of node A in the pool of a device that a pod on node B
// holds, newer than all there is, and tainted so that pods are deleted.
func (s *suite) refusedInPool(t *testing.T, slices resourceclient.ResourceSliceInterface, held resourceapi.DeviceRequestAllocationResult) {
	t.Helper()
	for _, pool := range []string{held.Pool, nodeB, nodeB + "/" + held.Device, nodeA + "b"} {
		for name, change := range map[string]func(*resourceapi.ResourceSlice){
			"as it is":   func(*resourceapi.ResourceSlice) {},
			"generation": func(r *resourceapi.ResourceSlice) { r.Spec.Pool.Generation = 1 << 40 },
			"taint": func(r *resourceapi.ResourceSlice) {
				r.Spec.Pool.Generation = 1 << 40
				r.Spec.Devices = []resourceapi.Device{{Name: held.Device, Taints: []resourceapi.DeviceTaint{{Key: "example.com/gone", Effect: resourceapi.DeviceTaintEffectNoExecute}}}}
			},
			"name": func(r *resourceapi.ResourceSlice) { r.GenerateName = nodeB + "-" + names.DriverName + "-" },
		} {
			slice := newSlice(nodeA, names.DriverName)
			slice.Spec.Pool.Name = pool
			change(slice)
			made, err := slices.Create(s.ctx, slice, metav1.CreateOptions{})
			if err == nil {
				assert.NoError(t, s.client.ResourceV1().ResourceSlices().Delete(s.ctx, made.Name, metav1.DeleteOptions{}))
			}
			requireForbidden(t, err, "pool '"+pool+"'", "pool %s, %s", pool, name)
		}
	}
}

// refusedOnSlices writes slices that are node B's, or no single node's.
func (s *suite) refusedOnSlices(t *testing.T, slices resourceclient.ResourceSliceInterface) {
	t.Helper()
	for name, change := range map[string]func(*resourceapi.ResourceSlice){
		"node B": func(r *resourceapi.ResourceSlice) { r.Spec.NodeName = ptr.To(nodeB); r.Spec.Pool.Name = nodeB },
		"all nodes": func(r *resourceapi.ResourceSlice) {
			r.Spec.NodeName, r.Spec.AllNodes = nil, ptr.To(true)
		},
		"a node for each device": func(r *resourceapi.ResourceSlice) {
			r.Spec.NodeName, r.Spec.PerDeviceNodeSelection = nil, ptr.To(true)
			r.Spec.Devices[0].NodeName = ptr.To(nodeB)
		},
	} {
		slice := newSlice(nodeA, names.DriverName)
		change(slice)
		_, err := slices.Create(s.ctx, slice, dryCreate)
		requireForbidden(t, err, "", name)
	}
	for name, change := range map[string]func(*resourceapi.ResourceSlice){
		"generation": func(r *resourceapi.ResourceSlice) { r.Spec.Pool.Generation += 10 },
		"taint": func(r *resourceapi.ResourceSlice) {
			for i := range r.Spec.Devices {
				r.Spec.Devices[i].Taints = []resourceapi.DeviceTaint{{Key: "example.com/gone", Effect: resourceapi.DeviceTaintEffectNoExecute}}
			}
		},
	} {
		for _, theirs := range s.slices(nodeB) {
			change(&theirs)
			_, err := slices.Update(s.ctx, &theirs, metav1.UpdateOptions{})
			requireForbidden(t, err, "", "%s of %s", name, theirs.Name)
		}
	}
	for _, theirs := range s.slices(nodeB) {
		requireForbidden(t, slices.Delete(s.ctx, theirs.Name, metav1.DeleteOptions{}), "")
	}
}

func requireForbidden(t *testing.T, err error, text string, what ...any) {
	t.Helper()
	require.Error(t, err, what...)
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, text)
}

package cluster_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tranche-dev/tranche/pkg/cluster"
	"github.com/tranche-dev/tranche/test/scenes"
)

func pending(namespace, name string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func asking(p corev1.Pod, name corev1.ResourceName) corev1.Pod {
	requests := corev1.ResourceList{name: resource.MustParse("1")}
	p.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}
	return p
}

func class(name, cel, extended string) resourceapi.DeviceClass {
	c := resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: cel}}}
	if extended != "" {
		c.Spec.ExtendedResourceName = &extended
	}
	return c
}

func TestWaiting(t *testing.T) {
	ours := `device.driver == "gpu.tranche.dev"`
	classes := []resourceapi.DeviceClass{
		class("gpu-mig-1g-10gb.tranche.dev", ours, "nvidia.com/mig-1g.10gb"),
		class("cheap", ours, ""),
		class("large", ours+` && device.capacity["gpu.tranche.dev"].memory.compareTo(quantity("40Gi")) >= 0`, ""),
		class("by-attribute", `device.attributes["gpu.tranche.dev"].type == "gpu"`, ""),
		class("mentions", `device.driver == "nic.example.com" || device.driver != "gpu.tranche.dev"`, ""),
		class("wrong", `gpu.tranche.dev`, ""),
		{ObjectMeta: metav1.ObjectMeta{Name: "anything"}},
		class("nic", `device.driver == "nic.example.com"`, "example.com/nic"),
	}
	choice := scenes.WaitingClaim("a", "choice", "nic", "p")
	choice.Spec.Devices.Requests = []resourceapi.DeviceRequest{{FirstAvailable: []resourceapi.DeviceSubRequest{
		{DeviceClassName: "nic"}, {DeviceClassName: "gpu.tranche.dev"},
	}}}
	named := "named"
	user := pending("a", "user")
	user.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &named}}
	going := scenes.WaitingClaim("a", "going", "gpu.tranche.dev", "p")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}

	grouped, elsewhere, gone := pending("a", "grouped"), pending("b", "grouped"), asking(pending("a", "gone"), "nvidia.com/mig-1g.10gb")
	grouped.CreationTimestamp, gone.DeletionTimestamp = metav1.Time{Time: time.Unix(5, 0)}, &metav1.Time{Time: time.Unix(1, 0)}
	grouped.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "none"}, {Name: "gpu", ResourceClaimName: &named}}
	grouped.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node fits"}, {Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	elsewhere.Status.ResourceClaimStatuses = grouped.Status.ResourceClaimStatuses

	for name, c := range map[string]struct {
		in   scenes.Scene
		want []cluster.Waiting
	}{
		"made for a pod":            {scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "gpu.tranche.dev", "p")}}}, []cluster.Waiting{{Namespace: "a", Claim: "c", Pod: "p"}}},
		"another driver's class":    {scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "nic", "p")}}}, nil},
		"the administrator's class": {scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "cheap", "p")}}}, []cluster.Waiting{{Namespace: "a", Claim: "c", Pod: "p"}}},
		"a class by capacity":       {scenes.Scene{Objects: cluster.Objects{Slices: scenes.H100("node-a", 0), Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "large", "p")}}}, []cluster.Waiting{{Namespace: "a", Claim: "c", Pod: "p"}}},
		"a class by attribute":      {scenes.Scene{Objects: cluster.Objects{Slices: scenes.H100("node-a", 0), Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "by-attribute", "p")}}}, []cluster.Waiting{{Namespace: "a", Claim: "c", Pod: "p"}}},
		"another, that names ours":  {scenes.Scene{Objects: cluster.Objects{Slices: scenes.H100("node-a", 0), Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "mentions", "p")}}}, nil},
		"a class that is wrong":     {scenes.Scene{Objects: cluster.Objects{Slices: scenes.H100("node-a", 0), Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "wrong", "p")}}}, nil},
		"a class of all drivers":    {scenes.Scene{Objects: cluster.Objects{Slices: scenes.H100("node-a", 0), Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "anything", "p")}}}, nil},
		"one of several choices":    {scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{choice}}}, []cluster.Waiting{{Namespace: "a", Claim: "choice", Pod: "p"}}},
		"being deleted":             {scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{going}}}, nil},
		"allocated":                 {scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.Claim("a", "p", "node-a", 0, "x")}}}, nil},
		"named by a pending pod": {
			scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", named, "gpu.tranche.dev", "")}, PendingPods: []corev1.Pod{user}, PodsKnown: true}},
			[]cluster.Waiting{{Namespace: "a", Claim: named, Pod: "user"}},
		},
		"of a group, used by a pending pod": {
			scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", named, "gpu.tranche.dev", "")}, PendingPods: []corev1.Pod{elsewhere, pending("a", "a"), grouped}, PodsKnown: true}},
			[]cluster.Waiting{{Namespace: "a", Claim: named, Pod: "grouped", Since: time.Unix(5, 0), Scheduler: "no node fits"}},
		},
		"used in another namespace": {
			scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", named, "gpu.tranche.dev", "")}, PendingPods: []corev1.Pod{elsewhere}, PodsKnown: true}}, nil,
		},
		"a pod that is being deleted": {scenes.Scene{Objects: cluster.Objects{PendingPods: []corev1.Pod{gone}}}, nil},
		"used by no pod": {
			scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "gpu.tranche.dev", "")}, PodsKnown: true}}, nil,
		},
		"of another namespace": {
			scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("a", "c", "gpu.tranche.dev", "p")}}, View: cluster.View{Namespace: "b"}}, nil,
		},
		"a pod by extended resource": {
			scenes.Scene{Objects: cluster.Objects{PendingPods: []corev1.Pod{asking(pending("a", "old"), "nvidia.com/mig-1g.10gb"), asking(pending("a", "net"), "example.com/nic")}}},
			[]cluster.Waiting{{Namespace: "a", Pod: "old"}},
		},
		"several, in order": {
			scenes.Scene{Objects: cluster.Objects{Claims: []resourceapi.ResourceClaim{scenes.WaitingClaim("b", "c", "cheap", "p"), scenes.WaitingClaim("a", "d", "cheap", "p")},
				PendingPods: []corev1.Pod{asking(pending("a", "old"), "nvidia.com/mig-1g.10gb")}}},
			[]cluster.Waiting{{Namespace: "a", Pod: "old"}, {Namespace: "a", Claim: "d", Pod: "p"}, {Namespace: "b", Claim: "c", Pod: "p"}},
		},
		"a pod by the class's own resource": {
			scenes.Scene{Objects: cluster.Objects{PendingPods: []corev1.Pod{asking(pending("a", "old"), "deviceclass.resource.kubernetes.io/cheap")}}},
			[]cluster.Waiting{{Namespace: "a", Pod: "old"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Classes = classes
			assert.Equal(t, c.want, c.in.Summary().Waiting)
		})
	}
}

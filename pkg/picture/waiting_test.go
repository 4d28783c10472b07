package picture

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		class("nic", `device.driver == "nic.example.com"`, "example.com/nic"),
	}
	choice := waitingClaim("a", "choice", "nic", "p")
	choice.Spec.Devices.Requests = []resourceapi.DeviceRequest{{FirstAvailable: []resourceapi.DeviceSubRequest{
		{DeviceClassName: "nic"}, {DeviceClassName: "gpu.tranche.dev"},
	}}}
	named := "named"
	user := pending("a", "user")
	user.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &named}}
	going := waitingClaim("a", "going", "gpu.tranche.dev", "p")
	going.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}

	for name, c := range map[string]struct {
		in   Input
		want []Waiting
	}{
		"made for a pod":            {Input{Claims: []resourceapi.ResourceClaim{waitingClaim("a", "c", "gpu.tranche.dev", "p")}}, []Waiting{{"a", "c", "p"}}},
		"another driver's class":    {Input{Claims: []resourceapi.ResourceClaim{waitingClaim("a", "c", "nic", "p")}}, nil},
		"the administrator's class": {Input{Claims: []resourceapi.ResourceClaim{waitingClaim("a", "c", "cheap", "p")}}, []Waiting{{"a", "c", "p"}}},
		"one of several choices":    {Input{Claims: []resourceapi.ResourceClaim{choice}}, []Waiting{{"a", "choice", "p"}}},
		"being deleted":             {Input{Claims: []resourceapi.ResourceClaim{going}}, nil},
		"allocated":                 {Input{Claims: []resourceapi.ResourceClaim{claim("a", "p", "node-a", 0, "x")}}, nil},
		"named by a pending pod": {
			Input{Claims: []resourceapi.ResourceClaim{waitingClaim("a", named, "gpu.tranche.dev", "")}, PendingPods: []corev1.Pod{user}, PodsKnown: true},
			[]Waiting{{"a", named, "user"}},
		},
		"used by no pod": {
			Input{Claims: []resourceapi.ResourceClaim{waitingClaim("a", "c", "gpu.tranche.dev", "")}, PodsKnown: true}, nil,
		},
		"of another namespace": {
			Input{Claims: []resourceapi.ResourceClaim{waitingClaim("a", "c", "gpu.tranche.dev", "p")}, Namespace: "b"}, nil,
		},
		"a pod by extended resource": {
			Input{PendingPods: []corev1.Pod{asking(pending("a", "old"), "nvidia.com/mig-1g.10gb"), asking(pending("a", "net"), "example.com/nic")}},
			[]Waiting{{Namespace: "a", Pod: "old"}},
		},
		"a pod by the class's own resource": {
			Input{PendingPods: []corev1.Pod{asking(pending("a", "old"), "deviceclass.resource.kubernetes.io/cheap")}},
			[]Waiting{{Namespace: "a", Pod: "old"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Classes = classes
			assert.Equal(t, c.want, Build(c.in).Waiting)
		})
	}
}

func TestManyThatWaitAreCounted(t *testing.T) {
	in := Input{Slices: h100Card("node-a", 0)}
	for i := range 9 {
		in.Claims = append(in.Claims, waitingClaim("default", fmt.Sprintf("c-%d", i), "gpu.tranche.dev", fmt.Sprintf("p-%d", i)))
	}
	assert.Contains(t, draw(t, in, Options{Width: 140}),
		"9 claims wait: default/c-0, default/c-1, default/c-2, 6 more (kubectl tranche why p-0 -n default)\n")
}

package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/tranche-dev/tranche/api/v1beta1"
	"github.com/tranche-dev/tranche/pkg/cluster/read"
	"github.com/tranche-dev/tranche/pkg/picture"
	"github.com/tranche-dev/tranche/test/clientfake"
	"github.com/tranche-dev/tranche/test/kubefake"
	"github.com/tranche-dev/tranche/test/scenes"
)

func h100(objects ...runtime.Object) *fake.Clientset {
	published := scenes.GPUs("node-a", 1, scenes.H100)
	for i := range published {
		objects = append(objects, &published[i])
	}
	return kubefake.New(objects...)
}

func static(name, profile string) *v1beta1.PartitionProfile {
	p := profileNamed(name)
	p.Spec.Rules = []v1beta1.Rule{{
		GPUs: &v1beta1.GPUSelector{MIGSupport: v1beta1.MIGCapable}, MIG: &v1beta1.MIG{Mode: v1beta1.MIGStatic, Partitions: []v1beta1.StaticPartition{{Profile: profile}}},
	}}
	return p
}

// Profiles for GPUs that the cluster does not have are left out, unless a node has or wants them.
func TestProfilesThatFit(t *testing.T) {
	kubernetes := h100()
	ours := clientfake.New(static("all-1g.10gb", "1g.10gb"), static("all-1g.5gb", "1g.5gb"), static("all-2g.10gb", "2g.10gb"), follows("node-a", "all-2g.10gb"))
	var out bytes.Buffer
	s := newSession(&out, picture.Screen{Width: 100}, connection{read.Clients{Kubernetes: kubernetes, Ours: ours}})
	require.NoError(t, showProfiles(t.Context(), s, false))
	assert.Equal(t, `PROFILE      FITS    WANTED BY  FOLLOWED BY  WHAT IT SAYS
all-1g.10gb  1 node  -          -            with MIG: partitions 1g.10gb
all-2g.10gb  -       1 node     1 node       with MIG: partitions 2g.10gb
Not shown: 1 profile for other GPUs; --all shows them.
`, out.String())
	out.Reset()
	require.NoError(t, showProfiles(t.Context(), s, true))
	assert.Contains(t, out.String(), "\nall-1g.5gb")
	assert.NotContains(t, out.String(), "Not shown")
	out.Reset()
	s.output = "json"
	require.NoError(t, showProfiles(t.Context(), s, false))
	var all struct {
		Items []struct {
			Fitting []string `json:"fittingNodeNames"`
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &all))
	require.Len(t, all.Items, 3)
	assert.Equal(t, []string{"node-a"}, all.Items[0].Fitting)

	// Without the right to see GPUs, all are shown.
	forbid(kubernetes, "resourceslices", "")
	out.Reset()
	s.output = ""
	require.NoError(t, showProfiles(t.Context(), s, false))
	assert.Contains(t, out.String(), "\nall-1g.5gb")
	assert.Contains(t, out.String(), "Note: Which profiles fit is not known (you are not allowed to list resourceslices.resource.k8s.io).")
}

func TestClassesThatGPUsOffer(t *testing.T) {
	class := func(name, profile string) *resourceapi.DeviceClass {
		return &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "gpu.tranche.dev" && device.attributes["gpu.tranche.dev"].?profile.orValue("") == "` + profile + `"`},
		}}}}
	}
	var out bytes.Buffer
	s := newSession(&out, picture.Screen{Width: 100}, connection{read.Clients{Kubernetes: h100(class("gpu-mig-1g-10gb.tranche.dev", "1g.10gb"), class("gpu-mig-1g-5gb.tranche.dev", "1g.5gb"))}})
	require.NoError(t, showClasses(t.Context(), s, false))
	assert.Equal(t, `CLASS                        GPUS  EXTENDED RESOURCE  GIVES
gpu-mig-1g-10gb.tranche.dev  1     -                  1g.10gb
Not shown: 1 class for other GPUs; --all shows them.
`, out.String())
	out.Reset()
	require.NoError(t, showClasses(t.Context(), s, true))
	assert.Contains(t, out.String(), "gpu-mig-1g-5gb.tranche.dev   0")
	out.Reset()
	s.output = "json"
	require.NoError(t, showClasses(t.Context(), s, false))
	assert.Contains(t, out.String(), `"kind": "ClassList"`)
	assert.Contains(t, out.String(), `"gpuCount": 0`)
}

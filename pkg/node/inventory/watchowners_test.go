package inventory

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tranche-dev/tranche/pkg/gpu"
	"github.com/tranche-dev/tranche/pkg/hardware"
	"github.com/tranche-dev/tranche/pkg/hardware/nvidia"
	"github.com/tranche-dev/tranche/test/nodetest"
)

// Other systems are known before the watch returns, and come and go.
func TestWatchOwners(t *testing.T) {
	slice := nodetest.NVIDIASlice(resourceapi.Device{Name: "gpu-0"})
	api := nodetest.NewAPI(slice)
	nodes := api.CoreV1().Nodes()
	first, err := nodes.Get(t.Context(), nodetest.NodeName, metav1.GetOptions{})
	require.NoError(t, err)
	proc := nodetest.FakeProc(t, map[int]nodetest.HostProcess{7: nodetest.RealMIGManager})
	managed, err := labels.Parse("!other")
	require.NoError(t, err)
	node := NewNode(api, first, []hardware.Vendor{nvidia.Vendor{}}, managed)
	ctx, cancel := context.WithCancel(nodetest.Quiet(t.Context()))
	found := make(chan string, 1000)
	require.NoError(t, WatchOwners(ctx, api, node, proc, time.Millisecond, func(all Owners) { found <- all.Of(gpu.NVIDIA, "").Names() }))
	require.Equal(t, "gpu.nvidia.com_mig-manager", <-found)
	next := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-found:
				if got == want {
					return
				}
			case <-time.After(nodetest.Patience):
				require.Fail(t, "nothing is told", want)
			}
		}
	}
	require.NoError(t, api.ResourceV1().ResourceSlices().Delete(ctx, slice.Name, metav1.DeleteOptions{}))
	next("mig-manager")
	require.NoError(t, os.RemoveAll(filepath.Join(proc, "7")))
	next("")
	now := nodetest.NodeWith(map[corev1.ResourceName]string{"nvidia.com/gpu": "8"})
	now.ObjectMeta = first.ObjectMeta
	_, err = nodes.Update(ctx, now, metav1.UpdateOptions{})
	require.NoError(t, err)
	next("device-plugin")
	now = first.DeepCopy()
	now.Labels = map[string]string{"other": ""}
	_, err = nodes.Update(ctx, now, metav1.UpdateOptions{})
	require.NoError(t, err)
	next("unmanaged")
	cancel()
	require.Error(t, WatchOwners(ctx, api, NewNode(api, first, nil, nil), proc, time.Millisecond, func(Owners) { require.Fail(t, "it has not been read") }))
}
